package fairshare_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
)

// A holdingLimiter lets everything pass, holds the same for each take of a held
// limit, and records what it is charged.
type holdingLimiter struct {
	limits  []fairshare.Limit
	holds   int64
	charged []string
}

func (l *holdingLimiter) Take(_ context.Context, _ time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	for i := range takes {
		tallies[i] = fairshare.Tally{}
		if l.limits[takes[i].Limit].Resource.Held() {
			tallies[i].Held = l.holds
		}
	}
	return nil
}

func (l *holdingLimiter) Settle(_ context.Context, _ time.Time, charges []fairshare.Charge) error {
	for _, c := range charges {
		s := fmt.Sprintf("%s %+d", l.limits[c.Limit].Resource, c.Cost)
		if c.Held != 0 {
			s += fmt.Sprintf(" held %d", c.Held)
		}
		if c.Ends {
			s += fmt.Sprintf(" total %d", c.Total)
		}
		l.charged = append(l.charged, s)
	}
	return nil
}

// costly is a policy with one limit of each resource.
func costly() fairshare.Policy {
	var p fairshare.Policy
	for _, r := range []fairshare.Resource{fairshare.Requests, fairshare.Concurrent, fairshare.Bytes,
		fairshare.Errors, fairshare.CPU, fairshare.Time, fairshare.Cost} {
		l := &fairshare.Limit{Resource: r, N: 1000, Window: time.Minute}
		if r == fairshare.Concurrent {
			l.Window = 0
		}
		p.Rules = append(p.Rules, fairshare.Rule{Name: r.String(), Limit: l})
	}
	p.Rules[0].Refund.Add(302, 302)
	return p
}

func TestEachCostIsSettledOnce(t *testing.T) {
	type outcomes []fairshare.Outcome
	whole := fairshare.Outcome{Status: 404, Bytes: 700, CPU: 2500 * time.Microsecond, Took: 8 * time.Millisecond,
		Cost: 9}
	part := func(p fairshare.Part, bytes int64, cpu, took time.Duration) fairshare.Outcome {
		return fairshare.Outcome{Part: p, Status: 404, Bytes: bytes, CPU: cpu, Took: took, Cost: 9}
	}
	const us = time.Microsecond
	for _, test := range []struct {
		name  string
		holds int64
		outs  outcomes
		want  string // what each outcome is charged, from "|" to "|"
	}{
		{"all at once", 512, outcomes{whole, whole},
			"concurrent -1, bytes +700 held 512 total 700, errors +1 held 512 total 1, cpu +2500 held 512 total 2500, time +8000 held 512 total 8000, cost +9 held 512 total 9 | "},
		{"slots first", 0, outcomes{part(fairshare.SettleSlots, 0, 0, 0), part(fairshare.SettleSlots, 0, 0, 0),
			part(fairshare.SettleRest, 1, us, us)},
			"concurrent -1 |  | bytes +1 total 1, errors +1 total 1, cpu +1 total 1, time +1 total 1, cost +9 total 9"},
		{"costs first", 0, outcomes{part(fairshare.SettleCosts, 1, us, us), part(fairshare.SettleRest, 5, 5*us, 5*us)},
			"bytes +1 total 1, errors +1 total 1, cpu +1 total 1, time +1 total 1, cost +9 total 9 | concurrent -1"},
		{"CPU last", 0, outcomes{part(fairshare.SettleAllButCPU, 1, us, us), part(fairshare.SettleRest, 5, 5*us, 5*us)},
			"concurrent -1, bytes +1 total 1, errors +1 total 1, time +1 total 1, cost +9 total 9 | cpu +5 total 5"},
		{"while it runs", 512, outcomes{part(fairshare.SettleSoFar, 200, 0, 300*us),
			part(fairshare.SettleSoFar, 600, 0, 300*us), part(fairshare.SettleSoFar, 600, 10*us, 300*us),
			part(fairshare.SettleRest, 700, 11*us, 301*us)},
			// The cost between two settlements is held until the next one; some of it stays held.
			"bytes +200 held 312, cpu +0 held 505, time +300 held 212 | bytes +400, time +0 held 293 | bytes +0 held 193, cpu +10 |" +
				" concurrent -1, bytes +100 held 7 total 700, errors +1 held 512 total 1, cpu +1 held 7 total 11, time +1 held 7 total 301, cost +9 held 512 total 9"},
		{"not known while it runs", 512, outcomes{part(fairshare.SettleSoFar, -1, -1, 4*time.Second),
			part(fairshare.SettleSoFar, -1, -1, 5*time.Second), part(fairshare.SettleSoFar, -1, -1, 9*time.Second)},
			// From five seconds on it holds an eighth.
			"time +4000000 | bytes +0 held 448, cpu +0 held 448, time +1000000, cost +0 held 448 | time +4000000"},
		{"the status first", 512, outcomes{part(fairshare.SettleHeader, -1, -1, 0),
			part(fairshare.SettleHeader, -1, -1, 0), part(fairshare.SettleRest, 1, us, us)},
			"errors +1 held 512 total 1, cost +0 held 503 |  | concurrent -1, bytes +1 held 512 total 1, cpu +1 held 512 total 1, time +1 held 512 total 1, cost +9 held 9 total 9"},
		{"the status first, without a cost", 512, outcomes{{Part: fairshare.SettleHeader, Status: 200, Cost: -1},
			{Status: 404, Cost: 9}},
			"errors +0 held 512 total 0 | concurrent -1, bytes +0 held 512 total 0, cpu +0 held 512 total 0, time +0 held 512 total 0, cost +9 held 512 total 9"},
		{"less than expected", 0, outcomes{part(fairshare.SettleSoFar, 0, 500*us, 0),
			part(fairshare.SettleRest, 0, 400*us, 0)},
			"cpu +500 | concurrent -1, bytes +0 total 0, errors +1 total 1, cpu +0 total 500, time +0 total 0, cost +9 total 9"},
		{"not forwarded", 512, outcomes{part(fairshare.SettleNotForwarded, 9, 9*us, 9*us), whole},
			"requests -1, concurrent -1, bytes +0 held 512, errors +0 held 512, cpu +0 held 512, time +0 held 512, cost +0 held 512 | "},
		{"no reported cost", 0, outcomes{{Cost: -1}},
			"concurrent -1, bytes +0 total 0, errors +0 total 0, cpu +0 total 0, time +0 total 0, cost +1 total 1"},
		{"more than can be counted", 0, outcomes{{Cost: math.MaxInt64}},
			"concurrent -1, bytes +0 total 0, errors +0 total 0, cpu +0 total 0, time +0 total 0, cost +8796093022208 total 8796093022208"},
		{"below zero", 0, outcomes{{Bytes: -5, CPU: -5, Took: -5, Status: 302}},
			"requests -1, concurrent -1, bytes +0 total 0, errors +0 total 0, cpu +0 total 0, time +0 total 0, cost +0 total 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := costly()
			l := &holdingLimiter{limits: p.Limits(), holds: test.holds}
			g, err := fairshare.NewGuard(&p, l, membans.New(0))
			if err != nil {
				t.Fatal(err)
			}
			req := from("192.0.2.1")
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if err != nil || v.Action != fairshare.Allow || !g.Metered(&v) {
				t.Fatalf("Decide: %v, %v, metered %v", v.Action, err, g.Metered(&v))
			}
			var got []string
			for _, out := range test.outs {
				out.Time, l.charged = start, nil
				if err := g.Settle(t.Context(), &v, out); err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.Join(l.charged, ", "))
			}
			if got := strings.Join(got, " | "); got != test.want {
				t.Errorf("charged:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// A rule whose requests in progress alone are in the way must not ban: what
// they will cost is not known.
func TestHeldCostsDoNotLeadToBans(t *testing.T) {
	p := fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "cpu",
		Limit: &fairshare.Limit{Resource: fairshare.CPU, N: 1000, Window: time.Minute},
		Ban:   &fairshare.BanTerms{After: 1, For: time.Hour},
	}}}
	for _, test := range []struct {
		wait time.Duration
		want fairshare.BanState
	}{{0, fairshare.NotBanned}, {time.Second, fairshare.BanStarted}} {
		l := &fullLimiter{wait: test.wait}
		g, err := fairshare.NewGuard(&p, l, membans.New(0))
		if err != nil {
			t.Fatal(err)
		}
		req := from("192.0.2.1")
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil || v.Action != fairshare.Refuse || v.Ban != test.want {
			t.Errorf("wait %v: %v, ban %v, %v; want ban %v", test.wait, v.Action, v.Ban, err, test.want)
		}
	}
}

// A request of which nothing was charged on arrival gives nothing back, and has
// nothing that is to be charged while it is in progress.
func TestRefusedRequestsSettleNothing(t *testing.T) {
	dry := fairshare.Policy{DryRun: true, Rules: []fairshare.Rule{{Name: "time",
		Limit: &fairshare.Limit{Resource: fairshare.Time, N: 1000, Window: time.Minute}}}}
	g, err := fairshare.NewGuard(&dry, &fullLimiter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := from("192.0.2.1")
	req.Time = start
	v, err := g.Decide(t.Context(), &req)
	if err != nil || v.Enforced() != fairshare.Allow || g.Metered(&v) {
		t.Errorf("%v, metered %v, %v", v.Enforced(), g.Metered(&v), err)
	}

	trial := fairshare.Policy{Rules: []fairshare.Rule{{Name: "slot", DryRun: true,
		Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}}}}
	g = newGuard(t, trial)
	for i, want := range []fairshare.Action{fairshare.Undecided, fairshare.Refuse, fairshare.Refuse} {
		v, err := g.Decide(t.Context(), &req)
		if err != nil || v.DryRunFinding.Action != want {
			t.Errorf("request %d: %v, want %v, %v", i, v.DryRunFinding.Action, want, err)
		}
		if i == 1 { // it has no slot to give back
			g.Settle(t.Context(), &v, fairshare.Outcome{Time: start})
		}
	}
}

// A fullLimiter refuses everything.
type fullLimiter struct{ wait time.Duration }

func (l *fullLimiter) Take(_ context.Context, _ time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	for i := range tallies {
		tallies[i] = fairshare.Tally{Over: true, Wait: l.wait}
	}
	return nil
}

func (l *fullLimiter) Settle(context.Context, time.Time, []fairshare.Charge) error { return nil }
