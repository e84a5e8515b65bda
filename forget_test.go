package fairshare_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
)

// TestForgottenClientIsNew has a client use up limits by every key that is its
// own, alone or with others, and forgets it.
func TestForgottenClientIsNew(t *testing.T) {
	addr, network := fairshare.KeyPart{Kind: fairshare.ByAddr}, fairshare.KeyPart{Kind: fairshare.ByNetwork}
	agent, path := fairshare.KeyPart{Kind: fairshare.ByUserAgent}, fairshare.KeyPart{Kind: fairshare.ByPath}
	everyone, bot := fairshare.KeyPart{Kind: fairshare.ByEveryone}, fairshare.KeyPart{Kind: fairshare.ByBot}
	cookie := fairshare.KeyPart{Kind: fairshare.ByCookie, Name: "sid"}
	googlebot := func(addr string) fairshare.Request {
		req := from(addr)
		req.SetBot(fairshare.Bot{Name: "googlebot", State: fairshare.Verified})
		return req
	}
	for _, c := range []struct {
		name   string
		by     []fairshare.KeyPart
		req    fairshare.Request
		forget string
		want   bool // the next request is judged as of a new client
	}{
		{"its address", []fairshare.KeyPart{addr}, from(alice), alice, true},
		{"its address and path", []fairshare.KeyPart{addr, path}, from(alice), alice, true},
		{"its address and user agent", []fairshare.KeyPart{agent, addr}, with(from(alice), "User-Agent", "a"), alice,
			true},
		{"no cookie, so its address", []fairshare.KeyPart{cookie}, from(alice), alice, true},
		{"a cookie", []fairshare.KeyPart{cookie}, with(from(alice), "Cookie", "sid=1"), alice, false},
		{"a user agent", []fairshare.KeyPart{agent}, with(from(alice), "User-Agent", "a"), alice, false},
		{"everyone", []fairshare.KeyPart{everyone}, from(alice), alice, false},
		{"its network", []fairshare.KeyPart{network}, from(alice), alice, false},
		{"its whole network", []fairshare.KeyPart{network}, from(alice), "192.0.2.0/24", true},
		{"a wider prefix", []fairshare.KeyPart{addr}, from(alice), "192.0.0.0/16", true},
		{"everybody", []fairshare.KeyPart{addr}, from(alice), "0.0.0.0/0", true},
		{"IPv4 is not IPv6", []fairshare.KeyPart{addr}, from(alice), "::/0", false},
		{"another address", []fairshare.KeyPart{addr}, from(alice), bob, false},
		{"an IPv6 client", []fairshare.KeyPart{addr}, from(carol), "2001:db8::/64", true},
		{"one address of an IPv6 client", []fairshare.KeyPart{addr}, from(carol), "2001:db8::1", false},
		{"a neighboring prefix", []fairshare.KeyPart{addr}, from(carol), "2001:db8:0:1::/64", false},
		{"a bot", []fairshare.KeyPart{bot}, googlebot(alice), "googlebot", true},
		{"a bot by its address", []fairshare.KeyPart{bot}, googlebot(alice), alice, false},
		{"another bot", []fairshare.KeyPart{bot}, googlebot(alice), "bingbot", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one",
				Limit: requests(1, time.Hour, c.by...)}}})
			id, err := fairshare.ParseClientID(c.forget)
			if err != nil {
				t.Fatal(err)
			}
			passes := func(at time.Time) bool {
				c.req.Time = at
				v, err := g.Decide(t.Context(), &c.req)
				if err != nil {
					t.Fatal(err)
				}
				if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: at, Status: 200}); err != nil {
					t.Fatal(err)
				}
				return v.Action == fairshare.Allow
			}
			now := time.Unix(1_700_000_000, 0)
			if !passes(now) || passes(now) {
				t.Fatal("the limit of one request does not hold")
			}
			for n := range 2 { // and once more
				now = now.Add(time.Second)
				if err := g.Forget(t.Context(), id, now, now, now); err != nil {
					t.Fatal(err)
				}
				if got := passes(now); got != c.want {
					t.Errorf("forgotten %d times: passes is %v, want %v", n+1, got, c.want)
				}
				if passes(now) {
					t.Error("a second request passes: the limit is gone")
				}
			}
		})
	}
}

// The clock of stored times is set back between two forgets. Each of them is
// applied once, and not again when a later process restores them.
func TestForgetWhenTheStoredTimeGoesBack(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Hour)}}}
	limiter := limittest.NewModel(policy.Limits())
	process := func() (*fairshare.Guard, *fairshare.History) {
		g, err := fairshare.NewGuard(&policy, limiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		history := new(fairshare.History)
		g.UseHistory(history)
		return g, history
	}
	now := time.Unix(1_700_000_000, 0)
	req := from(alice)
	refused := func(g *fairshare.Guard) bool {
		now = now.Add(time.Second)
		req.Time = now
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v.Action != fairshare.Allow
	}
	g, _ := process()
	first := now.Add(-time.Minute)
	for i, f := range []struct {
		prefix string
		stored time.Time
	}{{"192.0.2.0/24", first}, {alice + "/32", first.Add(-time.Hour)}, {alice + "/32", first.Add(-2 * time.Hour)}} {
		if i == 0 && (refused(g) || !refused(g)) {
			t.Fatal("the limit of one request does not hold")
		}
		if err := g.Forget(t.Context(), fairshare.PrefixID(netip.MustParsePrefix(f.prefix)), now, f.stored,
			now); err != nil {
			t.Fatal(err)
		}
		if refused(g) || !refused(g) {
			t.Fatalf("forget %d: want one request to pass", i)
		}
	}
	g, history := process()
	history.RestoreForgotten(fairshare.PrefixID(netip.MustParsePrefix("192.0.2.0/24")), first)
	history.RestoreForgotten(fairshare.PrefixID(netip.MustParsePrefix(alice+"/32")), first.Add(-time.Hour))
	history.RestoreForgotten(fairshare.PrefixID(netip.MustParsePrefix(alice+"/32")), first.Add(-2*time.Hour))
	if !refused(g) {
		t.Error("a restart lets a client in again that was forgotten before")
	}
}

// A forgotten client's bans, their number and the refusals that count towards
// the next are forgotten too, those of clients within a prefix as well.
func TestForgottenBansBeginAgain(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "guess", Limit: requests(1, time.Hour), Ban: &fairshare.BanTerms{After: 2, For: time.Hour},
	}}}
	for _, forget := range []string{alice, "192.0.2.0/24"} {
		g := newGuard(t, policy)
		prefix, err := fairshare.ParseClientID(forget)
		if err != nil {
			t.Fatal(err)
		}
		story := func(want ...string) {
			t.Helper()
			for i, want := range want {
				req := from(alice)
				req.Time = time.Unix(1_700_000_000, 0)
				v, err := g.Decide(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				got := v.Action.String()
				if v.Ban == fairshare.BanStarted {
					got = "ban"
				}
				if got != want {
					t.Errorf("forget %s: request %d: %s, want %s", forget, i+1, got, want)
				}
				g.Settle(t.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 200})
			}
		}
		at := time.Unix(1_700_000_000, 0)
		story("allow", "refuse") // one refusal, short of a ban
		if err := g.Forget(t.Context(), prefix, at, at, at); err != nil {
			t.Fatal(err)
		}
		story("allow", "refuse", "ban", "refuse")
		if err := g.Forget(t.Context(), prefix, at.Add(1), at.Add(1), at); err != nil {
			t.Fatal(err)
		}
		story("allow", "refuse", "ban")
		// unban forgets the refusals of a client that was forgotten before.
		if _, err := g.Lift(t.Context(), fairshare.PrefixID(netip.MustParsePrefix(alice+"/32")), at, at); err != nil {
			t.Fatal(err)
		}
		story("refuse", "ban")
	}
}

// Looking whether a client was forgotten allocates nothing.
func TestForgottenClientsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "many", Limit: requests(1<<20, time.Hour)}}})
	now := time.Unix(1_700_000_000, 0)
	for _, prefix := range []string{"192.0.2.0/24", "192.0.2.1/32", "10.0.0.0/8", "2001:db8::/64"} {
		if err := g.Forget(t.Context(), fairshare.PrefixID(netip.MustParsePrefix(prefix)), now, now, now); err != nil {
			t.Fatal(err)
		}
	}
	req := from(alice)
	req.Time = now
	if n := testing.AllocsPerRun(1000, func() { pass(t, g, &req) }); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
}

// That some client was forgotten changes the keys of no other.
func TestForgetChangesNoOtherKey(t *testing.T) {
	g := newGuard(t, fairshare.Policy{})
	key := func(addr string, kind fairshare.KeyKind, bits4 uint8) string {
		req := fairshare.Request{Addr: netip.MustParseAddr(addr)}
		return string(g.AppendKey(nil, &req, fairshare.KeyPart{Kind: kind, Bits4: bits4, Bits6: 2 * bits4}))
	}
	keys := func(addr string) (all []string) {
		for _, bits := range []uint8{0, 16} {
			all = append(all, key(addr, fairshare.ByAddr, 0), key(addr, fairshare.ByNetwork, bits))
		}
		return all
	}
	others := []string{"192.0.2.1", "2001:db8::1", "::ffff:198.51.100.1"}
	var before [][]string
	for _, addr := range others {
		before = append(before, keys(addr))
	}
	gone := keys("203.0.113.1")
	client := fairshare.PrefixID(netip.MustParsePrefix("203.0.113.1/32"))
	if err := g.Forget(t.Context(), client, noon, noon, noon); err != nil {
		t.Fatal(err)
	}
	for i, addr := range others {
		if after := keys(addr); !slices.Equal(after, before[i]) {
			t.Errorf("%s: keys %q, before %q", addr, after, before[i])
		}
	}
	if after := keys("203.0.113.1"); after[0] == gone[0] || after[1] != gone[1] {
		t.Errorf("keys %q, before %q: only that of the address changes", after, gone)
	}
}
