package census

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// minute records requests that end in the course of one minute, and returns the warning
// about it.
func minute(passages []PassedRequest, capacity int) string {
	p := policyOf(false)
	c := New(p, start)
	for i := range passages {
		at := start.Add(time.Minute * time.Duration(i+1) / time.Duration(len(passages)))
		if line := c.Heavy(at.Add(-time.Nanosecond), capacity); line != "" {
			return "too early: " + line
		}
		c.Passed(passage(&passages[i], p.Client(passages[i].Addr)), at)
	}
	return c.Heavy(start.Add(time.Minute), capacity)
}

// requests returns requests of some clients in turn, each with that many.
func requests(clients, each int, addr func(int) netip.Addr, path string, took time.Duration) (all []PassedRequest) {
	for range each {
		for n := range clients {
			all = append(all, PassedRequest{Client: httpguard.Client{Addr: addr(n)}, Method: "GET", Path: path,
				Took: took, Status: 200})
		}
	}
	return all
}

// mixed returns the requests in a random order, which is the same each time.
func mixed(parts ...[]PassedRequest) (all []PassedRequest) {
	for _, p := range parts {
		all = append(all, p...)
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func TestClientWithMostOfTheUpstreamsTime(t *testing.T) {
	one := func(text string) func(int) netip.Addr {
		return func(int) netip.Addr { return netip.MustParseAddr(text) }
	}
	spread := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n), byte(n >> 8), 1}) }
	inNetwork := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(n)}) }
	const help = "What helps: a limit of time or cpu in the policy, or share: (docs/cost.md); "
	const sharedHelp = "What helps: a limit of time or cpu in the policy (docs/cost.md); while others wait, it gets only " +
		"its share; "
	of := func(owner fairshare.Owner, fleet string, via netip.Addr, all []PassedRequest) []PassedRequest {
		for i := range all {
			all[i].Owner, all[i].Fleet, all[i].Via = owner, fleet, via
		}
		return all
	}
	hosting := fairshare.Owner{ASN: 64500, Name: "Example\x1b Hosting", Type: "hosting"}
	wide := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{100, byte(n), byte(n >> 8), 1}) }
	swarm := func() []PassedRequest { return requests(600, 1, wide, "/search", 300*time.Millisecond) }
	visitors := requests(200, 2, spread, "/shop/page", 40*time.Millisecond) // 16 s
	scraper := requests(1, 600, one("203.0.113.9"), "/search", 300*time.Millisecond)
	for _, c := range []struct {
		name     string
		passages []PassedRequest
		capacity int
		want     []string // parts of the line; none: no line
	}{
		{"nobody", nil, 0, nil},
		{"a scraper", mixed(visitors, scraper), 0, []string{
			"WARNING: ONE CLIENT HAD MOST OF THE UPSTREAM'S TIME: 203.0.113.9 had 9", " % of 19",
			" s of the upstream's time in the last minute, with 600 requests, most of it for \"/search\". ",
			"The upstream was busy: it worked on 3.", help +
				"fairshare client 203.0.113.9 shows details, fairshare ban 203.0.113.9 refuses it",
		}},
		{"a scraper of many pages of one kind", mixed(visitors,
			requests(1, 300, one("203.0.113.9"), "/product/1\x1b[2J\u202e", 600*time.Millisecond)), 0, []string{
			`most of it for "/product/*". `,
		}},
		{"a path that steers terminals", mixed(visitors,
			requests(1, 300, one("203.0.113.9"), "/\x1b[2J\u202e", 600*time.Millisecond)), 0, []string{
			`most of it for "/\x1b[2J\u202e". `,
		}},
		{"an IPv6 client", mixed(visitors, requests(1, 300, one("2001:db8::1"), "/", 600*time.Millisecond)), 0,
			[]string{
				"ONE CLIENT HAD", ": 2001:db8::/64 had ", `most of it for "/". `,
			}},
		{"a network", mixed(visitors, requests(100, 6, inNetwork, "/search", 300*time.Millisecond)), 0, []string{
			"ONE NETWORK HAD", ": 203.0.113.0/24 had ", "with 600 requests", "fairshare ban 203.0.113.0/24 refuses it",
		}},
		{"a few requests that take very long", mixed(requests(1, 12, one("203.0.113.9"), "/report", 30*time.Second),
			visitors), 0, []string{": 203.0.113.9 had ", "with 12 requests"}},
		{"small share: of two", mixed(visitors, requests(1, 300, one("203.0.113.9"), "/", 240*time.Millisecond)), 2,
			[]string{": 203.0.113.9 had ", sharedHelp + "fairshare client 203.0.113.9 shows details"}},
		{"an owner", mixed(visitors, of(hosting, "", netip.Addr{}, swarm())), 0, []string{
			`ONE OWNER HAD`, `: AS64500 Example\x1b Hosting had `, "a rule with match: {asn: AS64500} limits it"}},
		{"a fleet of an owner", mixed(visitors, of(hosting, "fleet-7", netip.Addr{}, swarm())), 0, []string{
			"ONE FLEET HAD", ": fleet-7 had ", "a limit by: fleet counts it as one client"}},
		{"an owner that only a peer names",
			mixed(visitors, of(hosting, "", netip.MustParseAddr("10.0.0.1"), swarm())), 0, nil},

		{"a flash crowd", requests(4000, 1, spread, "/news", 100*time.Millisecond), 0, nil},
		{"a busy site", mixed(requests(300, 10, spread, "/a", 100*time.Millisecond),
			requests(1, 300, one("203.0.113.9"), "/b", 100*time.Millisecond)), 0, nil},
		{"an office of ten editors", mixed(requests(20, 5, spread, "/", 50*time.Millisecond),
			requests(1, 200, one("203.0.113.9"), "/wp-admin/post.php", 400*time.Millisecond)), 0, nil},
		{"one client of an idle site", scraper[:60], 0, nil},
		{"there is room yet", mixed(visitors, scraper), 20, nil},
		{"one upload", requests(1, 4, one("203.0.113.9"), "/upload", time.Hour), 0, nil},
		{"what upstreams never worked on", requests(1, 9000, one("203.0.113.9"), "/", 0), 0, nil},
		{"half of it", mixed(requests(1, 400, one("203.0.113.9"), "/", 300*time.Millisecond),
			requests(400, 1, spread, "/", 300*time.Millisecond)), 0, nil},
	} {
		got := minute(c.passages, c.capacity)
		if (got == "") != (c.want == nil) {
			t.Errorf("%s: %q", c.name, got)
		}
		for _, part := range c.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q, want %q in it", c.name, got, part)
			}
		}
	}
}

// Holder says in short what the warning said, until a minute has no warning.
func TestHolderIsWhoHadMostInTheLastMinute(t *testing.T) {
	p := policyOf(false)
	c := New(p, start)
	pass := func(n int, at time.Time) {
		for range 300 {
			c.Passed(passage(&PassedRequest{Client: sender(n), Path: "/", Took: time.Second}, p.Client(addr(n))), at)
		}
	}
	check := func(at time.Duration, want string) {
		t.Helper()
		c.Heavy(start.Add(at), 4)
		if got := c.Holder(); got != want {
			t.Errorf("after %v: %q, want %q", at, got, want)
		}
	}
	pass(1, start.Add(50*time.Second))
	check(59*time.Second, "")
	check(time.Minute, "client "+addr(1).String()+" holds 100 % of the upstream")
	check(90*time.Second, "client "+addr(1).String()+" holds 100 % of the upstream")
	check(2*time.Minute, "")
}

// A heavy client is reported once a minute. A request that lasts an hour counts in all
// the minutes of that hour.
func TestHeavyClientIsReportedOnceAMinute(t *testing.T) {
	p := policyOf(false)
	c, reported := New(p, start), 0
	for second := range 181 {
		now := start.Add(time.Duration(second) * time.Second)
		if second <= 120 {
			for range 8 {
				c.Passed(passage(&PassedRequest{Client: sender(1), Method: "GET", Path: "/", Took: time.Second,
					Status: 200}, p.Client(addr(1))), now)
			}
		}
		if c.Heavy(now, 0) != "" {
			reported++
		}
	}
	if reported != 2 {
		t.Errorf("reported %d times, want 2", reported)
	}
	c = New(p, start)
	for i := range 10 {
		c.Passed(passage(&PassedRequest{Client: sender(1), Path: "/", Took: time.Hour}, p.Client(addr(1))),
			start.Add(time.Duration(i)*time.Second))
	}
	if got := c.Heavy(start.Add(time.Minute), 0); got != "" { // 45 s of this minute
		t.Errorf("hours of earlier minutes count: %q", got)
	}
}

// A table of fixed size is compared with an exact count of all keys. Its lower bounds
// hold, and it finds every key that had more than 1/64 of all.
func TestHeavyTableMatchesExactCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		var table heavyTable
		var all time.Duration
		exact := map[netip.Prefix]time.Duration{}
		keys := 1 + r.IntN(3000)
		for range 20_000 {
			n := r.IntN(keys)
			if r.IntN(3) == 0 {
				n = r.IntN(1 + keys/200) // some are heavier
			}
			prefix := netip.PrefixFrom(addr(n), 32)
			took := time.Duration(1 + r.IntN(1000))
			table.entry(heavyKey{prefix: prefix}, "").add("/", false, took)
			all += took
			exact[prefix] += took
		}
		found := map[netip.Prefix]bool{}
		for i := range table.entries {
			e := &table.entries[i]
			found[e.prefix] = true
			if had := exact[e.prefix]; e.spent-e.over > had || e.spent < had {
				t.Fatalf("round %d: %v had %v, table: %v less %v at most", round, e.prefix, had, e.spent, e.over)
			}
		}
		for prefix, had := range exact {
			if had > all/heavyEntries && !found[prefix] {
				t.Fatalf("round %d: %v had %v of %v and is not in the table", round, prefix, had, all)
			}
		}
	}
}

func TestPassedAllocatesNothing(t *testing.T) {
	p := policyOf(false)
	c := New(p, start)
	n := 0
	one := passage(&PassedRequest{Method: http.MethodPost, Path: "/wp-login.php", Took: time.Second, Status: 200},
		netip.Prefix{})
	if got := testing.AllocsPerRun(1000, func() {
		n++
		one.Addr, one.Client = addr(n), p.Client(addr(n))
		c.Passed(one, start.Add(time.Second))
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkPassed(b *testing.B) {
	p := policyOf(false)
	c := New(p, start)
	b.ReportAllocs()
	n := 0
	one := passage(&PassedRequest{Method: "GET", Path: "/shop/page", Took: time.Second, Status: 200}, netip.Prefix{})
	for b.Loop() {
		n++
		one.Addr, one.Client = addr(n&1023), p.Client(addr(n&1023))
		c.Passed(one, start.Add(time.Second))
	}
}
