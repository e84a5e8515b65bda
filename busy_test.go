package fairshare_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// busyPolicy has a limit that holds only while the upstream is busy, before one that
// always holds.
func busyPolicy() *fairshare.Policy {
	return &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "while busy", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Minute,
			Algorithm: fairshare.GCRA, When: fairshare.Busy}},
		{Name: "always", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 7, Window: time.Hour,
			Algorithm: fairshare.GCRA}},
	}}
}

// While there is room the limit is neither tested nor charged. What was charged in a
// busy time still counts in the next one.
func TestBusyLimitHoldsOnlyWhileTheUpstreamIsBusy(t *testing.T) {
	guard, err := memlimit.NewGuard(busyPolicy(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if guard.HasBusy() {
		t.Error("a guard has UseBusy before the call")
	}
	busy := false
	guard.UseBusy(func() bool { return busy })
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		at   time.Duration
		busy bool
		want string // the rule that refuses; "": none
	}{
		{0, false, ""},
		{0, false, ""},
		{0, false, ""}, // more than two: there is room
		{time.Second, true, ""},
		{time.Second, true, ""}, // what came before it was busy does not count
		{time.Second, true, "while busy"},
		{2 * time.Second, false, ""},
		{3 * time.Second, true, "while busy"}, // a pause gives no new allowance
		{3 * time.Second, false, ""},
		{3 * time.Second, false, "always"},
	} {
		busy = step.busy
		req := fairshare.Request{Time: start.Add(step.at), Method: "GET", Addr: netip.MustParseAddr("203.0.113.9")}
		req.SetTarget("/")
		v, err := guard.Decide(context.Background(), &req)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v.Action != fairshare.Allow {
			got = v.Rule.Name
		}
		if got != step.want {
			t.Errorf("step %d: refused by %q, want %q", i, got, step.want)
		}
		if err := guard.Settle(context.Background(), &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBusyLimitNeverHoldsWithoutUseBusy(t *testing.T) {
	guard, err := memlimit.NewGuard(busyPolicy(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		req := fairshare.Request{Addr: netip.MustParseAddr("203.0.113.9")}
		req.SetTarget("/")
		v, err := guard.Decide(context.Background(), &req)
		if err != nil || v.Action != fairshare.Allow {
			t.Fatalf("%v by %v, %v", v.Action, v.Rule, err)
		}
	}
}

func TestBusyLimitCannotEndTheWalk(t *testing.T) {
	p := busyPolicy()
	p.Rules[0].Last = true
	if err := p.Check(); err == nil {
		t.Error("a limit that holds while the upstream is busy may be last")
	}
	p = busyPolicy()
	p.Rules[0].Limit.When = 9
	if err := p.Check(); err == nil {
		t.Error("an unknown When passes the check")
	}
}

// HasStanding finds what Decide has noted, and changes nothing.
func TestHasStandingAfterTenMinutes(t *testing.T) {
	guard, err := memlimit.NewGuard(busyPolicy(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	guard.UseHistory(new(fairshare.History))
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	request := func(at time.Duration, addr string) *fairshare.Request {
		return &fairshare.Request{Time: start.Add(at), Addr: netip.MustParseAddr(addr)}
	}
	if guard.HasStanding(request(0, "203.0.113.9")) {
		t.Error("a client that was never seen has standing")
	}
	if _, err := guard.Decide(context.Background(), request(0, "203.0.113.9")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req  *fairshare.Request
		want bool
	}{
		{request(time.Minute, "203.0.113.9"), false},
		{request(11*time.Minute, "203.0.113.9"), true},
		{request(11*time.Minute, "203.0.113.10"), false},
		{request(22*time.Minute, "203.0.113.10"), false}, // asking is not coming
		{&fairshare.Request{Time: start, Addr: netip.MustParseAddr("203.0.113.11"),
			Override: fairshare.Override{Labels: []string{"partner"}}}, true},
		{&fairshare.Request{Time: start, Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Verified}}, true},
		{&fairshare.Request{Time: start.Add(11 * time.Minute), Addr: netip.MustParseAddr("203.0.113.9"),
			Via: netip.MustParseAddr("10.0.0.1")}, false},
	} {
		if got := guard.HasStanding(c.req); got != c.want {
			t.Errorf("%v at %v: %v, want %v", c.req.Addr, c.req.Time, got, c.want)
		}
	}
}
