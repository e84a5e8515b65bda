// Package key holds the keys under which registries store clients, and the stored form of times. Start
// with [Of].
package key

import (
	"errors"
	"net/netip"

	"fairshare"
)

// A Key is a client in its stored form. The keys of the clients within a prefix are
// one range, in the order of their addresses:
//
//	'4', four bytes of address, bits
//	'6', sixteen bytes of address, bits
//	'b', the name of a bot
//
// The key of a provisional client ends with the peer that named it, in sixteen
// bytes. So it is within the prefixes of its address.
type Key = []byte

const (
	v4  = '4'
	v6  = '6'
	bot = 'b'

	maxBot = 255 // bytes of a name
	viaLen = 16  // bytes of a peer
)

// The errors of this package. Test for them with errors.Is.
var (
	ErrNoClient = errors.New("the ClientID is empty")
	ErrRow      = errors.New("a row is not valid") // no version has written it
)

// Of returns a client's key.
func Of(id fairshare.ClientID) (Key, error) {
	if id.Bot != "" {
		if id.Prefix.IsValid() || len(id.Bot) > maxBot {
			return nil, ErrNoClient
		}
		return append(Key{bot}, id.Bot...), nil
	}
	if !id.Prefix.IsValid() {
		return nil, ErrNoClient
	}
	p := fairshare.PrefixID(id.Prefix).Prefix
	k := append(append(Key{kindOf(p.Addr())}, p.Addr().AsSlice()...), byte(p.Bits()))
	if id.Via.IsValid() {
		peer := id.Via.As16()
		k = append(k, peer[:]...)
	}
	return k, nil
}

// OfBot returns the key of a bot, also of a name that [Of] does not accept.
func OfBot(name string) Key { return append(Key{bot}, name...) }

// IsBot reports whether a key is that of a bot.
func IsBot(k Key) bool { return k[0] == bot }

// ProvisionalLen returns the length in bytes of the keys of provisional clients with
// addresses like that of k.
func ProvisionalLen(k Key) int { return bitsAt(k) + 1 + viaLen }

// bitsAt returns the index of the bits in a key of addresses.
func bitsAt(k Key) int {
	if k[0] == v4 {
		return 1 + 4
	}
	return 1 + 16
}

func kindOf(a netip.Addr) byte {
	if a.Is4() {
		return v4
	}
	return v6
}

// Client returns the client of a key.
func Client(k Key) (fairshare.ClientID, error) {
	if len(k) > 1 && k[0] == bot && len(k) <= 1+maxBot {
		return fairshare.ClientID{Bot: string(k[1:])}, nil
	}
	if len(k) == 0 || k[0] != v4 && k[0] != v6 {
		return fairshare.ClientID{}, ErrRow
	}
	end := bitsAt(k)
	if len(k) != end+1 && len(k) != end+1+viaLen {
		return fairshare.ClientID{}, ErrRow
	}
	addr, _ := netip.AddrFromSlice(k[1:end])
	p, err := addr.Prefix(int(k[end]))
	if err != nil || p.Addr() != addr {
		return fairshare.ClientID{}, ErrRow
	}
	id := fairshare.ClientID{Prefix: p}
	if via, ok := netip.AddrFromSlice(k[end+1:]); ok {
		id.Via = via.Unmap()
	}
	return id, nil
}

// Within returns the first and last key of the clients within k, k included. A
// wider prefix with the same address comes before k, since it has fewer bits.
func Within(k Key) (first, last Key) {
	if k[0] == bot || len(k) > bitsAt(k)+1 {
		return k, k
	}
	last = append(Key{}, k...)
	end := bitsAt(k)
	for i, bits := 1, int(k[end]); i < end; i, bits = i+1, bits-8 {
		last[i] |= byte(0xff >> min(max(bits, 0), 8))
	}
	last[end] = 0xff
	return k, last
}

// Wider returns the keys of the prefixes that contain k, the longest first,
// without k. For a provisional client they include the key of its own prefix.
func Wider(k Key) []Key {
	if k[0] == bot {
		return nil
	}
	n := nWider(k)
	keys := make([]Key, 0, n)
	for bits := n - 1; bits >= 0; bits-- {
		keys = append(keys, prefixOf(k, bits))
	}
	return keys
}

// nWider returns the number of prefixes that contain k, without k: one of each
// length below that number. A provisional client's own prefix is one of them.
func nWider(k Key) int {
	end := bitsAt(k)
	if len(k) > end+1 {
		return int(k[end]) + 1
	}
	return int(k[end])
}

// prefixOf returns the key of the prefix of that many bits that contains k.
func prefixOf(k Key, bits int) Key {
	addr, _ := netip.AddrFromSlice(k[1:bitsAt(k)])
	p, _ := addr.Prefix(bits)
	return append(append(Key{k[0]}, p.Addr().AsSlice()...), byte(bits))
}

// Network returns the network of k, which may have at most a tenth of all
// stories: an IPv4 /16 or an IPv6 /32. A wider prefix and a bot are networks of
// their own. All clients that one peer has named are one network.
func Network(k Key) []byte {
	switch {
	case k[0] != bot && len(k) > bitsAt(k)+1:
		return append(Key{'p'}, k[bitsAt(k)+1:]...)
	case k[0] == v4 && k[5] >= 16:
		return k[:3]
	case k[0] == v6 && k[17] >= 32:
		return k[:5]
	}
	return k
}
