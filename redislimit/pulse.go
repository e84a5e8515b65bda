package redislimit

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// A pulse is a clock of the time in which this program ran. If the program or the machine is stalled, for example by
// SIGSTOP or for want of CPU time, the clock does not advance by more than mostPulse. So what took long only because
// of the stall does not count against the store. Its times are ns.
type pulse struct {
	mu   sync.Mutex
	own  int64 // the clock
	mono int64 // monotonic time when it was set
}

const (
	pulseEach = 20 * time.Millisecond
	mostPulse = int64(2 * pulseEach) // a tick may be late by as much as a period
)

// tick sets the clock at a monotonic time.
func (p *pulse) tick(mono int64) {
	p.mu.Lock()
	p.own += min(max(mono-p.mono, 0), mostPulse)
	p.mono = max(p.mono, mono)
	p.mu.Unlock()
}

// at returns the clock at a monotonic time.
func (p *pulse) at(mono int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own + min(max(mono-p.mono, 0), mostPulse)
}

// pulses ticks until the core stops.
func (c *core) pulses() {
	defer c.wg.Done()
	ticker := time.NewTicker(pulseEach)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			c.pulse.tick(c.mono())
		}
	}
}

// ownTime returns the time in ns in which this program ran since the start.
func (c *core) ownTime() int64 { return c.pulse.at(c.mono()) }

// stalled reports whether a call that began at an own time and ended with err had no time to be answered, since this
// program did not run meanwhile.
func (c *core) stalled(began int64, err error) bool {
	var timeout net.Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	return late && c.ownTime()-began < int64(beatEach)/2
}
