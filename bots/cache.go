package bots

import (
	"hash/maphash"
	"sync/atomic"
)

// A cache remembers what the user agents seen last were taken for. Its size is
// fixed: 16 bytes a place. Nothing is locked.
//
// Each set of places has two halves. What is new goes to the first half, what
// is asked for again there changes places with one of the second: a flood of
// user agents that never come again turns over the first half only, and the
// common ones stay.
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
			p.swap(&set.often[hash>>32%cacheWays], hash, found)
			return hash, finding(found), true
		}
	}
	return hash, 0, false
}

// swap lets p and q change places; p holds hash and found. Of two that swap at
// once one may be lost, and is then looked at anew.
func (p *cachePlace) swap(q *cachePlace, hash, found uint64) {
	oldMixed, oldFound := q.mixed.Load(), q.found.Load()
	q.put(hash, found)
	p.found.Store(oldFound)
	p.mixed.Store(oldMixed)
}

func (p *cachePlace) put(hash, found uint64) {
	p.found.Store(found)
	p.mixed.Store(hash ^ mix(found))
}

func (c *cache) put(hash uint64, f finding) {
	c.sets[hash%cacheSets].fresh[hash>>34%cacheWays].put(hash, uint64(f))
}
