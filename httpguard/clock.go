package httpguard

import (
	"sync/atomic"
	"time"
)

// A Clock tells the time of its making plus what a monotonic clock counted
// since: steps of the system's clock do not reach a guard. The zero Clock is
// not ready: NewClock makes one. It is safe for concurrent use.
//
// Reading a processor's clock costs as much as counting a request. So with
// more than a quarter of a million calls a second a timer reads it for all,
// each millisecond; the time is then up to a few milliseconds old. With fewer
// calls the time is exact, and no timer runs.
type Clock struct {
	start  time.Time    // with a monotonic reading
	wall   time.Time    // the same without
	coarse atomic.Int64 // ns since start; 0: read the clock
	calls  atomic.Int64 // since counted
	since  atomic.Int64 // ns since start at which counting began
}

const (
	coarseAfter = 512                  // so many calls
	coarseIn    = 2 * time.Millisecond // in less than this make it coarse
	coarseFor   = 100                  // ticks; then calls are counted again
	coarseTick  = time.Millisecond
)

// NewClock returns a clock that shows the system's time now.
func NewClock() *Clock {
	start := time.Now()
	return &Clock{start: start, wall: start.Round(0)}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if ns := c.coarse.Load(); ns != 0 {
		return c.wall.Add(time.Duration(ns))
	}
	return c.wall.Add(c.read())
}

// read reads the processor's clock, and sees whether that is done too often.
func (c *Clock) read() time.Duration {
	elapsed := time.Since(c.start)
	if c.calls.Add(1) < coarseAfter {
		return elapsed
	}
	c.calls.Store(0)
	began := c.since.Swap(int64(elapsed))
	if elapsed-time.Duration(began) < coarseIn && c.coarse.CompareAndSwap(0, max(int64(elapsed), 1)) {
		c.tick(coarseFor)
	}
	return elapsed
}

// tick keeps the coarse time while ticks are left, and ends by itself.
func (c *Clock) tick(left int) {
	if left == 0 {
		c.since.Store(0)
		c.coarse.Store(0)
		return
	}
	c.coarse.Store(max(int64(time.Since(c.start)), 1))
	time.AfterFunc(coarseTick, func() { c.tick(left - 1) })
}
