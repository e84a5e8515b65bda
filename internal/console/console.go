// Package console is what a running server shows to its operators, as plain values, and what they may
// do there. The pages, the JSON API and the commands show the same values. Start with [New].
package console

import (
	"context"
	"sync"
	"time"

	"fairshare/httpguard"
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

// New returns a Console of a server.
func New(opts Options) *Console { return &Console{Options: opts} }

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
			c.Traffic.Tick(now, c.Policy.Wall(now), load)
		}
	}
}

// Passed counts a request that has ended.
func (c *Console) Passed(p *httpguard.Completion) {
	c.Traffic.Passed(p, c.Policy.Current().File.Policy.Client(p.Addr))
}

// Refused counts a refusal or block.
func (c *Console) Refused(r *httpguard.Report) {
	c.Traffic.Refused(r, c.Policy.Current().File.Policy.Client(r.Request.Addr), livepolicy.LoggablePath(r.Request),
		c.Policy.Wall(r.Request.Time))
}

// Unjudged counts a request that could not be judged.
func (c *Console) Unjudged() { c.Traffic.Unjudged() }

// registry returns the registry, or nil.
func (c *Console) registry() registry.Reader { return c.Policy.Registry() }

// wall returns the system's time.
func (c *Console) wall() time.Time { return c.Policy.Wall(c.Policy.Now()) }
