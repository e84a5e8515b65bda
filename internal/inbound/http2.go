package inbound

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// headerTime is how long a client may take for the preface of HTTP/2, for
	// its first request, and for each frame or block of header frames; DATA
	// may take longer by its length. net/http bounds none but the first.
	headerTime = 10 * time.Second

	// A client may reset many of its streams, or break rules so that they are
	// reset, but not these and more than half of them in 30 s.
	resetWindow = 30 * time.Second
	maxResets   = 200

	// Frames that ask for nothing, as PING, are free with what is served: two
	// for each kB that the client was sent, and some for each request. Of
	// others there may be 1000 at once and 100 a second.
	idleFramesPerKB      = 2
	idleFramesPerRequest = 16
	maxIdleFrames        = 1000
	idleFrameTime        = 10 * time.Millisecond // until another one may come
	smallData            = 16                    // bytes; DATA up to this length counts too

	readAhead = 1 << 10
	endedKept = 128  // streams, ended by errCodeEnded
	openKept  = 1024 // streams that are not answered yet

	errCodeProtocol = 0x1 // RFC 9113 §7: PROTOCOL_ERROR
	errCodeFlow     = 0x3 // FLOW_CONTROL_ERROR
	errCodeEnded    = 0x5 // STREAM_CLOSED
	errCodeRefused  = 0x7 // REFUSED_STREAM
)

// Why a connection is closed for what its client did.
const (
	tooManyResets     = "its client had too many HTTP/2 streams reset"
	tooManyIdleFrames = "its client sent too many HTTP/2 frames that ask for nothing"
)

var abuses = []string{tooManyResets, tooManyIdleFrames}

var errAbuse = errors.New("the client abuses HTTP/2")

// Names under which net/http, and golang.org/x/net/http2 for it, keep what
// serves HTTP/2.
const (
	overTLS   = "h2"
	overPlain = "unencrypted_http2"
)

// watchHTTP2 puts streams between net/http's HTTP/2 and its connections. What
// is read and written there is plain, with TLS too.
func watchHTTP2(srv *http.Server) {
	plain, secure := srv.TLSNextProto[overPlain], srv.TLSNextProto[overTLS]
	if plain == nil || secure == nil {
		return
	}
	srv.TLSNextProto[overPlain] = func(srv *http.Server, carried *tls.Conn, h http.Handler) {
		// The client's preface has been read.
		outer := carried.NetConn().(interface{ UnencryptedNetConn() net.Conn }).UnencryptedNetConn()
		if c := connOf(outer); c != nil {
			carried = carry(outer, newStreams(outer, c))
		}
		plain(srv, carried, h)
	}
	srv.TLSNextProto[overTLS] = func(srv *http.Server, outer *tls.Conn, h http.Handler) {
		c := connOf(outer)
		if c == nil {
			secure(srv, outer, h)
			return
		}
		s := newStreams(outer, c)
		if s.readPreface() {
			plain(srv, carry(outer, secureStreams{s, outer}), h)
		}
	}
}

// A carrier hands a connection to what serves HTTP/2 after its preface: the
// map of http.Server knows no type but *tls.Conn.
type carrier struct {
	net.Conn
	plain net.Conn
}

func carry(outer, plain net.Conn) *tls.Conn { return tls.Client(carrier{outer, plain}, nil) }

func (c carrier) UnencryptedNetConn() net.Conn { return c.plain }

// secureStreams are those of a connection with TLS.
type secureStreams struct {
	*streams
	outer *tls.Conn
}

func (s secureStreams) ConnectionState() tls.ConnectionState { return s.outer.ConnectionState() }

// streams are a connection that speaks HTTP/2, after the client's preface.
type streams struct {
	net.Conn // what net/http would read and write
	conn     *conn
	began    time.Time

	// One Read at a time.
	ahead      []byte // read, but not asked for yet
	buffer     []byte
	in         scanner
	opened     bool          // a first request has come
	block      bool          // a block of header frames has begun and not ended
	frameBegan time.Duration // since began, as all times here
	blockBegan time.Duration
	due        time.Time // the deadline that is set; zero: none

	writing  sync.Mutex // held while something is written
	out      scanner
	greeted  bool // our first frame is out
	goingOff bool // goAwayFrame is to be written after a frame

	mu       sync.Mutex // what follows
	top      uint32     // the highest stream of the client
	window   time.Duration
	requests int // since window began
	resets   int // since window began
	ended    []uint32
	free     int64 // idle frames that have come as free ones
	asked    int64 // requests in all
	tokens   int   // idle frames that may still come
	tokensAt time.Duration
	open     map[uint32]struct{} // streams that are not answered yet
	closed   bool
}

func newStreams(outer net.Conn, c *conn) *streams {
	s := &streams{Conn: outer, conn: c, began: time.Now(), buffer: make([]byte, readAhead), tokens: maxIdleFrames, open: make(map[uint32]struct{})}
	s.goingOff = c.l.draining.Load()
	c.h2.Store(s)
	if c.gone.Load() {
		s.end()
	}
	return s
}

// NetConn returns what the streams go over.
func (s *streams) NetConn() net.Conn { return s.Conn }

// readPreface reads the client's preface.
func (s *streams) readPreface() bool {
	if s.setDue(headerTime) != nil {
		return false
	}
	var preface [len(clientPreface)]byte
	_, err := io.ReadFull(s.Conn, preface[:])
	return err == nil && string(preface[:]) == clientPreface
}

// Read reads what the client sends, as long as it sends whole frames in time
// and not too many that ask for nothing.
func (s *streams) Read(b []byte) (int, error) {
	if len(s.ahead) == 0 && len(b) > 0 {
		into := b
		if len(b) < len(s.buffer) {
			into = s.buffer
		}
		if err := s.setDue(s.allowed()); err != nil {
			return 0, err
		}
		n, err := s.Conn.Read(into)
		if n == 0 {
			return 0, err
		}
		if !s.took(into[:n]) {
			return 0, errAbuse
		}
		if len(into) == len(b) {
			return n, nil
		}
		s.ahead = into[:n]
	}
	n := copy(b, s.ahead)
	s.ahead = s.ahead[n:]
	return n, nil
}

// allowed returns until when the client has to send what it began; 0: it has
// time.
func (s *streams) allowed() time.Duration {
	switch {
	case !s.opened:
		return headerTime
	case s.block:
		return s.blockBegan + headerTime
	case !s.in.within():
		return 0
	}
	due := s.frameBegan + headerTime
	if s.in.have == frameHeadLen && s.in.kind == frameData {
		due += time.Duration(s.in.length) * time.Second / time.Duration(minRate)
	}
	return due
}

// setDue sets the deadline of the next Read.
func (s *streams) setDue(at time.Duration) error {
	due := time.Time{}
	if at > 0 {
		due = s.began.Add(at)
	}
	if due.Equal(s.due) {
		return nil
	}
	s.due = due
	return s.Conn.SetReadDeadline(due)
}

// took looks at what was read, and reports whether the connection may stay.
func (s *streams) took(b []byte) bool {
	now := time.Since(s.began)
	why := ""
	s.mu.Lock()
	fresh := !s.in.within() // the next frame to end began in b
	s.in.scan(b, func(f *frame) {
		if fresh {
			s.frameBegan = now
		}
		fresh = true
		if fault := s.note(f, now); why == "" {
			why = fault
		}
	})
	if fresh && s.in.within() {
		s.frameBegan = now
	}
	s.mu.Unlock()
	return s.mayStay(why)
}

// mayStay closes the connection if there is a reason why, unless others speak
// through it.
func (s *streams) mayStay(why string) bool {
	if why == "" || s.conn.isExempt() {
		return true
	}
	s.conn.l.notices.closedFor(why)
	s.conn.Close()
	return false
}

// note looks at one frame of the client, and returns why its connection must
// be closed, if so.
func (s *streams) note(f *frame, now time.Duration) (why string) {
	switch f.kind {
	case frameHeaders:
		if f.stream > s.top { // else trailers
			s.top = f.stream
			s.turn(now)
			s.requests++
			s.asked++
			if len(s.open) < openKept && !s.closed { // net/http allows fewer
				s.open[f.stream] = struct{}{}
				s.conn.countStreams(1)
			}
		}
		s.block, s.blockBegan = true, s.frameBegan
		s.noteBlock(f)
		return ""
	case frameContinuation:
		s.noteBlock(f)
		if f.length > 0 {
			return ""
		}
	case frameReset:
		s.answered(f.stream)
		return s.noteReset(now)
	case frameData:
		if f.length > smallData || f.flags&flagEndStream != 0 {
			return ""
		}
	}
	return s.noteIdle(now)
}

func (s *streams) noteBlock(f *frame) {
	if f.flags&flagEndHeaders != 0 {
		s.block, s.opened = false, true
	}
}

// turn begins a new window of resets when the last is over.
func (s *streams) turn(now time.Duration) {
	if now-s.window >= resetWindow {
		s.window, s.requests, s.resets = now, 0, 0
	}
}

func (s *streams) noteReset(now time.Duration) string {
	s.turn(now)
	s.resets++
	if s.resets > maxResets && 2*s.resets > s.requests {
		return tooManyResets
	}
	return ""
}

func (s *streams) noteIdle(now time.Duration) string {
	if s.free < idleFramesPerRequest*s.asked+s.conn.sent.Load()*idleFramesPerKB/1000 {
		s.free++
		return ""
	}
	if more := int((now - s.tokensAt) / idleFrameTime); more > 0 {
		s.tokens = min(maxIdleFrames, s.tokens+more)
		s.tokensAt = now
	}
	if s.tokens == 0 {
		return tooManyIdleFrames
	}
	s.tokens--
	return ""
}

// answered forgets a stream. mu is held.
func (s *streams) answered(stream uint32) {
	if _, ok := s.open[stream]; ok {
		delete(s.open, stream)
		s.conn.countStreams(-1)
	}
}

// end forgets all streams: the connection is closed.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.countStreams(-len(s.open))
	clear(s.open)
	s.closed = true
}

// unanswered returns the number of streams that wait for their answers' ends.
func (s *streams) unanswered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Write writes for net/http, and between its frames what is ours to say.
func (s *streams) Write(b []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	n, err := s.Conn.Write(b)
	why := ""
	s.mu.Lock()
	s.out.scan(b[:n], func(f *frame) {
		s.greeted = true
		if fault := s.noteOurs(f); why == "" {
			why = fault
		}
	})
	s.mu.Unlock()
	if err == nil && s.goingOff {
		err = s.sayGoAway()
	}
	if !s.mayStay(why) {
		return n, errAbuse
	}
	return n, err
}

// noteOurs looks at one frame of net/http. A stream that it resets counts if
// the client made it do so by breaking a rule.
func (s *streams) noteOurs(f *frame) (why string) {
	if f.kind != frameReset {
		if (f.kind == frameData || f.kind == frameHeaders) && f.flags&flagEndStream != 0 {
			s.answered(f.stream)
		}
		return ""
	}
	s.answered(f.stream)
	switch f.first {
	case errCodeProtocol, errCodeFlow, errCodeRefused:
	case errCodeEnded:
		// A client may have sent much more of a body before it hears that
		// nobody wants it; each piece is answered so.
		if slices.Contains(s.ended, f.stream) {
			return ""
		}
		if len(s.ended) == endedKept {
			s.ended = s.ended[:copy(s.ended, s.ended[1:])]
		}
		s.ended = append(s.ended, f.stream)
	default:
		return ""
	}
	return s.noteReset(time.Since(s.began))
}

// goAway asks the client to open no more streams. It may wait for a Write.
func (s *streams) goAway() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.goingOff = true
	s.sayGoAway()
}

func (s *streams) sayGoAway() error {
	if !s.greeted || s.out.within() {
		return nil
	}
	s.goingOff = false
	_, err := s.Conn.Write(goAwayFrame)
	return err
}
