// Package httpguardtest has guards and a clock for tests of programs that use
// [fairshare/httpguard]: a handler is tested with [Passing], the answers to
// refused clients with [Refusing] and [Blocking].
package httpguardtest

import (
	"context"
	"sync"
	"time"

	"fairshare"
)

// RuleName is the name of the rule that refuses or blocks requests.
const RuleName = "test"

// Passing returns a guard that lets every request through. It counts nothing.
func Passing() *fairshare.Guard {
	return guard(fairshare.Rule{Name: RuleName, Action: fairshare.Allow}, 0)
}

// Blocking returns a guard that blocks every request.
func Blocking() *fairshare.Guard {
	return guard(fairshare.Rule{Name: RuleName, Action: fairshare.Block}, 0)
}

// Refusing returns a guard that refuses every request and tells clients to wait
// so long. wait is at least 1 ns; less counts as 1 ns.
func Refusing(wait time.Duration) *fairshare.Guard {
	limit := &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}
	return guard(fairshare.Rule{Name: RuleName, Limit: limit}, max(wait, 1))
}

func guard(rule fairshare.Rule, wait time.Duration) *fairshare.Guard {
	g, err := fairshare.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{rule}}, fixedLimiter{wait}, nil)
	if err != nil {
		panic(err) // the policies above are valid
	}
	return g
}

// A fixedLimiter refuses every take. wait is the wait in its tallies.
type fixedLimiter struct{ wait time.Duration }

var _ fairshare.Limiter = fixedLimiter{}

func (l fixedLimiter) Take(_ context.Context, _ time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	for i := range takes {
		tallies[i] = fairshare.Tally{Over: true, Used: 1, Wait: l.wait, Reset: l.wait}
	}
	return nil
}

func (fixedLimiter) Settle(context.Context, time.Time, []fairshare.Charge) error { return nil }

// A Clock shows the time that a test sets. Its method Now is for
// Options.Now of httpguard. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows start.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance sets the clock forward by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
