package sqlregistry

import (
	"errors"
	"net/netip"

	"fairshare"
)

// A key is a client as it stands in the file, so that the clients within a
// prefix are one range, in the order of their addresses:
//
//	'4', four bytes of address, bits
//	'6', sixteen bytes of address, bits
//	'b', the name of a bot
type key = []byte

const (
	key4   = '4'
	key6   = '6'
	keyBot = 'b'

	maxBot = 255 // bytes of a name
)

var errNobody = errors.New("no client is named")

// keyOf returns a client's key.
func keyOf(id fairshare.ClientID) (key, error) {
	if id.Bot != "" {
		if id.Prefix.IsValid() || len(id.Bot) > maxBot {
			return nil, errNobody
		}
		return append(key{keyBot}, id.Bot...), nil
	}
	if !id.Prefix.IsValid() {
		return nil, errNobody
	}
	p := fairshare.PrefixID(id.Prefix).Prefix
	return append(append(key{kindOf(p.Addr())}, p.Addr().AsSlice()...), byte(p.Bits())), nil
}

func kindOf(a netip.Addr) byte {
	if a.Is4() {
		return key4
	}
	return key6
}

// idOf is the other way round.
func idOf(k key) (fairshare.ClientID, error) {
	if len(k) > 1 && k[0] == keyBot && len(k) <= 1+maxBot {
		return fairshare.ClientID{Bot: string(k[1:])}, nil
	}
	if len(k) == 6 && k[0] == key4 || len(k) == 18 && k[0] == key6 {
		addr, _ := netip.AddrFromSlice(k[1 : len(k)-1])
		p, err := addr.Prefix(int(k[len(k)-1]))
		if err == nil && p.Addr() == addr {
			return fairshare.ClientID{Prefix: p}, nil
		}
	}
	return fairshare.ClientID{}, errRow
}

// within returns the first and last key of the clients within k, itself too.
// A wider prefix with the same address comes before it, since its bits do.
func within(k key) (first, last key) {
	if k[0] == keyBot {
		return k, k
	}
	last = append(key{}, k...)
	end := len(last) - 1
	for i, bits := 1, int(k[end]); i < end; i, bits = i+1, bits-8 {
		last[i] |= byte(0xff >> min(max(bits, 0), 8))
	}
	last[end] = 0xff
	return k, last
}

// wider returns the keys of the prefixes that hold k, the longest first,
// without k.
func wider(k key) []key {
	if k[0] == keyBot {
		return nil
	}
	keys := make([]key, 0, k[len(k)-1])
	for bits := int(k[len(k)-1]) - 1; bits >= 0; bits-- {
		keys = append(keys, cutTo(k, bits))
	}
	return keys
}

// cutTo returns the key of the prefix of that many bits that holds k.
func cutTo(k key, bits int) key {
	end := len(k) - 1
	addr, _ := netip.AddrFromSlice(k[1:end])
	p, _ := addr.Prefix(bits)
	return append(append(key{k[0]}, p.Addr().AsSlice()...), byte(bits))
}

// networkOf returns what of the stories of k's network may be a tenth at most:
// an IPv4 /16 or an IPv6 /32; a wider prefix and a bot are their own.
func networkOf(k key) []byte {
	switch {
	case k[0] == key4 && k[5] >= 16:
		return k[:3]
	case k[0] == key6 && k[17] >= 32:
		return k[:5]
	}
	return k
}
