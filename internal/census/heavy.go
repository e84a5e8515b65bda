package census

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/internal/prose"
)

// A Passage is a request that was let through and has ended.
type Passage struct {
	Addr   netip.Addr
	Via    netip.Addr // the unnamed proxy that named Addr; else invalid
	Proxy  bool       // many clients may stand behind Addr
	Method string
	Path   string        // without the query
	Took   time.Duration // of the upstream
	Status int           // of the upstream; 0 when it gave no answer
}

// Bounds of the report about a client that takes most of the upstream's time.
const (
	heavyPeriod   = time.Minute
	fewestHeavy   = 5 // requests
	busyAverage   = 2 // requests in progress at a busy upstream whose capacity is not known
	heavyEntries  = 64
	heavyPathSize = 64 // bytes
)

// A heavy table finds the keys that had most of the upstream's time: Space
// Saving (Metwally, Agrawal, El Abbadi 2005). A key that had more than 1/64 of
// all time is in it. spent-over is never more than what a key had. Its size is fixed.
type heavyTable struct {
	all     time.Duration
	entries [heavyEntries]heavyEntry
}

type heavyEntry struct {
	prefix      netip.Prefix
	spent, over time.Duration // over: what earlier keys of this entry had, at most
	requests    int64
	proxy       bool

	// The path that may have most of it, by majority vote (Boyer and Moore 1981):
	// the path has had at least lead since it stands here.
	path [heavyPathSize]byte
	n    int
	lead time.Duration
}

// heavy are the clients and networks that had most of the upstream's time in
// the present minute.
type heavy struct {
	mu       sync.Mutex
	since    time.Time
	clients  heavyTable
	networks heavyTable
}

// pathGroup returns the folder of a path, or the path itself where that is the
// root: pages of one kind mostly share a folder.
func pathGroup(path string) (name string, folder bool) {
	if slash := strings.LastIndexByte(path, '/'); slash > 0 {
		return path[:slash+1], true
	}
	return path, false
}

// add counts time of the upstream for a key.
func (t *heavyTable) add(prefix netip.Prefix, p *Passage, took time.Duration) {
	t.all += took
	least := 0
	for i := range t.entries {
		e := &t.entries[i]
		if e.prefix == prefix {
			e.add(p, took)
			return
		}
		if e.spent < t.entries[least].spent {
			least = i
		}
	}
	e := &t.entries[least]
	*e = heavyEntry{prefix: prefix, spent: e.spent, over: e.spent}
	e.add(p, took)
}

func (e *heavyEntry) add(p *Passage, took time.Duration) {
	e.spent += took
	e.requests++
	e.proxy = e.proxy || p.Proxy
	name, _ := pathGroup(p.Path)
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

// heaviest returns the key that surely had most.
func (t *heavyTable) heaviest() *heavyEntry {
	first := &t.entries[0]
	for i := range t.entries {
		if e := &t.entries[i]; e.spent-e.over > first.spent-first.over {
			first = e
		}
	}
	return first
}

// Passed notes a request that was let through. It is quick and allocates nothing.
// of is what limits count the client as.
func (c *Census) Passed(p *Passage, of netip.Prefix, now time.Time) {
	c.guesses.passed(p, c.state.Load())
	if p.Took <= 0 || !of.IsValid() {
		return
	}
	h := &c.heavy
	h.mu.Lock()
	defer h.mu.Unlock()
	took := min(p.Took, max(now.Sub(h.since), 0)) // what was before belongs to minutes that are over
	h.clients.add(of, p, took)
	h.networks.add(network.Around(of), p, took)
}

// Heavy returns what is to be said of a client or a network that had more than
// half of the upstream's time in the last minute, while the upstream was busy.
// capacity is how many requests the upstream works on at once; 0: not known.
// It is to be called as often as Tick.
func (c *Census) Heavy(now time.Time, capacity int) string {
	h := &c.heavy
	h.mu.Lock()
	defer h.mu.Unlock()
	lasted := now.Sub(h.since)
	if lasted < heavyPeriod {
		return ""
	}
	line := ""
	average := float64(h.clients.all) / float64(lasted)
	if busy := average >= busyAverage; busy && capacity == 0 || capacity > 0 && average >= float64(capacity)/2 {
		for _, t := range []*heavyTable{&h.clients, &h.networks} {
			if e := t.heaviest(); line == "" && e.requests >= fewestHeavy && 2*(e.spent-e.over) > t.all {
				line = e.text(t.all, lasted, average)
			}
		}
	}
	h.since, h.clients, h.networks = now, heavyTable{}, heavyTable{}
	return line
}

// text makes one line of the key that had most.
func (e *heavyEntry) text(all, lasted time.Duration, average float64) string {
	var b strings.Builder
	client := fairshare.PrefixID(e.prefix)
	what, people := "client", ""
	if !e.prefix.IsSingleIP() {
		what = "network"
		if e.prefix.Addr().Is6() && e.prefix.Bits() > network.Bits6 {
			what = "client"
		}
	}
	if e.proxy {
		people = " It may be a proxy with many clients behind it."
	}
	had := e.spent - e.over
	fmt.Fprintf(&b,
		"WARNING: ONE %s HAD MOST OF THE UPSTREAM'S TIME: %s had %s of %s of the upstream's time in %s, with %s",
		strings.ToUpper(what), client, prose.Percent(int64(had), int64(all)), seconds(all), prose.Last(lasted),
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
	fmt.Fprintf(&b, ". The upstream was busy: it worked on %.1f requests at once on average.%s "+
		"What helps: a limit of time or cpu in the policy, or share: (docs/cost.md); fairshare client %s shows details, fairshare ban %[3]s refuses it",
		average, people, client)
	return b.String()
}

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', 0, 64) + " s"
}
