package livepolicy

import (
	"fairshare/internal/registrar"
	"fairshare/memlimit"
	"fairshare/share"
)

// Figures describe a policy in force. Totals are since the start.
type Figures struct {
	Share    *share.Stats // nil: share is off
	Bans     int          // that rules began, in memory
	Attack   bool         // attack mode is on
	Limiter  memlimit.Stats
	Registry *registrar.Stats // nil: there is none
}

// Figures returns the present figures. It reads a sample of the counters: some 100 µs. Call it after
// OpenState.
func (p *Policy) Figures() Figures {
	now, rt := p.Now(), p.Current()
	f := Figures{Bans: p.bans.Len(), Attack: p.attack.isOn(p.Now), Limiter: rt.Limiter.Stats(now)}
	if rt.Share != nil {
		stats := rt.Share.Stats()
		f.Share = &stats
	}
	if p.state.registrar != nil {
		stats := p.state.registrar.Stats()
		f.Registry = &stats
	}
	return f
}
