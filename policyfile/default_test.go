package policyfile

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

func TestBuiltInPolicyGivesNoWarnings(t *testing.T) {
	for _, w := range BuiltIn().Warnings {
		t.Error(w.Long())
	}
	f, err := Parse("site.yaml", []byte("rules: [{use: default}]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Policy.Rules) != len(BuiltIn().Policy.Rules) || len(f.Warnings) > 0 {
		t.Errorf("{use: default}: %d rules, warnings %v", len(f.Policy.Rules), f.Warnings)
	}
}

// A visit is one client's part of a story: count requests, one every so often.
type visit struct {
	what    string
	addr    string
	method  string
	target  func(i int) string
	status  int
	every   time.Duration
	count   int
	refused [2]int // at least and at most
}

func always(target string) func(int) string { return func(int) string { return target } }

func TestBuiltInPolicyStopsHammeringAndSparesPeople(t *testing.T) {
	start := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	page := func(i int) string { // each page brings 40 assets
		if i%41 == 0 {
			return fmt.Sprintf("/page/%d", i)
		}
		return fmt.Sprintf("/static/%d.css", i)
	}
	for _, v := range []visit{
		{"a hammer", "192.0.2.1", "GET", always("/"), 200, 10 * time.Millisecond, 6000, [2]int{5000, 6000}},
		{"a hammer on assets", "192.0.2.1", "GET", always("/a.css"), 200, 10 * time.Millisecond, 6000, [2]int{4000, 6000}},
		{"a person", "192.0.2.1", "GET", page, 200, 150 * time.Millisecond, 4000, [2]int{0, 0}},
		{"an office of twenty", "192.0.2.1", "GET", page, 200, 60 * time.Millisecond, 10000, [2]int{0, 0}},
		{"a monitor", "192.0.2.1", "HEAD", always("/"), 200, 5 * time.Second, 1000, [2]int{0, 0}},
		{"a feed reader", "192.0.2.1", "GET", always("/feed.xml"), 304, time.Minute, 500, [2]int{0, 0}},
		{"a webhook", "192.0.2.1", "POST", always("/pay/callback"), 200, time.Second, 1000, [2]int{0, 0}},
		{"a certificate authority", "192.0.2.1", "GET", always("/.well-known/acme-challenge/x"), 200, time.Second, 100, [2]int{0, 0}},
		{"who mistypes a password", "192.0.2.1", "POST", always("/wp-login.php"), 200, 10 * time.Second, 10, [2]int{0, 0}},
		{"a guesser", "192.0.2.1", "POST", always("/wp-login.php"), 200, 2 * time.Second, 1000, [2]int{950, 1000}},
		{"a scanner", "192.0.2.1", "GET", func(i int) string { return fmt.Sprintf("/old-%d.php", i) }, 404, 300 * time.Millisecond, 2000, [2]int{1800, 2000}},
	} {
		file := BuiltIn()
		limiter, err := memlimit.New(file.Policy.Limits(), memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		guard, err := fairshare.NewGuard(&file.Policy, limiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(now time.Time, addr, method, target string, status int) fairshare.Action {
			req := &fairshare.Request{Time: now, Addr: netip.MustParseAddr(addr), Method: method, Host: "example.org", UserAgent: "curl/8", Header: http.Header{}}
			req.SetTarget(target)
			verdict, err := guard.Decide(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			action := verdict.Action
			if err := guard.Settle(context.Background(), &verdict, fairshare.Outcome{Time: now.Add(50 * time.Millisecond), Status: status}); err != nil {
				t.Fatal(err)
			}
			return action
		}
		refused := 0
		for i := range v.count {
			now := start.Add(time.Duration(i) * v.every)
			if ask(now, v.addr, v.method, v.target(i), v.status) == fairshare.Refuse {
				refused++
			}
			if i%100 == 50 && ask(now, "192.0.2.77", "GET", "/", 200) != fairshare.Allow {
				t.Errorf("%s: a neighbour was refused after %d requests", v.what, i)
			}
		}
		if refused < v.refused[0] || refused > v.refused[1] {
			t.Errorf("%s: %d of %d requests refused, want %d to %d", v.what, refused, v.count, v.refused[0], v.refused[1])
		}
	}
}
