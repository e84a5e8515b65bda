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

// A PassedRequest is a request that reached the upstream and has ended.
type PassedRequest struct {
	Addr   netip.Addr
	Via    netip.Addr // the proxy that named Addr, if the policy does not trust it; else invalid
	Proxy  bool       // Addr may have many clients behind it
	Method string
	Path   string        // without the query
	Took   time.Duration // the upstream's time
	Status int           // of the upstream's answer; 0 if there was none
}

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
	all     time.Duration
	entries [heavyEntries]heavyEntry
}

type heavyEntry struct {
	prefix      netip.Prefix
	spent, over time.Duration // over: upper bound of the time of earlier keys in this entry
	requests    int64
	proxy       bool

	// The path that may have used most of this time, by majority vote (Boyer and Moore
	// 1981). It has used at least lead since it was set.
	path [heavyPathSize]byte
	n    int
	lead time.Duration
}

// heavy finds the clients and networks that used most of the upstream's time in the
// present minute.
type heavy struct {
	mu       sync.Mutex
	since    time.Time
	clients  heavyTable
	networks heavyTable
}

// pathGroup returns the folder of a path, or the path itself in the root folder:
// similar pages usually share a folder.
func pathGroup(path string) (name string, folder bool) {
	if slash := strings.LastIndexByte(path, '/'); slash > 0 {
		return path[:slash+1], true
	}
	return path, false
}

// add counts time of the upstream for a key.
func (t *heavyTable) add(prefix netip.Prefix, p *PassedRequest, took time.Duration) {
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

func (e *heavyEntry) add(p *PassedRequest, took time.Duration) {
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

// Passed records a request that reached the upstream. It allocates nothing. of is the
// prefix that limits count as the client.
func (c *Census) Passed(p *PassedRequest, of netip.Prefix, now time.Time) {
	c.guesses.passed(p, c.state.Load())
	if p.Took <= 0 || !of.IsValid() {
		return
	}
	h := &c.heavy
	h.mu.Lock()
	defer h.mu.Unlock()
	took := min(p.Took, max(now.Sub(h.since), 0)) // the rest belongs to earlier minutes
	h.clients.add(of, p, took)
	h.networks.add(network.Around(of), p, took)
}

// Heavy returns the warning about a client or network that used more than half of a
// busy upstream's time in the last minute, "" if there is none. The capacity is the number
// of requests that the upstream processes at once; 0 means unknown. Call it as often
// as Tick.
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

// text returns the warning about an entry.
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
