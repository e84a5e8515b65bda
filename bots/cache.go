package bots

import (
	"hash/maphash"
	"sync/atomic"
)

// A cache holds the findings for recent user agents. Its size is fixed: 16 bytes
// per entry. It takes no locks.
//
// Each set of entries has two halves. A new entry goes to the first half, and
// moves to the second when it is found again. So a flood of different user agents
// replaces the first half only, and the common ones stay.
type cache struct {
	seed maphash.Seed
	sets [cacheSets]cacheSet
}

const (
	cacheSets = 1024
	cacheWays = 4 // entries in one half of a set; a half is one cache line
)

type cacheSet struct{ fresh, frequent [cacheWays]cacheEntry }

// A cacheEntry holds a user agent's seeded 64-bit hash and its finding. The
// finding is mixed into the hash: if two goroutines write one entry at once, the
// mixed pair matches no user agent.
type cacheEntry struct{ mixed, found atomic.Uint64 }

// mix spreads a finding over 64 bits. It is never zero, so that an empty entry
// matches a hash with a probability of only 2⁻⁶⁴.
func mix(f uint64) uint64 { return (f + 1) * 0x9E3779B97F4A7C15 }

func (c *cache) get(userAgent string) (hash uint64, f finding, known bool) {
	hash = maphash.String(c.seed, userAgent)
	set := &c.sets[hash%cacheSets]
	for i := range set.frequent {
		p := &set.frequent[i]
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

// promote moves a fresh entry to the head of the frequent ones; the last of these
// moves to its position. If two entries are promoted at once, one may be lost, and
// is found by the automaton again.
func (set *cacheSet) promote(fresh *cacheEntry, hash, found uint64) {
	fresh.copy(&set.frequent[cacheWays-1])
	push(&set.frequent, hash, found)
}

// push inserts a user agent at the head, and drops the last one.
func push(half *[cacheWays]cacheEntry, hash, found uint64) {
	for i := cacheWays - 1; i > 0; i-- {
		half[i].copy(&half[i-1])
	}
	half[0].found.Store(found)
	half[0].mixed.Store(hash ^ mix(found))
}

func (p *cacheEntry) copy(q *cacheEntry) {
	mixed, found := q.mixed.Load(), q.found.Load()
	p.found.Store(found)
	p.mixed.Store(mixed)
}

func (c *cache) put(hash uint64, f finding) {
	push(&c.sets[hash%cacheSets].fresh, hash, uint64(f))
}
