package fairshare_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
)

func TestUsageCountsNothing(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "ten", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 10, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}}},
		{Name: "shop", Match: fairshare.Match{Path: []string{"/shop"}}, DryRun: true,
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute,
				By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}, Distinct: fairshare.DistinctPaths}},
	}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(policy, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	request := func(addr string) *fairshare.Request {
		req := &fairshare.Request{Time: now, Addr: netip.MustParseAddr(addr), Method: "GET"}
		req.SetTarget("/shop")
		return req
	}
	usage := func(addr string) (used []int64) {
		err := guard.Usage(context.Background(), request(addr), now, func(rule *fairshare.Rule,
			lim *fairshare.Limit, tally fairshare.Tally) {
			if rule.Limit != nil && lim.N != rule.Limit.N {
				t.Errorf("rule %s has a limit of %d", rule.Name, lim.N)
			}
			if tally.Over != (tally.Used >= lim.N) {
				t.Errorf("rule %s: %+v", rule.Name, tally)
			}
			used = append(used, tally.Used)
		})
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	for range 3 {
		if used := usage("203.0.113.9"); len(used) != 2 || used[0] != 0 || used[1] != 0 {
			t.Fatalf("before the first request: %v", used)
		}
	}
	for range 10 {
		v, err := guard.Decide(context.Background(), request("203.0.113.9"))
		if err != nil || v.Action != fairshare.Allow {
			t.Fatalf("%v, %v", v.Action, err)
		}
		guard.Settle(context.Background(), &v, fairshare.Outcome{Time: now, Status: 200})
	}
	for range 3 {
		if used := usage("203.0.113.9"); len(used) != 2 || used[0] != 10 || used[1] != 1 {
			t.Errorf("after ten requests: %v", used)
		}
	}
	if used := usage("203.0.113.10"); used[0] != 0 {
		t.Errorf("another client has used %v", used)
	}
	if v, _ := guard.Decide(context.Background(), request("203.0.113.9")); v.Action != fairshare.Refuse {
		t.Errorf("the eleventh request: %v", v.Action)
	}
}
