package fairshare

import (
	"encoding/binary"
	"slices"
	"time"

	"fairshare/internal/network"
)

// An IPv6 customer may hold a /48, with 65,536 clients in it; at other providers
// a /48 is of many customers. While crowdLimit clients of it are banned by one
// rule, its newcomers are limited; crowdBan of them ban its newcomers. Clients
// with standing are left alone. (An IPv4 /24 is of many, and has 256 clients.)
const (
	crowdBits  = network.Bits6
	crowdLimit = 8
	crowdBan   = 128
)

// maxCrowds bounds how many are followed, at about 1 KiB each. An attacker with
// more banned networks than this gains nothing by using many clients in each.
const maxCrowds = 1 << 13

type crowdID struct {
	network uint64 // the first 48 bits of the address
	rule    uint32
	dry     bool
}

// A crowd holds when the bans of a network's clients by one rule end, Unix ns;
// of more than crowdBan those that end last.
type crowd [crowdBan]int64

// A limitedNetwork is one whose newcomers are limited.
type limitedNetwork struct {
	rule  uint32
	until int64 // Unix ns
}

func crowdOf(key *banKey, rule uint32, dry bool) crowdID {
	return crowdID{key.first48(), rule, dry}
}

func (k *banKey) first48() uint64 { return binary.BigEndian.Uint64(k[1:]) & network.Mask(crowdBits) }

// joins notes that a client is banned until a time, and returns how many of its
// network are now, up to crowdBan.
func (b *Bans) joins(r *refused, until int64) int {
	id := crowdOf(&r.key, r.rule, r.dry)
	c := b.crowds[id]
	if c == nil {
		if len(b.crowds) >= maxCrowds {
			b.forgetCrowds(r.at)
		}
		c = new(crowd)
		b.crowds[id] = c
	}
	soonest := 0
	for i := range c {
		if c[i] < c[soonest] {
			soonest = i
		}
	}
	c[soonest] = max(c[soonest], until)
	b.limit(id, c, r.at)
	return c.banned(r.at)
}

// banned returns how many bans are in force.
func (c *crowd) banned(now int64) (n int) {
	for _, until := range c {
		if until > now {
			n++
		}
	}
	return n
}

// limit notes until when newcomers of a crowd's network are limited: while
// crowdLimit of its bans are in force.
func (b *Bans) limit(id crowdID, c *crowd, now int64) {
	if id.dry {
		return
	}
	ends := slices.Sorted(slices.Values(c[:]))
	until := ends[len(ends)-crowdLimit]
	was, known := b.hot[id.network]
	switch {
	case until > now && (!known || until > was.until || was.rule == id.rule):
		b.hot[id.network] = limitedNetwork{id.rule, until}
		b.limiting.Store(true)
	case known && was.rule == id.rule:
		delete(b.hot, id.network)
	}
}

// limits returns the rule by whose bans newcomers of a client's network are
// limited now.
func (b *Bans) limits(key *banKey, now time.Time) (rule uint32, found bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	n, found := b.hot[key.first48()]
	return n.rule, found && n.until > now.UnixNano()
}

// leaves takes back that the client of an entry is banned.
func (b *Bans) leaves(e *banEntry, now int64) {
	if !e.id.key.crowds() {
		return
	}
	id := crowdOf(&e.id.key, e.id.rule, e.dry)
	c := b.crowds[id]
	if c == nil {
		return
	}
	if i := slices.Index(c[:], e.until); i >= 0 {
		c[i] = 0
	}
	b.limit(id, c, now)
}

// forgetCrowds makes place: those without a ban in force go, and if there are
// none of these, some.
func (b *Bans) forgetCrowds(now int64) {
	for id, c := range b.crowds {
		if c.banned(now) == 0 {
			b.forgetCrowd(id)
		}
	}
	for id := range b.crowds {
		if len(b.crowds) < maxCrowds*15/16 {
			break
		}
		b.forgetCrowd(id)
	}
}

func (b *Bans) forgetCrowd(id crowdID) {
	delete(b.crowds, id)
	delete(b.hot, id.network)
}
