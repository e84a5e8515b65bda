//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"fairshare"
	"fairshare/internal/accesslog"
	"fairshare/membans"
	"fairshare/policyfile"
	"fairshare/redislimit"
)

// share plays a log under the built-in policy on so many members, each request on a
// random one, and prints which part of the decisions asks the store.
func share(server *server, path string, members int) error {
	file := policyfile.BuiltIn()
	file.Provide(policyfile.Facts{Bots: true, Attempts: true}) // of which the log has none
	policy := &file.Policy
	type seat struct {
		limiter *redislimit.Limiter
		guard   *fairshare.Guard
	}
	seats := make([]seat, members)
	for i := range seats {
		store, err := redislimit.Connect(redislimit.Connection{URL: "redis://" + server.addr})
		if err != nil {
			return err
		}
		defer store.Close()
		limiter, err := redislimit.Open(context.Background(), policy.Limits(), redislimit.Options{Store: store,
			Name: "share", Wait: time.Second, Report: func(redislimit.Event) {}})
		if err != nil {
			return err
		}
		guard, err := fairshare.NewGuard(policy, limiter, membans.New(0))
		if err != nil {
			return err
		}
		seats[i] = seat{limiter, guard}
	}
	time.Sleep(1200 * time.Millisecond) // all know all
	entries, err := accesslog.Open(path, accesslog.Options{})
	if err != nil {
		return err
	}
	defer entries.Close()
	ctx, r, lines, last := context.Background(), rand.New(rand.NewPCG(1, 1)), 0, time.Time{}
	for {
		batch, err := entries.Next()
		if batch == nil || err != nil {
			break
		}
		for i := range batch.Entries {
			e := &batch.Entries[i]
			if e.NoRequest || !e.Client.IsValid() {
				continue
			}
			if e.Time.After(last) {
				last = e.Time
			}
			req := fairshare.Request{Time: last, Addr: e.Client, Method: e.Method, Host: e.Host,
				UserAgent: e.UserAgent}
			req.SetTarget(e.Target)
			guard := seats[r.IntN(members)].guard
			v, err := guard.Decide(ctx, &req)
			if err != nil {
				return err
			}
			lines++
			if err := guard.Settle(ctx, &v, fairshare.Outcome{Time: last, Status: e.Status, Bytes: e.Bytes,
				Whole: true}); err != nil {
				return err
			}
		}
		batch.Release()
	}
	var sum redislimit.Status
	for _, s := range seats {
		st := s.limiter.Status()
		sum.Questions, sum.Reads = sum.Questions+st.Questions, sum.Reads+st.Reads
		sum.Credit, sum.Refused = sum.Credit+st.Credit, sum.Refused+st.Refused
	}
	fmt.Printf("\n%d lines on %d members under the built-in policy: %d decisions waited for the store (%.1f %%), "+
		"%d read a state, %d passed on credit, %d were refused by the view.\n", lines, members, sum.Questions,
		100*float64(sum.Questions)/float64(max(1, lines)), sum.Reads, sum.Credit, sum.Refused)
	return nil
}
