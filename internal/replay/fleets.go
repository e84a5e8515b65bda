package replay

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fairshare"
	"fairshare/fleets"
	"fairshare/internal/accesslog"
	"fairshare/internal/prose"
)

// A BrowserFleet is a group of clients with user agents of browsers that behave as one
// program; see package fleets.
type BrowserFleet struct {
	Name      string    `json:"name"`
	Shared    string    `json:"shared"`   // what the clients have in common
	Evidence  string    `json:"evidence"` // why they are a fleet
	From      time.Time `json:"from"`     // when it was found, UTC
	To        time.Time `json:"to"`       // its latest request
	Times     int       `json:"times"`    // how often it was found; the next fields are about all of them
	Addresses int64     `json:"addresses"`
	Networks  int64     `json:"networks"` // IPv4 /24 and IPv6 /48
	Requests  int64     `json:"requests"` // for pages
	Refused   int64     `json:"refused"`  // or blocked
	Judged    int64     `json:"judged"`   // clients when it was found
	Assets    int64     `json:"assets"`   // of these: clients that asked for a page's assets
	Usual     float64   `json:"usual"`    // share of the site's other browsers that did
}

// Assetless has the figures of clients with a browser's user agent that got pages and
// never asked for an asset. Some are people whose browsers have the assets in their
// caches.
type Assetless struct {
	Known    bool  `json:"known"` // the log has the facts that are necessary
	Clients  int64 `json:"clients"`
	Networks int64 `json:"networks"` // IPv4 /24 and IPv6 /48
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"` // or blocked
	Browsers int64 `json:"browsers"`
	Fetched  int64 `json:"fetched"` // of Browsers, clients that got pages: asked for assets, too
}

// A TopOwner has the figures of one owner of addresses.
type TopOwner struct {
	ASN      uint32 `json:"asn"` // 0: the table knows no owner
	Name     string `json:"name"`
	Type     string `json:"type"`
	Clients  int64  `json:"clients"`
	Networks int64  `json:"networks"`
	Requests int64  `json:"requests"`
	Refused  int64  `json:"refused"` // or blocked
}

// mostFleets bounds the fleets in a report.
const mostFleets = 1000

// fleetsOf collects what a Finder says of the lines. If the policy does not use fleets, the recorder
// looks for them: then the judge has less to do.
type fleetsOf struct {
	finder *fleets.Finder
	client func(netip.Addr) netip.Prefix
	readAt int64 // Unix ns of the last Changes
	all    []BrowserFleet
}

// usesFleets reports whether something that is judged depends on fleets.
func (o *Options) usesFleets() bool {
	return o.Trials != nil || slices.ContainsFunc(o.Policy.Limits(), func(l fairshare.Limit) bool {
		return slices.ContainsFunc(l.By, func(p fairshare.KeyPart) bool { return p.Kind == fairshare.ByFleet })
	})
}

// A judgedFleets finds the fleets of lines that have been judged, as the judge would have done it.
type judgedFleets struct {
	*fleetsOf
	header  entryHeader
	latest  int64 // as judge.latest
	sighted *fleets.Finder
	next    [together]fleets.Sighting // of sighted
	touched uint32                    // so that the compiler does not remove what only reads memory
}

// expect prepares for the next lines.
func (f *judgedFleets) expect(items []item) {
	f.sighted = f.finder
	for i := range items {
		f.next[i] = f.finder.Sight(&items[i].req)
	}
	f.touched += f.finder.Expect(f.next[:len(items)])
}

// line finds the fleet of a line, the one with index i of those that were expected.
func (f *judgedFleets) line(it *item, i int) {
	at := it.req.Time
	if f.latest-at.UnixNano() > int64(maxBackwards) && f.latest != math.MinInt64 {
		f.restart()
		f.latest = math.MinInt64
	}
	f.latest = max(f.latest, at.UnixNano())
	s := f.next[i]
	if f.sighted != f.finder {
		s = f.finder.Sight(&it.req)
	}
	f.header.entry = it.entry
	it.req.Header, it.req.Time = &f.header, time.Unix(0, f.latest)
	f.arrived(it, s, f.latest)
	f.judged(it, s, it.enforced.action)
	it.req.Time = at
}

// arrived finds the fleet of a line's client.
func (f *fleetsOf) arrived(it *item, s fleets.Sighting, at int64) {
	f.finder.ArrivedAs(s, &it.req, it.browser)
	if at-f.readAt >= int64(time.Minute) {
		f.readAt = at
		f.collect()
	}
}

// judged records the answer to a request that was allowed, or that it was not.
func (f *fleetsOf) judged(it *item, s fleets.Sighting, action fairshare.Action) {
	if action != fairshare.Allow {
		f.finder.Refused(it.req.Fleet)
		return
	}
	f.finder.AnsweredAs(s, &fleets.Answer{Addr: it.req.Addr, Method: it.req.Method, Path: it.req.Path,
		Status: it.entry.Status}, it.req.Time)
}

// collect adds the fleets that have ended.
func (f *fleetsOf) collect() {
	_, ended := f.finder.Changes(time.Time{})
	for i := range ended {
		f.add(&ended[i])
	}
}

// restart ends all fleets.
func (f *fleetsOf) restart() {
	if f.finder != nil {
		f.collect()
		for _, fl := range f.finder.Fleets(time.Time{}) {
			f.add(&fl)
		}
	}
	f.finder = fleets.New(fleets.Options{Client: f.client})
}

// add adds a fleet, or joins it with one of the same name.
func (f *fleetsOf) add(fl *fleets.Fleet) {
	for i := range f.all {
		if b := &f.all[i]; b.Name == fl.Name {
			b.To, b.Times = fl.Last.UTC(), b.Times+1
			b.Addresses, b.Networks = max(b.Addresses, fl.Addresses), max(b.Networks, fl.Networks)
			b.Requests, b.Refused = b.Requests+fl.Requests, b.Refused+fl.Refused
			return
		}
	}
	if len(f.all) == mostFleets {
		return
	}
	f.all = append(f.all, BrowserFleet{Name: fl.Name, Shared: fl.Shared(), Evidence: fl.Evidence(),
		From: fl.Since.UTC(), To: fl.Last.UTC(), Times: 1, Addresses: fl.Addresses, Networks: fl.Networks,
		Requests: fl.Requests, Refused: fl.Refused, Judged: fl.Judged, Assets: fl.Assets, Usual: fl.Usual})
}

// report returns all fleets, the one with the most requests first.
func (f *fleetsOf) report() []BrowserFleet {
	f.restart()
	slices.SortFunc(f.all, func(a, b BrowserFleet) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Name, b.Name))
	})
	return append([]BrowserFleet{}, f.all...)
}

// addAssetless adds the browsers without assets. order has the indexes of clients sorted
// by address.
func (rec *recorder) addAssetless(r *Report, order []uint32) {
	a := &r.Assetless
	for _, l := range rec.logs {
		const needed = accesslog.HasPath | accesslog.HasStatus | accesslog.HasUserAgent
		a.Known = a.Known || l.has&needed == needed
	}
	if !a.Known {
		return
	}
	var last netip.Prefix
	for _, i := range order {
		cl := rec.clients.at(int(i))
		if cl.facts.looks&looksPage == 0 || cl.facts.bot != 0 {
			continue
		}
		if ag := rec.agents.find(cl.facts.agent); ag == nil || !ag.facts.browser {
			continue
		}
		a.Browsers++
		if cl.facts.looks&looksAssets != 0 {
			a.Fetched++
			continue
		}
		a.Clients++
		a.Requests += int64(cl.count - cl.over)
		refused, blocked := rec.refusalsOf(cl)
		a.Refused += refused + blocked
		if n := networkOf(cl.facts.addr); n != last {
			a.Networks++
			last = n
		}
	}
}

// addOwners adds the owners with the most requests.
func (rec *recorder) addOwners(r *Report, order []uint32) {
	r.Owners = []TopOwner{}
	if rec.opts.Owner == nil {
		return
	}
	type sum struct {
		TopOwner
		last netip.Prefix
	}
	sums := map[uint32]*sum{}
	for _, i := range order {
		cl := rec.clients.at(int(i))
		owner := rec.opts.Owner(cl.facts.address())
		s := sums[owner.ASN]
		if s == nil {
			s = &sum{TopOwner: TopOwner{ASN: owner.ASN, Name: owner.Name, Type: owner.Type}}
			sums[owner.ASN] = s
		}
		refused, blocked := rec.refusalsOf(cl)
		s.Clients++
		s.Requests += int64(cl.count - cl.over)
		s.Refused += refused + blocked
		if n := networkOf(cl.facts.addr); n != s.last {
			s.Networks++
			s.last = n
		}
	}
	for _, s := range sums {
		r.Owners = append(r.Owners, s.TopOwner)
	}
	slices.SortFunc(r.Owners, func(a, b TopOwner) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.ASN, b.ASN))
	})
	r.Owners = r.Owners[:min(len(r.Owners), rec.opts.Top)]
}

// browserFleets writes the fleets with user agents of browsers.
func (p *printer) browserFleets(r *Report) {
	many := r.Assetless.Clients >= fleetClients && r.Assetless.Networks >= fleetNetworks && r.Assetless.Fetched > 0 &&
		20*r.Assetless.Requests >= r.Lines-r.Skipped
	if len(r.BrowserFleets) == 0 && !many {
		return
	}
	p.heading("Fleets: user agents of browsers, many addresses, one behavior")
	if len(r.BrowserFleets) > 0 {
		p.line("  %-10s%10s%10s%10s%10s  %s", "fleet", "addresses", "networks", "requests", "refused", "from (UTC)")
	}
	for i := range r.BrowserFleets {
		f := &r.BrowserFleets[i]
		if i == max(rowsOfFleets, len(r.Top)) {
			p.line("  and %d more: --json shows them", len(r.BrowserFleets)-i)
			break
		}
		estimate := func(n int64) string { return "~" + strings.TrimPrefix(prose.Estimate(n), "about ") }
		p.line("  %-10s%10s%10s%10s%10s  %s", f.Name, estimate(f.Addresses), estimate(f.Networks),
			prose.Number(f.Requests), dash(f.Refused), f.From.Format(stamp))
		p.text(4, 0, prose.Printable(f.Shared))
		p.text(4, 0, prose.Printable(f.Evidence))
	}
	if many {
		a := &r.Assetless
		p.text(2, 2, fmt.Sprintf("%s of %s clients with a browser's user agent got pages and never asked for a style "+
			"sheet, script or image, %s of the requests; they are in %s. The other %s did.", prose.Number(a.Clients),
			prose.Number(a.Browsers), prose.Percent(a.Requests, r.Lines-r.Skipped), prose.Plural(a.Networks, "network"),
			prose.Number(a.Fetched)))
	}
	if len(r.BrowserFleets) > 0 {
		p.text(2, 6, "hint: limit: {requests: 600, per: 1m, by: fleet, newcomers: {requests: 10, per: 1m}} counts a fleet "+
			"as one client; docs/fleets.md")
	}
}

// rowsOfFleets is how many fleets the text shows at least.
const rowsOfFleets = 5

// owners writes the owners with the most requests.
func (p *printer) owners(r *Report) {
	if len(r.Owners) == 0 {
		return
	}
	all := r.Lines - r.Skipped
	p.heading("Owners of addresses")
	p.line("  %10s%8s%10s%10s%10s  %s", "requests", "share", "refused", "clients", "networks", "owner")
	for _, o := range r.Owners {
		name := "(not in the table)"
		if o.ASN != 0 {
			name = strings.TrimSpace(fmt.Sprintf("AS%d %s", o.ASN, prose.Printable(o.Name)))
		}
		if room := p.Width - 2 - 48 - 2; utf8.RuneCountInString(name) > room {
			name = prose.Cut(name, room)
		}
		p.line("  %10s%8s%10s%10s%10s  %s", prose.Number(o.Requests), prose.Percent(o.Requests, all), dash(o.Refused),
			prose.Number(o.Clients), prose.Number(o.Networks), name)
	}
}
