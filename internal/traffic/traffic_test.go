package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/reports"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func completion(addr string) *httpguard.Completion {
	return &httpguard.Completion{Client: httpguard.Client{Addr: netip.MustParseAddr(addr),
		Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Verified}}, Method: "GET", Path: "/shop",
		UserAgent: "Mozilla/5.0", Took: time.Second, Status: 200, Bytes: 1000,
		Owner: fairshare.Owner{ASN: 64500, Name: "Example Hosting"}, Fleet: "fleet-1"}
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func passages(c *httpguard.Completion, client netip.Prefix) *reports.Passages {
	g := reports.OfCompletion(c)
	g.Client = client
	return g
}

func refusals(r *httpguard.Report, client netip.Prefix, path string, wall time.Time) *reports.Refusals {
	g := reports.OfReport(r)
	g.Client, g.Paths[0].Path, g.ClockAhead = client, path, wall.Sub(r.Request.Time)
	return g
}

func TestEachDimensionCounts(t *testing.T) {
	r := New(start)
	c := completion("203.0.113.9")
	r.Passed(passages(c, single(c.Addr)))
	r.Passed(passages(c, single(c.Addr)))
	texts := map[Dimension]string{}
	for d := range Dimensions {
		rows := r.Top(d, time.Minute, start).Top(Requests, 10)
		if len(rows) != 1 {
			t.Fatalf("dimension %d has %d rows", d, len(rows))
		}
		if rows[0].Low != [5]int64{2, 0, 0, 2000, int64(2 * time.Second)} || rows[0].Low != rows[0].High {
			t.Errorf("dimension %d: %v", d, rows[0])
		}
		texts[d] = rows[0].Key
	}
	for d, want := range map[Dimension]string{Fleets: "fleet-1", Agents: "Mozilla/5.0", Paths: "/shop"} {
		if texts[d] != want {
			t.Errorf("dimension %d: %q, want %q", d, texts[d], want)
		}
	}
	if id := ParseClient(texts[Clients]); id.String() != "203.0.113.9" {
		t.Errorf("client %v", id)
	}
	if id := ParseClient(texts[Networks]); id.String() != "203.0.113.0/24" {
		t.Errorf("network %v", id)
	}
	if owner := ParseOwner(texts[Owners]); owner != c.Owner {
		t.Errorf("owner %v", owner)
	}
	if bot := ParseBot(texts[Bots]); bot.Name != "googlebot" || bot.State != fairshare.Verified {
		t.Errorf("bot %v", bot)
	}
}

func TestKeysOfClientsAreReadBack(t *testing.T) {
	peer := netip.MustParseAddr("10.0.0.1")
	for _, text := range []string{"203.0.113.9/32", "203.0.113.0/24", "2001:db8::/64", "2001:db8::1/128",
		"::ffff:0:0/96", "::/0", "0.0.0.0/0"} {
		for _, via := range []netip.Addr{{}, peer, netip.MustParseAddr("2001:db8::5")} {
			p := netip.MustParsePrefix(text)
			want := fairshare.PrefixID(p)
			want.Via = via
			if got := ParseClient(string(appendAddress(nil, p, via))); got != want {
				t.Errorf("%s through %v: %v", text, via, got)
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("")
	f.Add(string(appendAddress(nil, netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("::1"))))
	f.Fuzz(func(t *testing.T, key string) {
		_, _, _ = ParseClient(key), ParseOwner(key), ParseBot(key)
	})
}

// An address that a peer made up, or that many clients share, says nothing about an owner.
func TestUnprovenOwnersAreNotCounted(t *testing.T) {
	r := New(start)
	c := completion("203.0.113.9")
	c.Via = netip.MustParseAddr("10.0.0.1")
	r.Passed(passages(c, single(c.Addr)))
	c.Via, c.Proxy = netip.Addr{}, true
	r.Passed(passages(c, single(c.Addr)))
	if rows := r.Top(Owners, time.Minute, start).Top(Requests, 10); len(rows) != 0 {
		t.Errorf("owners: %v", rows)
	}
	if rows := r.Top(Clients, time.Minute, start).Top(Requests, 10); len(rows) != 2 {
		t.Errorf("the provisional client and the proxy are one: %v", rows)
	}
}

func report(rule string, action fairshare.Action, dry bool) *httpguard.Report {
	return &httpguard.Report{Request: &fairshare.Request{Time: start, Addr: netip.MustParseAddr("203.0.113.9"),
		Method: "GET", Host: "a.example", UserAgent: "Mozilla/5.0"}, DryRun: dry, Status: 429, ID: "0123456789",
		Finding: fairshare.Finding{Action: action, Rule: &fairshare.Rule{Name: rule}}}
}

func TestRefusalsAreCountedByRule(t *testing.T) {
	r := New(start)
	c := completion("203.0.113.9")
	for _, of := range []*httpguard.Report{report("a", fairshare.Refuse, false), report("a", fairshare.Refuse, false),
		report("b", fairshare.Block, false), report("a", fairshare.Refuse, true)} {
		r.Refused(refusals(of, single(c.Addr), "/x", start))
	}
	r.Passed(passages(c, single(c.Addr))) // that of the dry run
	r.Unjudged()
	want := Totals{Passed: 1, Refused: 2, Blocked: 1, DryRun: 1, Unjudged: 1, Bytes: 1000, Time: time.Second}
	if got := r.Totals(); got != want {
		t.Errorf("totals %+v, want %+v", got, want)
	}
	rules := r.Rules()
	if a := rules["a"]; a != (RuleTotals{Refused: 2, DryRun: 1, Last: start}) {
		t.Errorf("a: %+v", a)
	}
	if b := rules["b"]; b.Blocked != 1 || b.Refused != 0 {
		t.Errorf("b: %+v", b)
	}
	row := r.ClientSums(r.Top(Clients, time.Minute, start), single(c.Addr), netip.Addr{})
	if row.Low[Requests] != 4 || row.Low[Refused] != 3 || row.Low[DryRun] != 1 {
		t.Errorf("client: %v", row)
	}
	if found := r.Recent(10, func(e *Refusal) bool { return e.Rule == "b" }); len(found) != 1 ||
		found[0].Path != "/x" || found[0].Host != "a.example" || found[0].Client.String() != "203.0.113.9" {
		t.Errorf("recent: %+v", found)
	}
}

// Refusals that were reported as one are one row, with their number.
func TestEqualRefusalsAreOneRow(t *testing.T) {
	r := New(start)
	g := refusals(report("a", fairshare.Refuse, false), netip.Prefix{}, "/a", start)
	g.N, g.Paths[0].N = 7, 7
	r.Refused(g)
	if found := r.Recent(10, nil); len(found) != 1 || found[0].N != 7 || found[0].Path != "/a" {
		t.Errorf("%+v", found)
	}
}

func TestLatestRefusalsAreKept(t *testing.T) {
	r := New(start)
	long := strings.Repeat("x", 1000)
	for i := range RecentKept + 50 {
		of := report("a", fairshare.Refuse, false)
		of.ID, of.Request.UserAgent = fmt.Sprint(i), long
		r.Refused(refusals(of, netip.Prefix{}, long, start.Add(time.Duration(i))))
	}
	found := r.Recent(1<<20, nil)
	if len(found) != RecentKept || found[0].ID != fmt.Sprint(RecentKept+49) || found[len(found)-1].ID != "50" {
		t.Errorf("%d refusals, from %s to %s", len(found), found[0].ID, found[len(found)-1].ID)
	}
	if !slices.IsSortedFunc(found, func(a, b Refusal) int { return b.At.Compare(a.At) }) {
		t.Error("the refusals are not in order")
	}
	if len(found[0].UserAgent) != recentText || len(found[0].Path) != recentText {
		t.Errorf("%d bytes of a user agent", len(found[0].UserAgent))
	}
	if some := r.Recent(3, nil); len(some) != 3 || some[2].ID != fmt.Sprint(RecentKept+47) {
		t.Errorf("three refusals: %v", some)
	}
}

func TestSecondsBecomeMinutes(t *testing.T) {
	r := New(start)
	c := completion("203.0.113.9")
	for i := range 3 * 24 * 60 * 60 {
		if i%10 == 0 {
			r.Passed(passages(c, single(c.Addr)))
		}
		at := start.Add(time.Duration(i) * time.Second)
		r.Tick(at, at, Load{Waiting: i % 7, InProgress: i % 5, Capacity: 8})
	}
	end := start.Add(3 * 24 * time.Hour)
	seconds := r.Seconds(end.Add(-time.Minute))
	if len(seconds) != 60 || seconds[0].At != end.Add(-time.Minute) {
		t.Errorf("%d seconds from %v", len(seconds), seconds[0].At)
	}
	if all := r.Seconds(start); len(all) != secondsKept {
		t.Errorf("%d seconds are kept", len(all))
	}
	minutes := r.Minutes(start)
	if len(minutes) != minutesKept+1 {
		t.Fatalf("%d minutes are kept", len(minutes))
	}
	for _, m := range minutes {
		if m.Passed != 6 || m.Bytes != 6000 || m.Waiting != 6 || m.InProgress != 4 || m.Capacity != 8 {
			t.Fatalf("a minute is %+v", m)
		}
	}
}

func BenchmarkPassed(b *testing.B) {
	r := New(start)
	all := make([]*reports.Passages, 1000)
	for i := range all {
		c := completion(fmt.Sprintf("203.0.%d.%d", i/100, i%100))
		c.Path = fmt.Sprintf("/shop/%d", i)
		all[i] = passages(c, single(c.Addr))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.Passed(all[i%len(all)])
		i++
	}
}

func BenchmarkRefused(b *testing.B) {
	r := New(start)
	one := report("a", fairshare.Refuse, false)
	of := refusals(one, single(one.Request.Addr), "/x", start)
	b.ReportAllocs()
	for b.Loop() {
		r.Refused(of)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	r := New(start)
	c, of := completion("203.0.113.9"), report("a", fairshare.Refuse, false)
	passed, refused := passages(c, single(c.Addr)), refusals(of, single(c.Addr), "/x", start)
	r.Refused(refused)
	if n := testing.AllocsPerRun(100, func() {
		r.Passed(passed)
		r.Refused(refused)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
