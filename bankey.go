package fairshare

import (
	"crypto/sha256"
	"net/netip"
)

// A banKey is an appendAddr or appendBot key.
type banKey [addrKey]byte

// kind returns what the key stands for.
func (k *banKey) kind() KeyKind { return KeyKind(k[0]) }

func (k *banKey) addr() netip.Addr { return netip.AddrFrom16([16]byte(k[1:])).Unmap() }

// crowds reports whether the key is an IPv6 client's: many of them may be of
// one network.
func (k *banKey) crowds() bool { return k.kind() == ByAddr && k.addr().Is6() }

// network returns the key of the network that a client's key is in.
func (k *banKey) network() (network banKey) {
	copy(network[:], appendAddr(nil, ByNetwork, k.addr(), networkBits4, networkBits6))
	return network
}

// client returns whom the key stands for: a bot of that name, or addresses of
// which that many bits make a client.
func (k *banKey) client(bot string, bits4, bits6 int) ClientID {
	switch k.kind() {
	case ByBot:
		return ClientID{Bot: bot}
	case ByNetwork:
		bits4, bits6 = networkBits4, networkBits6
	}
	addr := k.addr()
	if addr.Is4() {
		bits6 = bits4
	}
	return ClientID{Prefix: netip.PrefixFrom(addr, bits6)}
}

// within reports whether all of the key is within a client's prefix, or is
// that bot.
func (k *banKey) within(client ClientID) bool {
	switch k.kind() {
	case ByBot:
		key, _ := keyOf(ByBot, client)
		return client.Bot != "" && *k == key
	case ByNetwork:
		most := networkBits6
		if k.addr().Is4() {
			most = networkBits4
		}
		if client.Prefix.Bits() > most {
			return false
		}
	}
	return client.Prefix.IsValid() && client.Prefix.Contains(k.addr())
}

// keyOf returns the key of that kind that stands for a client.
func keyOf(kind KeyKind, client ClientID) (key banKey, ok bool) {
	switch {
	case kind == ByBot && client.Bot != "":
		copy(key[:], appendBot(nil, client.Bot))
	case (kind == ByAddr || kind == ByNetwork) && client.Prefix.IsValid():
		p := client.Prefix
		copy(key[:], appendAddr(nil, kind, p.Addr(), p.Bits(), p.Bits()))
	default:
		return key, false
	}
	return key, true
}

// appendBot appends the name of a bot, in as many bytes as an address takes:
// both are banned.
func appendBot(b []byte, name string) []byte {
	b = append(b, byte(ByBot))
	var fixed [addrKey - 1]byte
	if copy(fixed[:], name) < len(name) {
		sum := sha256.Sum256([]byte(name))
		copy(fixed[:], sum[:])
	}
	return append(b, fixed[:]...)
}
