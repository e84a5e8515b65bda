package fairshare_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/membans"
)

// start is at the beginning of a window of every length used here.
var start = time.Unix(1_800_000_000, 0)

// A step is one request of a story: when, who and what, and what became of it.
type step struct {
	at     time.Duration
	req    fairshare.Request
	status int // of the upstream's answer; 0 means 200
	bytes  int64
	want   string // "allow", "refuse RULE WAIT", "block RULE"; " try …" for dry rules
}

func from(addr string) fairshare.Request {
	return fairshare.Request{Addr: netip.MustParseAddr(addr), Method: "GET", Path: "/"}
}

func asking(addr, target string) fairshare.Request {
	req := from(addr)
	req.SetTarget(target)
	return req
}

func with(req fairshare.Request, headers ...string) fairshare.Request {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	req.Header, req.UserAgent = h, h.Get("User-Agent")
	return req
}

func newGuard(t testing.TB, policy fairshare.Policy) *fairshare.Guard {
	t.Helper()
	g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func describeFinding(f fairshare.Finding) string {
	switch f.Action {
	case fairshare.Refuse:
		s := fmt.Sprintf("refuse %s %v", f.Rule.Name, f.Wait)
		switch f.Ban {
		case fairshare.BanStarted:
			s += " ban"
		case fairshare.BanInForce:
			s += " banned"
		}
		return s
	case fairshare.Block:
		return "block " + f.Rule.Name
	}
	return f.Action.String()
}

func play(t *testing.T, g *fairshare.Guard, steps []step) {
	t.Helper()
	for i, s := range steps {
		s.req.Time = start.Add(s.at)
		v, err := g.Decide(t.Context(), &s.req)
		if err != nil {
			t.Fatal(err)
		}
		got := describeFinding(v.Finding)
		if v.DryRunFinding.Action != fairshare.Undecided {
			got += " try " + describeFinding(v.DryRunFinding)
		}
		if got != s.want {
			t.Errorf("step %d at %v, %v: %s, want %s", i, s.at, s.req.Addr, got, s.want)
		}
		if s.status == 0 {
			s.status = 200
		}
		if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: s.req.Time, Status: s.status,
			Bytes: s.bytes}); err != nil {
			t.Fatal(err)
		}
	}
}

func requests(n int64, window time.Duration, by ...fairshare.KeyPart) *fairshare.Limit {
	return &fairshare.Limit{Resource: fairshare.Requests, N: n, Window: window, By: by}
}

var redirects = func() (s fairshare.StatusSet) {
	s.Add(301, 303)
	s.Add(307, 308)
	return s
}()

const (
	alice = "192.0.2.1"
	bob   = "192.0.2.2"
	carol = "2001:db8::1"
)

func TestWalkGoesFromTopToBottom(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "office", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("198.51.100.0/24")}},
			Action: fairshare.Allow},
		{Name: "bad", Match: fairshare.Match{UserAgent: []string{"evil"}}, Action: fairshare.Block},
		{Name: "ceiling", Limit: requests(3, time.Minute)},
		{Name: "assets", Match: fairshare.Match{Path: []string{"*.css"}}, Action: fairshare.Allow},
		{Name: "pages", Limit: requests(1, time.Minute)},
	}})
	play(t, g, []step{
		{0, with(from(alice), "User-Agent", "So Evil 1.0"), 0, 0, "block bad"},
		{0, from(alice), 0, 0, "allow"},
		{0, from(alice), 0, 0, "refuse pages 2m0s"}, // not before nothing is left of the next window
		{0, asking(alice, "/a.css"), 0, 0, "allow"}, // the ceiling counts it, pages does not
		{0, asking(alice, "/a.php/b.css"), 0, 0, "refuse pages 2m0s"},
		{0, asking(alice, "/a.css"), 0, 0, "allow"}, // the third: what was refused was not counted
		{0, asking(alice, "/a.css"), 0, 0, "refuse ceiling 1m20s"},
		{0, from("198.51.100.7"), 0, 0, "allow"},
		{0, from(bob), 0, 0, "allow"},
	})
}

func TestLimitsAreAllOrNone(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "site", Limit: requests(3, time.Minute)},
		{Name: "page", Limit: requests(1, time.Second, fairshare.KeyPart{Kind: fairshare.ByAddr},
			fairshare.KeyPart{Kind: fairshare.ByPath})},
	}})
	play(t, g, []step{
		{0, asking(alice, "/a"), 0, 0, "allow"},
		{0, asking(alice, "/a"), 0, 0, "refuse page 2s"},
		{0, asking(alice, "/a"), 0, 0, "refuse page 2s"}, // and site counted neither
		{0, asking(alice, "/b"), 0, 0, "allow"},
		{0, asking(alice, "/c"), 0, 0, "allow"},
		{0, asking(alice, "/c"), 0, 0, "refuse site 1m20s"}, // both are over: the longer wait speaks
	})
}

func TestFirstOfEqualWaitsIsReported(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "first", Limit: requests(1, time.Second)},
		{Name: "second", Limit: requests(1, time.Second, fairshare.KeyPart{Kind: fairshare.ByNetwork})},
	}})
	play(t, g, []step{{0, from(alice), 0, 0, "allow"}, {0, from(alice), 0, 0, "refuse first 2s"}})
}

func TestLastEndsTheWalk(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "feeds", Match: fairshare.Match{Path: []string{"/feed"}}, Limit: requests(2, time.Second), Last: true},
		{Name: "no feeds", Match: fairshare.Match{Path: []string{"/feed"}}, Action: fairshare.Block},
	}})
	play(t, g, []step{{0, asking(alice, "/feed"), 0, 0, "allow"}})
}

// A limit in dry run enforces nothing: the rules below hold as if it were not there.
func TestLastInDryRunDoesNotEndTheWalk(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "feeds", Match: fairshare.Match{Path: []string{"/feed"}}, Limit: requests(1, time.Second), Last: true,
			DryRun: true},
		{Name: "one", Limit: requests(1, time.Second)},
		{Name: "no feeds", Match: fairshare.Match{Path: []string{"/feed"}, Method: []string{"POST"}},
			Action: fairshare.Block},
	}}
	for len(policy.Rules) < 5 { // with the index of the walk, and without it
		g := newGuard(t, policy)
		play(t, g, []step{
			{0, asking(alice, "/feed"), 0, 0, "allow"},
			{0, asking(alice, "/feed"), 0, 0, "refuse one 2s"},
		})
		req := asking(alice, "/feed")
		req.Method = "POST"
		play(t, g, []step{{0, req, 0, 0, "block no feeds"}})
		steps, err := policy.Explain(&req)
		if err != nil || !steps[2].Reached {
			t.Errorf("explained: %+v, %v", steps, err)
		}
		policy.Rules = append(policy.Rules, fairshare.Rule{Name: "another", Limit: requests(100, time.Minute)})
	}
}

func TestRedirectsCountOnce(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "rapid", Limit: requests(2, time.Second), Refund: redirects},
	}})
	play(t, g, []step{
		{0, from(alice), 302, 0, "allow"},
		{0, from(alice), 301, 0, "allow"},
		{0, from(alice), 304, 0, "allow"}, // 304 is not a redirect
		{0, from(alice), 200, 0, "allow"},
		{0, from(alice), 302, 0, "refuse rapid 1.5s"},
	})
}

func TestSettledResources(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: time.Second}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 1, Window: time.Minute}},
	}})
	play(t, g, []step{
		{0, from(alice), 0, 999, "allow"},
		{0, from(alice), 0, 1001, "allow"}, // its cost is known only after it passed
		{0, from(alice), 0, 1, "refuse bytes 1.500000001s"},
		{0, from(bob), 404, 0, "allow"},
		{0, from(bob), 0, 0, "refuse errors 1m0.000000001s"},
		{2 * time.Second, from(alice), 0, 0, "allow"},
	})
}

func TestRulesInDryRunDecideNothing(t *testing.T) {
	dry := requests(1, time.Second)
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "dry block", Match: fairshare.Match{UserAgent: []string{"bot"}}, Action: fairshare.Block, DryRun: true},
		{Name: "dry", Limit: dry, DryRun: true, Ban: &fairshare.BanTerms{After: 3, For: time.Minute}},
		{Name: "real", Limit: requests(3, time.Second)},
	}})
	play(t, g, []step{
		{0, with(from(bob), "User-Agent", "Bot"), 0, 0, "allow try block dry block"},
		{0, from(alice), 0, 0, "allow"},
		{0, from(alice), 0, 0, "allow try refuse dry 2s"},
		{0, from(alice), 0, 0, "allow try refuse dry 2s"},
		{0, from(alice), 0, 0, "refuse real 1.333333334s"}, // dry limits are asked only when the others pass
		{0, from(alice), 0, 0, "refuse real 1.333333334s"},
	})
}

func TestBanInDryRunRefusesNothing(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "dry", Limit: requests(1, time.Second), DryRun: true,
			Ban: &fairshare.BanTerms{After: 1, For: time.Hour}},
	}})
	req := from(alice)
	for i, want := range []fairshare.BanState{fairshare.NotBanned, fairshare.BanStarted, fairshare.BanInForce} {
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil || v.Action != fairshare.Allow || v.DryRunFinding.Ban != want {
			t.Errorf("request %d: %s, trial ban %d, %v; want allow, %d", i, v.Action, v.DryRunFinding.Ban, err, want)
		}
	}
}

func TestPolicyInDryRunDecidesTheSame(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "bad", Match: fairshare.Match{Path: []string{"/x"}}, Action: fairshare.Block},
		{Name: "rapid", Limit: requests(1, time.Second), Ban: &fairshare.BanTerms{After: 2, For: time.Hour}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 2, Window: time.Minute}},
	}}
	enforced := newGuard(t, policy)
	policy.DryRun = true
	dry := newGuard(t, policy)
	for i := range 200 {
		req := asking([]string{alice, bob, carol}[i%3], []string{"/", "/x", "/a", "/b"}[i*7%4])
		req.Time = start.Add(time.Duration(i) * 130 * time.Millisecond)
		a, err := enforced.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := dry.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if describeFinding(a.Finding) != describeFinding(b.Finding) {
			t.Fatalf("request %d: %s enforced, %s dry", i, describeFinding(a.Finding), describeFinding(b.Finding))
		}
		if b.Enforced() != fairshare.Allow || a.Enforced() != a.Action {
			t.Fatalf("request %d: %s is enforced as %s, dry as %s", i, a.Action, a.Enforced(), b.Enforced())
		}
		// dry, a refused request reaches the upstream too: it costs nothing all the same
		out := fairshare.Outcome{Time: req.Time, Status: 404}
		if err := errors.Join(enforced.Settle(t.Context(), &a, out), dry.Settle(t.Context(), &b, out)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEarlierTimeCountsAsTheLatest(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Second)}}})
	play(t, g, []step{
		{10 * time.Second, from(alice), 0, 0, "allow"},
		{0, from(bob), 0, 0, "allow"},
		{0, from(bob), 0, 0, "refuse one 2s"},
		{12 * time.Second, from(bob), 0, 0, "allow"}, // it was counted at 10 s
	})
}

func TestKeys(t *testing.T) {
	key := func(kind fairshare.KeyKind, name string) fairshare.KeyPart {
		return fairshare.KeyPart{Kind: kind, Name: name}
	}
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		by        fairshare.KeyPart
		a, b      fairshare.Request
		sameCount bool
	}{
		{key(fairshare.ByAddr, ""), from(alice), from(bob), false},
		{key(fairshare.ByAddr, ""), from("2001:db8::1"), from("2001:db8::ffff:0:0:1"), true}, // one /64
		{key(fairshare.ByAddr, ""), from("2001:db8::1"), from("2001:db8:0:1::1"), false},
		{key(fairshare.ByNetwork, ""), from(alice), from("192.0.2.255"), true},
		{key(fairshare.ByNetwork, ""), from(alice), from("192.0.3.1"), false},
		{key(fairshare.ByNetwork, ""), from("2001:db8::1"), from("2001:db8:0:ffff::1"), true},
		{key(fairshare.ByNetwork, ""), from("2001:db8::1"), from("2001:db8:1::1"), false},
		{key(fairshare.ByUserAgent, ""), with(from(alice), "User-Agent", "80legs"),
			with(from(bob), "User-Agent", "80legs"), true},
		{key(fairshare.ByUserAgent, ""), from(alice), from(bob), false}, // who lacks it is counted by address
		{key(fairshare.ByUserAgent, ""), with(from(alice), "User-Agent", long), with(from(bob), "User-Agent", long),
			true},
		{key(fairshare.ByUserAgent, ""), with(from(alice), "User-Agent", long),
			with(from(bob), "User-Agent", long+"y"), false},
		{key(fairshare.ByCookie, "sid"), with(from(alice), "Cookie", "a=1; sid=2"),
			with(from(bob), "Cookie", "sid=2"), true},
		{key(fairshare.ByCookie, "sid"), with(from(alice), "Cookie", "sid=1"), with(from(alice), "Cookie", "sid=2"),
			false},
		{key(fairshare.ByCookie, "sid"), from(alice), from(bob), false},
		{key(fairshare.ByHeader, "x-token"), with(from(alice), "X-Token", "t"), with(from(bob), "X-Token", "t"), true},
		{key(fairshare.ByHeader, "x-token"), with(from(alice), "X-Token", ""), with(from(bob), "X-Token", ""), false},
		{key(fairshare.ByPath, ""), asking(alice, "/a?x"), asking(bob, "/a?y"), true},
		{key(fairshare.ByEveryone, ""), from(alice), from(carol), true},
		{key(fairshare.ByHost, ""), fairshare.Request{Host: "A.example:80"}, fairshare.Request{Host: "a.example."},
			true},
		{key(fairshare.ByAddr, ""), fairshare.Request{}, fairshare.Request{}, true}, // unknown clients count together
	} {
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one",
			Limit: requests(1, time.Minute, c.by)}}})
		c.a.Time, c.b.Time = start, start
		if _, err := g.Decide(t.Context(), &c.a); err != nil {
			t.Fatal(err)
		}
		v, err := g.Decide(t.Context(), &c.b)
		if err != nil {
			t.Fatal(err)
		}
		if same := v.Action == fairshare.Refuse; same != c.sameCount {
			t.Errorf("by %s: %+v and %+v share a count: %v, want %v", c.by, c.a, c.b, same, c.sameCount)
		}
	}
}

// A header that spells an address is not that address.
func TestKeyPartsAreTagged(t *testing.T) {
	a := netip.MustParseAddr(alice).As16()
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "token", Limit: requests(1, time.Minute, fairshare.KeyPart{Kind: fairshare.ByHeader, Name: "X-Token"})},
	}})
	play(t, g, []step{
		{0, from(alice), 0, 0, "allow"},
		{0, with(from(bob), "X-Token", string(a[:])), 0, 0, "allow"},
	})
}

// Rules with one match share its answer; each counts for itself.
func TestRulesWithOneMatch(t *testing.T) {
	login := fairshare.Match{Path: []string{"/login"}}
	office := fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.1/32")}}
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "login", Match: login, Limit: requests(2, time.Minute)},
		{Name: "login of a network", Match: login, Limit: requests(3, time.Minute,
			fairshare.KeyPart{Kind: fairshare.ByNetwork})},
		{Name: "office", Match: office, Limit: requests(1, time.Minute)},
		{Name: "office again", Match: office, Limit: requests(1, time.Hour)},
		{Name: "login again", Match: login, Action: fairshare.Block, DryRun: true},
		{Name: "login blocked", Match: login, Action: fairshare.Block, DryRun: true},
	}})
	play(t, g, []step{
		{0, asking(alice, "/"), 0, 0, "allow"},
		{0, asking(alice, "/"), 0, 0, "refuse office again 2h0m0s"},
		{0, asking(bob, "/login"), 0, 0, "allow try block login again"},
		{0, asking(bob, "/login"), 0, 0, "allow try block login again"},
		{0, asking(bob, "/login"), 0, 0, "refuse login 1m30s try block login again"},
		{0, asking("192.0.2.3", "/login"), 0, 0, "allow try block login again"},
		{0, asking("192.0.2.4", "/login"), 0, 0, "refuse login of a network 1m20s try block login again"},
		{0, asking(bob, "/"), 0, 0, "allow"},
	})
}

func TestConcurrentSlotsAreGivenBackOnce(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 2}},
	}})
	decide := func() fairshare.Verdict {
		req := from(alice)
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b, c := decide(), decide(), decide()
	if a.Action != fairshare.Allow || b.Action != fairshare.Allow || c.Action != fairshare.Refuse || c.Wait != 0 {
		t.Fatalf("three at once: %s, %s, %s after %v", a.Action, b.Action, c.Action, c.Wait)
	}
	for range 3 { // only the first counts
		if err := g.Settle(t.Context(), &a, fairshare.Outcome{Time: start, Status: 200}); err != nil {
			t.Fatal(err)
		}
		if err := g.Settle(t.Context(), &c, fairshare.Outcome{Time: start}); err != nil {
			t.Fatal(err)
		}
	}
	if d, e := decide(), decide(); d.Action != fairshare.Allow || e.Action != fairshare.Refuse {
		t.Errorf("after one slot was given back: %s, %s; want allow, refuse", d.Action, e.Action)
	}
}

func TestPartsAreSettledOnce(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 2, Window: time.Minute}},
	}})
	decide := func() fairshare.Verdict {
		req := from(alice)
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	settle := func(v *fairshare.Verdict, part fairshare.Part) {
		if err := g.Settle(t.Context(), v, fairshare.Outcome{Time: start, Status: 404, Part: part}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, want string) {
		t.Helper()
		v := decide()
		if got := describeFinding(v.Finding); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		g.Settle(t.Context(), &v, fairshare.Outcome{Time: start})
	}
	first := decide()
	want("while the slot is taken", "refuse slots 0s")
	settle(&first, fairshare.SettleCosts)
	settle(&first, fairshare.SettleCosts) // the error is charged once
	want("while the slot is kept", "refuse slots 0s")
	settle(&first, fairshare.SettleSlots)
	want("after the slot was given back", "allow")
	second := decide()
	settle(&first, fairshare.SettleSlots) // it has none any more
	settle(&first, fairshare.SettleRest)
	want("while another has the slot", "refuse slots 0s")
	settle(&second, fairshare.SettleSlots)
	want("after one error, with a request in progress", "refuse errors 0s")
	settle(&second, fairshare.SettleRest)
	settle(&first, fairshare.SettleRest)
	want("after two errors", "refuse errors 1m0.000000001s")
}

// A brokenLimiter is out of reach.
type brokenLimiter struct{ fairshare.Limiter }

var errOutOfReach = errors.New("out of reach")

func (brokenLimiter) Take(context.Context, time.Time, []fairshare.Take, []fairshare.Tally) error {
	return errOutOfReach
}

func TestLimiterErrorLeavesTheVerdictUndecided(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Second)}}}
	g, err := fairshare.NewGuard(&policy, brokenLimiter{}, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	req := from(alice)
	v, err := g.Decide(t.Context(), &req)
	if !errors.Is(err, errOutOfReach) || v.Action != fairshare.Undecided || v.Enforced() != fairshare.Undecided {
		t.Errorf("Decide: %s, %v", v.Action, err)
	}
	if err := g.Settle(t.Context(), &v, fairshare.Outcome{}); err != nil {
		t.Errorf("Settle of nothing: %v", err)
	}
}

// A forgetfulLimiter cannot charge what is settled.
type forgetfulLimiter struct{ fairshare.Limiter }

func (l forgetfulLimiter) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	if charges[0].Cost > 0 {
		return errOutOfReach
	}
	return l.Limiter.Settle(ctx, now, charges)
}

// When refusals cannot be counted towards a ban, verdicts stand and slots are
// given back.
func TestVerdictStandsWhenRefusalsAreNotCounted(t *testing.T) {
	ban := &fairshare.BanTerms{After: 2, For: time.Minute}
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}},
		{Name: "trial", Limit: requests(1, time.Hour), DryRun: true, Ban: ban},
		{Name: "rapid", Limit: requests(3, time.Hour), Ban: ban},
	}}
	g, err := fairshare.NewGuard(&policy, forgetfulLimiter{limittest.NewModel(policy.Limits())}, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"allow", "allow", "allow", "refuse rapid 2h0m0s"} {
		req := from(alice)
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if !strings.HasPrefix(describeFinding(v.Finding), want[:5]) || (err != nil) != (i > 0) ||
			err != nil && !errors.Is(err, errOutOfReach) {
			t.Errorf("request %d: %s, %v; want %s", i, describeFinding(v.Finding), err, want)
		}
		if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
			t.Error(err)
		}
	}
}

func TestVerdictListsMatchedRulesAndLimits(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "posts", Match: fairshare.Match{Method: []string{"post"}}, Limit: requests(9, time.Second)},
		{Name: "two", Limit: requests(2, time.Second)},
		{Name: "all", Action: fairshare.Allow},
	}})
	req := from(alice)
	req.Time = start
	var got string
	for range 3 {
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		got = ""
		v.Matched(func(rule int) { got += fmt.Sprint(rule, " ") })
		v.Limits(func(r *fairshare.Rule, lim *fairshare.Limit, tally fairshare.Tally) {
			got += fmt.Sprint(r.Name, " ", lim.N, " ", tally.Used, " ", tally.Reset)
		})
		if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start}); err != nil {
			t.Fatal(err)
		}
		v.Matched(func(rule int) { t.Error("a settled verdict still tells") })
	}
	if want := "1 2 two 2 2 2s"; got != want {
		t.Errorf("third request: %q, want %q", got, want)
	}
}

func TestMatch(t *testing.T) {
	office := fairshare.Prefixes{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")}
	for name, c := range map[string]struct {
		match   fairshare.Match
		yes, no []fairshare.Request
	}{
		"addr": {fairshare.Match{Addr: office}, []fairshare.Request{from(alice), from(carol)},
			[]fairshare.Request{from(bob), {}}},
		"method": {fairshare.Match{Method: []string{"get", "HEAD"}},
			[]fairshare.Request{{Method: "GET"}, {Method: "head"}}, []fairshare.Request{{Method: "POST"}, {}}},
		"host": {fairshare.Match{Host: []string{"*.Example.org"}},
			[]fairshare.Request{{Host: "www.EXAMPLE.org.:80"}}, []fairshare.Request{{Host: "example.org"}}},
		"path": {fairshare.Match{Path: []string{"/a", "/b/*"}}, []fairshare.Request{{Path: "/a"}, {Path: "/b/"}},
			[]fairshare.Request{{Path: "/A"}, {Path: "/b"}}},
		"no agent": {fairshare.Match{UserAgent: []string{""}}, []fairshare.Request{{}},
			[]fairshare.Request{{UserAgent: "x"}}},
		"agent": {fairshare.Match{UserAgent: []string{"80LEGS", "re:python-(requests|urllib)/"}},
			[]fairshare.Request{{UserAgent: "x 80legs y"}, {UserAgent: "python-requests/2"}},
			[]fairshare.Request{{}, {UserAgent: "Python-Requests/2"}}},
		"no cookie": {fairshare.Match{Cookie: []string{"none"}},
			[]fairshare.Request{from(alice), with(from(alice), "Cookie", "junk")},
			[]fairshare.Request{with(from(alice), "Cookie", "a=1")}},
		"any cookie": {fairshare.Match{Cookie: []string{"any"}},
			[]fairshare.Request{with(from(alice), "Cookie", "a=1")},
			[]fairshare.Request{from(alice), with(from(alice), "Cookie", " ; ")}},
		"cookie": {fairshare.Match{Cookie: []string{"wordpress_logged_in_*"}},
			[]fairshare.Request{with(from(alice), "Cookie", "a=1; wordpress_logged_in_x=2")},
			[]fairshare.Request{with(from(alice), "Cookie", "a=1"), from(alice)}},
		"header": {fairshare.Match{Header: map[string][]string{"accept-LANGUAGE": {"de"}}},
			[]fairshare.Request{with(from(alice), "Accept-Language", "en", "Accept-Language", "DE-at")},
			[]fairshare.Request{from(alice), with(from(alice), "Accept-Language", "en")}},
		"host header": {fairshare.Match{Header: map[string][]string{"host": {"a.example"}}},
			[]fairshare.Request{{Host: "A.example:80"}}, []fairshare.Request{{Host: "b.example"}, {}}},
		"no header": {fairshare.Match{Header: map[string][]string{"Accept": {""}}},
			[]fairshare.Request{from(alice), with(from(alice), "Accept", "")},
			[]fairshare.Request{with(from(alice), "Accept", "*/*")}},
		"query": {fairshare.Match{Query: map[string][]string{"do": {"Export", "x y"}}},
			[]fairshare.Request{asking(alice, "/?a=b&do=my%20export"), asking(alice, "/?do=1&do=x+y"),
				asking(alice, "/?d%6f=export")}, []fairshare.Request{asking(alice, "/?to=export"), asking(alice, "/")}},
		"any name": {fairshare.Match{Query: map[string][]string{"*": {"union select"}}},
			[]fairshare.Request{asking(alice, "/?id=1+UNION%20SELECT+2"), asking(alice, "/?a=b&x=union%20select")},
			[]fairshare.Request{asking(alice, "/?union%20select=1"), asking(alice, "/union select")}},
		"names that begin alike": {fairshare.Match{Query: map[string][]string{"filter_*": {"*"}}},
			[]fairshare.Request{asking(alice, "/?filter_color=red"), asking(alice, "/?a=1&filter%5Fx"),
				asking(alice, "/?filter_")},
			[]fairshare.Request{asking(alice, "/?filter=1"), asking(alice, "/?xfilter_a=1"), asking(alice, "/")}},
		"any query": {fairshare.Match{Query: map[string][]string{"do": {"*"}}},
			[]fairshare.Request{asking(alice, "/?do")}, []fairshare.Request{asking(alice, "/?doo")}},
		"not": {fairshare.Match{Path: []string{"/*"},
			Not: []fairshare.Match{{Path: []string{"/a"}}, {Method: []string{"POST"}}}},
			[]fairshare.Request{{Path: "/b"}}, []fairshare.Request{{Path: "/a"}, {Path: "/b", Method: "POST"}}},
		"everything": {fairshare.Match{}, []fairshare.Request{{}}, nil},
	} {
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: name, Match: c.match,
			Action: fairshare.Block}}})
		for want, reqs := range map[fairshare.Action][]fairshare.Request{fairshare.Block: c.yes,
			fairshare.Allow: c.no} {
			for _, req := range reqs {
				if v, err := g.Decide(t.Context(), &req); err != nil || v.Action != want {
					t.Errorf("%s: %+v: %s, want %s (%v)", name, req, v.Action, want, err)
				}
			}
		}
	}
}

func TestPolicyCheckReturnsEveryError(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: ""},
		{Name: "a", Limit: requests(0, 0), Action: fairshare.Allow},
		{Name: "a", Action: fairshare.Allow, DryRun: true},
		{Name: "b", Action: fairshare.Block, Last: true},
		{Name: "c", Action: fairshare.Block, Match: fairshare.Match{Path: []string{"re:("}}},
		{Name: "d", Limit: requests(1, time.Second, fairshare.KeyPart{Kind: fairshare.ByPath}),
			Ban: &fairshare.BanTerms{}},
		{Name: "e", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 1, Window: time.Second}, Refund: redirects},
	}, IPv4Prefix: 33}
	_, err := fairshare.NewGuard(&policy, limittest.NewModel(nil), nil)
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, want := range []string{"a name is needed", "one of allow, block or limit", "0 is not between 1 and",
		"window 0s", "is not unique", "dry_run is not possible",
		"belong to a limit", "regexp", "must be addr, network or bot", "after: 0", "for, max and forgive",
		"only requests are refunded", "prefix length"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in:\n%v", want, err)
		}
	}
}

// Many goroutines, one client: never more than N pass, and it all settles.
func TestGuardIsSafeForConcurrentUse(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "total", Limit: requests(100, time.Hour)},
		{Name: "slots", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1000}},
		{Name: "rapid", Limit: requests(1000, time.Hour), Ban: &fairshare.BanTerms{After: 5, For: time.Minute}},
	}})
	var mu sync.Mutex
	passed := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				req := from(alice)
				req.Time = start
				v, err := g.Decide(context.Background(), &req)
				if err != nil {
					t.Error(err)
					return
				}
				if v.Action == fairshare.Allow {
					mu.Lock()
					passed++
					mu.Unlock()
				}
				if err := g.Settle(context.Background(), &v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if passed != 100 {
		t.Errorf("%d of 800 requests passed, want 100", passed)
	}
}

// One request with a wrong time neither stops the clock for later requests nor
// resets what they have spent.
func TestOneWrongTimeDoesNotStopTheClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name  string
		limit *fairshare.Limit
		at    []time.Duration // from the start
		want  string          // A for allow, R for refuse
	}{
		{"a day ahead", requests(2, time.Minute, fairshare.KeyPart{Kind: fairshare.ByEveryone}),
			[]time.Duration{0, day, 1, 1, time.Minute, 2 * time.Minute, 3 * time.Minute}, "AAARRAA"},
		{"the first request", requests(2, time.Minute),
			[]time.Duration{day, 0, 0, time.Minute, 2 * time.Minute, 3 * time.Minute}, "AARRAA"},
		{"a limit of one", requests(1, time.Minute),
			[]time.Duration{0, day, 1, 2 * time.Minute, 5 * time.Minute}, "AARAA"},
		{"again and again", requests(1, time.Minute),
			[]time.Duration{0, day, 1, day, 2, day, 3, 2 * time.Minute}, "AARARARA"},
		{"two in a row are believed", requests(1, time.Minute),
			[]time.Duration{0, day, day, 1, 2 * time.Minute}, "AARRR"},
		{"pauses", requests(1, time.Minute),
			[]time.Duration{0, time.Hour, time.Hour - time.Second, 2 * time.Hour, 3 * time.Hour, 2 * time.Hour},
			"AARAAR"},
		{"an older time within the window", requests(1, time.Minute),
			[]time.Duration{30 * time.Second, 30 * time.Second, 0, -day, 80 * time.Second}, "ARRRR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: c.limit}}})
			got := ""
			for _, at := range c.at {
				req := fairshare.Request{Time: start.Add(at), Addr: netip.MustParseAddr(alice)}
				v, err := g.Decide(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
					t.Fatal(err)
				}
				got += map[fairshare.Action]string{fairshare.Allow: "A", fairshare.Refuse: "R"}[v.Action]
			}
			if got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}
