package census

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/prose"
	"fairshare/internal/reports"
)

// Bounds of the report about a client that takes most of the upstream's time.
const (
	heavyPeriod   = time.Minute
	fewestHeavy   = 5 // requests
	busyAverage   = 2 // requests in progress at a busy upstream whose capacity is not known
	heavyEntries  = 64
	heavyPathSize = 64 // bytes
)

// A heavyTable finds the keys that used most of the upstream's time: Space Saving
// (Metwally, Agrawal, El Abbadi 2005). A key that used more than 1/64 of the time is in
// it. spent-over is a lower bound of a key's time. Its size is fixed.
type heavyTable struct {
	entries [heavyEntries]heavyEntry
}

// A heavyKey is a client or a network, an owner by its number, or a fleet.
type heavyKey struct {
	prefix netip.Prefix
	owner  uint32
	fleet  string
}

type heavyEntry struct {
	heavyKey
	name        string        // of the owner
	spent, over time.Duration // over: upper bound of the time of earlier keys in this entry
	requests    int64
	proxy       bool

	// The path that may have used most of this time, by majority vote (Boyer and Moore
	// 1981). It has used at least lead since it was set.
	path [heavyPathSize]byte
	n    int
	lead time.Duration
}

// heavy finds the clients, networks, fleets and owners that used most of the upstream's
// time in the present minute.
type heavy struct {
	mu       sync.Mutex
	since    time.Time
	clients  heavyTable
	networks heavyTable
	fleets   *heavyTable // nil until the first one
	owners   *heavyTable
	all      time.Duration
	holder   string // of the last minute: see Census.Holder
}

// pathGroup returns the folder of a path, or the path itself in the root folder:
// similar pages usually share a folder.
func pathGroup(path string) (name string, folder bool) {
	if slash := strings.LastIndexByte(path, '/'); slash > 0 {
		return path[:slash+1], true
	}
	return path, false
}

// entry returns the entry of a key, which may replace the one with the least time. name is the owner's.
func (t *heavyTable) entry(key heavyKey, name string) *heavyEntry {
	least := &t.entries[0]
	for i := range t.entries {
		e := &t.entries[i]
		if e.heavyKey == key {
			return e
		}
		if e.spent < least.spent {
			least = e
		}
	}
	*least = heavyEntry{heavyKey: key, name: name, spent: least.spent, over: least.spent}
	return least
}

// add counts time of the upstream.
func (e *heavyEntry) add(path string, proxy bool, took time.Duration) {
	e.spent += took
	e.requests++
	e.proxy = e.proxy || proxy
	name, _ := pathGroup(path)
	name = name[:min(len(name), heavyPathSize)]
	switch {
	case string(e.path[:e.n]) == name:
		e.lead += took
	case e.lead >= took:
		e.lead -= took
	default:
		e.n, e.lead = copy(e.path[:], name), took-e.lead
	}
}

// heaviest returns the key with the greatest lower bound.
func (t *heavyTable) heaviest() *heavyEntry {
	first := &t.entries[0]
	for i := range t.entries {
		if e := &t.entries[i]; e.spent-e.over > first.spent-first.over {
			first = e
		}
	}
	return first
}

// Passed records requests that reached the upstream. It allocates nothing.
func (c *Census) Passed(p *reports.Passages, now time.Time) {
	c.guesses.passed(p, c.state.Load())
	reached := func(r *reports.Passed) bool { return r.Took > 0 }
	if !p.Client.IsValid() || !slices.ContainsFunc(p.Requests, reached) {
		return
	}
	h := &c.heavy
	h.mu.Lock()
	defer h.mu.Unlock()
	var space [4]*heavyEntry
	of := append(space[:0], h.clients.entry(heavyKey{prefix: p.Client}, p.Owner.Name),
		h.networks.entry(heavyKey{prefix: network.Around(p.Client)}, p.Owner.Name))
	if p.Fleet != "" {
		if h.fleets == nil {
			h.fleets = new(heavyTable)
		}
		of = append(of, h.fleets.entry(heavyKey{fleet: p.Fleet}, p.Owner.Name))
	}
	if p.Owner.ASN != 0 && !p.Via.IsValid() && !p.Proxy { // else the address is not proved
		if h.owners == nil {
			h.owners = new(heavyTable)
		}
		of = append(of, h.owners.entry(heavyKey{owner: p.Owner.ASN}, p.Owner.Name))
	}
	for _, r := range p.Requests {
		if r.Took <= 0 {
			continue
		}
		took := min(r.Took, max(now.Sub(h.since), 0)) // the rest belongs to earlier minutes
		h.all += took
		for _, e := range of {
			e.add(r.Path, p.Proxy, took)
		}
	}
}

// Heavy returns the warning about a client, network, fleet or owner that used more than
// half of a busy upstream's time in the last minute, "" if there is none. Of several, the
// narrowest is named. The capacity is the number of requests that the upstream processes
// at once; 0 means that it is not shared. Call it as often as Tick.
func (c *Census) Heavy(now time.Time, capacity int) string {
	h := &c.heavy
	h.mu.Lock()
	defer h.mu.Unlock()
	lasted := now.Sub(h.since)
	if lasted < heavyPeriod {
		return ""
	}
	line := ""
	h.holder = ""
	average := float64(h.all) / float64(lasted)
	if busy := average >= busyAverage; busy && capacity == 0 || capacity > 0 && average >= float64(capacity)/2 {
		for _, t := range h.tables() {
			if e := t.heaviest(); line == "" && e.requests >= fewestHeavy && 2*(e.spent-e.over) > h.all {
				line = e.text(h.all, lasted, average, capacity > 0)
				h.holder = fmt.Sprintf("%s %s holds %s of the upstream", e.kind(), e, e.part(h.all))
			}
		}
	}
	h.since, h.all = now, 0
	for _, t := range h.tables() {
		*t = heavyTable{}
	}
	return line
}

// tables returns the tables in use, that with the narrowest keys first.
func (h *heavy) tables() []*heavyTable {
	tables := []*heavyTable{&h.clients, &h.networks}
	if h.fleets != nil {
		tables = append(tables, h.fleets)
	}
	if h.owners != nil {
		tables = append(tables, h.owners)
	}
	return tables
}

// Holder names the client, network, fleet or owner of the last warning of Heavy, and its
// part of the upstream's time; "" if there was none in the last minute.
func (c *Census) Holder() string {
	c.heavy.mu.Lock()
	defer c.heavy.mu.Unlock()
	return c.heavy.holder
}

// kind returns what a key is: client, network, fleet or owner.
func (k heavyKey) kind() string {
	switch p := k.prefix; {
	case k.fleet != "":
		return "fleet"
	case k.owner != 0:
		return "owner"
	case p.IsSingleIP(), p.Addr().Is6() && p.Bits() > network.Bits6:
		return "client"
	}
	return "network"
}

// String returns the key as commands spell it.
func (e *heavyEntry) String() string {
	switch {
	case e.fleet != "":
		return prose.Printable(e.fleet)
	case e.owner != 0:
		return prose.Printable(fairshare.Owner{ASN: e.owner, Name: e.name}.String())
	}
	return fairshare.PrefixID(e.prefix).String()
}

// part returns the entry's part of all time.
func (e *heavyEntry) part(all time.Duration) string {
	return prose.Percent(int64(e.spent-e.over), int64(all))
}

// text returns the warning about an entry. shared says that requests wait for turns.
func (e *heavyEntry) text(all, lasted time.Duration, average float64, shared bool) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"WARNING: ONE %s HAD MOST OF THE UPSTREAM'S TIME: %s had %s of %s of the upstream's time in %s, with %s",
		strings.ToUpper(e.kind()), e, e.part(all), seconds(all), prose.Last(lasted),
		prose.Plural(e.requests, "request"))
	if e.n > 0 && 2*e.lead > e.spent {
		path := string(e.path[:e.n])
		if strings.HasSuffix(path, "/") && len(path) > 1 {
			path += "*"
		} else if e.n == heavyPathSize {
			path += "…"
		}
		fmt.Fprintf(&b, ", most of it for %s", strconv.QuoteToGraphic(path))
	}
	people, help := "", "a limit of time or cpu in the policy, or share: (docs/cost.md)"
	if e.proxy {
		people = " It may be a proxy with many clients behind it."
	}
	if shared {
		help = "a limit of time or cpu in the policy (docs/cost.md); while others wait, it gets only its share"
	}
	switch e.kind() {
	case "client", "network":
		help += fmt.Sprintf("; fairshare client %s shows details, fairshare ban %[1]s refuses it", e)
	case "owner":
		help += fmt.Sprintf("; a rule with match: {asn: AS%d} limits it", e.owner)
	case "fleet":
		help += "; a limit by: fleet counts it as one client"
	}
	fmt.Fprintf(&b, ". The upstream was busy: it worked on %.1f requests at once on average.%s What helps: %s",
		average, people, help)
	return b.String()
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + " s"
}
