package fairshare

import (
	"hash/maphash"
	"reflect"
	"slices"
	"sync/atomic"
)

// A textCache remembers which conditions of a policy hold for recent texts of one kind:
// user agents, or queries. Many requests have the same few texts, and searching each for
// every pattern is the most expensive part of a walk.
type textCache struct {
	conditions []*condition // one bit each
	slots      textSlots
}

// textSlots remember bits of recent texts. The size is fixed. A text is identified by its
// seeded 64-bit hash.
type textSlots [1024]textSlot

// A textSlot holds a hash, the bits that are known, and which of them are set. The stored
// hash is mixed with the bits: what several writers at once leave fits no text.
type textSlot struct {
	mixed, known, holds atomic.Uint64
}

// cachedConditions is how many conditions of a textCache are remembered: one bit each.
const cachedConditions = 64

// mixBits spreads bits: those that do not belong together do not fit by chance.
func mixBits(known, holds uint64) uint64 {
	return (known+1)*0x9E3779B97F4A7C15 ^ (holds+1)*0xD6E8FEB86659FD93
}

// get returns what is remembered of a text: known is 0 if nothing is.
func (s *textSlots) get(hash uint64) (known, holds uint64) {
	p := &s[hash%uint64(len(s))]
	known, holds = p.known.Load(), p.holds.Load()
	if p.mixed.Load() != hash^mixBits(known, holds) {
		return 0, 0
	}
	return known, holds
}

func (s *textSlots) put(hash, known, holds uint64) {
	p := &s[hash%uint64(len(s))]
	p.known.Store(known)
	p.holds.Store(holds)
	p.mixed.Store(hash ^ mixBits(known, holds))
}

// A knownText is what is known of the text of one request.
type knownText struct {
	hash         uint64
	hashed       bool   // hash is filled in
	looked       bool   // known and holds are filled in
	known, holds uint64 // conditions of the textCache
	stored       uint64 // of known: what the cache has
}

// number gives each condition of m on a user agent or a query its bit, equal ones the same.
func (g *Guard) number(m matcher) {
	for i := range m {
		switch c := &m[i]; c.field {
		case notField:
			g.number(c.not)
		case userAgentField:
			g.agents.number(c)
		case queryField:
			g.queries.number(c)
		}
	}
}

func (t *textCache) number(c *condition) {
	place := slices.IndexFunc(t.conditions, func(known *condition) bool {
		if c.field == userAgentField {
			return reflect.DeepEqual(known.patterns, c.patterns)
		}
		a, b := *known, *c
		a.bit, b.bit = 0, 0
		return reflect.DeepEqual(a, b)
	})
	if place < 0 && len(t.conditions) < cachedConditions {
		place = len(t.conditions)
		t.conditions = append(t.conditions, c)
	}
	c.bit = place + 1
}

// holdsText reports whether a condition on the user agent or the query holds.
func (c *condition) holdsText(d *decision) bool {
	text, cache, of := d.req.UserAgent, &d.guard.agents, &d.agent
	if c.field == queryField {
		text, cache, of = d.req.Query, &d.guard.queries, &d.query
	}
	if c.bit == 0 {
		return c.searchText(d)
	}
	if !of.looked {
		of.looked = true
		of.known, of.holds = cache.slots.get(of.hashOf(d.guard, text))
		of.stored = of.known
	}
	bit := uint64(1) << (c.bit - 1)
	if of.known&bit == 0 {
		if of.known |= bit; c.searchText(d) {
			of.holds |= bit
		}
	}
	return of.holds&bit != 0
}

// hashOf returns the hash of the text, which is always the same of a request.
func (of *knownText) hashOf(g *Guard, text string) uint64 {
	if !of.hashed {
		of.hashed, of.hash = true, maphash.String(g.seed, text)
	}
	return of.hash
}

// searchText is holdsText without the cache.
func (c *condition) searchText(d *decision) bool {
	if c.field == queryField {
		return c.holdsEncoded(d, d.req.Query)
	}
	return c.matchesText(d.req.UserAgent, d.foldedUserAgent())
}

// remember stores what has become known of the texts of the request.
func (d *decision) remember() {
	if of := &d.agent; of.looked && of.known != of.stored {
		d.guard.agents.slots.put(of.hash, of.known, of.holds)
	}
	if of := &d.query; of.looked && of.known != of.stored {
		d.guard.queries.slots.put(of.hash, of.known, of.holds)
	}
}
