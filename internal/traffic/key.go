package traffic

import (
	"net/netip"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/reports"
	"fairshare/internal/toplist"
)

// addressKey is the length of the longest key of a client or network: an address with the length of
// its prefix, and for a provisional client the peer that named it.
const addressKey = 16 + 1 + 16 + 1

// keys are the keys of a sender, made before the lists are locked.
type keys struct {
	client, network [addressKey]byte
	clientN, netN   int
	owner           [4]byte
	bot             [1]byte
	hashes          [Dimensions]uint64 // 0: the sender has no such key
}

// of makes the keys of a sender.
func (k *keys) of(l *toplist.Lists, s *reports.Sender) {
	if s.Client.IsValid() {
		k.clientN = len(appendAddress(k.client[:0], s.Client, s.Via))
		k.hashes[Clients] = l.HashBytes(k.client[:k.clientN])
		k.netN = len(appendAddress(k.network[:0], network.Around(s.Client), s.Via))
		k.hashes[Networks] = l.HashBytes(k.network[:k.netN])
	}
	if n := s.Owner.ASN; n != 0 && !s.Via.IsValid() && !s.Proxy {
		k.owner = [4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		k.hashes[Owners] = l.HashBytes(k.owner[:])
	}
	if s.Fleet != "" {
		k.hashes[Fleets] = l.HashString(s.Fleet)
	}
	if s.Bot.Name != "" {
		k.bot[0] = byte(s.Bot.State)
		k.hashes[Bots] = botHash(l, &s.Bot)
	}
	if s.UserAgent != "" {
		k.hashes[Agents] = l.HashString(s.UserAgent)
	}
}

func botHash(l *toplist.Lists, bot *fairshare.Bot) uint64 {
	return l.HashString(bot.Name) ^ uint64(bot.State)<<32
}

// add adds amounts to the sums of all keys.
func (k *keys) add(l *toplist.Lists, s *reports.Sender, amounts *toplist.Amounts) {
	for d, hash := range k.hashes {
		if hash == 0 {
			continue
		}
		switch Dimension(d) {
		case Clients:
			l.Add(d, hash, k.client[:k.clientN], "", amounts)
		case Networks:
			l.Add(d, hash, k.network[:k.netN], "", amounts)
		case Owners:
			l.Add(d, hash, k.owner[:], s.Owner.Name, amounts)
		case Fleets:
			l.Add(d, hash, nil, s.Fleet, amounts)
		case Bots:
			l.Add(d, hash, k.bot[:], s.Bot.Name, amounts)
		case Agents:
			l.Add(d, hash, nil, s.UserAgent, amounts)
		}
	}
}

// appendAddress appends a prefix, and the peer that named it, if there is one.
func appendAddress(b []byte, p netip.Prefix, via netip.Addr) []byte {
	addr := p.Addr().As16()
	b = append(b, addr[:]...)
	bits := byte(p.Bits())
	if p.Addr().Is4() {
		bits |= 0x80 // at most 128 otherwise: so 0x80 is the length of an IPv6 address
	}
	b = append(b, bits)
	if via.IsValid() {
		peer := via.As16()
		b = append(b, peer[:]...)
	}
	return b
}

// ParseClient returns the client that a key of Clients or Networks stands for.
func ParseClient(key string) (id fairshare.ClientID) {
	if len(key) < 17 {
		return id
	}
	addr, bits := netip.AddrFrom16([16]byte([]byte(key[:16]))), int(key[16])
	if addr.Is4In6() && bits >= 0x80 {
		addr, bits = addr.Unmap(), bits&0x7f
	}
	id = fairshare.PrefixID(netip.PrefixFrom(addr, bits))
	if len(key) >= 33 {
		id.Via = netip.AddrFrom16([16]byte([]byte(key[17:33]))).Unmap()
	}
	return id
}

// ParseOwner returns the owner that a key of Owners stands for.
func ParseOwner(key string) fairshare.Owner {
	if len(key) < 4 {
		return fairshare.Owner{}
	}
	return fairshare.Owner{ASN: uint32(key[0])<<24 | uint32(key[1])<<16 | uint32(key[2])<<8 | uint32(key[3]),
		Name: key[4:]}
}

// ParseBot returns the bot that a key of Bots stands for.
func ParseBot(key string) fairshare.Bot {
	if key == "" {
		return fairshare.Bot{}
	}
	return fairshare.Bot{State: fairshare.BotState(key[0]), Name: key[1:]}
}
