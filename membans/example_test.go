package membans_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
)

// The second refusal bans the client for an hour. A program that wants bans to
// survive a restart writes what Observe reports, and calls Restore at its start.
func ExampleNew() {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "one a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute},
		Ban:   &fairshare.BanTerms{After: 2, For: time.Hour},
	}}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	bans := membans.New(10_000)
	bans.Observe(func(b fairshare.BanRecord) { fmt.Println(b.Client, "is banned by", b.Rule) })
	guard, err := fairshare.NewGuard(policy, limiter, bans)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 4 {
		request := fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1"), Path: "/"}
		verdict, err := guard.Decide(ctx, &request)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(verdict.Action, verdict.Ban == fairshare.BanInForce)
		if err := guard.Settle(ctx, &verdict, fairshare.Outcome{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// allow false
	// refuse false
	// 192.0.2.1 is banned by one a minute
	// refuse false
	// refuse true
}
