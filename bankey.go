package fairshare

import (
	"crypto/sha256"
	"net/netip"

	"fairshare/internal/network"
)

// A banKey is an appendClient or appendBot key; what is shorter ends in zeros.
type banKey [provisionalKey + 1]byte

// bytes returns the key as limits have it.
func (k *banKey) bytes() []byte {
	length := addrKey
	if k[0]&provisional != 0 {
		length = provisionalKey
	}
	if k[0]&sized != 0 {
		length++
	}
	return k[:length:length]
}

// kind returns what the key stands for.
func (k *banKey) kind() KeyKind { return KeyKind(k[0] &^ (provisional | sized)) }

func (k *banKey) addr() netip.Addr { return netip.AddrFrom16([16]byte(k[1:])).Unmap() }

// via returns the peer that named the address; invalid if none did.
func (k *banKey) via() netip.Addr {
	if k[0]&provisional == 0 {
		return netip.Addr{}
	}
	peer := k[addrKey:]
	if k[0]&sized != 0 {
		peer = peer[1:]
	}
	return netip.AddrFrom16([16]byte(peer)).Unmap()
}

// direct returns the key of the same addresses, named by no peer.
func (k *banKey) direct() banKey {
	direct := *k
	direct[0] &^= provisional
	clear(direct[len(direct.bytes()):])
	return direct
}

// networkBits returns the prefix lengths of a network's key.
func (k *banKey) networkBits() (bits4, bits6 int) {
	if k[0]&sized != 0 {
		return int(k[addrKey]), int(k[addrKey])
	}
	return network.Bits4, network.Bits6
}

// crowds reports whether the key is an IPv6 client's: many of them may be of
// one network. Those that a peer has named are no evidence about a network.
func (k *banKey) crowds() bool { return k[0] == byte(ByAddr) && k.addr().Is6() }

// network returns the key of the network that a client's key is in.
func (k *banKey) network() (key banKey) {
	copy(key[:], appendAddr(nil, ByNetwork, k.addr(), network.Bits4, network.Bits6))
	return key
}

// client returns whom the key stands for: a bot of that name, or addresses of
// which that many bits make a client.
func (k *banKey) client(bot string, bits4, bits6 int) ClientID {
	switch k.kind() {
	case ByBot:
		return ClientID{Bot: bot}
	case ByNetwork:
		bits4, bits6 = k.networkBits()
	}
	addr := k.addr()
	if addr.Is4() {
		bits6 = bits4
	}
	return ClientID{Prefix: netip.PrefixFrom(addr, bits6), Via: k.via()}
}

// within reports whether all of the key is within a client's prefix, or is
// that bot. A client that no peer named holds those that one did.
func (k *banKey) within(client ClientID) bool {
	switch k.kind() {
	case ByBot:
		key, _ := keyOf(ByBot, client)
		return client.Bot != "" && *k == key
	case ByNetwork:
		bits4, most := k.networkBits()
		if k.addr().Is4() {
			most = bits4
		}
		if client.Prefix.Bits() > most {
			return false
		}
	}
	return client.Prefix.IsValid() && client.Prefix.Contains(k.addr()) &&
		(!client.Via.IsValid() || client.Via == k.via())
}

// keyOf returns the key of that kind that stands for a client.
func keyOf(kind KeyKind, client ClientID) (key banKey, ok bool) {
	switch {
	case kind == ByBot && client.Bot != "":
		copy(key[:], appendBot(nil, client.Bot))
	case (kind == ByAddr || kind == ByNetwork) && client.Prefix.IsValid():
		p := client.Prefix
		copy(key[:], appendClient(nil, kind, p.Addr(), client.Via, p.Bits(), p.Bits()))
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
