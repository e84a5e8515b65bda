// Package traffic counts what passes through a server, for the operator's eyes: totals for each
// second and minute, refusals by rule, the keys with the most requests, and the latest refusals.
// Its memory is bounded, whatever clients send. Start with [New].
package traffic

import (
	"net/netip"
	"sync"
	"time"

	"fairshare"
	"fairshare/httpguard"
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

// A sender is what a request is grouped by.
type sender struct {
	addr, via   netip.Addr
	client      netip.Prefix // of addr; invalid: the address is unknown
	proxy       bool
	owner       *fairshare.Owner
	fleet       string
	bot         *fairshare.Bot
	agent, path string
}

// Passed counts a request that has ended. client is the prefix that limits count as one client. It
// allocates nothing.
func (r *Recorder) Passed(c *httpguard.Completion, client netip.Prefix) {
	s := sender{addr: c.Addr, via: c.Via, client: client, proxy: c.Proxy, owner: &c.Owner, fleet: c.Fleet,
		bot:   &c.Bot,
		agent: c.UserAgent, path: c.Path}
	if c.Method == "CONNECT" {
		s.path = "" // some clients send a password in it
	}
	bytes := max(c.Bytes, 0)
	var keys keys
	keys.of(r.lists, &s)
	r.lists.Lock()
	t := &r.totals
	t.Passed++
	t.Bytes += bytes
	t.Time += max(c.Took, 0)
	if c.Took > 0 && (c.Status == 0 || c.Status >= 500) {
		t.Failed++
	}
	keys.add(r.lists, &s, &toplist.Amounts{Requests: 1, Bytes: bytes, Time: int64(c.Took)})
	r.lists.Unlock()
}

// Refused counts a refusal or block, also one of a dry run. client is as for Passed. wall is the
// system's time of the request, and path its path without credentials. It
// allocates nothing but at the first refusal by a rule.
func (r *Recorder) Refused(report *httpguard.Report, client netip.Prefix, path string, wall time.Time) {
	req := report.Request
	s := sender{addr: req.Addr, via: req.Via, client: client, proxy: req.Proxy, owner: &req.Owner, fleet: req.Fleet,
		bot: &req.Bot, agent: req.UserAgent, path: path}
	amounts := toplist.Amounts{Requests: 1, Refused: 1}
	if report.DryRun { // it is counted as a request when it has passed
		amounts = toplist.Amounts{DryRun: 1}
	}
	rule := ""
	if report.Finding.Rule != nil {
		rule = report.Finding.Rule.Name
	}
	var keys keys
	keys.of(r.lists, &s)
	r.lists.Lock()
	defer r.lists.Unlock()
	keys.add(r.lists, &s, &amounts)
	of := r.rules[rule]
	if of == nil {
		of = new(RuleTotals)
		if len(r.rules) < mostRules {
			r.rules[rule] = of
		}
	}
	of.Last = wall
	switch {
	case report.DryRun:
		r.totals.DryRun++
		of.DryRun++
	case report.Finding.Action == fairshare.Block:
		r.totals.Blocked++
		of.Blocked++
	default:
		r.totals.Refused++
		of.Refused++
	}
	if report.Finding.Ban == fairshare.BanStarted {
		of.Bans++
	}
	slot := r.recent.add()
	slot.fill(report, client, rule, wall)
	slot.method.set(req.Method)
	slot.host.set(req.Host)
	slot.path.set(path)
	slot.agent.set(req.UserAgent)
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

// Recent returns the latest refusals for which match returns true, the latest first, at most n. A nil
// match means all of them.
func (r *Recorder) Recent(n int, match func(*Refusal) bool) []Refusal {
	r.lists.Lock()
	all := make([]Refusal, 0, len(r.recent.slots))
	for i := range r.recent.slots {
		if match == nil && len(all) == n {
			break
		}
		all = append(all, r.recent.before(i))
	}
	r.lists.Unlock()
	found := all[:0]
	for i := range all {
		if len(found) < n && (match == nil || match(&all[i])) {
			found = append(found, all[i])
		}
	}
	return found
}
