package fairshare

import (
	"crypto/sha256"
	"net/netip"

	"fairshare/internal/network"
)

// A BanKey stands for what a ban holds for: the addresses of one client, a
// network, or a bot. Two keys are equal if they stand for the same. An
// implementation of [Bans] gets keys from a [Guard] and need not know their
// bytes.
//
// The bytes are those of the key of a limit (appendClient, appendBot), and
// zeros after a shorter one.
type BanKey [provisionalKey + 1]byte

// NewBanKey returns the key of a kind that stands for a client: ByBot for a
// bot, ByAddr or ByNetwork for addresses. ok is false if the client has no such
// key.
func NewBanKey(kind KeyKind, client ClientID) (key BanKey, ok bool) {
	switch {
	case kind == ByBot && client.Bot != "":
		appendBot(key[:0], client.Bot)
	case (kind == ByAddr || kind == ByNetwork) && client.Prefix.IsValid():
		p := client.Prefix
		appendClient(key[:0], kind, p.Addr(), client.Via, p.Bits(), p.Bits())
	default:
		return key, false
	}
	return key, true
}

// Kind returns what the key stands for: ByAddr, ByNetwork or ByBot.
func (k *BanKey) Kind() KeyKind { return KeyKind(k[0] &^ (provisional | sized)) }

// Addr returns the first address that the key stands for, unmapped. The key of
// a bot has no address.
func (k *BanKey) Addr() netip.Addr { return netip.AddrFrom16([16]byte(k[1:])).Unmap() }

// Via returns the peer that named the address, as [Request.Via]. It is invalid
// unless the client is provisional.
func (k *BanKey) Via() netip.Addr {
	if k[0]&provisional == 0 {
		return netip.Addr{}
	}
	peer := k[addrKey:]
	if k[0]&sized != 0 {
		peer = peer[1:]
	}
	return netip.AddrFrom16([16]byte(peer)).Unmap()
}

// WithoutVia returns the key of the same addresses without the peer that named
// them.
func (k *BanKey) WithoutVia() BanKey {
	key := *k
	key[0] &^= provisional
	clear(key[len(key.bytes()):])
	return key
}

// networkBits returns the prefix lengths of a network's key.
func (k *BanKey) networkBits() (bits4, bits6 int) {
	if k[0]&sized != 0 {
		return int(k[addrKey]), int(k[addrKey])
	}
	return network.Bits4, network.Bits6
}

// IsIPv6Client reports whether the key stands for the addresses of one IPv6
// client that is not provisional. Only bans of such keys are evidence about the
// network that the client is in: a peer can name any address.
func (k *BanKey) IsIPv6Client() bool { return k[0] == byte(ByAddr) && k.Addr().Is6() }

// Network returns the key of the network that the addresses of the key are in:
// an IPv4 /24 or an IPv6 /48.
func (k *BanKey) Network() (key BanKey) {
	appendAddr(key[:0], ByNetwork, k.Addr(), network.Bits4, network.Bits6)
	return key
}

// Client returns the ID of what the key stands for. A key does not hold the
// name of a bot and the length of a prefix: bot is the name, bits4 and bits6
// are the bits of an address that make one client.
func (k *BanKey) Client(bot string, bits4, bits6 int) ClientID {
	switch k.Kind() {
	case ByBot:
		return ClientID{Bot: bot}
	case ByNetwork:
		bits4, bits6 = k.networkBits()
	}
	addr := k.Addr()
	if addr.Is4() {
		bits6 = bits4
	}
	return ClientID{Prefix: netip.PrefixFrom(addr, bits6), Via: k.Via()}
}

// Within reports whether everything that the key stands for is within the
// prefix of a client, or whether the key is that of the bot. A client without
// Via includes provisional clients with its addresses.
func (k *BanKey) Within(client ClientID) bool {
	switch k.Kind() {
	case ByBot:
		key, _ := NewBanKey(ByBot, client)
		return client.Bot != "" && *k == key
	case ByNetwork:
		bits4, most := k.networkBits()
		if k.Addr().Is4() {
			most = bits4
		}
		if client.Prefix.Bits() > most {
			return false
		}
	}
	return client.Prefix.IsValid() && client.Prefix.Contains(k.Addr()) &&
		(!client.Via.IsValid() || client.Via == k.Via())
}

// bytes returns the key as limits have it.
func (k *BanKey) bytes() []byte {
	length := addrKey
	if k[0]&provisional != 0 {
		length = provisionalKey
	}
	if k[0]&sized != 0 {
		length++
	}
	return k[:length:length]
}

// appendBot appends the key of a bot. It is as long as the key of an address,
// because both can be banned.
func appendBot(b []byte, name string) []byte {
	b = append(b, byte(ByBot))
	var fixed [addrKey - 1]byte
	if copy(fixed[:], name) < len(name) {
		sum := sha256.Sum256([]byte(name))
		copy(fixed[:], sum[:])
	}
	return append(b, fixed[:]...)
}
