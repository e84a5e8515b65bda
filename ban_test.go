package fairshare_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/membans"
)

// banPolicy refuses the second request in a second and bans for a minute at
// the third refusal in ten minutes.
func banPolicy(change func(*fairshare.Rule)) fairshare.Policy {
	rapid := fairshare.Rule{
		Name: "rapid", Match: fairshare.Match{Path: []string{"/*"}}, Limit: requests(1, time.Second),
		Ban: &fairshare.BanTerms{After: 3, For: time.Minute, Growth: 2, Max: 3 * time.Minute},
	}
	if change != nil {
		change(&rapid)
	}
	return fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "ceiling", Limit: requests(100, time.Minute)},
		{Name: "office", Match: fairshare.Match{
			Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.99/32")},
			Not:  []fairshare.Match{{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.100/32")}}},
		}, Action: fairshare.Allow},
		{Name: "bots", Match: fairshare.Match{UserAgent: []string{"goodbot"}}, Action: fairshare.Allow},
		rapid,
	}}
}

// repeat sends n requests at once and returns the last verdict.
func repeat(t *testing.T, g *fairshare.Guard, at time.Duration, req fairshare.Request, n int) fairshare.Verdict {
	t.Helper()
	var v fairshare.Verdict
	for range n {
		req.Time = start.Add(at)
		var err error
		if v, err = g.Decide(t.Context(), &req); err != nil {
			t.Fatal(err)
		}
		if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// around reports whether d is a ban of that length, with its jitter.
func around(d, length time.Duration) bool { return d >= length && d <= length+length/10 }

func TestBan(t *testing.T) {
	g := newGuard(t, banPolicy(nil))
	if v := repeat(t, g, 0, from(alice), 3); v.Ban != fairshare.NotBanned || v.Wait != 2*time.Second {
		t.Errorf("two refusals: ban %d, wait %v; want none, 2s", v.Ban, v.Wait)
	}
	v := repeat(t, g, 0, from(alice), 1)
	first := v.Wait
	if v.Action != fairshare.Refuse || v.Ban != fairshare.BanStarted || !around(first, time.Minute) {
		t.Errorf("the third refusal: %s, wait %v; want the ban to start for a minute", describeFinding(v.Finding), first)
	}
	// Requests during the ban do not prolong it; the verdict names the rule.
	v = repeat(t, g, 30*time.Second, from(alice), 50)
	if describeFinding(v.Finding) != fmt.Sprintf("refuse rapid %v banned",
		first-30*time.Second) {
		t.Errorf("during the ban: %s", describeFinding(v.Finding))
	}
	// It is one client's, and of requests that the rule's match holds for.
	if v = repeat(t, g, 30*time.Second, from(bob), 1); v.Action != fairshare.Allow {
		t.Errorf("another client: %s", describeFinding(v.Finding))
	}
	req := from(alice)
	req.Path = ""
	if v = repeat(t, g, 30*time.Second, req, 1); v.Action != fairshare.Allow {
		t.Errorf("a request that the rule does not match: %s", describeFinding(v.Finding))
	}
	// Time alone ends it.
	if v = repeat(t, g, first, from(alice), 1); v.Action != fairshare.Allow {
		t.Errorf("after the ban: %s", describeFinding(v.Finding))
	}
}

func TestBansGrowAndAreForgiven(t *testing.T) {
	g := newGuard(t, banPolicy(nil))
	at := time.Duration(0)
	for i, want := range []time.Duration{1, 2, 3, 3} { // doubled, up to max
		v := repeat(t, g, at, from(alice), 4)
		if v.Ban != fairshare.BanStarted || !around(v.Wait, want*time.Minute) {
			t.Errorf("ban %d: %s, want a ban of about %v", i, describeFinding(v.Finding), want*time.Minute)
		}
		at += 21 * time.Minute // the refusals are out of sight, the bans are not
	}
	at += 50 * time.Hour // two steps back: of four bans two are remembered
	if v := repeat(t, g, at, from(alice), 4); !around(v.Wait, 3*time.Minute) || v.Ban != fairshare.BanStarted {
		t.Errorf("after two quiet days: %s, want about 3m", describeFinding(v.Finding))
	}
	at += 100 * 24 * time.Hour
	if v := repeat(t, g, at, from(alice), 4); !around(v.Wait, time.Minute) || v.Ban != fairshare.BanStarted {
		t.Errorf("after many quiet days: %s, want about 1m", describeFinding(v.Finding))
	}
}

func TestBanIsRepeatedByAReplay(t *testing.T) {
	a, b := repeat(t, newGuard(t, banPolicy(nil)), 0, from(alice), 4),
		repeat(t, newGuard(t, banPolicy(nil)), 0, from(alice), 4)
	if a.Wait != b.Wait {
		t.Errorf("the same ban lasts %v and %v", a.Wait, b.Wait)
	}
}

func TestBanExemptions(t *testing.T) {
	unless := &fairshare.Match{Path: []string{"/robots.txt"}}
	banned := func(change func(*fairshare.Rule)) func(fairshare.Request) bool {
		g := newGuard(t, banPolicy(change))
		office := from("192.0.2.98")
		repeat(t, g, 0, office, 10)
		return func(req fairshare.Request) bool {
			return repeat(t, g, 10*time.Second, req, 1).Ban == fairshare.BanInForce
		}
	}
	byNetwork := func(r *fairshare.Rule) { r.Limit.By = []fairshare.KeyPart{{Kind: fairshare.ByNetwork}} }
	everything := func(r *fairshare.Rule) { r.Ban.All, r.Ban.Unless = true, unless }
	noPath := from("192.0.2.98")
	noPath.Path = ""
	proxy := from("192.0.2.98")
	proxy.Proxy = true
	for name, c := range map[string]struct {
		change func(*fairshare.Rule)
		req    fairshare.Request
		want   bool
	}{
		"the same address":                      {nil, from("192.0.2.98"), true},
		"its network":                           {byNetwork, from("192.0.2.7"), true},
		"whom an allow names by address":        {byNetwork, from("192.0.2.99"), false},
		"whom an allow names by what it sends":  {nil, with(from("192.0.2.98"), "User-Agent", "GoodBot"), true},
		"a trusted proxy":                       {nil, proxy, false},
		"all: what the match does not hold for": {everything, noPath, true},
		"unless":                                {everything, asking("192.0.2.98", "/robots.txt"), false},
	} {
		if got := banned(c.change)(c.req); got != c.want {
			t.Errorf("%s: banned %v, want %v", name, got, c.want)
		}
	}
}

func TestRefusalsThatAnotherPageCausedDoNotBan(t *testing.T) {
	g := newGuard(t, banPolicy(nil))
	image := with(from(alice), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")
	if v := repeat(t, g, 0, image, 20); v.Action != fairshare.Refuse || v.Ban != fairshare.NotBanned {
		t.Errorf("an image on another site: %s", describeFinding(v.Finding))
	}
	link := with(from(alice), "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	if v := repeat(t, g, 0, link, 3); v.Ban != fairshare.BanStarted {
		t.Errorf("links that somebody follows: %s", describeFinding(v.Finding))
	}
}

func TestATrustedProxyIsNeverBanned(t *testing.T) {
	g := newGuard(t, banPolicy(nil))
	req := from(alice)
	req.Proxy = true
	if v := repeat(t, g, 0, req, 30); v.Action != fairshare.Refuse || v.Ban != fairshare.NotBanned {
		t.Errorf("30 requests of a proxy: %s", describeFinding(v.Finding))
	}
}

// Bans that a dry policy only wrote down do not begin when it is enforced.
func TestBansOfADryRunEndWithIt(t *testing.T) {
	bans := membans.New(0)
	guard := func(dry bool) *fairshare.Guard {
		policy := banPolicy(nil)
		policy.DryRun = dry
		g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), bans)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	if v := repeat(t, guard(true), 0, from(alice), 5); v.Ban != fairshare.BanInForce {
		t.Errorf("dry: %s, want a trial ban in force", describeFinding(v.Finding))
	}
	enforced := guard(false)
	for i := range 3 {
		if v := repeat(t, enforced, time.Second, from(alice), 1); v.Ban != fairshare.NotBanned {
			t.Errorf("enforced, request %d: %s", i, describeFinding(v.Finding))
		}
	}
	if v := repeat(t, enforced, time.Second, from(alice), 1); v.Ban != fairshare.BanStarted ||
		!around(v.Wait, time.Minute) {
		t.Errorf("the third refusal: %s, want a first ban", describeFinding(v.Finding))
	}
}

func TestBansAreBounded(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	bans := membans.New(10)
	g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), bans)
	if err != nil {
		t.Fatal(err)
	}
	addr := func(i int) fairshare.Request { return from(fmt.Sprintf("198.51.100.%d", i)) }
	for i := range 30 {
		repeat(t, g, time.Duration(i)*time.Second, addr(i), 2)
	}
	if n := bans.Len(); n != 10 {
		t.Errorf("%d bans are remembered, want 10", n)
	}
	// Jitter is up to six seconds: of those that ended soonest none is left, of the last ones all are.
	for i := range 30 {
		v := repeat(t, g, 30*time.Second, addr(i), 1)
		if banned := v.Ban == fairshare.BanInForce; banned && i < 13 || !banned && i >= 27 {
			t.Errorf("client %d of 30: banned %v", i, banned)
		}
	}
}

// A guard without Bans could not enforce a rule with a ban.
func TestNewGuardNeedsBansForARuleWithABan(t *testing.T) {
	policy := banPolicy(nil)
	for name, bans := range map[string]fairshare.Bans{"nil": nil, "a nil pointer": (*membans.Bans)(nil)} {
		_, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), bans)
		var inRule *fairshare.RuleError
		if !errors.As(err, &inRule) || inRule.Name != "rapid" {
			t.Errorf("%s: %v, want an error about rule rapid", name, err)
		}
		without := fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Minute)}}}
		g, err := fairshare.NewGuard(&without, limittest.NewModel(without.Limits()), bans)
		if err != nil {
			t.Fatal(err)
		}
		if v := repeat(t, g, 0, from(alice), 1); v.Action != fairshare.Allow {
			t.Errorf("%s, and no rule with a ban: %s", name, describeFinding(v.Finding))
		}
		if n, err := g.Lift(t.Context(), fairshare.ClientID{Bot: "googlebot"}, start, start); n != 0 || err != nil {
			t.Errorf("%s: Lift = %d, %v", name, n, err)
		}
	}
}

func BenchmarkBanMiss(b *testing.B) { benchmarkBan(b, 2_000_000) }
func BenchmarkBanHit(b *testing.B)  { benchmarkBan(b, 0) }

// benchmarkBan looks for clients among a million bans, which begin at number
// first.
func benchmarkBan(b *testing.B, first uint32) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "none", Limit: requests(1, time.Second), Ban: &fairshare.BanTerms{After: 1, For: 24 * time.Hour}},
		{Name: "stop", Action: fairshare.Block},
	}}
	g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), membans.New(0))
	if err != nil {
		b.Fatal(err)
	}
	const n = 1_000_000
	req := fairshare.Request{Time: start}
	addr := func(i uint32) netip.Addr {
		return netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
	}
	fairshare.Ban(g, n, addr, start)
	b.ReportAllocs()
	i, banned := uint32(0), 0
	for b.Loop() {
		i = i*1664525 + 1013904223 // all over the million
		req.Addr = addr(first + i%n)
		v, err := g.Decide(b.Context(), &req)
		if err != nil {
			b.Fatal(err)
		}
		if v.Ban == fairshare.BanInForce {
			banned++
		}
		_ = g.Settle(b.Context(), &v, fairshare.Outcome{Time: start})
	}
	if (banned > 0) != (first == 0) {
		b.Fatalf("%d banned", banned)
	}
}
