package fairshare

import "sync/atomic"

// A banCache holds bans that were looked up, so that frequent requests of a
// banned client need no lock. Writers hold the lock of the Bans, shared or not;
// readers need none.
type banCache [1 << 16]struct {
	// The hash of a banID is mixed with the end of its ban: a torn pair, read
	// while it was written, fits no ban.
	mixed, until atomic.Uint64
}

const banMix = 0x9E3779B97F4A7C15

func (c *banCache) get(hash uint64) (until int64, found bool) {
	p := &c[hash%uint64(len(c))]
	end := p.until.Load()
	return int64(end), p.mixed.Load() == hash^(end+1)*banMix
}

func (c *banCache) put(hash uint64, until int64) {
	p := &c[hash%uint64(len(c))]
	p.until.Store(uint64(until))
	p.mixed.Store(hash ^ (uint64(until)+1)*banMix)
}

// drop removes the ban, or another one with the same index.
func (c *banCache) drop(hash uint64) {
	c[hash%uint64(len(c))].mixed.Store(0)
}
