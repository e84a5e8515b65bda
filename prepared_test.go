package fairshare_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
)

// plainLimiter is a limiter that prepares nothing: PreparesFor says that it is not the
// one that it embeds.
type plainLimiter struct{ *memlimit.Limiter }

// manyRules returns a policy with rules of most kinds that the walk meets.
func manyRules(rnd *rand.Rand) *fairshare.Policy {
	by := func(kind fairshare.KeyKind) []fairshare.KeyPart { return []fairshare.KeyPart{{Kind: kind}} }
	n := func(n int64) int64 { return 1 + rnd.Int64N(n) }
	var found, redirects, missing fairshare.StatusSet
	found.Add(200, 200)
	redirects.Add(302, 303)
	missing.Add(404, 404)
	p := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "all", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(60), Window: time.Minute}},
		{Name: "network", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(90), Window: time.Minute,
			By: by(fairshare.ByNetwork), Newcomers: &fairshare.Limit{
				Resource: fairshare.Requests, N: 5, Window: time.Minute}}},
		{Name: "at once", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: n(5)}},
		{Name: "slow", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(60), Window: time.Minute,
			Algorithm: fairshare.GCRA}, Match: fairshare.Match{Path: []string{"/slow/*"}}},
		{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: n(1 << 20), Window: time.Minute},
			Match: fairshare.Match{Path: []string{"/big/*"}}},
		{Name: "trial", DryRun: true, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(30),
			Window: time.Minute}, Match: fairshare.Match{Path: []string{"/trial/*"}}},
		{Name: "styles", Action: fairshare.Allow, Match: fairshare.Match{Path: []string{"*.css"}}},
		{Name: "secrets", Action: fairshare.Block, Match: fairshare.Match{Path: []string{"*.env"}}},
		{Name: "trial of a block", DryRun: true, Action: fairshare.Block,
			Match: fairshare.Match{Path: []string{"/blocked/*"}}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: n(9), Window: time.Hour},
			Ban: &fairshare.BanTerms{After: 20, For: time.Minute}},
		{Name: "errors of a network", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: n(20), Window: time.Hour,
			By: by(fairshare.ByNetwork), Algorithm: fairshare.GCRA, Statuses: missing}},
		{Name: "failures", Limit: &fairshare.Limit{Resource: fairshare.Failures, N: n(9), Window: time.Hour}},
		{Name: "refunds", Refund: redirects, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(30),
			Window: time.Minute}, Match: fairshare.Match{Path: []string{"/login", "/slow/*"}}},
		{Name: "pages", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(60), Window: time.Minute,
			Count: fairshare.Pages}, Match: fairshare.Match{Path: []string{"/page/*"}}},
		{Name: "busy", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(60), Window: time.Minute,
			When: fairshare.Busy, By: by(fairshare.ByUserAgent)}},
		{Name: "last", Last: true, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(90), Window: time.Minute},
			Match: fairshare.Match{Path: []string{"/last/*"}}},
		{Name: "path", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n(90), Window: time.Minute,
			By: by(fairshare.ByPath)}},
	}}
	if rnd.IntN(3) == 0 { // so that most requests have no limit that cannot be prepared
		p.Rules = p.Rules[:4+rnd.IntN(len(p.Rules)-4)]
	}
	return p
}

// describe returns what a guard says about a request, and its figures.
func describe(t *testing.T, g *fairshare.Guard, v *fairshare.Verdict, at time.Time) string {
	t.Helper()
	finding := func(f *fairshare.Finding) string {
		name := ""
		if f.Rule != nil {
			name = f.Rule.Name
		}
		return fmt.Sprint(f.Action, name, f.Tally, f.Wait, f.Ban, f.Ceiling, f.Limit != nil)
	}
	s := fmt.Sprint(finding(&v.Finding), finding(&v.DryRunFinding), v.DryRun, g.Metered(v))
	v.Matched(func(rule int) { s += fmt.Sprint(" ", rule) })
	note := func(r *fairshare.Rule, l *fairshare.Limit, t fairshare.Tally) {
		s += fmt.Sprint(" ", r.Name, l.Resource, t)
	}
	if at.UnixNano()%2 == 0 { // not always, because it gathers the takes
		v.Limits(note)
		if err := g.Peek(context.Background(), v, at, note); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A guard decides the same, and counts the same, whether its limiter prepares takes or not.
func TestPreparedTakesDecideTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	allowed := 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		p := manyRules(rnd)
		var guards [2]*fairshare.Guard
		busy := false
		for i := range guards {
			limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			var used fairshare.Limiter = limiter
			if i == 1 {
				used = plainLimiter{limiter}
			}
			if guards[i], err = fairshare.NewGuard(p, used, membans.New(0)); err != nil {
				t.Fatal(err)
			}
			guards[i].UseBusy(func() bool { return busy })
		}
		var open [][2]fairshare.Verdict
		at := start
		for step := range 600 {
			at = at.Add(time.Duration(rnd.IntN(700)) * time.Millisecond)
			busy = rnd.IntN(3) == 0
			req := fairshare.Request{Time: at, Method: "GET", UserAgent: "agent",
				Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(4))})}
			if rnd.IntN(9) == 0 {
				req.Via = netip.MustParseAddr("198.51.100.1")
			}
			paths := []string{"/", "/", "/a", "/slow/", "/big/b", "/trial/c", "/d.css", "/e.env", "/blocked/f",
				"/login", "/page/g", "/last/h", "/?x=1"}
			req.SetTarget(paths[rnd.IntN(len(paths))])
			var verdicts [2]fairshare.Verdict
			var said [2]string
			for i, g := range guards {
				r := req
				v, err := g.Decide(t.Context(), &r)
				if err != nil {
					t.Fatal(err)
				}
				verdicts[i] = v
				said[i] = describe(t, g, &verdicts[i], at)
			}
			if said[0] != said[1] {
				t.Fatalf("seed %d, step %d, %s: %s\nwithout preparing: %s", seed, step, req.Path, said[0], said[1])
			}
			if verdicts[0].Action == fairshare.Allow {
				allowed++
			}
			open = append(open, verdicts)
			for len(open) > 0 && rnd.IntN(7) > 1 {
				n := rnd.IntN(len(open))
				out := fairshare.Outcome{Time: at, Status: []int{200, 200, 200, 302, 404, 0}[rnd.IntN(6)],
					Bytes: int64(rnd.IntN(1000)), Failed: rnd.IntN(9) == 0,
					Took:  time.Duration(rnd.IntN(9)) * time.Second,
					Whole: rnd.IntN(2) == 0}
				out.Part = []fairshare.Part{fairshare.SettleRest, fairshare.SettleRest, fairshare.SettleNotForwarded,
					fairshare.SettleSlots, fairshare.SettleHeader, fairshare.SettleSoFar, fairshare.SettleAllButCPU,
					fairshare.SettleCosts}[rnd.IntN(8)]
				for i, g := range guards {
					if err := g.Settle(t.Context(), &open[n][i], out); err != nil {
						t.Fatal(err)
					}
				}
				if out.Part == fairshare.SettleRest || out.Part == fairshare.SettleNotForwarded {
					open[n] = open[len(open)-1]
					open = open[:len(open)-1]
				}
			}
		}
	}
	if allowed < 5000 {
		t.Errorf("%d requests were allowed", allowed)
	}
}
