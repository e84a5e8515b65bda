package fairshare_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
)

// A program that fills in nothing is judged by the system's clock, and what its
// requests cost is unknown, not free.
func TestZeroOutcomeIsNotFree(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	for _, c := range []struct {
		name     string
		resource fairshare.Resource
		allowed  int64
		work     time.Duration // of each request
		pass     int           // requests, one after the other
	}{
		{"requests", fairshare.Requests, 3, 0, 3},
		{"cost counts 1", fairshare.Cost, 3, 0, 3},
		{"time that has passed", fairshare.Time, 3_000_000, time.Second, 3},
		{"cpu as long as the request", fairshare.CPU, 3_000_000, time.Second, 3},
		{"an unknown status is not an error", fairshare.Errors, 3, 0, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: &fairshare.Limit{
					Resource: c.resource, N: c.allowed, Window: time.Hour}}}})
				for i := range 20 {
					v, err := g.Decide(t.Context(), &fairshare.Request{Addr: addr})
					if err != nil {
						t.Fatal(err)
					}
					if passes := v.Action == fairshare.Allow; passes != (i < c.pass) {
						t.Fatalf("request %d: %s; want %d to pass", i+1, v.Action, c.pass)
					}
					time.Sleep(c.work)
					if err := g.Settle(t.Context(), &v, fairshare.Outcome{}); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// With a zero time, a window passes as the system's clock says.
func TestZeroTimeIsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one an hour",
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour}}}})
		for i, want := range []fairshare.Action{fairshare.Allow, fairshare.Refuse, fairshare.Allow} {
			v, err := g.Decide(t.Context(), &fairshare.Request{Addr: netip.MustParseAddr("192.0.2.1")})
			if err != nil || v.Action != want {
				t.Errorf("request %d: %s, %v; want %s", i+1, v.Action, err, want)
			}
			if err := g.Settle(t.Context(), &v, fairshare.Outcome{}); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				time.Sleep(2 * time.Hour)
			}
		}
	})
}

// A field below zero is unknown, not free, also if other fields are known.
func TestFieldsBelowZeroAreNotFree(t *testing.T) {
	for _, c := range []struct {
		resource fairshare.Resource
		allowed  int64
	}{{fairshare.Time, 1_000_000}, {fairshare.CPU, 1_000_000}, {fairshare.Cost, 1}} {
		g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: &fairshare.Limit{
			Resource: c.resource, N: c.allowed, Window: time.Hour}}}})
		for i, want := range []fairshare.Action{fairshare.Allow, fairshare.Refuse} {
			req := fairshare.Request{Time: start, Addr: netip.MustParseAddr("192.0.2.1")}
			v, err := g.Decide(t.Context(), &req)
			if err != nil || v.Action != want {
				t.Errorf("%v, request %d: %s, %v; want %s", c.resource, i+1, v.Action, err, want)
			}
			out := fairshare.Outcome{Time: start.Add(time.Second), Status: 200, CPU: -1, Took: -1, Cost: -1}
			if err := g.Settle(t.Context(), &v, out); err != nil {
				t.Fatal(err)
			}
		}
	}
}
