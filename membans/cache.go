package membans

import "sync/atomic"

// A cache holds the ends of enforced bans that were found, or the rules that have
// entries of a key, so that frequent requests of a banned client need no lock.
// Writers hold the lock of the Bans, shared or not; readers need none.
type cache [1 << 16]struct {
	// The hash of a banID is mixed with the end of its ban. If a reader gets the
	// two words of different bans, they do not match.
	mixed, until atomic.Uint64
}

const mix = 0x9E3779B97F4A7C15

func (c *cache) get(hash uint64) (until int64, found bool) {
	p := &c[hash%uint64(len(c))]
	end := p.until.Load()
	return int64(end), p.mixed.Load() == hash^(end+1)*mix
}

func (c *cache) put(hash uint64, until int64) {
	p := &c[hash%uint64(len(c))]
	p.until.Store(uint64(until))
	p.mixed.Store(hash ^ (uint64(until)+1)*mix)
}

// drop removes the ban, or another ban in its slot.
func (c *cache) drop(hash uint64) {
	c[hash%uint64(len(c))].mixed.Store(0)
}
