package fairshare

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"unsafe"

	"fairshare/internal/network"
)

// Tags of key parts: each part begins with its kind, so that a header can
// never equal an address. Values longer than longValue are hashed, and all of forms.
const (
	longValue = 64
	hashed    = 0x80 // added to the kind of a hashed value
	addrKey   = 1 + 16

	// provisional is added to the kind of an address that a peer has named; the
	// peer stands behind it.
	provisional    = 0x40
	provisionalKey = addrKey + 16

	// sized is added to the kind of a network that is neither a /24 nor a /48; its prefix
	// length follows the address.
	sized = 0x20
)

// appendKey appends the key of one request under the parts of by. A part that
// the client lacks is counted by its address. A provisional address is followed by
// the peer that named it; byPeer appends only the peer.
func (d *decision) appendKey(b []byte, by []KeyPart) []byte {
	var at forgottenAt // when the client was last forgotten
	forgotten := &d.guard.history.forgotten
	known := forgotten.any.Load()
	for i := range by {
		part := &by[i]
		bits4, bits6, kind := d.guard.bits4, d.guard.bits6, ByAddr
		switch part.Kind {
		case ByAddr:
		case ByNetwork:
			kind = ByNetwork
			bits4, bits6 = part.PrefixLengths()
		case ByEveryone:
			b = append(b, byte(ByEveryone))
			continue
		case byPeer:
			b = appendAddr(b, byPeer, d.req.Via, 32, 128)
			continue
		case ByASN:
			if asn := d.req.asn(); asn != 0 {
				b = binary.BigEndian.AppendUint32(append(b, byte(ByASN)), asn)
				continue
			}
			kind = ByNetwork
			bits4, bits6 = part.PrefixLengths()
		case ByVisitor:
			if v := &d.req.Visitor; v.ID != 0 {
				b = v.appendKey(b)
				continue
			}
		default:
			value := d.keyValue(*part)
			if value == "" {
				break
			}
			switch part.Kind {
			case ByBot:
			case ByOperator, ByPurpose: // a claim never counts with the verified bots
				b = appendValue(b, *part, value)
				if d.req.Bot.State == Verified {
					b = append(b, 1)
				} else {
					b = append(b, 0)
				}
				continue
			default:
				b = appendValue(b, *part, value)
				continue
			}
			b = appendBot(b, value)
			if known {
				at = at.later(forgotten.ofBot(value))
			}
			continue
		}
		if by[len(by)-1].Kind == byPeer { // a ceiling
			continue
		}
		b = appendClient(b, kind, d.req.Addr, d.req.Via, bits4, bits6)
		if known {
			at = at.later(forgotten.ofAddr(d.req.Addr, bits4, bits6))
		}
	}
	if known {
		b = appendTime(b, at.ns)
	}
	return b
}

// appendClient appends an address as appendAddr does, and the peer that named
// it if it is provisional.
func appendClient(b []byte, kind KeyKind, addr, via netip.Addr, bits4, bits6 int) []byte {
	if via.IsValid() {
		kind |= provisional
	}
	if kind&^provisional == ByNetwork {
		bits, usual := bits6, network.Bits6
		if addr.Is4() || addr.Is4In6() {
			bits, usual = bits4, network.Bits4
		}
		if bits != usual {
			kind |= sized
		}
		b = appendAddr(b, kind, addr, bits4, bits6)
		if bits != usual {
			b = append(b, byte(bits))
		}
	} else {
		b = appendAddr(b, kind, addr, bits4, bits6)
	}
	if !via.IsValid() {
		return b
	}
	peer := via.As16()
	return append(b, peer[:]...)
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
	case ByOperator:
		if req.Bot.Operator != "" || req.Bot.State == NoBot {
			return req.Bot.Operator
		}
		return req.Bot.Name
	case ByPurpose:
		return req.Bot.Purpose
	case ByHost:
		return d.fold(plainHost(req.Host))
	case ByPath:
		return d.pathKey()
	case ByCookie:
		return cookie(req.Header, part.Name)
	case ByValue:
		return req.Values[part.Name]
	case ByFleet:
		return req.Fleet
	case ByForm:
		return d.formKey(part.Name)
	case ByHeader:
		values := req.values(part.Name)
		for _, v := range values {
			if v != values[0] { // a server may take either
				return ""
			}
		}
		if len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// pathKey returns the reading of the path that limits count under.
func (d *decision) pathKey() string {
	if !d.req.OddPath && !d.guard.policy.FoldPaths {
		return trimSlash(d.req.Path)
	}
	if d.canonical == "" {
		d.canonical = d.req.Path
		if d.req.OddPath {
			d.canonical = canonicalPath(d.req.rawPath)
		}
		if d.guard.policy.FoldPaths {
			d.canonical = strings.ToLower(d.canonical)
		}
		d.canonical = trimSlash(d.canonical)
	}
	return d.canonical
}

// appendSite appends the name of the request's site to a key if the policy counts sites apart.
func (d *decision) appendSite(key []byte) []byte {
	if d.site < 0 || !d.guard.policy.SitesApart {
		return key
	}
	return appendSite(key, d.siteName())
}

// appendSite appends the name of a site to a key, for Policy.SitesApart. Bans have the key
// without it.
func appendSite(b []byte, site string) []byte {
	return append(append(b, 0xFF, byte(len(site))), site...)
}

func appendValue(b []byte, part KeyPart, value string) []byte {
	if len(value) > longValue || part.Kind == ByForm { // registries keep keys, and a field may hold a secret
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
	bits := bits6
	if addr.Is4() || addr.Is4In6() {
		bits = 96 + bits4
	}
	words := wordsOf(addr)
	return words.cut(bits).appendKey(b, kind)
}

// addrWords are the two halves of an address, an IPv4 address in its IPv6 form. An invalid one is all zero.
type addrWords [2]uint64

func wordsOf(addr netip.Addr) addrWords {
	a := addr.As16()
	return addrWords{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])}
}

// cut returns the address with its first bits only.
func (w addrWords) cut(bits int) addrWords {
	return addrWords{w[0] & network.Mask(bits), w[1] & network.Mask(bits-64)}
}

// appendKey appends the key of an address that is cut.
func (w addrWords) appendKey(b []byte, kind KeyKind) []byte {
	n := len(b)
	b = slices.Grow(b, addrKey)[:n+addrKey]
	key := b[n:]
	key[0] = byte(kind)
	binary.BigEndian.PutUint64(key[1:], w[0])
	binary.BigEndian.PutUint64(key[9:], w[1])
	return b
}

// A cutAddr is an address cut to a client, and to its network.
type cutAddr struct {
	own, network         addrWords
	ownBits, networkBits int // of the IPv6 form
}

// cut cuts an address, of which some bits stand for a client.
func cut(addr netip.Addr, bits4, bits6 int) (c cutAddr) {
	c.ownBits, c.networkBits = bits6, network.Bits6
	if addr.Is4() || addr.Is4In6() {
		c.ownBits, c.networkBits = 96+bits4, 96+network.Bits4
	}
	words := wordsOf(addr)
	c.own, c.network = words.cut(c.ownBits), words.cut(c.networkBits)
	return c
}
