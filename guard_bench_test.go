package fairshare_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
)

// tenRules is a policy of ten rules, three of them limits that hold for
// pages asked by a browser.
func tenRules() fairshare.Policy {
	minute := time.Minute
	return fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "our own", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("198.51.100.0/24"),
			netip.MustParsePrefix("2001:db8::/32")}}, Action: fairshare.Allow},
		{Name: "bad bots", Match: fairshare.Match{UserAgent: []string{"80legs", "MJ12bot", "SemrushBot",
			"python-requests"}}, Action: fairshare.Block},
		{Name: "probes", Match: fairshare.Match{Path: []string{"/.env", "/.git/*", "*/wp-config.php"}},
			Action: fairshare.Block},
		{Name: "ceiling", Limit: requests(1<<27, minute)},
		{Name: "network", Limit: requests(1<<27, minute, fairshare.KeyPart{Kind: fairshare.ByNetwork})},
		{Name: "logins", Match: fairshare.Match{Method: []string{"POST"}, Path: []string{"/login", "/wp-login.php"}},
			Limit: requests(5, minute)},
		{Name: "assets", Match: fairshare.Match{Path: []string{"/static/*", "*.css", "*.js", "*.png"},
			Method: []string{"GET", "HEAD"}}, Action: fairshare.Allow},
		{Name: "no cookie", Match: fairshare.Match{Cookie: []string{"none"}}, Limit: requests(30, minute)},
		{Name: "export", Match: fairshare.Match{Query: map[string][]string{"format": {"csv", "pdf"}}},
			Limit: requests(10, minute)},
		{Name: "rapid", Limit: requests(1<<27, 3*time.Second), Ban: &fairshare.BanTerms{After: 20, For: 10 * minute}},
	}}
}

// A canonicalHeader is asked with canonical names only, as a Guard does.
type canonicalHeader map[string][]string

func (h canonicalHeader) Values(name string) []string { return h[name] }

// browsing is a request that meets three of the ten limits and passes.
func browsing() fairshare.Request {
	req := fairshare.Request{
		Time: start, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "www.example.org",
		UserAgent: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
		Header:    canonicalHeader{"Cookie": {"session=0123456789abcdef; theme=dark"}, "Accept": {"text/html"}},
	}
	req.SetTarget("/wiki/Fair_queuing?page=2")
	return req
}

func memGuard(tb testing.TB, policy fairshare.Policy) *fairshare.Guard {
	tb.Helper()
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	g, err := fairshare.NewGuard(&policy, limiter, membans.New(0))
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func pass(tb testing.TB, g *fairshare.Guard, req *fairshare.Request) {
	v, err := g.Decide(tb.Context(), req)
	if err != nil || v.Action != fairshare.Allow {
		tb.Fatalf("%s, %v; want allow", v.Action, err)
	}
	if err := g.Settle(tb.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 200, Bytes: 1000}); err != nil {
		tb.Fatal(err)
	}
}

func TestPassingTenRulesAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g, req := memGuard(t, tenRules()), browsing()
	if n := testing.AllocsPerRun(1000, func() { pass(t, g, &req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCountingDistinctQueriesAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	lim := distinct(fairshare.DistinctQueries, 1<<20, time.Hour)
	g, req := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: lim}}}), browsing()
	pass(t, g, &req)
	n := 0
	queries := make([]string, 2000)
	for i := range queries {
		queries[i] = fmt.Sprintf("page=%d&sort=%%61&c[]=", i)
	}
	if allocs := testing.AllocsPerRun(1000, func() {
		req.Query = queries[n]
		n++
		pass(t, g, &req)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Only odd paths cost memory.
func TestPlainPathsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g, req := memGuard(t, tenRules()), browsing()
	for _, target := range []string{"/wiki/Fair_queuing", "/a/b.css", "/login.php", "/a-b_c~d!e&f=g,h:i@j",
		"/?format=x%20y+z&a_b=1&c%5b%5d=2"} {
		if n := testing.AllocsPerRun(100, func() {
			req.SetTarget(target)
			pass(t, g, &req)
		}); n != 0 {
			t.Errorf("%q: %v allocations", target, n)
		}
	}
}

// BenchmarkDecideTenRules is Decide and Settle of one passing request, with
// the clock that serve uses.
func BenchmarkDecideTenRules(b *testing.B) {
	g, req := memGuard(b, tenRules()), browsing()
	began := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		req.Time = start.Add(time.Since(began))
		pass(b, g, &req)
	}
}

// BenchmarkDecideDistinct is BenchmarkDecideOneLimit of different paths: of the same one, and
// of one that was not requested before.
func BenchmarkDecideDistinct(b *testing.B) {
	for _, of := range []fairshare.Distinct{fairshare.DistinctPaths, fairshare.DistinctQueries} {
		for _, same := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/same=%v", of, same), func(b *testing.B) {
				g, req := memGuard(b, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one",
					Limit: distinct(of, 1<<27, time.Second)}}}), browsing()
				req.Query = "page=17&sort=price&color=blue"
				paths := make([]string, 1<<16)
				for i := range paths {
					paths[i] = fmt.Sprintf("/item/%d", i)
				}
				began := time.Now()
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					rounds := time.Duration(0) // each is a window, so that all paths count again
					if !same {
						req.Path = paths[n%len(paths)]
						rounds = time.Duration(n / len(paths))
					}
					req.Time = start.Add(rounds*time.Second + time.Since(began))
					pass(b, g, &req)
				}
			})
		}
	}
}

func BenchmarkDecideOneLimit(b *testing.B) {
	g, req := memGuard(b, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one",
		Limit: requests(1<<27, time.Second)}}}), browsing()
	began := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		req.Time = start.Add(time.Since(began))
		pass(b, g, &req)
	}
}
