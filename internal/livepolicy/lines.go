package livepolicy

import (
	"net/netip"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// LogClient returns the client of a logged peer, as the handler of [Policy.GuardOptions]
// finds that of a request. forwarded is the logged forwarding header, "" if there is none.
func (p *Policy) LogClient(rt *Runtime, peer netip.Addr, forwarded string) httpguard.Client {
	var headers []string
	if forwarded != "" {
		headers = []string{forwarded}
	}
	found := rt.Clients.ResolveAddr(peer, headers...)
	p.census.Saw(found.Addr, found.Via)
	return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy, Via: found.Via}
}

// Reference returns the reference of a refusal, as a refused client is shown it.
func (p *Policy) Reference(req *fairshare.Request, rule *fairshare.Rule) string {
	return httpguard.Reference(p.state.referenceKey, &p.Current().File.Policy, req, rule)
}

// FromWall turns a time of the system's clock into one of the guard.
func (p *Policy) FromWall(at time.Time) time.Time { return p.options.Clock.FromWall(at) }

// OwnsState reports whether this process is the one whose counters are kept in the state
// folder. It is true also if there is no folder.
func (p *Policy) OwnsState() bool {
	return p.state.folder == "" || p.state.lock.Load() != nil || p.state.readOnly
}
