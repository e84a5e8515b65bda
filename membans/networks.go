package membans

import (
	"encoding/binary"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// An IPv6 customer may hold a /48, with 65,536 clients in it; at other providers
// a /48 belongs to many customers. While clientsThatLimit clients of it are
// banned by one rule, its newcomers are limited. When there are clientsThatBan of
// them, its newcomers are banned. Clients with standing are not affected. (An
// IPv4 /24 belongs to many customers, and has only 256 clients.)
const (
	networkBits      = network.Bits6
	clientsThatLimit = 8
	clientsThatBan   = 128
)

// maxNetworks bounds the number of networks with banned clients, at about 1 KiB
// each. An attacker with more banned networks than this gains nothing by using
// many clients in each.
const maxNetworks = 1 << 13

// A networkID identifies an IPv6 network with clients that one rule has banned.
type networkID struct {
	first48 uint64 // bits of the address
	rule    uint32
	dryRun  bool
}

// members holds the ends of the bans of a network's clients by one rule, Unix
// ns. Of more than clientsThatBan it holds those that end last.
type members [clientsThatBan]int64

// A limitedNetwork is a network whose newcomers are limited.
type limitedNetwork struct {
	rule  uint32
	until int64 // Unix ns
}

func networkOf(key *fairshare.BanKey, rule uint32, dryRun bool) networkID {
	return networkID{first48(key), rule, dryRun}
}

func first48(key *fairshare.BanKey) uint64 {
	addr := key.Addr().As16()
	return binary.BigEndian.Uint64(addr[:8]) & network.Mask(networkBits)
}

// addMember notes that a client of a network is banned until a time. It returns
// how many of its clients are banned now, at most clientsThatBan.
func (b *Bans) addMember(id networkID, now, until int64) int {
	m := b.members[id]
	if m == nil {
		if len(b.members) >= maxNetworks {
			b.forgetNetworks(now)
		}
		m = new(members)
		b.members[id] = m
	}
	first := 0
	for i := range m {
		if m[i] < m[first] {
			first = i
		}
	}
	m[first] = max(m[first], until)
	b.limit(id, m)
	return m.banned(now)
}

// banned returns how many bans are in force.
func (m *members) banned(now int64) (n int) {
	for _, until := range m {
		if until > now {
			n++
		}
	}
	return n
}

// limit limits the newcomers of a network while clientsThatLimit of the bans of its clients by one rule are in force.
func (b *Bans) limit(id networkID, m *members) {
	ends := slices.Sorted(slices.Values(m[:]))
	until := ends[len(ends)-clientsThatLimit]
	if !id.dryRun && until > b.limited[id.first48].until {
		b.limited[id.first48] = limitedNetwork{id.rule, until}
		b.limiting.Store(true)
	}
}

// limitAgain finds until when newcomers of a network are limited, after bans of its clients by one rule were removed.
func (b *Bans) limitAgain(id networkID) {
	if before, limited := b.limited[id.first48]; !limited || before.rule != id.rule || id.dryRun {
		return
	}
	delete(b.limited, id.first48)
	for rule := range uint32(len(b.names)) {
		id.rule = rule
		if m := b.members[id]; m != nil {
			b.limit(id, m)
		}
	}
}

// LimitsNewcomers reports whether newcomers of a client's network are limited
// now because of banned clients, and by which rule.
func (b *Bans) LimitsNewcomers(client *fairshare.BanKey, now time.Time) (rule uint32, limited bool) {
	if !b.limiting.Load() {
		return 0, false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	n, found := b.limited[first48(client)]
	return n.rule, found && n.until > now.UnixNano()
}

// removeMember notes that the client of an entry is not banned any more.
func (b *Bans) removeMember(e *entry) {
	if !e.id.key.IsIPv6Client() {
		return
	}
	id := networkOf(&e.id.key, e.id.rule, e.dryRun)
	m := b.members[id]
	if m == nil {
		return
	}
	if i := slices.Index(m[:], e.until); i >= 0 {
		m[i] = 0
	}
	b.limitAgain(id)
}

// forgetNetworks makes room: it removes networks without a ban in force, and, if
// that is too few, some others.
func (b *Bans) forgetNetworks(now int64) {
	for id, m := range b.members {
		if m.banned(now) == 0 {
			b.forgetNetwork(id)
		}
	}
	for id := range b.members {
		if len(b.members) < maxNetworks*15/16 {
			break
		}
		b.forgetNetwork(id)
	}
}

func (b *Bans) forgetNetwork(id networkID) {
	delete(b.members, id)
	b.limitAgain(id)
}
