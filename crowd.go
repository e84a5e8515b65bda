package fairshare

import "encoding/binary"

// An IPv6 customer may hold a /48, with 65,536 clients in it. When eight of
// them are banned by a rule, the /48 is. (Of IPv4, a /24 is of many.)
const (
	crowdBits = 48
	crowdSize = 8
)

// maxCrowds bounds how many are followed, at 88 bytes each. Whoever has more
// networks than that banned does not need many clients in each.
const maxCrowds = 1 << 16

type crowdID struct {
	network uint64 // the first 48 bits of the address
	rule    uint32
	dry     bool
}

// A crowd holds when the bans of a network's clients by one rule end, Unix ns;
// of more than eight those that end last.
type crowd [crowdSize]int64

func crowdOf(key *banKey, rule uint32, dry bool) crowdID {
	return crowdID{binary.BigEndian.Uint64(key[1:]) & head(crowdBits), rule, dry}
}

// joins notes that a client is banned until a time, and reports whether as
// many of its network are now as it takes.
func (b *Bans) joins(r *refused, until int64) bool {
	id := crowdOf(&r.key, r.rule, r.dry)
	c, known := b.crowds[id]
	if !known && len(b.crowds) >= maxCrowds {
		b.forgetCrowds(r.at)
	}
	banned, soonest := 1, 0
	for i := range c {
		if c[i] > r.at {
			banned++
		}
		if c[i] < c[soonest] {
			soonest = i
		}
	}
	c[soonest] = max(c[soonest], until)
	b.crowds[id] = c
	return banned >= crowdSize
}

// leaves takes back that the client of an entry is banned.
func (b *Bans) leaves(e *banEntry) {
	id := crowdOf(&e.id.key, e.id.rule, e.dry)
	c, known := b.crowds[id]
	if !known || !e.id.key.crowds() {
		return
	}
	for i := range c {
		if c[i] == e.until {
			c[i] = 0
			break
		}
	}
	b.crowds[id] = c
}

// forgetCrowds makes place: those without a ban in force go, and if there are
// none of these, some.
func (b *Bans) forgetCrowds(now int64) {
	for id, c := range b.crowds {
		over := true
		for _, until := range c {
			over = over && until <= now
		}
		if over {
			delete(b.crowds, id)
		}
	}
	for id := range b.crowds {
		if len(b.crowds) < maxCrowds*15/16 {
			break
		}
		delete(b.crowds, id)
	}
}
