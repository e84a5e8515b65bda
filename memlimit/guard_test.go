package memlimit_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

func policyOf(names ...string) *fairshare.Policy {
	p := new(fairshare.Policy)
	for i, name := range names {
		p.Rules = append(p.Rules, fairshare.Rule{
			Name:  name,
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: int64(i + 1), Window: time.Minute},
		})
	}
	return p
}

func TestNewGuardCounts(t *testing.T) {
	guard, err := memlimit.NewGuard(policyOf("one a minute"), memlimit.Options{Memory: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []fairshare.Action{fairshare.Allow, fairshare.Refuse} {
		req := fairshare.Request{Time: start, Addr: netip.MustParseAddr("192.0.2.1"), Path: "/"}
		v, err := guard.Decide(context.Background(), &req)
		if err != nil || v.Action != want {
			t.Errorf("request %d: %v, %v; want %v", i+1, v.Action, err, want)
		}
	}
	if _, err := memlimit.NewGuard(policyOf("twice", "twice"), memlimit.Options{}); err == nil {
		t.Error("a faulty policy made a guard")
	}
}

func TestGuardRefusesAnotherPolicysLimiter(t *testing.T) {
	policy := policyOf("a", "b")
	fewer, other, larger := policyOf("a"), policyOf("a", "c"), policyOf("a", "b")
	larger.Rules[1].Limit.N = 9
	for _, c := range []struct {
		name   string
		policy *fairshare.Policy
		want   string
	}{
		{"its own", policy, ""},
		{"one rule less", fewer, "made for 2 limits"},
		{"another name", other, `limit 2 of the limiter is "c"`},
		{"another amount", larger, `limit 2 of the limiter is "b"`},
	} {
		limiter := open(t, c.policy.Limits(), 1<<16)
		_, err := fairshare.NewGuard(policy, limiter, nil)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	var none *memlimit.Limiter
	for _, limiter := range []fairshare.Limiter{nil, none} {
		if _, err := fairshare.NewGuard(policy, limiter, nil); err == nil {
			t.Errorf("limiter %#v: a guard was made", limiter)
		}
	}
	if _, err := fairshare.NewGuard(nil, open(t, policy.Limits(), 1<<16), nil); err == nil {
		t.Error("no policy: a guard was made")
	}
}

// A nil policy is an error, not a panic.
func TestNewGuardWithoutPolicy(t *testing.T) {
	if guard, err := memlimit.NewGuard(nil, memlimit.Options{}); err == nil || guard != nil {
		t.Errorf("%v, %v; want an error", guard, err)
	}
}
