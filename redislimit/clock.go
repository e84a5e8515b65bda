package redislimit

import (
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/prose"
)

// A clock corrects times to the store's clock.
type clock struct {
	offset atomic.Int64 // ns to add
	target atomic.Int64

	mu      sync.Mutex
	started bool
	best    time.Duration // trip of the best sample
	bestAt  time.Time
	off     time.Duration // by the best sample
}

const (
	clockMinute  = time.Minute
	clockStep    = time.Second           // beyond this a clock is corrected at once
	clockIgnored = 10 * time.Millisecond // clocks that are as near as this are left alone
	clockSlew    = time.Millisecond      // each second
)

// correct returns a time by the store's clock.
func (k *clock) correct(t time.Time) time.Time {
	if off := k.offset.Load(); off != 0 {
		return t.Add(time.Duration(off))
	}
	return t
}

// correction returns by how much the store's clock is ahead, as far as it is corrected.
func (k *clock) correction() time.Duration { return time.Duration(k.offset.Load()) }

// sample takes the store's time, which was read between two times of this machine's clock. If these are
// far apart, or the clock was set meanwhile, they say nothing.
func (k *clock) sample(c *core, at, began, ended time.Time) {
	began, ended = began.Round(0), ended.Round(0)
	trip := ended.Sub(began)
	if trip < 0 || trip > clockStep {
		return
	}
	off := at.Sub(began.Add(trip / 2))
	k.mu.Lock()
	jumped := (off - k.off).Abs() > clockStep+trip
	if !k.started || jumped || trip <= k.best || ended.Sub(k.bestAt).Abs() > clockMinute {
		k.best, k.bestAt, k.off = trip, ended, off
	}
	first := !k.started
	k.started = true
	target := k.off
	if target.Abs() <= clockIgnored+k.best {
		target = 0
	}
	before := time.Duration(k.offset.Load())
	k.target.Store(int64(target))
	k.mu.Unlock()
	if (target - before).Abs() <= clockStep {
		if first {
			k.offset.Store(int64(target))
		}
		return
	}
	k.offset.Store(int64(target))
	side := "behind"
	if target < 0 {
		side = "ahead of"
	}
	c.events.send(ClockWrong, "the clock of this machine is %s %s the store's and is corrected here: synchronize it",
		prose.Duration(target.Abs()), side)
}

// slew brings the offset nearer to its target. It is called each second.
func (k *clock) slew(time.Time) {
	off, target := k.offset.Load(), k.target.Load()
	k.offset.Store(off + max(-int64(clockSlew), min(int64(clockSlew), target-off)))
}
