package inbound

import "encoding/binary"

// Frames of HTTP/2, RFC 9113 §6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameGoAway       = 0x7
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagEndHeaders = 0x4

	frameHeadLen = 9
)

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A frame holds the checked fields of a frame.
type frame struct {
	length uint32 // of its payload
	kind   byte
	flags  byte
	stream uint32
	first  uint32 // the first four bytes of its payload, if it has as many
}

// A scanner finds the frames in one direction of a connection, in pieces of any
// size. Its zero value is at the start of a frame.
type scanner struct {
	head [frameHeadLen]byte
	have int // bytes of head
	seen uint32
	frame
}

// within reports whether a frame has begun and not ended.
func (s *scanner) within() bool { return s.have > 0 }

// scan takes the next bytes, and calls each for every frame that ends in them.
func (s *scanner) scan(b []byte, each func(*frame)) {
	for len(b) > 0 {
		if s.have < frameHeadLen {
			n := copy(s.head[s.have:], b)
			s.have += n
			b = b[n:]
			if s.have < frameHeadLen {
				return
			}
			head := binary.BigEndian.Uint64(s.head[:8])
			s.seen = 0
			s.frame = frame{
				length: uint32(head >> 40),
				kind:   byte(head >> 32),
				flags:  byte(head >> 24),
				stream: binary.BigEndian.Uint32(s.head[5:]) & (1<<31 - 1),
			}
		}
		n := min(s.length-s.seen, uint32(len(b)))
		for i := s.seen; i < min(4, s.seen+n); i++ {
			s.first |= uint32(b[i-s.seen]) << (24 - 8*i)
		}
		s.seen += n
		b = b[n:]
		if s.seen < s.length {
			return
		}
		s.have = 0
		each(&s.frame)
	}
}

// goAwayFrame asks a client to open no more streams; open ones are still served
// (RFC 9113 §6.8).
var goAwayFrame = []byte{
	0, 0, 8, frameGoAway, 0, 0, 0, 0, 0,
	0x7f, 0xff, 0xff, 0xff, // the last stream: any
	0, 0, 0, 0, // no error
}
