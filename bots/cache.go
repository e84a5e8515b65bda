package bots

import (
	"hash/maphash"
	"sync/atomic"
)

// A cache remembers what the user agents seen last were taken for. Its size is
// fixed: 16 bytes a place. Nothing is locked.
//
// Each set of places has two halves. What is new goes to the first half, what
// is asked for again there goes on to the second: a flood of user agents that
// never come again turns over the first half only, and the common ones stay.
type cache struct {
	seed maphash.Seed
	sets [cacheSets]cacheSet
}

const (
	cacheSets = 1024
	cacheWays = 4 // places in one half of a set; a half is one cache line
)

type cacheSet struct{ fresh, often [cacheWays]cachePlace }

// A cachePlace holds a user agent's seeded 64-bit hash and its finding. The
// finding is mixed into the hash: a torn pair, written by two at once, fits no
// user agent.
type cachePlace struct{ mixed, found atomic.Uint64 }

// mix spreads a finding over 64 bits. It is never zero, so that an empty place
// fits no hash but by a chance of 2⁻⁶⁴.
func mix(f uint64) uint64 { return (f + 1) * 0x9E3779B97F4A7C15 }

func (c *cache) get(userAgent string) (hash uint64, f finding, known bool) {
	hash = maphash.String(c.seed, userAgent)
	set := &c.sets[hash%cacheSets]
	for i := range set.often {
		p := &set.often[i]
		found := p.found.Load()
		if p.mixed.Load() == hash^mix(found) {
			return hash, finding(found), true
		}
	}
	for i := range set.fresh {
		p := &set.fresh[i]
		found := p.found.Load()
		if p.mixed.Load() == hash^mix(found) {
			set.promote(p, hash, found)
			return hash, finding(found), true
		}
	}
	return hash, 0, false
}

// promote puts what stands in a fresh place at the head of those asked for
// often; the last of them takes its place. Of two promoted at once one may be
// lost, and is then looked at anew.
func (set *cacheSet) promote(fresh *cachePlace, hash, found uint64) {
	fresh.copy(&set.often[cacheWays-1])
	push(&set.often, hash, found)
}

// push puts a user agent at the head, and lets the last one go.
func push(half *[cacheWays]cachePlace, hash, found uint64) {
	for i := cacheWays - 1; i > 0; i-- {
		half[i].copy(&half[i-1])
	}
	half[0].found.Store(found)
	half[0].mixed.Store(hash ^ mix(found))
}

func (p *cachePlace) copy(q *cachePlace) {
	mixed, found := q.mixed.Load(), q.found.Load()
	p.found.Store(found)
	p.mixed.Store(mixed)
}

func (c *cache) put(hash uint64, f finding) {
	push(&c.sets[hash%cacheSets].fresh, hash, uint64(f))
}
