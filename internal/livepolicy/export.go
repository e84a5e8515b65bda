package livepolicy

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/internal/banexport"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/policyfile"
	"fairshare/registry"
)

// ExportedFile is the file in the state folder with the bans for which a program was run.
const ExportedFile = "exported.json"

const mostNotes = 200 // lines about bans that are not exported

// An export hands bans to what the policy names.
type export struct {
	exporter atomic.Pointer[banexport.Exporter]
	terms    *policyfile.BanExport // of exporter; nil if there is none
	bots     botSights
	noted    map[string]bool // bans that are not exported, as logged; used by exporter
}

// startExport begins to hand bans to what the policy in force names, or goes on, or ends it.
// Only the process whose counters are in the state folder does so, maybe some time after its
// start.
func (p *Policy) startExport() {
	file, terms := p.Current().File, p.exportTerms()
	if reflect.DeepEqual(terms, p.export.terms) {
		p.exportChanged()
		return
	}
	p.stopExport()
	if p.export.terms = terms; terms == nil {
		return
	}
	most := terms.Max
	if most == 0 {
		most = policyfile.DefaultMaxExported
	}
	p.export.noted = map[string]bool{}
	p.export.exporter.Store(banexport.New(banexport.Options{
		Sinks: p.sinks(file, terms), Max: most, Bans: p.exportedBans, Now: p.wallNow, Log: p.options.Log,
	}))
}

// exportTerms returns where the policy in force hands bans to; nil if nowhere.
func (p *Policy) exportTerms() *policyfile.BanExport {
	if file := p.Current().File; !file.Policy.DryRun && p.OwnsState() {
		return file.BanExport
	}
	return nil
}

// stopExport removes all exported bans.
func (p *Policy) stopExport() {
	p.export.exporter.Swap(nil).Close(false)
	p.export.terms = nil
}

// exportChanged says that bans or decisions of operators have changed.
func (p *Policy) exportChanged() { p.export.exporter.Load().Changed() }

// wallNow returns the present by the system's clock. It is not behind, as Now may be.
func (p *Policy) wallNow() time.Time { return p.Wall(p.options.Clock.Now()) }

// sinks returns what the policy names.
func (p *Policy) sinks(file *policyfile.File, terms *policyfile.BanExport) (all []banexport.Sink) {
	if t := terms.NFTables; t != nil {
		sink := &banexport.NFTables{Reject: t.Reject, Ports: t.Ports, Now: p.wallNow}
		if t.Ports == nil && !t.AllPorts {
			sink.Ports = policyfile.DefaultBanPorts
		}
		all = append(all, sink)
	}
	if t := terms.Nginx; t != nil {
		all = append(all, &banexport.Nginx{Path: file.ResolvePath(t.File), Geo: t.Geo, Reload: t.Reload})
	}
	if t := terms.HAProxy; t != nil {
		all = append(all, &banexport.HAProxy{Path: file.ResolvePath(t.File), Socket: t.Socket})
	}
	if t := terms.Command; t != nil && t.Lines != nil {
		all = append(all, &banexport.Lines{Argv: t.Lines, Now: p.wallNow})
	} else if t != nil {
		path := ""
		if p.state.folder != "" {
			path = filepath.Join(p.state.folder, ExportedFile)
		}
		all = append(all, &banexport.Command{Ban: t.Ban, Unban: t.Unban, Path: path, Now: p.wallNow})
	}
	return all
}

// DescribeExport says where bans are handed to; "" if nowhere.
func (p *Policy) DescribeExport() string {
	file, terms := p.Current().File, p.exportTerms()
	if terms == nil {
		return ""
	}
	var names []string
	for _, s := range p.sinks(file, terms) {
		names = append(names, s.Name())
	}
	text := "bans are handed to " + prose.List(names, "and")
	partial := 0
	for i := range file.Policy.Rules {
		if r := &file.Policy.Rules[i]; r.Ban != nil && !policyfile.Exports(r) {
			partial++
		}
	}
	if partial > 0 {
		text += fmt.Sprintf("; not those of %s: they hold for some requests only", prose.Plural(int64(partial), "rule"))
	}
	return text
}

// exportedBans returns the bans to export: those of rules that hold for all requests, and
// those of operators.
func (p *Policy) exportedBans() (all []banexport.Ban) {
	rt, now := p.Current(), p.wallNow()
	if rt.File.Policy.DryRun {
		return nil
	}
	protected := p.protectedPrefixes(rt, now)
	rules := map[string]*fairshare.Rule{}
	for i := range rt.File.Policy.Rules {
		if r := &rt.File.Policy.Rules[i]; policyfile.Exports(r) {
			rules[r.Name] = r
		}
	}
	add := func(prefix netip.Prefix, until, began time.Time, rule *fairshare.Rule) {
		prefix = network.Canonical(prefix)
		b := banexport.Ban{Prefix: prefix, Until: until}
		if rule != nil {
			b.Rule = rule.Name
		}
		if why := protected.reason(prefix, rule, began); why != "" {
			p.note(fmt.Sprintf("the ban of %s is not exported: %s", prefix, why))
			return
		}
		all = append(all, b)
	}
	bits4, bits6 := network.ClientBits(rt.File.Policy.IPv4Prefix, rt.File.Policy.IPv6Prefix)
	p.bans.InForce(p.options.Clock.FromWall(now), bits4, bits6, func(b fairshare.BanRecord) {
		rule := rules[b.Rule]
		switch {
		case rule == nil:
		case b.Kind == fairshare.ByBot:
			p.note("bans of bots are not exported: they have no address")
		case b.Client.Via.IsValid():
			p.note("bans of clients that only an unnamed proxy reports are not exported: name the proxy in trusted_proxies")
		default:
			add(b.Client.Prefix, p.Wall(b.Until), b.Began, rule)
		}
	})
	if p.state.registrar != nil {
		p.state.registrar.Overrides(now, func(o registry.OverrideRecord) {
			switch {
			case o.Action == fairshare.Allow:
			case o.Client.Bot != "":
				p.note("operators' bans of bots are not exported: they have no address")
			default:
				add(o.Client.Prefix, o.Until, time.Time{}, nil)
			}
		})
	}
	return all
}

// note logs once why a ban is not exported.
func (p *Policy) note(text string) {
	if p.export.noted[text] || len(p.export.noted) > mostNotes {
		return
	}
	if p.export.noted[text] = true; len(p.export.noted) > mostNotes {
		text = "more bans are not exported; this is not said of each"
	}
	p.options.Log("export: " + text)
}

// A protection knows the addresses whose bans are never exported.
type protection struct {
	fixed   []protectedPrefix
	allowed []netip.Prefix // by operators
	rules   []*policyfile.AddrSet
	exempt  func(addr netip.Addr, rule *fairshare.Rule) bool

	bits4, bits6 int  // length of a client's prefix: a shorter one is of a network
	identities   bool // a rule allows clients by facts that differ within a network; not only verified bots
	bots         *seenBots
}

type protectedPrefix struct {
	netip.Prefix
	why string
}

// neverExported are addresses that no client on the Internet has.
var neverExported = []protectedPrefix{
	{netip.MustParsePrefix("127.0.0.0/8"), "it is this machine itself"},
	{netip.MustParsePrefix("::1/128"), "it is this machine itself"},
	{netip.MustParsePrefix("0.0.0.0/8"), "it is not an address of a client"},
	{netip.MustParsePrefix("::/128"), "it is not an address of a client"},
	{netip.MustParsePrefix("169.254.0.0/16"), "it is an address of the local link"},
	{netip.MustParsePrefix("fe80::/10"), "it is an address of the local link"},
	{netip.MustParsePrefix("224.0.0.0/3"), "it is not an address of a client"},
	{netip.MustParsePrefix("ff00::/8"), "it is not an address of a client"},
}

// sharedNetworks returns the addresses of well-known proxies: behind one of them are many
// clients, if the policy does not trust it or the log does not have their addresses.
var sharedNetworks = sync.OnceValue(func() (all []sharedNetwork) {
	for _, n := range []struct{ trust, name string }{{"private", "a private network"}, {"cloudflare", "Cloudflare"},
		{"fastly", "Fastly"}, {"cloudfront", "CloudFront"}} {
		proxies, err := clientaddr.ParseProxies(n.trust)
		if err != nil {
			panic(err) // the names are built in
		}
		set := new(policyfile.AddrSet)
		set.Replace(proxies.Prefixes)
		all = append(all, sharedNetwork{set, fmt.Sprintf("it is of %s, where one address may be many clients: log the "+
			"forwarded address, and name %s in trusted_proxies", n.name, n.trust)})
	}
	return all
})

type sharedNetwork struct {
	*policyfile.AddrSet
	why string
}

// namesClients reports whether a permission tests who a client is, by facts that differ within
// a network and that are not addresses. Bots are not meant: a permission holds for verified ones
// only, and these are protected. In Not, they are meant.
func namesClients(m *fairshare.Match) bool {
	return m.Label != nil || m.ASN != nil || m.Hostname != nil ||
		slices.ContainsFunc(m.Not, func(not fairshare.Match) bool {
			return not.Bot != nil || not.State != nil || not.Operator != nil || namesClients(&not)
		})
}

// testsOnlyClients reports whether a condition tests only who a client is. Bans do not hold
// for clients that a rule allows by such a condition.
func testsOnlyClients(m fairshare.Match) bool {
	m.Addr, m.Label, m.ASN, m.Hostname, m.Bot, m.State, m.Operator, m.Not = nil, nil, nil, nil, nil, nil, nil, nil
	return reflect.ValueOf(m).IsZero()
}

// protectedPrefixes returns the protection at a time of the system's clock.
func (p *Policy) protectedPrefixes(rt *Runtime, now time.Time) *protection {
	all := &protection{fixed: slices.Clone(neverExported), bots: p.export.bots.list(rt.Bots.Verifier, p.Now())}
	all.bits4, all.bits6 = network.ClientBits(rt.File.Policy.IPv4Prefix, rt.File.Policy.IPv6Prefix)
	if own, err := net.InterfaceAddrs(); err == nil {
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					addr = addr.Unmap().WithZone("")
					all.fixed = append(all.fixed, protectedPrefix{netip.PrefixFrom(addr, addr.BitLen()),
						"it is this machine itself"})
				}
			}
		}
	}
	for _, proxy := range rt.Clients.Trusted() {
		all.fixed = append(all.fixed, protectedPrefix{network.Canonical(proxy), "a trusted proxy is in it"})
	}
	for i := range rt.File.Policy.Rules {
		r := &rt.File.Policy.Rules[i]
		if set, ok := r.Match.Addr.(*policyfile.AddrSet); ok && r.Action == fairshare.Allow && !r.DryRun {
			all.rules = append(all.rules, set)
		}
		if r.Action == fairshare.Allow && !r.DryRun && testsOnlyClients(r.Match) {
			all.identities = all.identities || namesClients(&r.Match)
		}
	}
	find := p.state.override()
	all.exempt = func(addr netip.Addr, rule *fairshare.Rule) bool {
		req := fairshare.Request{Time: p.Now(), Addr: addr, Lookups: rt.Bots.Lookups()}
		if rt.Owners != nil {
			req.Owner = rt.Owners.Owner(addr)
		}
		if find != nil {
			req.Override = find(addr, fairshare.Bot{}, p.Now())
		}
		if m := unless(rule); m != nil {
			for _, label := range m.Label {
				if slices.Contains(req.Override.Labels, strings.ToLower(label)) {
					return true
				}
			}
		}
		return rt.Guard.IsExempt(&req)
	}
	if p.state.registrar != nil {
		p.state.registrar.Overrides(now, func(o registry.OverrideRecord) {
			if o.Action == fairshare.Allow && o.Client.Prefix.IsValid() {
				all.allowed = append(all.allowed, network.Canonical(o.Client.Prefix))
			}
		})
	}
	return all
}

// reason says why a ban that began at a time is not exported; "" if it is. rule is nil for a ban of an
// operator.
func (a *protection) reason(prefix netip.Prefix, rule *fairshare.Rule, began time.Time) string {
	for _, f := range a.fixed {
		if f.Overlaps(prefix) {
			return f.why
		}
	}
	for _, allowed := range a.allowed {
		// The decision about the narrower prefix holds.
		if allowed.Overlaps(prefix) && (rule != nil || allowed.Bits() >= prefix.Bits()) {
			return "operators allow " + strings.TrimSuffix(allowed.String(), "/32")
		}
	}
	if rule == nil {
		return ""
	}
	for _, n := range sharedNetworks() {
		if n.Overlaps(prefix) {
			return n.why
		}
	}
	for _, set := range a.rules {
		if set.Overlaps(prefix) {
			return "a rule of the policy allows an address in it"
		}
	}
	if m := unless(rule); m != nil {
		if set, ok := m.Addr.(*policyfile.AddrSet); ok && set.Overlaps(prefix) {
			return "the rule's unless names an address in it"
		}
	}
	if why := a.bots.reason(prefix, began); why != "" {
		return why
	}
	if a.isNetwork(prefix) {
		switch m := unless(rule); {
		case a.identities:
			return "it is a network, and a rule of the policy may allow a client in it by label, owner or host name"
		case m != nil && namesClients(m):
			return "it is a network, and the rule's unless may hold for a client in it"
		}
		return ""
	}
	if a.exempt(prefix.Addr(), rule) {
		return "a rule of the policy allows it"
	}
	return ""
}

// isNetwork reports whether a prefix has more addresses than a client.
func (a *protection) isNetwork(prefix netip.Prefix) bool {
	if prefix.Addr().Is4() {
		return prefix.Bits() < a.bits4
	}
	return prefix.Bits() < a.bits6
}

// unless returns the condition that requests of a banned client meet to pass; nil if there
// is none.
func unless(rule *fairshare.Rule) *fairshare.Match { return rule.Ban.Unless }
