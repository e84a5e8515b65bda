package fairshare_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/membans"
	"fairshare/memlimit"
)

// Peers that no policy names.
var (
	gateway = netip.MustParseAddr("172.17.0.1")
	nginx   = netip.MustParseAddr("127.0.0.1")
)

// through is a request of a client that a peer has named.
func through(via netip.Addr, addr string) fairshare.Request {
	req := from(addr)
	req.Via = via
	return req
}

// unnamed is one of a client that a peer does not tell apart from others.
func unnamed(via netip.Addr) fairshare.Request {
	req := from("192.0.2.1")
	req.Addr, req.Via = via, via
	return req
}

func TestLimitsHoldForEachProvisionalClient(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "limit", Limit: requests(2, time.Hour)},
		{Name: "bot", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}, {Kind: fairshare.ByPath}}}},
	}})
	play(t, g, []step{
		{0, through(nginx, alice), 0, 0, "allow"},
		{0, through(nginx, alice), 0, 0, "allow"},
		{0, through(nginx, alice), 0, 0, "refuse limit 1h30m0s"},
		{0, through(nginx, bob), 0, 0, "allow"},     // another client
		{0, through(gateway, alice), 0, 0, "allow"}, // through another peer
		{0, through(fairshare.ThroughSocket, alice), 0, 0, "allow"},
		{0, from(alice), 0, 0, "allow"},            // itself
		{0, from(nginx.String()), 0, 0, "allow"},   // the peer without a header
		{0, from(gateway.String()), 0, 0, "allow"}, //
		{0, from(gateway.String()), 0, 0, "allow"}, //
		{0, from(gateway.String()), 0, 0, "refuse limit 1h30m0s"},
		{0, through(gateway, bob), 0, 0, "allow"}, // whom that does not hurt
	})
}

// A client that names many new clients through a peer gets 256 times the limit. It
// does not affect clients of the same peer without a header, nor those of another
// peer.
func TestCeilingBoundsAForger(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, test := range []struct {
		name  string
		limit fairshare.Limit
	}{
		{"window", fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: time.Hour}},
		{"gcra", fairshare.Limit{Resource: fairshare.Requests, N: 60, Window: time.Hour, Algorithm: fairshare.GCRA,
			Burst: 3}},
		{"quiet", fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: time.Minute, Algorithm: fairshare.Quiet}},
		{"network", fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}}},
		{"a cookie that is not sent", fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByCookie, Name: "sid"}}}},
		{"errors", fairshare.Limit{Resource: fairshare.Errors, N: 3, Window: time.Hour}},
		{"bytes", fairshare.Limit{Resource: fairshare.Bytes, N: 3, Window: time.Hour}},
	} {
		policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: &test.limit,
			Ban: banTerms(&test.limit)}}}
		g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), membans.New(0))
		if err != nil {
			t.Fatal(err)
		}
		ask := func(req fairshare.Request) fairshare.Verdict {
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 404, Bytes: 1}); err != nil {
				t.Fatal(err)
			}
			return v
		}
		const most = 3 * fairshare.ProvisionalClients
		passed := 0
		for i := range 3 * most {
			v := ask(through(gateway, fmt.Sprintf("203.%d.%d.9", i>>8, i&255)))
			switch {
			case v.Action == fairshare.Allow:
				passed++
			case !v.Ceiling || v.Ban != fairshare.NotBanned || v.Limit.Allowed() != most:
				t.Fatalf("%s: request %d: %+v", test.name, i, v.Finding)
			}
		}
		if passed != most {
			t.Errorf("%s: %d passed, want %d", test.name, passed, most)
		}
		for what, req := range map[string]fairshare.Request{
			"one without a header": from(gateway.String()), "one of another peer": through(nginx, "203.0.1.9"),
			"the client itself": from("203.0.1.9"),
		} {
			if v := ask(req); v.Action != fairshare.Allow {
				t.Errorf("%s: %s is refused: %+v", test.name, what, v.Finding)
			}
		}
		req := through(gateway, "198.51.100.7") // long after: there is no ban
		req.Time = start.Add(3 * time.Hour)
		if v, err := g.Decide(t.Context(), &req); err != nil || v.Action != fairshare.Allow {
			t.Errorf("%s: later: %+v, %v", test.name, v.Finding, err)
		}
	}
}

// banTerms bans at the first refusal, where the limit's key can be banned.
func banTerms(l *fairshare.Limit) *fairshare.BanTerms {
	if len(l.By) == 1 && l.By[0].Kind == fairshare.ByCookie {
		return nil
	}
	return &fairshare.BanTerms{After: 1, For: time.Hour}
}

// A key that no address is in, as a user agent, is counted as before: without
// peer and ceiling.
func TestOnlyLimitsByAddressHaveACeiling(t *testing.T) {
	agent := &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour,
		By: []fairshare.KeyPart{{Kind: fairshare.ByUserAgent}}}
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "agent", Limit: agent},
		{Name: "everyone", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByEveryone}}}},
	}})
	play(t, g, []step{
		{0, with(from(bob), "User-Agent", "a"), 0, 0, "allow"},
		{0, with(through(gateway, alice), "User-Agent", "a"), 0, 0, "refuse agent 2h0m0s"},
		{0, with(through(gateway, alice), "User-Agent", "b"), 0, 0, "allow"},
		{0, with(unnamed(gateway), "User-Agent", "b"), 0, 0, "refuse agent 2h0m0s"},
		{0, through(gateway, alice), 0, 0, "allow"}, // no user agent: by address
		{0, through(gateway, bob), 0, 0, "refuse everyone 1h20m0s"},
	})
	limits := g.Policy().Limits()
	if n := len(limits); n != 3 || limits[2].N != fairshare.ProvisionalClients ||
		fmt.Sprint(limits[2].By) != "[user_agent peer]" {
		t.Errorf("%+v", limits)
	}
}

// Behind a proxy that names no clients only the ceilings count, so that its
// visitors do not share one client's allowance.
func TestUnnamedClientsCountOnlyUnderTheCeiling(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "limit", Limit: requests(1, time.Hour), Ban: &fairshare.BanTerms{After: 1, For: time.Hour}},
	}})
	for i := range fairshare.ProvisionalClients {
		if v := repeat(t, g, 0, unnamed(nginx), 1); v.Action != fairshare.Allow {
			t.Fatalf("request %d: %s", i, describeFinding(v.Finding))
		}
	}
	if v := repeat(t, g, 0, unnamed(nginx), 9); v.Action != fairshare.Refuse || v.Ban != fairshare.NotBanned {
		t.Errorf("above the ceiling: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, 0, from(nginx.String()), 1); v.Action != fairshare.Allow {
		t.Errorf("the peer itself: %s", describeFinding(v.Finding))
	}
}

// A client that forges a victim's address affects the victim only behind that
// peer.
func TestBanOfAProvisionalClientHoldsOnlyBehindItsPeer(t *testing.T) {
	for _, victim := range []string{alice, "2001:db8::7"} {
		g := newGuard(t, banPolicy(nil))
		if v := repeat(t, g, 0, through(gateway, victim), 4); v.Ban != fairshare.BanStarted {
			t.Fatalf("no ban: %s", describeFinding(v.Finding))
		}
		for _, test := range []struct {
			name string
			req  fairshare.Request
			want fairshare.BanState
		}{
			{"through the same peer", through(gateway, victim), fairshare.BanInForce},
			{"the victim itself", from(victim), fairshare.NotBanned},
			{"the victim through another peer", through(nginx, victim), fairshare.NotBanned},
			{"another client of the peer", through(gateway, bob), fairshare.NotBanned},
			{"the peer without a header", from(gateway.String()), fairshare.NotBanned},
		} {
			if v := repeat(t, g, 2*time.Second, test.req, 1); v.Ban != test.want ||
				(test.want == fairshare.NotBanned) != (v.Action == fairshare.Allow) {
				t.Errorf("%s, %s: %s", victim, test.name, describeFinding(v.Finding))
			}
		}
	}
}

// Bans of eight forged neighbors are not evidence against their IPv6 network.
func TestProvisionalClientsDoNotBanTheirNetwork(t *testing.T) {
	bans := membans.New(0)
	var began []string
	bans.Observe(func(b fairshare.BanRecord) { began = append(began, b.Client.String()) })
	policy := banPolicy(nil)
	g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), bans)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		repeat(t, g, 0, through(gateway, fmt.Sprintf("2001:db8:7:%x::1", i)), 4)
	}
	if len(began) != 12 || began[0] != "2001:db8:7::/64 (provisional, through 172.17.0.1)" {
		t.Errorf("%q", began)
	}
	if v := repeat(t, g, 0, from("2001:db8:7:99::1"), 1); v.Action != fairshare.Allow {
		t.Errorf("a neighbour: %s", describeFinding(v.Finding))
	}
}

// A ban of the address itself holds behind every peer.
func TestBanOfAnAddressHoldsForItsProvisionalClients(t *testing.T) {
	g := newGuard(t, banPolicy(nil))
	for _, addr := range []string{alice, "2001:db8:7:99::1"} {
		repeat(t, g, 0, from(addr), 4)
		if v := repeat(t, g, 2*time.Second, through(gateway, addr), 1); v.Ban != fairshare.BanInForce {
			t.Errorf("%s: %s", addr, describeFinding(v.Finding))
		}
	}
}

// What is remembered of a ban of a provisional client keeps the peer, and who
// lifts the bans of an address lifts those too.
func TestBanOfAProvisionalClientIsRestoredAndLifted(t *testing.T) {
	var began []fairshare.BanRecord
	first := membans.New(0)
	first.Observe(func(b fairshare.BanRecord) { began = append(began, b) })
	policy := banPolicy(nil)
	guard := func(bans *membans.Bans) *fairshare.Guard {
		g, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), bans)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	repeat(t, guard(first), 0, through(gateway, alice), 4)
	want := fairshare.ClientID{Prefix: netip.MustParsePrefix(alice + "/32"), Via: gateway}
	if len(began) != 1 || began[0].Client != want {
		t.Fatalf("%+v", began)
	}
	for name, id := range map[string]fairshare.ClientID{"by address": {Prefix: want.Prefix},
		"by network": {Prefix: netip.MustParsePrefix("192.0.2.0/24")}, "as it is": want} {
		bans := membans.New(0)
		bans.Restore(began[0])
		g := guard(bans)
		if v := repeat(t, g, 2*time.Second, through(gateway, alice), 1); v.Ban != fairshare.BanInForce {
			t.Errorf("after a restart: %s", describeFinding(v.Finding))
		}
		if v := repeat(t, g, 2*time.Second, from(alice), 1); v.Action != fairshare.Allow { // as once the peer is named
			t.Errorf("the address itself: %s", describeFinding(v.Finding))
		}
		for _, other := range []fairshare.ClientID{{Prefix: want.Prefix, Via: nginx},
			{Prefix: netip.MustParsePrefix(bob + "/32")}} {
			if n := bans.Lift(other, start.Add(2*time.Second), nil); n != 0 {
				t.Errorf("%v lifts %d bans", other, n)
			}
		}
		if n, err := g.Lift(t.Context(), id, start.Add(2*time.Second), start.Add(2*time.Second)); n != 1 || err != nil {
			t.Errorf("%s: %d lifted, %v", name, n, err)
		}
		if v := repeat(t, g, 4*time.Second, through(gateway, alice), 1); v.Action != fairshare.Allow {
			t.Errorf("%s, lifted: %s", name, describeFinding(v.Finding))
		}
	}
}

// A restriction holds if either address meets it, a permission if both do.
func TestRulesOnBothAddressesOfAProvisionalClient(t *testing.T) {
	const marked = "203.0.113.9"
	office := fairshare.Prefixes{netip.MustParsePrefix(marked + "/32"), netip.MustParsePrefix("172.17.0.1/32")}
	names := known{
		names:  map[string][]string{marked: {"a.office.example"}, gateway.String(): {"b.office.example"}},
		listed: map[string][]string{"list " + marked: {"127.0.0.2"}},
	}
	label := fairshare.Override{Labels: []string{"office"}}
	matches := []struct {
		name  string
		match fairshare.Match
		both  bool // a permission is possible at all
	}{
		{"addr", fairshare.Match{Addr: office}, true},
		{"label", fairshare.Match{Label: []string{"office"}}, true},
		{"hostname", fairshare.Match{Hostname: []string{"*.office.example"}}, false},
		{"listed", fairshare.Match{Listed: []fairshare.Listing{{List: "list"}}}, false},
	}
	for _, m := range matches {
		for _, c := range []struct {
			addr       string
			via        netip.Addr
			some, both bool // of the addresses are meant
		}{
			{marked, gateway, true, true},
			{marked, nginx, true, false},
			{marked, fairshare.ThroughSocket, true, false},
			{bob, gateway, m.name == "addr" || m.name == "label", false},
			{bob, nginx, false, false},
			{bob, fairshare.ThroughSocket, false, false},
		} {
			req := through(c.via, c.addr)
			req.Lookups = names
			if c.addr == marked {
				req.Override = label
			}
			if c.via == gateway {
				req.ViaOverride = label
			}
			for _, test := range []struct {
				name string
				rule fairshare.Rule
				held bool
			}{
				{"block", fairshare.Rule{Match: m.match, Action: fairshare.Block}, c.some},
				{"allow", fairshare.Rule{Match: m.match, Action: fairshare.Allow}, c.both && m.both},
				{"block unless not", fairshare.Rule{Match: fairshare.Match{Not: []fairshare.Match{m.match}},
					Action: fairshare.Block}, !(c.both && m.both)},
				{"allow unless", fairshare.Rule{Match: fairshare.Match{Not: []fairshare.Match{m.match}},
					Action: fairshare.Allow}, !c.some},
			} {
				test.rule.Name = "rule"
				policy := fairshare.Policy{Rules: []fairshare.Rule{test.rule}}
				held := false
				req.Time = start
				v, err := newGuard(t, policy).Decide(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				v.Matched(func(int) { held = true })
				if held || v.Action == fairshare.Block {
					held = true
				}
				steps, err := policy.Explain(&req)
				if err != nil || steps[0].Holds != held {
					t.Errorf("%s %s of %s through %v: explained as %+v, %v", test.name, m.name, c.addr, c.via, steps,
						err)
				}
				if held != test.held {
					t.Errorf("%s %s of %s through %v: %v", test.name, m.name, c.addr, c.via, held)
				}
			}
		}
	}
}

// What operators say of an address bans its provisional clients, and allows
// them only if the peer is allowed too.
func TestOverridesOfBothAddresses(t *testing.T) {
	allow, refuse, block := fairshare.Override{Action: fairshare.Allow},
		fairshare.Override{Action: fairshare.Refuse, Wait: time.Hour}, fairshare.Override{Action: fairshare.Block}
	for _, test := range []struct {
		client, peer fairshare.Override
		want         string
	}{
		{fairshare.Override{}, fairshare.Override{}, "block rule"},
		{allow, fairshare.Override{}, "block rule"},
		{fairshare.Override{}, allow, "block rule"},
		{allow, allow, "allow"},
		{refuse, fairshare.Override{}, "refuse ban by an operator 1h0m0s banned"},
		{fairshare.Override{}, refuse, "refuse ban by an operator 1h0m0s banned"},
		{allow, block, "block ban by an operator"},
		{block, allow, "block ban by an operator"},
		{refuse, block, "refuse ban by an operator 1h0m0s banned"},
	} {
		req := through(gateway, alice)
		req.Override, req.ViaOverride, req.Time = test.client, test.peer, start
		v, err := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "rule", Action: fairshare.Block}}}).
			Decide(t.Context(), &req)
		if got := describeFinding(v.Finding); got != test.want || err != nil {
			t.Errorf("%v and %v: %s, want %s", test.client, test.peer, got, test.want)
		}
	}
}

// Unless of a ban is a permission: it does not hold for a forged address.
func TestForgedAddressIsNotExemptFromABan(t *testing.T) {
	const office = "192.0.2.99" // of banPolicy
	unless := fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix(bob + "/32")}}
	g := newGuard(t, banPolicy(func(r *fairshare.Rule) { r.Ban.Unless = &unless }))
	for _, addr := range []string{office, bob} {
		if v := repeat(t, g, 0, through(gateway, addr), 5); v.Ban != fairshare.BanInForce {
			t.Errorf("%s: %s", addr, describeFinding(v.Finding))
		}
		if v := repeat(t, g, time.Minute, from(addr), 5); v.Ban == fairshare.BanInForce {
			t.Errorf("%s itself: %s", addr, describeFinding(v.Finding))
		}
	}
}

func TestProvisionalRequestAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	policy := banPolicy(nil)
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	g, err := fairshare.NewGuard(&policy, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	req := through(gateway, alice)
	req.Time = start
	if n := testing.AllocsPerRun(1000, func() {
		req.Time = req.Time.Add(time.Minute)
		pass(t, g, &req)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What requests in progress hold of a ceiling is in proportion to it: many
// clients of a busy proxy do not hold each other back.
func TestCeilingHasRoomForManyRequestsInProgress(t *testing.T) {
	for _, resource := range []fairshare.Resource{fairshare.Cost, fairshare.CPU, fairshare.Time, fairshare.Bytes,
		fairshare.Errors, fairshare.Concurrent} {
		limit := &fairshare.Limit{Resource: resource, N: 1000, Window: time.Minute}
		if resource == fairshare.Concurrent {
			limit.Window = 0
		}
		policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit", Limit: limit}}}
		limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		g, err := fairshare.NewGuard(&policy, limiter, membans.New(0))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 1000 {
			req := through(nginx, fmt.Sprintf("203.0.%d.%d", i>>8, i&255))
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if err != nil || v.Action != fairshare.Allow {
				t.Fatalf("%v: request %d: %s, %v", resource, i, describeFinding(v.Finding), err)
			}
			if i < 200 { // the others stay in progress
				if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 200, Bytes: 10, Cost: 1,
					CPU: time.Microsecond, Took: time.Microsecond}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// The limit for newcomers of a shared key has a ceiling too.
func TestCeilingHoldsForNewcomers(t *testing.T) {
	shared := &fairshare.Limit{
		Resource: fairshare.Requests, N: 5, Window: time.Hour, By: []fairshare.KeyPart{{Kind: fairshare.ByEveryone}},
		Newcomers: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Hour},
	}
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "shared", Limit: shared}}}
	g := newGuard(t, policy)
	if v := repeat(t, g, 0, from(bob), 5); v.Action != fairshare.Allow {
		t.Fatalf("the shared count: %s", describeFinding(v.Finding))
	}
	passed := 0
	for i := range 1000 {
		if v := repeat(t, g, 0, through(gateway, fmt.Sprintf("203.0.%d.%d", i>>8, i&255)),
			1); v.Action == fairshare.Allow {
			passed++
		} else if !v.Ceiling {
			t.Fatalf("request %d: %s", i, describeFinding(v.Finding))
		}
	}
	if passed != 2*fairshare.ProvisionalClients {
		t.Errorf("%d newcomers passed", passed)
	}
	for what, req := range map[string]fairshare.Request{
		"a newcomer itself": from(alice), "one of another peer": through(nginx, alice),
		"the peer itself": from(gateway.String()),
	} {
		if v := repeat(t, g, 0, req, 1); v.Action != fairshare.Allow {
			t.Errorf("%s: %s", what, describeFinding(v.Finding))
		}
	}
}
