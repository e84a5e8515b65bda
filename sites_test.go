package fairshare

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSiteOfAHost(t *testing.T) {
	sites, err := NewSites([]Site{
		{Name: "a", Hosts: []string{"example.org", "WWW.example.org."}},
		{Name: "b", Hosts: []string{"*.example.org", "192.0.2.1"}},
		{Name: "c", Hosts: []string{"*.deep.example.org", "[2001:DB8::1]"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"example.org": 0, "EXAMPLE.org:8443": 0, "example.org.": 0, "example.org.:80": 0, "www.example.org": 0,
		"x.example.org": 1, "x.y.example.org": 1, "192.0.2.1:80": 1, "deep.example.org": 1,
		"x.deep.example.org": 2, "[2001:db8::1]": 2, "[2001:0db8:0::1]:443": 2,
		"": -1, "org": -1, "xexample.org": -1, ".example.org": -1, "example.org..": -1, "2001:db8::1": -1,
		strings.Repeat("x", 300) + ".example.org": -1, "[": -1, "]:80": -1,
	} {
		if got := sites.Find(host); got != want {
			t.Errorf("%q: site %d, want %d", host, got, want)
		}
	}
	for _, faulty := range [][]Site{
		{{Name: "a", Hosts: []string{"x.org"}}, {Name: "b", Hosts: []string{"X.org."}}},
		{{Name: "a", Hosts: []string{"*"}}, {Name: "b", Hosts: []string{"*"}}},
		{{Name: "a", Hosts: []string{""}}},
	} {
		if _, err := NewSites(faulty); err == nil {
			t.Errorf("%v: no error", faulty)
		}
	}
	if n := testing.AllocsPerRun(100, func() { sites.Find("X.EXAMPLE.org:443") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzSiteOfAHost compares Find with an obvious search through all hosts.
func FuzzSiteOfAHost(f *testing.F) {
	for _, host := range strings.Fields("a.example A.example.:80 x.a.example [::1]:80 ::1 [::0001] .. *") {
		f.Add(host, true)
		f.Add(host, false)
	}
	all := []Site{{Name: "a", Hosts: []string{"a.example", "[::1]"}}, {Name: "b", Hosts: []string{"*.example"}},
		{Name: "c", Hosts: []string{"*.a.example"}}}
	f.Fuzz(func(t *testing.T, host string, other bool) {
		policy := all
		if other {
			policy = append(slices.Clone(all), Site{Name: "rest", Hosts: []string{"*"}})
		}
		sites, err := NewSites(policy)
		if err != nil {
			t.Fatal(err)
		}
		name := asciiLower(plainHost(host))
		if inside, found := strings.CutPrefix(name, "["); found {
			if a, err := netip.ParseAddr(strings.TrimSuffix(inside, "]")); err == nil {
				name = "[" + a.String() + "]"
			}
		}
		want, best := -1, -1
		for i, site := range policy {
			for _, pattern := range site.Hosts {
				value := -1
				switch {
				case host == "":
				case pattern == "*":
					value = 0
				case len(name) > 253:
				case pattern == name:
					value = 1000
				case pattern[0] == '*' && strings.HasSuffix(name, pattern[1:]) && len(name) > len(pattern)-1:
					value = len(pattern)
				}
				if value > best {
					want, best = i, value
				}
			}
		}
		if got := sites.Find(host); got != want {
			t.Errorf("%q: site %d, want %d", host, got, want)
		}
	})
}

func asciiLower(s string) string { return string(appendLower(nil, s)) }

// Rules of a site hold for it alone: its limits, its blocks, its bans and its allows by address.
func TestRulesOfASiteHoldThereOnly(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	client := netip.MustParseAddr("192.0.2.1")
	policy := &Policy{
		Sites: []Site{{Name: "shop", Hosts: []string{"shop.example"}, OwnRules: true},
			{Name: "blog", Hosts: []string{"blog.example"}}, {Name: "wiki", Hosts: []string{"wiki.example"}},
			{Name: "empty", Hosts: []string{"empty.example"}, OwnRules: true}},
		Rules: []Rule{
			{Name: "secret", Match: Match{Path: []string{"/secret"}}, Action: Block,
				Ban: &BanTerms{After: 1, For: time.Hour, All: true}},
			{Name: "friend", Site: "shop", Match: Match{Addr: oneAddr(client)}, Action: Allow},
			{Name: "shop secret", Site: "shop", Match: Match{Path: []string{"/secret"}}, Action: Block},
		},
	}
	g, err := NewGuard(policy, noLimiter{}, new(fewBans))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host, path string, want Action, rule string) {
		t.Helper()
		req := Request{Time: now, Addr: client, Method: "GET", Host: host}
		req.SetTarget(path)
		v, err := g.Decide(context.Background(), &req)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		if v.Rule != nil {
			name = v.Rule.Name
		}
		if v.Action != want || name != rule {
			t.Errorf("%s%s: %v by %q, want %v by %q", host, path, v.Action, name, want, rule)
		}
		g.Settle(context.Background(), &v, Outcome{Time: now, Status: 200})
	}
	ask("shop.example", "/secret", Allow, "")
	ask("empty.example", "/secret", Allow, "")
	ask("wiki.example:80", "/secret", Block, "secret") // a ban begins
	ask("BLOG.example.", "/", Refuse, "secret")
	ask("unknown.example", "/", Refuse, "secret")
	ask("shop.example", "/", Allow, "")
	ask("empty.example", "/", Allow, "")

	steps, err := policy.Explain(&Request{Addr: client, Method: "GET", Path: "/secret", Host: "shop.example"})
	if err != nil || !steps[0].Elsewhere || steps[1].Elsewhere || !steps[1].Holds || steps[2].Reached {
		t.Errorf("%+v, %v", steps, err)
	}
	if names := ruleNames(policy.RulesOf("shop")); !slices.Equal(names, []string{"friend", "shop secret"}) {
		t.Error(names)
	}
	if names := ruleNames(policy.RulesOf("blog")); !slices.Equal(names, []string{"secret"}) {
		t.Error(names)
	}
}

func ruleNames(rules []*Rule) (names []string) {
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return names
}

// oneAddr is a set of one address.
type oneAddr netip.Addr

func (a oneAddr) Contains(addr netip.Addr) bool { return netip.Addr(a) == addr }

// fewBans keeps bans of one rule in a map.
type fewBans struct{ until map[BanKey]time.Time }

func (b *fewBans) RuleNumber(string) uint32 { return 1 }
func (b *fewBans) Len() int                 { return len(b.until) }
func (b *fewBans) Find(q *BanQuery, now time.Time) time.Duration {
	return max(0, b.until[q.Key].Sub(now))
}
func (b *fewBans) LimitsNewcomers(*BanKey, time.Time) (uint32, bool) { return 0, false }
func (b *fewBans) CountRefusal(r *Refusal, _ bool) time.Duration {
	b.until = map[BanKey]time.Time{r.Key: r.At.Add(r.Terms.For)}
	return r.Terms.For
}
func (b *fewBans) Lift(ClientID, time.Time, func(BanKey, string)) int { return 0 }

// The limits that hold only while an upstream is busy look at that of the request's site.
func TestBusyIsThatOfTheSite(t *testing.T) {
	policy := &Policy{Sites: []Site{{Name: "slow", Hosts: []string{"slow.example"}},
		{Name: "fast", Hosts: []string{"fast.example"}}},
		Rules: []Rule{{Name: "busy", Limit: &Limit{Resource: Requests, N: 1, Window: time.Minute, When: Busy}}}}
	g, err := NewGuard(policy, noLimiter{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.UseBusyOf(func(site string) bool { return site == "slow" })
	for host, want := range map[string]int{"slow.example": 1, "fast.example": 0, "other": 0} {
		v, err := g.Decide(context.Background(), &Request{Time: time.Unix(1_800_000_000, 0), Method: "GET", Path: "/",
			Host: host,
			Addr: netip.MustParseAddr("192.0.2.1")})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(v.d.matched); got != want {
			t.Errorf("%s: %d limits, want %d", host, got, want)
		}
	}
}

// With SitesApart a client has one allowance for each site, and its bans hold for all.
func TestSitesAreCountedApart(t *testing.T) {
	count := func(apart bool) int {
		policy := &Policy{SitesApart: apart, Sites: []Site{{Name: "a", Hosts: []string{"a.example"}},
			{Name: "b", Hosts: []string{"b.example"}}},
			Rules: []Rule{{Name: "all", Limit: &Limit{Resource: Requests, N: 1, Window: time.Minute},
				Ban: &BanTerms{After: 1, For: time.Hour}}}}
		g, err := NewGuard(policy, noLimiter{}, new(fewBans))
		if err != nil {
			t.Fatal(err)
		}
		keys, bans := map[string]bool{}, map[BanKey]bool{}
		for _, host := range []string{"a.example", "A.example:80", "b.example", "none.example"} {
			d := g.decisions.New().(*decision)
			d.reset(&Request{Host: host, Addr: netip.MustParseAddr("192.0.2.1")}, time.Unix(1_800_000_000, 0))
			keys[string(d.key(0))] = true
			bans[d.banKey(&g.rules[0])] = true
		}
		if len(bans) != 1 {
			t.Errorf("apart %v: %d keys of bans, want 1", apart, len(bans))
		}
		return len(keys)
	}
	if together, apart := count(false), count(true); together != 1 || apart != 3 {
		t.Errorf("%d keys together, %d apart, want 1 and 3", together, apart)
	}
}
