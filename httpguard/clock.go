package httpguard

import (
	"sync/atomic"
	"time"
)

// A Clock shows the system's time at its creation, plus the monotonic time since
// then. So steps of the system's clock do not reach a guard. Make one with
// [NewClock]; the zero Clock does not work. It is safe for concurrent use.
//
// Reading the processor's clock costs as much as counting a request. So above a
// quarter of a million calls a second, a timer reads it once a millisecond for all
// callers. The time is then up to a few milliseconds old. With fewer calls the
// time is exact, and no timer runs.
//
// After a step, the system's clock and a Clock differ. [Clock.Wall] and
// [Clock.FromWall] convert a time of one into a time of the other.
type Clock struct {
	system func() time.Time // the system's clock
	start  time.Time        // with a monotonic reading
	wall   time.Time        // what the Clock showed at start
	coarse atomic.Int64     // ns since start; 0: read the clock
	calls  atomic.Int64     // since counted
	since  atomic.Int64     // ns since start at which counting began
}

const (
	coarseAfter = 512                  // calls
	coarseIn    = 2 * time.Millisecond // if they come within this time, the clock becomes coarse
	coarseFor   = 100                  // ticks; then calls are counted again
	coarseTick  = time.Millisecond
)

// NewClock returns a clock that shows the system's time now.
func NewClock() *Clock { return NewClockOf(time.Now) }

// NewClockOf returns a clock that starts at the present time of another system
// clock, which may be set at any time.
func NewClockOf(system func() time.Time) *Clock {
	return &Clock{system: system, start: time.Now(), wall: system().Round(0)}
}

// StartAt sets the clock to a time if that is later than what it shows. It may
// be called before the clock is used by others.
func (c *Clock) StartAt(t time.Time) {
	if ahead := t.Sub(c.Now()); ahead > 0 {
		c.wall = c.wall.Add(ahead)
	}
}

// sameTime is the difference below which both clocks count as equal: reading both
// takes a moment, and a Clock may be coarse.
const sameTime = time.Second

// Wall turns a time of the clock into the system's time.
func (c *Clock) Wall(t time.Time) time.Time { return t.Add(c.behind()) }

// FromWall turns a time of the system's clock into one of this clock.
func (c *Clock) FromWall(t time.Time) time.Time { return t.Add(-c.behind()) }

// behind returns by how much the system's clock is ahead.
func (c *Clock) behind() time.Duration {
	d := c.system().Round(0).Sub(c.Now())
	if d.Abs() < sameTime {
		return 0
	}
	return d
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if ns := c.coarse.Load(); ns != 0 {
		return c.wall.Add(time.Duration(ns))
	}
	return c.wall.Add(c.read())
}

// read reads the processor's clock, and makes the Clock coarse if that happens too
// often.
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

// tick updates the coarse time until no ticks are left.
func (c *Clock) tick(left int) {
	if left == 0 {
		c.since.Store(0)
		c.coarse.Store(0)
		return
	}
	c.coarse.Store(max(int64(time.Since(c.start)), 1))
	time.AfterFunc(coarseTick, func() { c.tick(left - 1) })
}
