package fairshare_test

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
)

// lowered is a policy whose limit by network lets newcomers have one request a
// minute when it is over.
func lowered(change func(*fairshare.Rule)) fairshare.Policy {
	rule := fairshare.Rule{Name: "network", Limit: requests(3, time.Minute,
		fairshare.KeyPart{Kind: fairshare.ByNetwork})}
	rule.Limit.Newcomers = requests(1, time.Minute)
	change(&rule)
	return fairshare.Policy{Rules: []fairshare.Rule{{Name: "own", Limit: requests(100, time.Minute)}, rule}}
}

func TestLimitWithNewcomers(t *testing.T) {
	same := func(*fairshare.Rule) {}
	none := func(r *fairshare.Rule) { r.Limit.Newcomers = &fairshare.Limit{Resource: fairshare.Requests} }
	label := func(r *fairshare.Request) { r.Override.Labels = []string{"partner"} }
	verified := func(r *fairshare.Request) { r.SetBot(fairshare.Bot{Name: "b", State: fairshare.Verified}) }
	proxy := func(r *fairshare.Request) { r.Proxy = true }
	for _, c := range []struct {
		name   string
		policy fairshare.Policy
		addr   string
		change func(*fairshare.Request)
		passed int // of five requests, once the network has had its three
	}{
		{"a newcomer", lowered(same), "192.0.2.9", nil, 1},
		{"of another network", lowered(same), "192.0.3.9", nil, 4}, // three, and one as a newcomer
		{"a known client", lowered(same), "192.0.2.5", nil, 5},
		{"a labelled client", lowered(same), "192.0.2.9", label, 5},
		{"a verified bot", lowered(same), "192.0.2.9", verified, 5},
		{"a proxy's own address", lowered(same), "192.0.2.5", proxy, 1},
		{"a newcomer, where none pass", lowered(none), "192.0.2.9", nil, 0},
		{"a known client, where no newcomers pass", lowered(none), "192.0.2.5", nil, 5},
		{"in dry run", lowered(func(r *fairshare.Rule) { r.DryRun = true }), "192.0.2.9", nil, 5},
	} {
		g := memGuard(t, c.policy)
		repeat(t, g, -2*time.Hour, at("192.0.2.5"), 1)
		repeat(t, g, -time.Hour, at("192.0.2.5"), 1)
		for i := range 3 {
			repeat(t, g, 0, at(fmt.Sprintf("192.0.2.10%d", i)), 1)
		}
		req, passed := at(c.addr), 0
		if c.change != nil {
			c.change(&req)
		}
		for range 5 {
			v := repeat(t, g, 0, req, 1)
			switch v.Action {
			case fairshare.Allow:
				passed++
			case fairshare.Refuse:
				if v.Rule.Name != "network" || v.Limit == nil ||
					c.policy.Rules[1].Limit.Newcomers.N > 0 && (v.Limit.N != 1 || v.Tally.Used != 1) {
					t.Errorf("%s: refused by %q, limit %+v, tally %+v", c.name, v.Rule.Name, v.Limit, v.Tally)
				}
			}
		}
		if passed != c.passed {
			t.Errorf("%s: %d of 5 pass, want %d", c.name, passed, c.passed)
		}
	}
}

// A dry limit with newcomers reports those whom it would refuse, and no others.
func TestDryLimitWithNewcomers(t *testing.T) {
	g := memGuard(t, lowered(func(r *fairshare.Rule) { r.DryRun = true }))
	reported := 0
	for i := range 6 {
		if v := repeat(t, g, 0, at(fmt.Sprintf("192.0.2.%d", i%2)), 1); v.DryRunFinding.Action == fairshare.Refuse {
			reported++
		}
	}
	if reported != 1 { // 3 by the network, then one each
		t.Errorf("%d of 6 reported, want 1", reported)
	}
}

// What a limit refuses is its own: another limit that is over refuses as ever.
func TestOtherLimitsRefuseNewcomersToo(t *testing.T) {
	policy := lowered(func(*fairshare.Rule) {})
	policy.Rules[0].Limit = requests(2, time.Hour)
	g := memGuard(t, policy)
	for i := range 3 {
		repeat(t, g, 0, at(fmt.Sprintf("192.0.2.10%d", i)), 1)
	}
	repeat(t, g, 0, at("192.0.2.9"), 1)
	repeat(t, g, time.Minute+30*time.Second, at("192.0.2.9"), 1)
	if v := repeat(t, g, time.Minute+30*time.Second, at("192.0.2.9"), 1); v.Action != fairshare.Refuse ||
		v.Rule.Name != "own" {
		t.Errorf("over both: %s", describeFinding(v.Finding))
	}
}

// The slot of a concurrent limit for newcomers is given back as any other.
func TestConcurrentNewcomers(t *testing.T) {
	limit := &fairshare.Limit{Resource: fairshare.Concurrent, N: 1,
		By:        []fairshare.KeyPart{{Kind: fairshare.ByNetwork}},
		Newcomers: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}}
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "at once", Limit: limit}}})
	decide := func() fairshare.Verdict {
		req := at("192.0.2.9")
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for range 3 {
		first, second, third := decide(), decide(), decide()
		if first.Action != fairshare.Allow || second.Action != fairshare.Allow || third.Action != fairshare.Refuse {
			t.Fatalf("%v %v %v, want allow, allow as a newcomer, refuse", first.Action, second.Action, third.Action)
		}
		for _, v := range []*fairshare.Verdict{&first, &second, &third} {
			if err := g.Settle(t.Context(), v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNewcomersOfASharedKeyOnly(t *testing.T) {
	for name, change := range map[string]func(*fairshare.Rule){
		"by addr":          func(r *fairshare.Rule) { r.Limit.By = nil },
		"another resource": func(r *fairshare.Rule) { r.Limit.Newcomers.Resource = fairshare.Errors },
		"with a ban":       func(r *fairshare.Rule) { r.Ban = &fairshare.BanTerms{After: 1, For: time.Hour} },
		"twice":            func(r *fairshare.Rule) { r.Limit.Newcomers.Newcomers = requests(1, time.Minute) },
	} {
		policy := lowered(change)
		if policy.Check() == nil {
			t.Errorf("%s: no fault", name)
		}
	}
}

// With SitesApart a newcomer has the limit of newcomers once for each site, with a visitor's cookie, too.
func TestNewcomersOfSitesApart(t *testing.T) {
	policy := lowered(func(*fairshare.Rule) {})
	policy.SitesApart = true
	policy.Sites = []fairshare.Site{{Name: "shop", Hosts: []string{"shop.example"}}}
	for _, id := range []uint64{0, 7} {
		g := memGuard(t, policy)
		for _, host := range []string{"shop.example", "other.example"} {
			req := at("192.0.2.9")
			req.Host, req.Visitor.ID = host, id
			repeat(t, g, 0, req, 3) // all that the network may
			if v := repeat(t, g, 0, req, 1); v.Action != fairshare.Allow {
				t.Errorf("visitor %d at %s: %s", id, host, describeFinding(v.Finding))
			}
			if v := repeat(t, g, 0, req, 1); v.Action != fairshare.Refuse {
				t.Errorf("visitor %d at %s, once more: %s", id, host, describeFinding(v.Finding))
			}
		}
	}
}
