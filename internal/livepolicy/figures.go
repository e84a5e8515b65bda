package livepolicy

import (
	"fairshare/internal/registrar"
	"fairshare/internal/storebans"
	"fairshare/memlimit"
	"fairshare/redislimit"
	"fairshare/share"
)

// Figures describe a policy in force. Totals are since the start.
type Figures struct {
	Share    *share.Stats  // of all upstreams together; nil: share is off
	Sites    []SiteFigures // in no order; nil without sites
	Bans     int           // that rules began, in memory
	Attack   bool          // attack mode is on
	Limiter  memlimit.Stats
	Registry *registrar.Stats   // nil: there is none
	Group    *redislimit.Status // nil: this program counts for itself
	Shared   *storebans.Stats   // of bans of the group; nil: none are shared
}

// SiteFigures describe the queue of a site.
type SiteFigures struct {
	Name  string
	Share share.Stats
}

// Queues returns the queues of all sites. Without sites, the only one has no name.
func (f *Figures) Queues() []SiteFigures {
	if f.Share != nil && len(f.Sites) == 0 {
		return []SiteFigures{{Share: *f.Share}}
	}
	return f.Sites
}

// Figures returns the present figures. It reads a sample of the counters: some 100 µs. Call it after
// OpenState.
func (p *Policy) Figures() Figures {
	p.FlushReports()
	now, rt := p.Now(), p.Current()
	f := Figures{Bans: p.bans.Len(), Attack: p.attack.isOn(p.Now), Limiter: rt.Limiter.Stats(now)}
	f.Share = rt.queueStats()
	for name, queue := range rt.Shares {
		f.Sites = append(f.Sites, SiteFigures{Name: name, Share: queue.Stats()})
	}
	if rt.Group != nil {
		status := rt.Group.Status()
		f.Group = &status
	}
	if shared := p.shared.bans.Load(); shared != nil {
		stats := shared.Stats()
		f.Shared = &stats
	}
	if p.state.registrar != nil {
		stats := p.state.registrar.Stats()
		f.Registry = &stats
	}
	return f
}
