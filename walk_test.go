package fairshare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// noLimiter lets every take pass.
type noLimiter struct{}

func (noLimiter) Take(_ context.Context, _ time.Time, _ []Take, tallies []Tally) error {
	clear(tallies)
	return nil
}

func (noLimiter) Settle(context.Context, time.Time, []Charge) error { return nil }

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// some returns one to three elements.
func some[T any](rnd *rand.Rand, of ...T) (chosen []T) {
	for range 1 + rnd.IntN(3) {
		chosen = append(chosen, pick(rnd, of...))
	}
	return chosen
}

func randomMatch(rnd *rand.Rand, depth int) (m Match) {
	if rnd.IntN(2) == 0 {
		m.Method = some(rnd, "GET", "post", "HEAD", "BREW", "re:^P", "PUT")
	}
	if rnd.IntN(2) == 0 {
		m.Path = some(rnd, "/", "/a", "/a/", "/a/b.css", "*.css", "*.git/config", "*/login", "*/a/login", "*/login/",
			"/a/*", "/b*/c", "*a*b*", "*", "re:^/a", "/Ä/*", "*.CSS", "")
	}
	if rnd.IntN(6) == 0 {
		m.Query = map[string][]string{pick(rnd, "x", "*"): some(rnd, "", "1", "*")}
	}
	if rnd.IntN(6) == 0 {
		m.Form = map[string][]string{pick(rnd, "x", "y", "*"): some(rnd, "1", "re:[1-3]", "*")}
	}
	if rnd.IntN(6) == 0 {
		m.Header = map[string][]string{pick(rnd, "Accept", "Referer"): some(rnd, "", "html", "re:e.*a")}
	}
	if rnd.IntN(10) == 0 {
		m.Hostname = some(rnd, "*.example.org", "a.example.org")
	}
	if rnd.IntN(6) == 0 {
		m.Bot = some(rnd, "known", "verified", "forged", "search")
	}
	if rnd.IntN(6) == 0 {
		m.UserAgent = some(rnd, "curl", "", "Moz")
	}
	if rnd.IntN(6) == 0 {
		m.Referer = some(rnd, "none", "self", "own", "other")
	}
	if rnd.IntN(6) == 0 {
		m.Cookie = some(rnd, "none", "any", "a")
	}
	if rnd.IntN(8) == 0 {
		m.Addr = Prefixes{netip.MustParsePrefix(pick(rnd, "192.0.2.0/24", "198.51.100.0/24"))}
	}
	if rnd.IntN(8) == 0 {
		m.Attempt = some(rnd, "login", "comment", "excess", "known")
	}
	if rnd.IntN(10) == 0 {
		m.Browser = some(rnd, "likely", "claimed", "contradicted")
	}
	if rnd.IntN(10) == 0 {
		m.Label = some(rnd, "friend", "re:^f")
	}
	if rnd.IntN(10) == 0 {
		m.Robots = []string{"disallowed"}
	}
	if rnd.IntN(4) == 0 && depth > 0 {
		m.Not = []Match{randomMatch(rnd, depth-1)}
	}
	return m
}

func randomPolicy(rnd *rand.Rand) *Policy {
	p := &Policy{FoldPaths: rnd.IntN(4) == 0}
	for i := range rnd.IntN(150) {
		r := Rule{Name: fmt.Sprint("rule ", i)}
		if r.Match = randomMatch(rnd, 1); i > 0 && rnd.IntN(3) == 0 {
			r.Match = p.Rules[i-1].Match
		}
		switch rnd.IntN(14) {
		case 12:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: MaxCrawlDelay, Algorithm: GCRA, CrawlDelay: true}
		case 13:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: time.Second, When: Busy}
		case 0:
			r.Action = Allow
		case 1:
			r.Action = Block
		case 2:
			r.Action, r.DryRun = Block, true
		default:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: time.Second}
			r.Last = rnd.IntN(12) == 0
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// hostname is a Lookups: the name of every address.
type hostname string

func (h hostname) Hostnames(netip.Addr) []string { return []string{string(h)} }

func (hostname) Listed(string, netip.Addr) []netip.Addr { return nil }

// loggedIn is a Logins: every client has logged in, or none.
type loggedIn bool

func (l loggedIn) HasLoggedIn(*Request) bool { return bool(l) }

// setLate sets what may become known of a request after MatchEarly.
func (r *Request) setLate(rnd *rand.Rand) {
	r.Lookups = pick[Lookups](rnd, nil, hostname("a.example.org"), hostname("b.example.org"))
	r.Attempt, r.Excess = pick(rnd, NoAttempt, NoAttempt, LoginAttempt, CommentAttempt), rnd.IntN(4) == 0
	r.Logins = pick[Logins](rnd, nil, loggedIn(false), loggedIn(true))
	r.Browser = pick(rnd, NotBrowser, BrowserClaimed, BrowserLikely, BrowserContradicted)
	r.Robots = pick(rnd, Robots{}, Robots{Delay: time.Second}, Robots{Disallowed: true})
	r.Override.Labels = pick(rnd, nil, []string{"friend"}, []string{"foe", "friend"})
}

func randomRequest(rnd *rand.Rand) *Request {
	req := &Request{Time: time.Unix(1_800_000_000, 0), Addr: netip.MustParseAddr("192.0.2.1"),
		Method: pick(rnd, "GET", "POST", "HEAD", "PUT", "get", "BREW", "OTHER", ""),
		Bot: pick(rnd, Bot{}, Bot{}, Bot{Name: "b", State: Claimed},
			Bot{Name: "g", Categories: []string{"search"}, State: Verified}, Bot{Name: "g", State: Forged}),
		UserAgent: pick(rnd, "curl", "", "Mozilla"),
		Via:       pick(rnd, netip.Addr{}, netip.Addr{}, netip.MustParseAddr("10.0.0.1")),
		Form:      pick(rnd, Form{}, Form{Encoded: "x=1&y=2"}, Form{Encoded: "z=4"}, Form{Unknown: true}),
	}
	req.setLate(rnd)
	switch rnd.IntN(3) {
	case 0:
		req.Header = http.Header{"Cookie": {"a=1"}, "Referer": {"https://example.org/a"}}
	case 1:
		req.Header = http.Header{"Referer": {"https://example.com/"}, "Accept": {"text/html"}}
	}
	req.SetTarget(pick(rnd, "/", "/a", "/a/", "/a/b.css", "/b/login", "/a/login", "/a/login/", "/bx/c",
		"/x.git/config", "/a//b", "/a/../b.css", "/a/b.CSS", "/%C3%84/x", "*", "/y/a/z/b", "/A/") +
		pick(rnd, "", "", "?x=1", "?y=2&x"))
	return req
}

// The walk with the index applies the same rules as the plain walk, whether the request was
// matched early or not, and whether the guard remembers how the walk begins or not.
func TestWalkAgreesWithPlainWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	indexed, early, begun := 0, 0, 0
	for range 300 {
		p := randomPolicy(rnd)
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		other, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		busy := rnd.IntN(2) == 0
		g.UseBusy(func() bool { return busy })
		for range 100 {
			req := randomRequest(rnd)
			matched := *req
			other.MatchEarly(&matched)
			if req.setLate(rnd); matched.early.policy != nil {
				early++
			}
			late := *req
			late.early = matched.early
			if rnd.IntN(2) == 0 { // as another client sends it, which is not a bot
				alike := randomRequest(rnd)
				alike.Method, alike.UserAgent, alike.Bot = req.Method, req.UserAgent, Bot{}
				alike.Path, alike.Query, alike.OddPath, alike.rawPath = req.Path, req.Query, req.OddPath, req.rawPath
				alike.Attempt, alike.Excess = NoAttempt, false
				d := g.decisions.New().(*decision)
				d.reset(alike, alike.Time)
				g.walk(d, new(Verdict))
			}
			var applied [3][]int32
			var blocks [3]*compiledRule
			var verdicts [3]Verdict
			var takes [3][]Take
			for i, walk := range [...]func(*decision, *Verdict) *compiledRule{g.walkAll, g.walk, g.walk} {
				d := g.decisions.New().(*decision)
				if d.reset(req, req.Time); i == 2 {
					d.reset(&late, late.Time)
				}
				if method, ok := d.set.index.method(req); ok && i == 1 {
					indexed++
					misses := g.begun.misses.Load()
					if len(d.set.rules) >= fewRules && g.begin(d, method, d.candidates) != nil &&
						g.begun.misses.Load() == misses {
						begun++
					}
				}
				blocks[i] = walk(d, &verdicts[i])
				d.fill()
				applied[i], takes[i] = d.matched, d.takes
			}
			for i := range applied {
				if !slices.Equal(applied[i], applied[0]) || blocks[i] != blocks[0] ||
					verdicts[i].DryRunFinding != verdicts[0].DryRunFinding || !reflect.DeepEqual(takes[i], takes[0]) {
					t.Fatalf("%s %s: rules %v with the index (early: %t), %v without it; takes %v and %v", req.Method,
						req.Path, applied[i], i == 2, applied[0], takes[i], takes[0])
				}
			}
		}
	}
	if indexed < 1000 {
		t.Errorf("only %d walks used the index", indexed)
	}
	if begun < 1000 {
		t.Errorf("of only %d walks the beginning was remembered", begun)
	}
	if early < 1000 {
		t.Errorf("only %d requests were matched early", early)
	}
}

// A probe is an AddrSet that stands for a condition and records that it is evaluated.
type probe struct {
	condition *condition
	d         *decision
	evaluated *[]*condition
}

func (p probe) Contains(netip.Addr) bool {
	*p.evaluated = append(*p.evaluated, p.condition)
	return p.condition.holds(p.d)
}

// A condition is evaluated only if a rule needs it: if those of the rule that cost less all hold.
// Otherwise the regexps that concern few clients would run for all of them.
func TestWalkEvaluatesTheCheapConditionsFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	needed := func(g *Guard, rules []int32, c *condition, d *decision) bool {
		return slices.ContainsFunc(rules, func(rule int32) bool {
			for _, other := range g.rules[rule].match {
				if other.cost() < c.cost() && !other.holds(d) {
					return false
				}
			}
			return true
		})
	}
	own, shared := 0, 0
	for range 300 {
		g, err := NewGuard(randomPolicy(rnd), noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := g.decisions.New().(*decision)
		var evaluated []*condition
		record := func(c *condition) *condition {
			return &condition{field: addrField, addrs: probe{c, d, &evaluated}}
		}
		x := g.sets[0].index
		rules := map[*condition][]int32{} // that have it
		for n, c := range x.shared {
			for i := range x.steps {
				if x.steps[i].uses>>n&1 == 1 {
					rules[c] = append(rules[c], x.steps[i].rule)
				}
			}
			x.shared[n] = record(c)
		}
		for i := range x.steps {
			for j := range x.steps[i].own {
				c := &x.steps[i].own[j]
				rules[c.condition] = []int32{x.steps[i].rule}
				c.condition = record(c.condition)
			}
		}
		x.texts = x.sieve(g.rules, func(*condition) bool { return false }) // it tests for many requests at once
		for range 100 {
			req := randomRequest(rnd)
			req.Via = netip.Addr{} // for probe
			d.reset(req, req.Time)
			evaluated = evaluated[:0]
			if _, ok := x.method(req); len(d.set.rules) < fewRules || !ok {
				continue
			}
			g.walk(d, new(Verdict))
			for i, c := range evaluated {
				if slices.Contains(evaluated[:i], c) {
					t.Fatalf("%s %s: a condition on field %d is evaluated twice", req.Method, req.Path, c.field)
				}
				if !needed(g, rules[c], c, d) {
					t.Fatalf("%s %s: no rule needs the condition on field %d", req.Method, req.Path, c.field)
				}
				if len(rules[c]) == 1 && !c.sharable() {
					own++
				} else {
					shared++
				}
			}
		}
	}
	if own < 1000 || shared < 1000 {
		t.Errorf("only %d conditions of one rule and %d others were evaluated", own, shared)
	}
}

// Requests to sites with rules of their own that differ in nothing but the site are all remembered.
func TestBeginningsOfSitesDoNotReplaceEachOther(t *testing.T) {
	p := &Policy{}
	for _, site := range []string{"a", "b"} {
		p.Sites = append(p.Sites, Site{Name: site, Hosts: []string{site + ".example"}, OwnRules: true})
		for i := range 5 {
			path := fmt.Sprint("/", i)
			p.Rules = append(p.Rules, Rule{Name: path + " of " + site, Site: site, Action: Block,
				Match: Match{Path: []string{path}}})
		}
	}
	g, err := NewGuard(p, noLimiter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		req := &Request{Time: time.Unix(1_800_000_000, 0), Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET",
			Host: p.Sites[i%2].Hosts[0], UserAgent: "curl"}
		req.SetTarget("/")
		if v, err := g.Decide(t.Context(), req); err != nil || v.Action != Allow {
			t.Fatal(v.Action, err)
		}
	}
	if n := g.begun.misses.Load(); n > 100 {
		t.Errorf("the beginnings of %d of 1000 walks are not remembered", n)
	}
}
