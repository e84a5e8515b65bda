package sqlregistry

import (
	"errors"
	"net/netip"

	"fairshare"
)

// A key is a client in the form of the file. The keys of the clients within a
// prefix are one range, in the order of their addresses:
//
//	'4', four bytes of address, bits
//	'6', sixteen bytes of address, bits
//	'b', the name of a bot
//
// The key of a provisional client ends with the peer that named it, in sixteen
// bytes. So it is within the prefixes of its address.
type key = []byte

const (
	key4   = '4'
	key6   = '6'
	keyBot = 'b'

	maxBot = 255 // bytes of a name
	viaLen = 16  // bytes of a peer
)

var errNoClient = errors.New("the ClientID is empty")

// keyOf returns a client's key.
func keyOf(id fairshare.ClientID) (key, error) {
	if id.Bot != "" {
		if id.Prefix.IsValid() || len(id.Bot) > maxBot {
			return nil, errNoClient
		}
		return append(key{keyBot}, id.Bot...), nil
	}
	if !id.Prefix.IsValid() {
		return nil, errNoClient
	}
	p := fairshare.PrefixID(id.Prefix).Prefix
	k := append(append(key{kindOf(p.Addr())}, p.Addr().AsSlice()...), byte(p.Bits()))
	if id.Via.IsValid() {
		peer := id.Via.As16()
		k = append(k, peer[:]...)
	}
	return k, nil
}

// bitsAt returns the index of the bits in a key of addresses.
func bitsAt(k key) int {
	if k[0] == key4 {
		return 1 + 4
	}
	return 1 + 16
}

func kindOf(a netip.Addr) byte {
	if a.Is4() {
		return key4
	}
	return key6
}

// idOf returns the client of a key.
func idOf(k key) (fairshare.ClientID, error) {
	if len(k) > 1 && k[0] == keyBot && len(k) <= 1+maxBot {
		return fairshare.ClientID{Bot: string(k[1:])}, nil
	}
	if len(k) == 0 || k[0] != key4 && k[0] != key6 {
		return fairshare.ClientID{}, errRow
	}
	end := bitsAt(k)
	if len(k) != end+1 && len(k) != end+1+viaLen {
		return fairshare.ClientID{}, errRow
	}
	addr, _ := netip.AddrFromSlice(k[1:end])
	p, err := addr.Prefix(int(k[end]))
	if err != nil || p.Addr() != addr {
		return fairshare.ClientID{}, errRow
	}
	id := fairshare.ClientID{Prefix: p}
	if via, ok := netip.AddrFromSlice(k[end+1:]); ok {
		id.Via = via.Unmap()
	}
	return id, nil
}

// within returns the first and last key of the clients within k, k included. A
// wider prefix with the same address comes before k, since it has fewer bits.
func within(k key) (first, last key) {
	if k[0] == keyBot || len(k) > bitsAt(k)+1 {
		return k, k
	}
	last = append(key{}, k...)
	end := bitsAt(k)
	for i, bits := 1, int(k[end]); i < end; i, bits = i+1, bits-8 {
		last[i] |= byte(0xff >> min(max(bits, 0), 8))
	}
	last[end] = 0xff
	return k, last
}

// wider returns the keys of the prefixes that contain k, the longest first,
// without k. For a provisional client they include the key of its own prefix.
func wider(k key) []key {
	if k[0] == keyBot {
		return nil
	}
	n := nWider(k)
	keys := make([]key, 0, n)
	for bits := n - 1; bits >= 0; bits-- {
		keys = append(keys, prefixOf(k, bits))
	}
	return keys
}

// nWider returns the number of prefixes that contain k, without k: one of each
// length below that number. A provisional client's own prefix is one of them.
func nWider(k key) int {
	end := bitsAt(k)
	if len(k) > end+1 {
		return int(k[end]) + 1
	}
	return int(k[end])
}

// prefixOf returns the key of the prefix of that many bits that contains k.
func prefixOf(k key, bits int) key {
	addr, _ := netip.AddrFromSlice(k[1:bitsAt(k)])
	p, _ := addr.Prefix(bits)
	return append(append(key{k[0]}, p.Addr().AsSlice()...), byte(bits))
}

// networkOf returns the network of k, which may have at most a tenth of all
// stories: an IPv4 /16 or an IPv6 /32. A wider prefix and a bot are networks of
// their own. All clients that one peer has named are one network.
func networkOf(k key) []byte {
	switch {
	case k[0] != keyBot && len(k) > bitsAt(k)+1:
		return append(key{'p'}, k[bitsAt(k)+1:]...)
	case k[0] == key4 && k[5] >= 16:
		return k[:3]
	case k[0] == key6 && k[17] >= 32:
		return k[:5]
	}
	return k
}
