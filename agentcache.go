package fairshare

import (
	"hash/maphash"
	"reflect"
	"slices"
	"sync/atomic"
)

// An agentCache remembers which user agent conditions of a policy hold for recent
// user agents. Many requests have the same few user agents, and searching each
// for every text is the most expensive part of a walk. The size is fixed. A user
// agent is identified by its seeded 64-bit hash.
type agentCache struct {
	seed  maphash.Seed
	slots [1024]agentSlot
}

// An agentSlot holds a hash and the conditions that hold. The stored hash is mixed
// with the conditions: a torn pair, from two writers at once, fits no user agent.
type agentSlot struct {
	mixed, holds atomic.Uint64
}

// cachedConditions is how many conditions of a policy are remembered: one bit
// each.
const cachedConditions = 64

// agentMix spreads the bits of holds: a torn pair does not fit by chance.
const agentMix = 0x9E3779B97F4A7C15

func (c *agentCache) get(userAgent string) (hash, holds uint64, known bool) {
	hash = maphash.String(c.seed, userAgent)
	p := &c.slots[hash%uint64(len(c.slots))]
	holds = p.holds.Load()
	return hash, holds, p.mixed.Load() == hash^(holds+1)*agentMix
}

func (c *agentCache) put(hash, holds uint64) {
	p := &c.slots[hash%uint64(len(c.slots))]
	p.holds.Store(holds)
	p.mixed.Store(hash ^ (holds+1)*agentMix)
}

// numberAgents gives each user agent condition of the guard its bit, equal ones the same.
func (g *Guard) numberAgents(m matcher) {
	for i := range m {
		c := &m[i]
		switch {
		case c.field == notField:
			g.numberAgents(c.not)
		case c.field == userAgentField:
			place := slices.IndexFunc(g.agents, func(known *condition) bool {
				return reflect.DeepEqual(known.patterns, c.patterns)
			})
			if place < 0 && len(g.agents) < cachedConditions {
				place = len(g.agents)
				g.agents = append(g.agents, c)
			}
			c.bit = place + 1
		}
	}
}

// holdsUserAgent reports whether one of the condition's texts is in the
// request's user agent.
func (c *condition) holdsUserAgent(d *decision) bool {
	if c.bit == 0 {
		return c.matchesText(d.req.UserAgent, d.foldedUserAgent())
	}
	if !d.agentKnown {
		d.agentKnown = true
		cache := &d.guard.agentCache
		var hash uint64
		var known bool
		if hash, d.agentHolds, known = cache.get(d.req.UserAgent); !known {
			d.agentHolds = 0
			for i, other := range d.guard.agents {
				if other.matchesText(d.req.UserAgent, d.foldedUserAgent()) {
					d.agentHolds |= 1 << i
				}
			}
			cache.put(hash, d.agentHolds)
		}
	}
	return d.agentHolds>>(c.bit-1)&1 == 1
}
