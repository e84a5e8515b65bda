// Package traffic counts what passes through a server, for the operator's eyes: totals for each
// second and minute, refusals by rule, the keys with the most requests, and the latest refusals.
// Its memory is bounded, whatever clients send. Start with [New].
package traffic

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairshare"
	"fairshare/internal/reports"
	"fairshare/internal/toplist"
)

// A Dimension is what requests are grouped by.
type Dimension int

const (
	Clients  Dimension = iota // prefixes that count as one client
	Networks                  // /24 or /48
	Owners                    // autonomous systems; not of addresses that a peer has named, or of proxies
	Fleets
	Bots
	Agents // user agents
	Paths  // without the query
	Dimensions
)

// Measures of a key: see [toplist.Amounts].
const (
	Requests = iota // all, with those that were refused
	Refused         // refused or blocked
	DryRun          // passed, and would have been refused or blocked
	Bytes           // of answers
	Time            // of the upstream, in nanoseconds
)

// A Recorder counts requests. It is safe for concurrent use.
type Recorder struct {
	lists *toplist.Lists

	// Between lists.Lock and lists.Unlock:
	totals Totals
	rules  map[string]*RuleTotals
	recent recent

	mu        sync.Mutex // of the series
	last      Totals     // at the latest second
	began     time.Time
	seconds   ring
	minutes   ring
	minute    Point // the sum of the seconds of the present minute
	rotated   time.Time
	histories histories
}

// Totals are counts since the start.
type Totals struct {
	Passed   int64         `json:"passed"`  // requests that reached the site, with those of a dry run
	Refused  int64         `json:"refused"` // by a limit, a ban with an end, or a busy upstream
	Blocked  int64         `json:"blocked"`
	DryRun   int64         `json:"dry_run"` // passed, and would have been refused or blocked
	Unjudged int64         `json:"unjudged"`
	Failed   int64         `json:"failed"` // answers of the site from 500 to 599, or no answer
	Bytes    int64         `json:"bytes"`
	Time     time.Duration `json:"upstream_ns"`
}

// RuleTotals are the counts of one rule since the start.
type RuleTotals struct {
	Refused int64     `json:"refused"`
	Blocked int64     `json:"blocked"`
	DryRun  int64     `json:"dry_run"` // would have been refused or blocked
	Bans    int64     `json:"bans"`    // that it began, also those in dry run
	Last    time.Time `json:"last"`
}

// mostRules bounds the names of rules; a policy has at most some hundred, and reloads add names.
const mostRules = 4096

// New returns a Recorder that counts from now on.
func New(now time.Time) *Recorder {
	return &Recorder{lists: toplist.New(int(Dimensions), now), rules: map[string]*RuleTotals{}, began: now,
		rotated: now, seconds: newRing(secondsKept, time.Second), minutes: newRing(minutesKept, time.Minute)}
}

// Began returns when the counts began.
func (r *Recorder) Began() time.Time { return r.began }

// Passed counts requests that have ended. It allocates nothing.
func (r *Recorder) Passed(g *reports.Passages) {
	var keys keys
	keys.of(r.lists, &g.Sender)
	r.lists.Lock()
	defer r.lists.Unlock()
	t := &r.totals
	all := toplist.Amounts{Requests: int64(len(g.Requests))}
	for _, p := range g.Requests {
		amounts := toplist.Amounts{Requests: 1, Bytes: max(p.Bytes, 0), Time: int64(max(p.Took, 0))}
		if p.Took > 0 && (p.Status == 0 || p.Status >= 500) {
			t.Failed++
		}
		all[Bytes] += amounts[Bytes]
		all[Time] += amounts[Time]
		r.addPath(p.Path, &amounts)
	}
	t.Passed += all[Requests]
	t.Bytes += all[Bytes]
	t.Time += time.Duration(all[Time])
	keys.add(r.lists, &g.Sender, &all)
}

// Refused counts refusals or blocks, also those of a dry run. It allocates nothing but at the first refusal by
// a rule.
func (r *Recorder) Refused(g *reports.Refusals) {
	amounts := toplist.Amounts{Requests: g.N, Refused: g.N}
	if g.DryRun { // it is counted as a request when it has passed
		amounts = toplist.Amounts{DryRun: g.N}
	}
	rule, last := g.RuleName(), g.Last.Add(g.ClockAhead)
	var keys keys
	keys.of(r.lists, &g.Sender)
	r.lists.Lock()
	defer r.lists.Unlock()
	keys.add(r.lists, &g.Sender, &amounts)
	of := r.rules[rule]
	if of == nil {
		of = new(RuleTotals)
		if len(r.rules) < mostRules {
			r.rules[rule] = of
		}
	}
	if last.After(of.Last) {
		of.Last = last
	}
	switch {
	case g.DryRun:
		r.totals.DryRun += g.N
		of.DryRun += g.N
	case g.Action == fairshare.Block:
		r.totals.Blocked += g.N
		of.Blocked += g.N
	default:
		r.totals.Refused += g.N
		of.Refused += g.N
	}
	if g.Ban == fairshare.BanStarted {
		of.Bans += g.N
	}
	for _, p := range g.Paths {
		for m, n := range amounts {
			if n > 0 {
				amounts[m] = p.N
			}
		}
		r.addPath(p.Path, &amounts)
		r.recent.add().fill(g, p, rule)
	}
}

func (r *Recorder) addPath(path string, amounts *toplist.Amounts) {
	if path != "" {
		r.lists.Add(int(Paths), r.lists.HashString(path), nil, path, amounts)
	}
}

// Unjudged counts a request that could not be judged.
func (r *Recorder) Unjudged() {
	r.lists.Lock()
	r.totals.Unjudged++
	r.lists.Unlock()
}

// Totals returns the counts since the start.
func (r *Recorder) Totals() Totals {
	r.lists.Lock()
	defer r.lists.Unlock()
	return r.totals
}

// Rules returns the counts of each rule since the start, by its name.
func (r *Recorder) Rules() map[string]RuleTotals {
	r.lists.Lock()
	defer r.lists.Unlock()
	all := make(map[string]RuleTotals, len(r.rules))
	for name, t := range r.rules {
		all[name] = *t
	}
	return all
}

// Top returns what was counted in one dimension, in a time until now: see [toplist.Lists.Window].
func (r *Recorder) Top(d Dimension, length time.Duration, now time.Time) *toplist.Window {
	return r.lists.Window(int(d), length, now)
}

// ClientSums returns the sums of one client in a window of Clients.
func (r *Recorder) ClientSums(w *toplist.Window, client netip.Prefix, via netip.Addr) toplist.Row {
	var b [addressKey]byte
	return w.Find(r.lists.HashBytes(appendAddress(b[:0], client, via)))
}

// Recent returns the latest refusals for which match returns true, the latest first, at most n of those that are kept.
// A nil match means all of them.
func (r *Recorder) Recent(n int, match func(*Refusal) bool) []Refusal {
	r.lists.Lock()
	slots := slices.Concat(r.recent.slots[r.recent.next:], r.recent.slots[:r.recent.next])
	r.lists.Unlock()
	order := make([]*slot, len(slots))
	for i := range slots {
		order[len(slots)-1-i] = &slots[i]
	}
	slices.SortStableFunc(order, func(a, b *slot) int { return b.At.Compare(a.At) })
	found := make([]Refusal, 0, min(max(n, 0), len(order)))
	for _, s := range order {
		if len(found) == cap(found) {
			break
		}
		if e := s.refusal(); match == nil || match(&e) {
			found = append(found, e)
		}
	}
	return found
}
