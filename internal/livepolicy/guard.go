package livepolicy

import (
	"net/http"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/internal/setup"
)

// GuardOptions returns the options of an [httpguard.Handler] for a runtime. The
// functions Refused, Passed, Waited, Failed and Unjudged of base are called too; all
// other fields that a policy file decides are replaced.
func (p *Policy) GuardOptions(rt *Runtime, base httpguard.Options) httpguard.Options {
	opts := base
	wall := func(t time.Time) time.Time { return rt.sharedWall(p, t) }
	opts.Client = func(r *http.Request) httpguard.Client { return p.client(rt, r) }
	opts.Bot = rt.Bots.Verifier.Look
	opts.SignedBot = func(r *http.Request, addr netip.Addr, claimed fairshare.Bot) fairshare.Bot {
		return rt.Bots.Verifier.LookSigned(setup.SignedRequest(r, rt.isSecure(r)), addr, claimed,
			wall(p.Now()))
	}
	if rt.File.BanExport != nil {
		opts.Bot, opts.SignedBot = p.noteBots(opts.Bot, opts.SignedBot)
	}
	opts.CanSign = func(bot fairshare.Bot) bool { return rt.Bots.Verifier.Signs(bot.Name) }
	if rt.Owners != nil {
		opts.Owner = rt.Owners.Owner
	}
	opts.Fleets = p.fleets
	opts.Robots = p.robotsOf(rt)
	if rt.File.UsesAttempts() {
		opts.Logins = p.logins
	}
	if rt.File.UsesBrowsers() || rt.Share != nil || opts.Logins != nil {
		opts.Browser = &p.browsers
	}
	opts.Lookups = rt.Bots.Lookups()
	opts.Override = p.state.override()
	opts.Contact = rt.File.Contact
	opts.Answers = rt.File.Answers.ByRule()
	opts.Texts = p.texts(rt)
	opts.Share, opts.Shares = rt.Share, rt.Shares
	opts.Visitors, opts.Members, opts.Secure = rt.Visitors, rt.Members, rt.isSecure
	opts.WaitingRoom = p.room(rt)
	opts.RoomFirst = func(req *fairshare.Request) bool { return p.waitsFirst(rt, req) }
	opts.ReferenceKey = p.state.referenceKey
	opts.FailOpen = rt.File.FailOpen
	opts.Now, opts.Wall = p.options.Now, wall
	opts.Refused = func(r *httpguard.Report) {
		if base.Refused != nil {
			base.Refused(r)
		}
		p.refused(r)
	}
	opts.Waited = func(r *http.Request, wait time.Duration) {
		p.census.Waited()
		if base.Waited != nil {
			base.Waited(r, wait)
		}
	}
	opts.Passed = func(passage *httpguard.Completion) {
		p.reports.Passed(passage)
		if base.Passed != nil {
			base.Passed(passage)
		}
	}
	opts.Failed = func(r *http.Request, err error) {
		p.errors.add(err)
		if base.Failed != nil {
			base.Failed(r, err)
		}
	}
	opts.Unjudged = func(r *http.Request, passed bool) {
		p.errors.addUnjudged(passed)
		if base.Unjudged != nil {
			base.Unjudged(r, passed)
		}
	}
	return opts
}

// noteBots returns functions that also remember the addresses of bots.
func (p *Policy) noteBots(look func(netip.Addr, string) fairshare.Bot,
	signed func(*http.Request, netip.Addr, fairshare.Bot) fairshare.Bot) (func(netip.Addr, string) fairshare.Bot,
	func(*http.Request, netip.Addr, fairshare.Bot) fairshare.Bot) {
	note := func(addr netip.Addr, bot fairshare.Bot) fairshare.Bot {
		p.export.bots.saw(addr, &bot, p.Now())
		return bot
	}
	return func(addr netip.Addr, agent string) fairshare.Bot { return note(addr, look(addr, agent)) },
		func(r *http.Request, addr netip.Addr, claimed fairshare.Bot) fairshare.Bot {
			return note(addr, signed(r, addr, claimed))
		}
}

// client returns the client of a request, and notices proxies that are not
// configured as they should be.
func (p *Policy) client(rt *Runtime, r *http.Request) httpguard.Client {
	found := p.watch.Resolve(rt.Clients, r.RemoteAddr, r.Header)
	if !found.PeerTrusted && !found.Via.IsValid() && !r.ProtoAtLeast(1, 1) &&
		rt.Clients.MayNameClients(found.Peer) && p.watch.HidesClients(found.Peer) {
		found.Via = clientaddr.Via(found.Peer) // nginx with only proxy_pass sends no header
	}
	if found.Via.IsValid() {
		p.foundProvisional.Do(func() { close(p.provisional) })
	}
	p.census.Saw(found.Addr, found.Via)
	return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy, Via: found.Via}
}

// Provisional returns a channel that is closed when a local peer that the
// policy does not name has named a client for the first time.
func (p *Policy) Provisional() <-chan struct{} { return p.provisional }
