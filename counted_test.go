package fairshare_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// distinct returns a limit of n different paths in a window.
func distinct(of fairshare.Distinct, n int64, window time.Duration, by ...fairshare.KeyPart) *fairshare.Limit {
	lim := requests(n, window, by...)
	lim.Distinct = of
	return lim
}

// target returns a request of a client with a target.
func target(addr, target string) fairshare.Request {
	req := at(addr)
	req.SetTarget(target)
	return req
}

func TestLimitOfDistinctPaths(t *testing.T) {
	type step struct {
		after  time.Duration
		addr   string
		target string
		want   fairshare.Action
	}
	const pass, refuse = fairshare.Allow, fairshare.Refuse
	paths := distinct(fairshare.DistinctPaths, 2, time.Hour)
	queries := distinct(fairshare.DistinctQueries, 2, time.Hour)
	for name, c := range map[string]struct {
		limit *fairshare.Limit
		steps []step
	}{
		"a page may be read again while the limit is over": {paths, []step{
			{0, alice, "/a", pass}, {0, alice, "/a", pass}, {0, alice, "/b", pass}, {0, alice, "/b", pass},
			{0, alice, "/c", refuse}, {0, alice, "/a", pass}, {0, alice, "/b/", pass}, {0, alice, "/b?x", pass},
			{0, alice, "/c", refuse}}},
		"each key has its own paths": {paths, []step{
			{0, alice, "/a", pass}, {0, alice, "/b", pass}, {0, bob, "/a", pass}, {0, bob, "/c", pass},
			{0, bob, "/b", refuse}, {0, alice, "/c", refuse}}},
		"a path counts again after a window, even if it was requested meanwhile": {
			distinct(fairshare.DistinctPaths, 1, time.Hour), []step{
				{0, alice, "/a", pass}, {59 * time.Minute, alice, "/a", pass},
				{60 * time.Minute, alice, "/a", refuse}}},
		"spellings that servers may take for different pages are different paths": {paths, []step{
			{0, alice, "/index.php/a", pass}, {0, alice, "/index.php/b", pass}, {0, alice, "/index.php/c", refuse}}},
		"queries": {queries, []step{
			{0, alice, "/s?q=1&p=2", pass}, {0, alice, "/s?p=2&q=1", pass}, {0, alice, "/s?p=2&q=%31", pass},
			{0, alice, "/s", pass}, {0, alice, "/s?q=2", refuse}, {0, alice, "/other?q=1&p=2", refuse}}},
		"a window of one second": {distinct(fairshare.DistinctPaths, 1, time.Second), []step{
			{0, alice, "/a", pass}, {900 * time.Millisecond, alice, "/a", pass},
			{900 * time.Millisecond, alice, "/b", refuse},
			{2 * time.Second, alice, "/b", pass}, {2 * time.Second, alice, "/a", refuse}}},
		"a window of a month": {distinct(fairshare.DistinctPaths, 1, fairshare.MaxWindow), []step{
			{0, alice, "/a", pass}, {30 * 24 * time.Hour, alice, "/a", pass},
			{30 * 24 * time.Hour, alice, "/b", refuse}}},
	} {
		g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "pages", Limit: c.limit}}})
		for i, s := range c.steps {
			if v := repeat(t, g, s.after, target(s.addr, s.target), 1); v.Action != s.want {
				t.Errorf("%s: step %d, %s: %s, want %s", name, i, s.target, v.Action, s.want)
			}
		}
	}
}

// The same path of two hosts is two pages.
func TestDistinctPathsOfHosts(t *testing.T) {
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "pages", Limit: distinct(fairshare.DistinctPaths, 1, time.Hour)}}})
	one, other := target(alice, "/a"), target(alice, "/a")
	one.Host, other.Host = "Example.org:8080", "other.example"
	if v := repeat(t, g, 0, one, 1); v.Action != fairshare.Allow {
		t.Error("the first page:", v.Action)
	}
	if one.Host = "example.org."; repeat(t, g, 0, one, 1).Action != fairshare.Allow {
		t.Error("another spelling of the host is another page")
	}
	if v := repeat(t, g, 0, other, 1); v.Action != fairshare.Refuse {
		t.Error("a page of another host:", v.Action)
	}
}

// A path whose request was refunded, not forwarded or is in progress counts again.
func TestDistinctPathCountsOnceItIsCharged(t *testing.T) {
	var gone fairshare.StatusSet
	gone.Add(404, 404)
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "pages", Limit: distinct(fairshare.DistinctPaths, 1, time.Hour), Refund: gone}}})
	req := target(alice, "/a")
	req.Time = start
	decide := func(want fairshare.Action) fairshare.Verdict {
		t.Helper()
		v, err := g.Decide(t.Context(), &req)
		if err != nil || v.Action != want {
			t.Fatalf("%s, %v; want %s", v.Action, err, want)
		}
		return v
	}
	settle := func(v fairshare.Verdict, out fairshare.Outcome) {
		t.Helper()
		if out.Time = start; g.Settle(t.Context(), &v, out) != nil {
			t.Fatal("settling failed")
		}
	}
	v := decide(fairshare.Allow)
	settle(decide(fairshare.Refuse), fairshare.Outcome{}) // one is in progress
	settle(v, fairshare.Outcome{Part: fairshare.SettleNotForwarded})
	v = decide(fairshare.Allow)
	settle(v, fairshare.Outcome{Status: 404})
	v = decide(fairshare.Allow)
	settle(v, fairshare.Outcome{Status: 200, Part: fairshare.SettleHeader})
	settle(v, fairshare.Outcome{Status: 200})
	settle(decide(fairshare.Allow), fairshare.Outcome{Status: 404}) // not charged: nothing is refunded
	req.SetTarget("/b")
	settle(decide(fairshare.Refuse), fairshare.Outcome{})
	settle(decide(fairshare.Refuse), fairshare.Outcome{})
}

// A newcomer is refused for what it requests that is new to its network and to it.
func TestDistinctPathsWithNewcomers(t *testing.T) {
	lim := distinct(fairshare.DistinctPaths, 2, time.Hour, fairshare.KeyPart{Kind: fairshare.ByNetwork})
	lim.Newcomers = requests(1, time.Hour)
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "network", Limit: lim}}})
	repeat(t, g, 0, target("192.0.2.1", "/a"), 1)
	repeat(t, g, 0, target("192.0.2.1", "/b"), 1)
	for _, path := range []string{"/a", "/c", "/c", "/b"} {
		if v := repeat(t, g, 0, target("192.0.2.9", path), 1); v.Action != fairshare.Allow {
			t.Errorf("%s: %s, want allow", path, v.Action)
		}
	}
	if v := repeat(t, g, 0, target("192.0.2.9", "/d"), 1); v.Action != fairshare.Refuse {
		t.Errorf("another new path: %s, want refuse", v.Action)
	}
}

// A peer that makes up clients has a ceiling of distinct paths.
func TestDistinctPathsOfProvisionalClients(t *testing.T) {
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "pages", Limit: distinct(fairshare.DistinctPaths, 1, time.Hour)}}})
	send := func(i int) fairshare.Action {
		req := target(fmt.Sprintf("198.51.%d.%d", i/256, i%256), fmt.Sprintf("/%d", i))
		req.Via = netip.MustParseAddr("10.0.0.1")
		return repeat(t, g, 0, req, 1).Action
	}
	for i := range fairshare.ProvisionalClients {
		if got := send(i); got != fairshare.Allow {
			t.Fatalf("client %d: %s", i, got)
		}
	}
	if got := send(5); got != fairshare.Allow {
		t.Error("a page again:", got)
	}
	if got := send(fairshare.ProvisionalClients); got != fairshare.Refuse {
		t.Error("beyond the ceiling:", got)
	}
}

// The guards of a reload share what was counted; without it paths count again.
func TestDistinctPathsAfterReload(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "pages", Limit: distinct(fairshare.DistinctPaths, 1, time.Hour)}}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	history := new(fairshare.History)
	guard := func(h *fairshare.History) *fairshare.Guard {
		g, err := fairshare.NewGuard(&policy, limiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		if h != nil {
			g.UseHistory(h)
		}
		return g
	}
	repeat(t, guard(history), 0, target(alice, "/a"), 1)
	if v := repeat(t, guard(history), 0, target(alice, "/a"), 1); v.Action != fairshare.Allow {
		t.Error("after a reload:", v.Action)
	}
	if v := repeat(t, guard(nil), 0, target(alice, "/a"), 1); v.Action != fairshare.Refuse {
		t.Error("after a restart:", v.Action)
	}
}

func TestSameQuery(t *testing.T) {
	g := memGuard(t, fairshare.Policy{})
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a=1&b=2", "b=2&a=1", true},
		{"a=1&&b=2", "b=2&a=1&", true},
		{"a=%41", "a=A", true},
		{"a=%c3%a9", "a=%C3%A9", true},
		{"a=%2b", "a=%2B", true},
		{"a=1", "a=2", false},
		{"a", "a=", false},
		{"", "a", false},
		{"a=%2B", "a=+", false},
		{"a=+", "a=%20", false}, // some servers keep "+"
		{"p=1&p=2", "p=2&p=1", false},
		{"p=1&P=2", "P=2&p=1", false},         // ASP.NET
		{"p_x=1&p.x=2", "p.x=2&p_x=1", false}, // PHP
		{"p=1&%20p=2", "%20p=2&p=1", false},
		{"p=1&+p=2", "+p=2&p=1", false},
		{"p=1&p%00=2", "p%00=2&p=1", false},
		{"p[]=1&p[]=2", "p[]=2&p[]=1", false},
		{"p=1&p[a]=2", "p[a]=2&p=1", false},
		{"x=1;p=1&y=1;p=2", "y=1;p=2&x=1;p=1", false},
		{"x=1%26p=1&y=1%26p=2", "y=1%26p=2&x=1%26p=1", false},
		{"x=1%2526p=1&y=1", "y=1&x=1%2526p=1", false},
		{"a=1&b=%", "b=%&a=1", false},
	} {
		if same := fairshare.SameQuery(g, c.a, c.b); same != c.same {
			t.Errorf("%s, %s: same %v, want %v", c.a, c.b, same, c.same)
		}
	}
}

// Queries that count as one have the same parameters, in every order of theirs.
func FuzzSameQuery(f *testing.F) {
	f.Add("a=1&b=2", "b=2&a=1")
	f.Add("a=%41&b", "b&a=A")
	f.Add("p=1&p=2", "p=2&p=1")
	f.Add("a=1;b=2", "b=2;a=1")
	f.Add("a=+&b=%2b", "a=%20&b=%2B")
	g := memGuard(f, fairshare.Policy{})
	f.Fuzz(func(t *testing.T, a, b string) {
		if !fairshare.SameQuery(g, a, a) {
			t.Errorf("%q differs from itself", a)
		}
		if !fairshare.SameQuery(g, a, b) || a == b {
			return
		}
		one, err1 := url.ParseQuery(a)
		other, err2 := url.ParseQuery(b)
		if err1 != nil || err2 != nil || !reflect.DeepEqual(one, other) {
			t.Errorf("%q and %q are one query: %v, %v; %v, %v", a, b, one, err1, other, err2)
		}
	})
}

// A model decides about limits with Distinct: it remembers every path, and passes only those
// that count to a limiter.
type distinctModel struct {
	limits  []fairshare.Limit
	limiter fairshare.Limiter
	counted map[string]time.Time // when a path was charged, by limit, key and path
}

// decide returns what a request of a client for a page gets, and a function that
// settles it.
func (m *distinctModel) decide(t *testing.T, now time.Time, key, page string) (
	refused, dry bool, settle func(refund bool),
) {
	const unit = 1 << 26
	var takes []fairshare.Take
	var names []string
	for i, l := range m.limits[:2] {
		name := fmt.Sprint(i, key, page)
		at, found := m.counted[name]
		if found && now.UnixNano()/unit < at.Add(l.Window).UnixNano()/unit {
			continue
		}
		takes = append(takes, fairshare.Take{Limit: i, Key: []byte(key), Cost: 1, DryRun: l.DryRun})
		names = append(names, name)
	}
	tallies := make([]fairshare.Tally, len(takes))
	if err := m.limiter.Take(t.Context(), now, takes, tallies); err != nil {
		t.Fatal(err)
	}
	for i := range takes {
		refused = refused || tallies[i].Over && !takes[i].DryRun
	}
	for i := range takes {
		dry = dry || !refused && tallies[i].Over && takes[i].DryRun
	}
	return refused, dry, func(refund bool) {
		for i := range takes {
			switch {
			case refused || takes[i].DryRun && dry:
			case refund && takes[i].Limit == 0:
				if err := m.limiter.Settle(t.Context(), now, []fairshare.Charge{
					{Limit: 0, Key: takes[i].Key, Cost: -1, At: now}}); err != nil {
					t.Fatal(err)
				}
			default:
				m.counted[names[i]] = now
			}
		}
	}
}

func TestDistinctPathsAgreeWithModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	var refunded fairshare.StatusSet
	refunded.Add(404, 404)
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		window := time.Duration(1+rnd.IntN(100)) * time.Second
		dryLimit := distinct(fairshare.DistinctPaths, 1+rnd.Int64N(10), 2*window)
		if rnd.IntN(2) == 0 {
			dryLimit.Algorithm = fairshare.GCRA
		}
		policy := fairshare.Policy{Rules: []fairshare.Rule{
			{Name: "one", Limit: distinct(fairshare.DistinctQueries, 1+rnd.Int64N(10), window), Refund: refunded},
			{Name: "two", Limit: dryLimit, DryRun: true},
		}}
		g := memGuard(t, policy)
		m := distinctModel{limits: policy.Limits(), counted: map[string]time.Time{}}
		for i := range m.limits {
			m.limits[i].Distinct = fairshare.EveryRequest
		}
		limiter, err := memlimit.New(m.limits, memlimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m.limiter = limiter
		now := start
		for step := range 2000 {
			now = now.Add(time.Duration(rnd.Int64N(int64(window / 20))))
			client, page := fmt.Sprintf("192.0.2.%d", rnd.IntN(3)), fmt.Sprintf("/%d", rnd.IntN(15))
			req := target(client, page)
			req.Time = now
			v, err := g.Decide(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			refused, dry, settle := m.decide(t, now, client, page)
			if got := v.Action == fairshare.Refuse; got != refused {
				t.Fatalf("seed %d, step %d: refused %v, want %v", seed, step, got, refused)
			}
			if got := v.DryRunFinding.Action == fairshare.Refuse; got != dry {
				t.Fatalf("seed %d, step %d: refused in dry run %v, want %v", seed, step, got, dry)
			}
			out := fairshare.Outcome{Time: now, Status: 200}
			if rnd.IntN(4) == 0 {
				out.Status = 404
			}
			if err := g.Settle(t.Context(), &v, out); err != nil {
				t.Fatal(err)
			}
			settle(out.Status == 404)
		}
	}
}

// A flood of other clients that is as large as the table erases less than two thirds of a
// client's paths; one of a tenth of it, next to none.
func TestFloodOfDistinctPaths(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const pages = 10_000
	for _, c := range []struct {
		flood       int
		least, most int // pages of the reader that count again
	}{
		{0, 0, pages / 1000},
		{fairshare.CountedCells / 10, 0, pages / 1000}, // most sets have room
		{fairshare.CountedCells, pages / 10, pages * 2 / 3},
		{3 * fairshare.CountedCells, pages * 3 / 4, pages * 95 / 100},
	} {
		table := new(fairshare.CountedTable)
		for i := range uint64(pages) {
			fairshare.CountPage(table, i, start, 24*time.Hour)
		}
		for i := range uint64(c.flood) {
			fairshare.CountPage(table, 1<<32+i, start.Add(time.Second), 24*time.Hour)
		}
		lost := 0
		for i := range uint64(pages) {
			if !fairshare.HasPage(table, i, start.Add(time.Minute), 24*time.Hour) {
				lost++
			}
		}
		if lost < c.least || lost > c.most {
			t.Errorf("a flood of %d paths: %d of %d count again, want %d to %d", c.flood, lost, pages, c.least, c.most)
		}
		if again := start.Add(24 * time.Hour); fairshare.HasPage(table, 1, again, 24*time.Hour) {
			t.Error("a page is remembered for longer than its window")
		}
	}
}

// Cells of pages that count again have room for others, however short or long the windows are.
func TestCellsThatCountAgainAreUsedFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	table := new(fairshare.CountedTable)
	for round := range uint64(20) { // each round fills a third of the table for a minute
		for i := range uint64(fairshare.CountedCells / 3) {
			fairshare.CountPage(table, 1<<40+round<<32+i, start.Add(time.Duration(round)*time.Hour), time.Minute)
		}
		if round == 0 {
			for i := range uint64(1000) {
				fairshare.CountPage(table, i, start.Add(time.Minute), fairshare.MaxWindow)
			}
		}
	}
	lost := 0
	for i := range uint64(1000) {
		if !fairshare.HasPage(table, i, start.Add(30*24*time.Hour), fairshare.MaxWindow) {
			lost++
		}
	}
	if lost > 50 { // a set that got more than its part in one of the rounds
		t.Errorf("%d of 1000 pages count again", lost)
	}
}
