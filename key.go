package fairshare

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"unsafe"
)

// Tags of key parts: each part begins with its kind, so that a header can
// never equal an address. Values longer than longValue are hashed.
const (
	longValue = 64
	hashed    = 0x80 // added to the kind of a hashed value
	addrKey   = 1 + 16

	networkBits4, networkBits6 = 24, 48 // of ByNetwork
)

// appendKey appends the key of one request under the parts of by. A part that
// the client lacks is counted by its address.
func (d *decision) appendKey(b []byte, by []KeyPart) []byte {
	for _, part := range by {
		if part.Kind == ByEveryone {
			b = append(b, byte(ByEveryone))
			continue
		}
		value := d.keyValue(part)
		if value != "" && part.Kind == ByBot {
			b = appendBot(b, value)
			continue
		}
		if value != "" {
			b = appendValue(b, part, value)
			continue
		}
		bits4, bits6 := d.guard.bits4, d.guard.bits6
		kind := ByAddr
		if part.Kind == ByNetwork {
			bits4, bits6, kind = networkBits4, networkBits6, ByNetwork
		}
		b = appendAddr(b, kind, d.req.Addr, bits4, bits6)
	}
	return b
}

// keyValue returns the text of a part, "" for addresses and when the client
// lacks it.
func (d *decision) keyValue(part KeyPart) string {
	switch req := d.req; part.Kind {
	case ByUserAgent:
		return req.UserAgent
	case ByBot:
		if req.Bot.State == Verified {
			return req.Bot.Name
		}
	case ByHost:
		return d.fold(plainHost(req.Host))
	case ByPath:
		return req.Path
	case ByCookie:
		return cookie(req.Header, part.Name)
	case ByHeader:
		for _, v := range req.values(part.Name) {
			if v != "" {
				return v
			}
		}
	}
	return ""
}

func appendValue(b []byte, part KeyPart, value string) []byte {
	if len(value) > longValue {
		sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(value), len(value)))
		b = append(b, byte(part.Kind)|hashed)
		return append(b, sum[:]...)
	}
	b = append(b, byte(part.Kind))
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// appendAddr appends an address cut to its first bits; an invalid one counts
// as all zero.
func appendAddr(b []byte, kind KeyKind, addr netip.Addr, bits4, bits6 int) []byte {
	b = append(b, byte(kind))
	if !addr.IsValid() {
		return append(b, make([]byte, 16)...)
	}
	bits := bits6
	if addr.Is4() || addr.Is4In6() {
		bits = 96 + bits4
	}
	a := addr.As16()
	b = binary.BigEndian.AppendUint64(b, binary.BigEndian.Uint64(a[:8])&head(bits))
	return binary.BigEndian.AppendUint64(b, binary.BigEndian.Uint64(a[8:])&head(bits-64))
}

// head returns a mask of the first n of 64 bits.
func head(n int) uint64 { return ^(^uint64(0) >> max(n, 0)) }
