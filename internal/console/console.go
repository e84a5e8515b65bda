// Package console is what a running server shows to its operators, as plain values, and what they may
// do there. The pages, the JSON API and the commands show the same values. Start with [New].
package console

import (
	"context"
	"sync"
	"time"

	"fairshare/internal/livepolicy"
	"fairshare/internal/traffic"
	"fairshare/registry"
)

// Options are the parts of a server that a Console shows. Version and Address may be empty.
type Options struct {
	Policy   *livepolicy.Policy
	Traffic  *traffic.Recorder
	Version  string
	Address  func() string // where the server listens
	Upstream func() string // "" for a server without one
	// Reload returns what a reload of the policy file changes. If apply is true, it also reloads, unless the plan
	// is another one: then it returns ErrChanged. nil: reloading is not possible.
	Reload func(ctx context.Context, plan string, apply bool) (*Reload, error)
}

// A Console shows a running server. It is safe for concurrent use. Its values belong to the caller,
// except those of Top, which nobody may change.
type Console struct {
	Options
	mu  sync.Mutex
	top map[topKey]*TopList // of the present second
	at  time.Time
}

// New returns a Console of a server. Call it before the first request: the Policy reports to Traffic from then on.
func New(opts Options) *Console {
	opts.Policy.Record(opts.Traffic)
	return &Console{Options: opts}
}

// Run counts seconds until ctx ends.
func (c *Console) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := c.Policy.Now()
			var load traffic.Load
			if q := c.Policy.Current().Share; q != nil {
				s := q.Stats()
				load = traffic.Load{Waiting: s.Waiting, InProgress: s.Inside, Capacity: s.Capacity}
			}
			c.counts().Tick(now, c.Policy.Wall(now), load)
		}
	}
}

// Unjudged counts a request that could not be judged.
func (c *Console) Unjudged() { c.Traffic.Unjudged() }

// counts returns what was counted until now.
func (c *Console) counts() *traffic.Recorder {
	c.Policy.FlushReports()
	return c.Traffic
}

// registry returns the registry, or nil.
func (c *Console) registry() registry.Reader { return c.Policy.Registry() }

// wall returns the system's time.
func (c *Console) wall() time.Time { return c.Policy.Wall(c.Policy.Now()) }
