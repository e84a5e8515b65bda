package registrytest

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
	"fairshare/registry/key"
)

func testClientsAddUpAndStickyFieldsStay(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	text := "bad\x00agent \xff\xfe 'quoted\""
	spent := registry.Spent{Requests: 1, Refused: 2, Blocked: 3, DryRun: 4, CPU: 5, Time: 6, Bytes: 7, Errors: 8}
	d := registry.ClientDelta{Client: ID("2001:db8::/64"), FirstSeen: start, LastSeen: start.Add(time.Second),
		Spent:     spent,
		UserAgent: text, Bot: "googlebot", BotState: fairshare.Forged,
		Labels: []string{"not looked at"}, Note: "nor this"}
	Check(t, "Label", r.Label(ctx, registry.Label{Client: d.Client, Name: "good-partner"}))
	Check(t, "Note", r.Note(ctx, d.Client, "n"))
	for range 2 {
		Check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{d, {}}}))
	}
	want := d
	want.Spent.Add(spent)
	want.Labels, want.Note, want.Sticky = []string{"good-partner"}, "n", true
	got, err := r.Clients(ctx, registry.Query{Bot: "googlebot"})
	Check(t, "Clients", err)
	Same(t, "Clients", got, []registry.ClientRecord{want})
	found, err := r.Client(ctx, d.Client)
	Check(t, "Client", err)
	Same(t, "Client", found, &registry.Found{Record: want})
	stats, err := r.Stats(ctx)
	Check(t, "Stats", err)
	if stats.Clients != 1 || stats.Labels != 1 || stats.Bytes == 0 {
		t.Errorf("%+v", stats)
	}
}

// Clients of equal value are sorted by a second column, also if an index is used.
func testEqualClientsAreSortedBySecondColumn(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	var batch registry.Batch
	for i, name := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
		d := Delta(name, start, []int64{5, 7, 6, 8}[i])
		d.Spent.Refused, d.Spent.DryRun = []int64{0, 0, 200, 200}[i], []int64{30, 40, 1, 2}[i]
		batch.Clients = append(batch.Clients, d)
	}
	Check(t, "Write", r.Write(ctx, batch))
	for _, c := range []struct {
		q    registry.Query
		want []string
	}{
		{registry.Query{Sort: "refused", Limit: 1}, []string{"192.0.2.4"}},
		{registry.Query{Sort: "refused", Limit: 2}, []string{"192.0.2.4", "192.0.2.3"}},
		{registry.Query{Sort: "refused"}, []string{"192.0.2.4", "192.0.2.3", "192.0.2.2", "192.0.2.1"}},
		{registry.Query{Sort: "cpu"}, []string{"192.0.2.4", "192.0.2.2", "192.0.2.3", "192.0.2.1"}},
	} {
		got, err := r.Clients(ctx, c.q)
		Check(t, "Clients", err)
		var names []string
		for _, g := range got {
			names = append(names, g.Client.String())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%+v: got %q, want %q", c.q, names, c.want)
		}
	}
}

func testClientsAreSorted(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	var batch registry.Batch
	for i, name := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64", "googlebot"} {
		d := Delta(name, start.Add(time.Duration(i%3)*time.Hour), []int64{5, 200, 7, 300, 100}[i])
		d.Spent.Refused, d.Spent.CPU = int64(i)*40, time.Duration(5-i)*4*time.Second
		if i%2 == 0 {
			d.Bot = "googlebot"
		}
		batch.Clients = append(batch.Clients, d)
	}
	Check(t, "Write", r.Write(ctx, batch))
	Check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: ID("198.51.100.0/24"),
		Action: fairshare.Allow, Since: start}))
	for _, name := range []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"} {
		Check(t, "Label", r.Label(ctx, registry.Label{Client: ID(name), Name: "x"}))
	}
	for _, c := range []struct {
		q    registry.Query
		want []string
	}{
		{registry.Query{Limit: 2}, []string{"2001:db8::/64", "192.0.2.2"}}, // from the index
		{registry.Query{}, []string{"2001:db8::/64", "192.0.2.2", "googlebot", "192.0.2.3", "192.0.2.1",
			"198.51.100.0/24",
			"203.0.113.7"}},
		{registry.Query{Sort: "refused", Limit: 3}, []string{"googlebot", "2001:db8::/64", "192.0.2.3"}},
		{registry.Query{Sort: "cpu", Limit: 4}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64"}},
		{registry.Query{Sort: "last-seen", Limit: 3}, []string{"192.0.2.3", "192.0.2.2", "googlebot"}},
		{registry.Query{Bot: "googlebot"}, []string{"googlebot", "192.0.2.3", "192.0.2.1"}},
		{registry.Query{Label: "x"}, []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"}},
		{registry.Query{Label: "x", Bot: "googlebot"}, []string{"192.0.2.3"}},
		{registry.Query{Label: "y"}, nil},
		{registry.Query{Sticky: true}, []string{"192.0.2.2", "192.0.2.3", "198.51.100.0/24", "203.0.113.7"}},
		{registry.Query{Sticky: true, Sort: "last-seen", Limit: 2}, []string{"192.0.2.3", "192.0.2.2"}},
		{registry.Query{Sticky: true, Bot: "googlebot"}, []string{"192.0.2.3"}},
		{registry.Query{Sticky: true, Label: "x"}, []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"}},
	} {
		got, err := r.Clients(ctx, c.q)
		Check(t, "Clients", err)
		var names []string
		for _, g := range got {
			names = append(names, g.Client.String())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%+v: got %q, want %q", c.q, names, c.want)
		}
	}
	if _, err := r.Clients(ctx, registry.Query{Sort: "beauty"}); err == nil {
		t.Error("sorted by beauty")
	}
}

func testLiftAndForgetRunInSteps(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	var b registry.Batch
	for n := range 2*1000 + 10 {
		name := Numbered(n)
		b.Clients = append(b.Clients, Delta(name, start, 1))
		b.Bans = append(b.Bans, Ban(name, start, time.Hour))
		b.Stories = append(b.Stories, registry.Story{ID: name, Client: ID(name), Rule: "rapid", Last: start})
	}
	later := Ban("10.0.0.200", start.Add(time.Minute), time.Hour)
	later.Rule = "later"
	b.Bans = append(b.Bans, later)
	Check(t, "Write", r.Write(ctx, b))
	lifted, err := r.Lift(ctx, ID("10.0.0.0/8"), start)
	Check(t, "Lift", err)
	if len(lifted) != 2*1000+10 {
		t.Errorf("%d were lifted", len(lifted))
	}
	Same(t, "the later ban", AllBans(t, r, start, true), []fairshare.BanRecord{later})
	Check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: ID("10.0.0.7"),
		Action: fairshare.Allow, Since: start}))
	Check(t, "Label", r.Label(ctx, registry.Label{Client: ID("10.0.0.7"), Name: "x"}))
	forgotten, err := r.Forget(ctx, ID("10.0.0.0/8"), start.Add(time.Hour))
	Check(t, "Forget", err)
	Same(t, "Forget", forgotten, registry.Forgotten{Clients: 2*1000 + 10, Bans: 1, Stories: 2*1000 + 10, Labels: 1,
		Override: true})
	if found, err := r.Client(ctx, ID("10.0.0.0/8")); found != nil || err != nil {
		t.Errorf("%+v remains: %v", found, err)
	}
}

// A ban that is written after an operator lifted it does not return.
func testWriteDoesNotUndoALift(t *testing.T, open Opener) {
	const path = "a"
	server, operator := open(t, path, registry.Bounds{}), open(t, path, registry.Bounds{})
	for _, c := range []struct {
		lift, ban string
		after     time.Duration // the start of the ban
		kept      bool
	}{
		{"192.0.2.1", "192.0.2.1", 0, false},
		{"192.0.2.0/24", "192.0.2.2", time.Second, false},
		{"203.0.113.3", "203.0.113.3", -time.Nanosecond, true},
		{"203.0.113.4", "203.0.113.5", time.Second, true},
		{"198.51.100.1", "198.51.100.0/24", time.Second, true},
		{"2001:db8::/32", "2001:db8:1:2::/64", 0, false},
		{"googlebot", "googlebot", 0, false},
		{"::/0", "203.0.113.1", time.Second, true}, // IPv4 is not within
	} {
		ban := Ban(c.ban, start, time.Hour)
		if ban.Client.Bot != "" {
			ban.Kind = fairshare.ByBot
		}
		_, err := operator.Lift(ctx, ID(c.lift), start.Add(c.after))
		Check(t, "Lift", err)
		Check(t, "Write", server.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{ban}}))
		found, err := server.Client(ctx, ban.Client)
		Check(t, "Client", err)
		if kept := found != nil && len(found.Bans) > 0; kept != c.kept {
			t.Errorf("%s lifted %v after the start of a ban of %s: recorded %v", c.lift, c.after, c.ban, kept)
		}
	}
}

// A server's unwritten data about a forgotten client does not restore it.
func testWriteDoesNotUndoAForget(t *testing.T, open Opener) {
	const path = "a"
	server, operator := open(t, path, registry.Bounds{}), open(t, path, registry.Bounds{})
	begin := start.Add(-time.Hour)
	for _, c := range []struct {
		forget, client string
		after          time.Duration // the last counted request
		kept           bool
	}{
		{"192.0.2.1", "192.0.2.1", 0, false},
		{"192.0.2.0/24", "192.0.2.2", time.Second, false},
		{"203.0.113.3", "203.0.113.3", -time.Nanosecond, true},
		{"203.0.113.4", "203.0.113.5", time.Second, true},
		{"2001:db8::/32", "2001:db8:1:2::/64", 0, false},
		{"googlebot", "googlebot", time.Second, false},
	} {
		_, err := operator.Forget(ctx, ID(c.forget), start.Add(c.after))
		Check(t, "Forget", err)
		Check(t, "Write", server.Write(ctx, registry.Batch{
			Clients: []registry.ClientDelta{{Client: ID(c.client), FirstSeen: begin, LastSeen: start}},
			Stories: []registry.Story{{ID: "x" + c.client, Client: ID(c.client), Rule: "rapid", First: begin,
				Last: start, Count: 2}},
		}))
		found, err := server.Client(ctx, ID(c.client))
		Check(t, "Client", err)
		stories, err := server.Stories(ctx, ID(c.client), 0)
		Check(t, "Stories", err)
		if kept := found != nil; kept != c.kept || len(stories) > 0 != c.kept {
			t.Errorf("%s forgotten %v after the last request of %s: recorded %v, stories %v", c.forget, c.after, c.client,
				kept, stories)
		}
		if c.kept && c.forget == c.client && (!found.Record.FirstSeen.Equal(start) || !stories[0].First.Equal(start)) {
			t.Errorf("%s forgotten %v after its last request begins at %v, its story at %v", c.forget, c.after,
				found.Record.FirstSeen, stories[0].First)
		}
	}
}

// Operators' changes of an address also apply to provisional clients with it.
func testWriteDoesNotUndoChangesOfProvisionalClients(t *testing.T, open Opener) {
	for _, c := range []struct {
		forget string
		client fairshare.ClientID
		kept   bool
	}{
		{"203.0.113.9", provisional("203.0.113.9", "127.0.0.1"), false},
		{"203.0.113.0/24", provisional("203.0.113.9", "127.0.0.1"), false},
		{"203.0.113.9", provisional("203.0.113.9", "::1"), false},
		{"2001:db8::9/128", provisional("2001:db8::9", "127.0.0.1"), false},
		{"203.0.113.8", provisional("203.0.113.9", "127.0.0.1"), true},
	} {
		path := fmt.Sprint(c)
		server, operator := open(t, path, registry.Bounds{}), open(t, path, registry.Bounds{})
		_, err := operator.Forget(ctx, ID(c.forget), start)
		Check(t, "Forget", err)
		before := start.Add(-time.Second)
		Check(t, "Write", server.Write(ctx, registry.Batch{
			Clients: []registry.ClientDelta{{Client: c.client, FirstSeen: before, LastSeen: before}},
			Bans: []fairshare.BanRecord{{Client: c.client, Rule: "rapid", Number: 1, Began: before,
				Until: start.Add(time.Hour), Since: before}},
		}))
		found, err := server.Client(ctx, c.client)
		Check(t, "Client", err)
		seen := found != nil && !found.Record.FirstSeen.IsZero()
		banned := found != nil && len(found.Bans) > 0
		if seen != c.kept || banned != c.kept {
			t.Errorf("%s forgotten: %v is recorded %v, banned %v, want %v", c.forget, c.client, seen, banned, c.kept)
		}
	}
}

// Forgetting one provisional client affects no other.
func testWriteDoesNotUndoAForgetOfOneProvisionalClient(t *testing.T, open Opener) {
	server, client := open(t, "", registry.Bounds{}), provisional("203.0.113.9", "127.0.0.1")
	_, err := server.Forget(ctx, client, start)
	Check(t, "Forget", err)
	Check(t, "Write", server.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{Delta("203.0.113.9", start, 1),
		{Client: client, FirstSeen: start, LastSeen: start}}}))
	if found, err := server.Client(ctx, client); found != nil || err != nil {
		t.Errorf("forgotten, and found %+v, %v", found, err)
	}
	if found, err := server.Client(ctx, ID("203.0.113.9")); found == nil || err != nil {
		t.Errorf("another client is not found: %v", err)
	}
}

// The overrides of all prefixes that contain a provisional client apply, also of its
// own.
func testOverridesOnPrefixesOfAProvisionalClient(t *testing.T, open Opener) {
	for _, addr := range []string{"203.0.113.9", "2001:db8::9"} {
		r, client := open(t, "", registry.Bounds{}), provisional(addr, "127.0.0.1")
		Check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: fairshare.PrefixID(client.Prefix),
			Action: fairshare.Block,
			Since:  start}))
		found, err := r.Client(ctx, client)
		Check(t, "Client", err)
		if found == nil || len(found.Within) != 1 {
			t.Errorf("%v: found %+v, want the override of its address", client, found)
		}
	}
}

// provisional returns the client of a single address that a peer has named.
func provisional(addr, peer string) fairshare.ClientID {
	a := netip.MustParseAddr(addr)
	return fairshare.ClientID{Prefix: netip.PrefixFrom(a, a.BitLen()), Via: netip.MustParseAddr(peer)}
}

// withoutStored returns what was lifted, without the stored times: a registry for callers with wrong clocks has
// its own.
func withoutStored(all []registry.LiftedClient) []registry.LiftedClient {
	all = slices.Clone(all)
	for i := range all {
		all[i].Stored = time.Time{}
	}
	return all
}

func testChangesReportsOperatorsChanges(t *testing.T, open Opener) {
	const path = "a"
	server, operator := open(t, path, registry.Bounds{}), open(t, path, registry.Bounds{})
	hear := func(since registry.Version) registry.Changes {
		t.Helper()
		c, err := server.Changes(ctx, since)
		Check(t, "Changes", err)
		return c
	}
	_, err := operator.Lift(ctx, ID("192.0.2.9"), start)
	Check(t, "Lift", err)
	first := hear(registry.Version{})
	if !first.Overrides || first.Lifted != nil {
		t.Errorf("the first time: %+v", first)
	}
	if c := hear(first.Version); c.Overrides || c.Lifted != nil || c.Version != first.Version {
		t.Errorf("without a change: %+v", c)
	}
	Check(t, "Write", operator.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{Delta("192.0.2.1", start, 1)},
		Bans: []fairshare.BanRecord{Ban("192.0.2.1", start, time.Hour)}}))
	if c := hear(first.Version); c.Overrides || c.Lifted != nil {
		t.Errorf("another server wrote: %+v", c)
	}
	Check(t, "SetOverride", operator.SetOverride(ctx,
		registry.OverrideRecord{Client: ID("192.0.2.1"), Action: fairshare.Block, Since: start}))
	if c := hear(first.Version); !c.Overrides || c.Lifted != nil {
		t.Errorf("an override: %+v", c)
	}
	second := hear(first.Version)
	_, err = operator.Lift(ctx, ID("192.0.2.0/24"), start)
	Check(t, "Lift", err)
	_, err = operator.Forget(ctx, ID("googlebot"), start)
	Check(t, "Forget", err)
	c := hear(second.Version)
	Same(t, "lifted", withoutStored(c.Lifted), []registry.LiftedClient{{Client: ID("192.0.2.0/24"), At: start},
		{Client: ID("googlebot"), At: start, Forget: true}})
	_, err = operator.Lift(ctx, ID("192.0.2.7"), start.Add(time.Second))
	Check(t, "Lift", err)
	late, err := server.Lifted(ctx, start.Add(time.Second))
	Check(t, "Lifted", err)
	Same(t, "lifted late", withoutStored(late), []registry.LiftedClient{
		{Client: ID("192.0.2.7"), At: start.Add(time.Second)},
	})
	if c.Overrides {
		t.Error("words, which nobody changed")
	}
	_, err = operator.Prune(ctx, start.Add(registry.ChangesStay+2*time.Second), 10)
	Check(t, "Prune", err)
	if c := hear(second.Version); c.Lifted != nil {
		t.Errorf("after registry.ChangesStay: %+v", c.Lifted)
	}
}

// A flood of stories from one network does not remove those of others.
func testStoriesOfANetworkAreBounded(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{Stories: 100})
	write := func(name string, n int, at time.Time) {
		var b registry.Batch
		for i := range n {
			b.Stories = append(b.Stories, registry.Story{ID: name, Client: ID(fmt.Sprintf(name, i/250, i%250)),
				Rule: "rapid", Last: at.Add(time.Duration(i))})
		}
		Check(t, "Write", r.Write(ctx, b))
	}
	prune := func(want int64) {
		t.Helper()
		for more := true; more; {
			var err error
			more, err = r.Prune(ctx, start, 100)
			Check(t, "Prune", err)
		}
		stats, err := r.Stats(ctx)
		Check(t, "Stats", err)
		if stats.Stories != want {
			t.Errorf("%d stories, want %d", stats.Stories, want)
		}
	}
	write("10.1.%d.%d", 1, start) // a customer
	write("10.2.%d.%d", 1000, start.Add(time.Hour))
	write("2001:db8:%x:%x::/64", 1000, start.Add(time.Hour))
	prune(21)
	for i := range 50 {
		write(fmt.Sprintf("10.%d.%%d.%%d", 3+i), 3, start.Add(2*time.Hour))
	}
	prune(100)
	for _, c := range []struct {
		within string
		want   int
	}{{"10.1.0.0", 1}, {"10.0.0.0/8", 99}, {"::/0", 1}} {
		found, err := r.Stories(ctx, ID(c.within), 1000)
		Check(t, "Stories", err)
		if len(found) != c.want {
			t.Errorf("%d within %s, want %d", len(found), c.within, c.want)
		}
	}
}

func testSettingsAreRead(t *testing.T, open Opener) {
	const path = "a"
	r := open(t, path, registry.Bounds{})
	s, err := r.Settings(ctx)
	Check(t, "Settings", err)
	Same(t, "Settings", s, registry.Settings{})
	want := registry.Settings{Policy: "/etc/site.yaml", Contact: "shop@example.org",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, IPv4Prefix: 32, IPv6Prefix: 64,
		Bots: []string{"googlebot"}, DryRun: true}
	for _, s := range []registry.Settings{{Policy: "other", Contact: "c"}, want, want} {
		Check(t, "SetSettings", r.SetSettings(ctx, s))
	}
	key, err := r.ReferenceKey(ctx)
	Check(t, "ReferenceKey", err)
	Check(t, "Close", r.Close())
	r = open(t, path, registry.Bounds{})
	s, err = r.Settings(ctx)
	Check(t, "Settings", err)
	Same(t, "Settings", s, want)
	again, err := r.ReferenceKey(ctx)
	Check(t, "ReferenceKey", err)
	other, err := open(t, "", registry.Bounds{}).ReferenceKey(ctx)
	Check(t, "ReferenceKey", err)
	if len(key) != 32 || string(key) != string(again) || string(key) == string(other) {
		t.Errorf("keys %x, %x and another's %x", key, again, other)
	}
}

// Each added value is bounded, so that no sum overflows. Times out of range become the
// nearest ones in range.
func testExtremeValuesAreBounded(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	d := Delta("192.0.2.1", time.Unix(-1, 0), math.MaxInt64)
	d.LastSeen, d.Spent.Bytes = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), -1
	for range 3 {
		Check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{d}}))
	}
	found, err := r.Client(ctx, d.Client)
	Check(t, "Client", err)
	if got := found.Record; got.Spent.Requests != 3*1<<50 || got.Spent.Bytes != 0 ||
		got.FirstSeen.Year() != 1970 || got.LastSeen.Year() != 2262 {
		t.Errorf("%+v", got)
	}
}

func testHeaviestClientsOfANetwork(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	var b registry.Batch
	for name, requests := range map[string]int64{
		"203.0.113.1": 5, "203.0.113.2": 500, "203.0.113.3": 50, "203.0.113.255": 50, "203.0.113.4": 0,
		"203.0.112.255": 9000, "203.0.114.0": 9000, "2001:db8::/64": 7, "2001:db8:0:ffff::/64": 8,
		"2001:db8:1::/64": 9000,
	} {
		b.Clients = append(b.Clients, Delta(name, start, requests))
	}
	Check(t, "Write", r.Write(ctx, b))
	for _, c := range []struct {
		network string
		limit   int
		want    string
	}{
		{"203.0.113.0/24", 3, "203.0.113.2 500, 203.0.113.3 50, 203.0.113.255 50"},
		{"203.0.113.0/24", 9, "203.0.113.2 500, 203.0.113.3 50, 203.0.113.255 50, 203.0.113.1 5"},
		{"2001:db8::/48", 3, "2001:db8:0:ffff::/64 8, 2001:db8::/64 7"},
		{"198.51.100.0/24", 3, ""},
		{"203.0.113.2", 3, ""},
	} {
		found, err := r.Heaviest(ctx, ID(c.network), c.limit)
		var got []string
		for i := range found {
			got = append(got, fmt.Sprint(found[i].Client, " ", found[i].Spent.Requests))
		}
		if text := strings.Join(got, ", "); err != nil || text != c.want {
			t.Errorf("%s: %s, %v; want %s", c.network, text, err, c.want)
		}
	}
}

// In a flood that is faster than Prune, the file stays bounded, and Write still
// records known clients, banned ones and those with an operator's decision.
func testWriteStaysNearTheBounds(t *testing.T, open Opener) {
	const bound = 160
	const clients, stories = bound + bound/16, bound + bound/16
	r := open(t, "", registry.Bounds{Clients: bound, Stories: bound})
	counted := func() registry.Stats {
		t.Helper()
		s, err := r.Stats(ctx)
		Check(t, "Stats", err)
		return s
	}
	requests := func(name string, want int64) {
		t.Helper()
		found, err := r.Client(ctx, ID(name))
		Check(t, "Client", err)
		if found == nil {
			found = new(registry.Found)
		}
		if n := found.Record.Spent.Requests; n != want {
			t.Errorf("%s has %d requests, want %d", name, n, want)
		}
	}
	told := func(name string) registry.Story {
		return registry.Story{ID: name, Client: ID(name), Rule: "rapid", First: start, Last: start}
	}
	calls := registry.Batch{Clients: []registry.ClientDelta{Delta("192.0.2.1", start, 1)},
		Stories: []registry.Story{told("192.0.2.1")}}
	Check(t, "Write", r.Write(ctx, calls))
	at := start
	for i := range 40 { // half of a batch is from one network, the rest from many
		var b registry.Batch
		for j := range 100 {
			at = at.Add(time.Second)
			name := fmt.Sprintf("10.1.%d.%d", i, j)
			if j%2 > 0 {
				name = fmt.Sprintf("%d.%d.1.1", 11+i, j)
			}
			b.Clients = append(b.Clients, Delta(name, at, 1))
			s := told(name)
			s.First, s.Last = at, at
			b.Stories = append(b.Stories, s)
		}
		b.Clients = append(b.Clients, Delta("192.0.2.1", at, 1))
		Check(t, "Write", r.Write(ctx, b))
		if s := counted(); i > 1 && (s.Clients != clients || s.Stories != stories) || s.Clients > clients ||
			s.Stories > stories {
			t.Fatalf("after batch %d: %+v", i, s)
		}
	}
	requests("192.0.2.1", 41)
	requests("10.1.0.0", 1)
	requests("10.1.39.98", 0)

	// The network with half of the stories keeps only its last one; of the others the
	// latest remain.
	for name, want := range map[string]int{"50.99.1.1": 1, "50.1.1.1": 1, "47.99.1.1": 1, "11.1.1.1": 0,
		"10.1.39.98": 1, "10.1.39.96": 0} {
		found, err := r.Story(ctx, name)
		Check(t, "Story", err)
		if len(found) != want {
			t.Errorf("%d stories of %s, want %d", len(found), name, want)
		}
	}

	// Clients with an operator's decision or a ban are added; then their updates add up.
	Check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: ID("198.51.100.1"),
		Action: fairshare.Block, Since: start}))
	Check(t, "Label", r.Label(ctx, registry.Label{Client: ID("198.51.100.2"), Name: "good-partner"}))
	Check(t, "Note", r.Note(ctx, ID("198.51.100.3"), "called on Monday"))
	b := registry.Batch{Bans: []fairshare.BanRecord{Ban("198.51.100.4", at, time.Hour)}}
	for i := range 5 {
		b.Clients = append(b.Clients, Delta(fmt.Sprintf("198.51.100.%d", i+1), at, 7))
	}
	Check(t, "Write", r.Write(ctx, b))
	for i := range 4 {
		requests(fmt.Sprintf("198.51.100.%d", i+1), 7)
	}
	requests("198.51.100.5", 0)
	if s := counted(); s.Clients != clients+4 {
		t.Errorf("%d clients, want %d", s.Clients, clients+4)
	}

	// After Prune, new clients are added again.
	for more := true; more; {
		var err error
		more, err = r.Prune(ctx, at, 100)
		Check(t, "Prune", err)
	}
	Check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{Delta("198.51.100.5", at, 3)}}))
	requests("198.51.100.5", 3)
	if s := counted(); s.Clients != bound+1 || s.Stories > bound {
		t.Errorf("%+v", s)
	}
}

// FirstSeen reports each client that sent a request once, with the time of its first
// request, and no client that only has an operator's decision.
func testFirstSeenReportsEachClientOnce(t *testing.T, open Opener) {
	const path = "a"
	r := open(t, path, registry.Bounds{})
	collect := func(r registry.Registry) map[fairshare.ClientID]time.Time {
		t.Helper()
		all := map[fairshare.ClientID]time.Time{}
		Check(t, "FirstSeen", r.FirstSeen(ctx, func(id fairshare.ClientID, first time.Time) bool {
			if was, twice := all[id]; twice {
				t.Errorf("%s is reported twice: %v and %v", id, was, first)
			}
			all[id] = first
			return true
		}))
		return all
	}
	if all := collect(r); len(all) != 0 {
		t.Errorf("of an empty registry: %v", all)
	}
	Check(t, "Label", r.Label(ctx, registry.Label{Client: ID("198.51.100.0/24"), Name: "partner"}))
	const n = 3*4096 + 7
	want := map[fairshare.ClientID]time.Time{ID("googlebot"): start, ID("2001:db8:1::/64"): start.Add(time.Hour)}
	b := registry.Batch{Clients: ManyDeltas(0, n, start.Add(time.Minute))}
	for i := range b.Clients {
		want[b.Clients[i].Client] = start.Add(time.Minute)
	}
	for id, first := range want {
		b.Clients = append(b.Clients, registry.ClientDelta{Client: id, FirstSeen: first, LastSeen: first.Add(time.Hour),
			Spent: registry.Spent{Requests: 1}})
	}
	Check(t, "Write", r.Write(ctx, b))
	// A later request changes nothing, an earlier one does.
	again, before := Many(1), Many(2)
	want[before] = start
	Check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{{Client: again,
		FirstSeen: start.Add(time.Hour),
		LastSeen:  start.Add(time.Hour)}, {Client: before, FirstSeen: start, LastSeen: start}}}))
	Same(t, "FirstSeen", collect(r), want)

	count := 0
	Check(t, "FirstSeen", r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool {
		count++
		return count < 4096+1
	}))
	if count != 4096+1 {
		t.Errorf("%d were reported, want an end after %d", count, 4096+1)
	}
	// The callback may write: no lock is held.
	count = 0
	Check(t, "FirstSeen", r.FirstSeen(ctx, func(id fairshare.ClientID, first time.Time) bool {
		if count++; count%4096 == 0 {
			Check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{{Client: id, FirstSeen: first,
				LastSeen: start.Add(2 * time.Hour)}}}))
		}
		return true
	}))
	if count != len(want) {
		t.Errorf("%d were reported during writes, want %d", count, len(want))
	}
	Same(t, "FirstSeen, reading only", collect(open(t, path, registry.Bounds{})), want)
	Check(t, "Close", r.Close())
	if err := r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool { return true }); err == nil ||
		!strings.HasSuffix(err.Error(), "closed") {
		t.Errorf("of a closed registry: %v", err)
	}
}

// The fleet of a client is that of its latest batch, and the fleets of a server
// survive it.
func testFleetsAreRecorded(t *testing.T, open Opener) {
	const path = "a"
	r := open(t, path, registry.Bounds{})
	all, err := r.Fleets(ctx)
	if err != nil || all != nil {
		t.Errorf("an old registry has the fleets %+v: %v", all, err)
	}
	delta := func(addr, fleet string, requests int64) registry.ClientDelta {
		return registry.ClientDelta{Client: ID(addr), FirstSeen: start, LastSeen: start, Fleet: fleet,
			Bot: "gptbot", BotState: fairshare.Forged,
			Spent: registry.Spent{Requests: requests, Time: time.Second}}
	}
	for _, batch := range [][]registry.ClientDelta{
		{delta("192.0.2.1", "fleet-7f3a", 3), delta("192.0.2.2", "fleet-7f3a", 2)},
		{delta("192.0.2.2", "", 5)}, // it has fetched a style sheet
	} {
		Check(t, "Write", r.Write(ctx, registry.Batch{Clients: batch}))
	}
	got := map[string]registry.ClientSum{}
	Check(t, "Sums", r.Sums(ctx, func(c *registry.ClientSum) bool {
		got[c.Client.String()] = *c
		return true
	}))
	if a, b := got["192.0.2.1"], got["192.0.2.2"]; len(got) != 2 || a.Fleet != "fleet-7f3a" || a.Spent.Requests != 3 ||
		b.Fleet != "" || b.Spent.Requests != 7 || b.Spent.Time != 2*time.Second ||
		a.Bot != "gptbot" || a.State != fairshare.Forged || !a.Last.Equal(start) {
		t.Errorf("sums: %+v", got)
	}
	found, err := r.Client(ctx, ID("192.0.2.1"))
	if err != nil || found.Record.Fleet != "fleet-7f3a" {
		t.Errorf("client: %+v, %v", found, err)
	}
	want := registry.FleetRecord{Name: "fleet-7f3a", Since: start, Last: start, Shared: "a", Evidence: "b",
		Addresses: 9}
	Check(t, "SetFleets", r.SetFleets(ctx, []registry.FleetRecord{{Name: "earlier"}}))
	Check(t, "SetFleets", r.SetFleets(ctx, []registry.FleetRecord{want}))
	all, err = r.Fleets(ctx)
	if err != nil || len(all) != 1 || all[0].Name != want.Name || !all[0].Since.Equal(start) || all[0].Addresses != 9 {
		t.Errorf("fleets: %+v, %v", all, err)
	}
}

func testEmptyClientIDIsAnError(t *testing.T, open Opener) {
	r := open(t, "", registry.Bounds{})
	var none fairshare.ClientID
	_, unsay := r.RemoveOverride(ctx, none)
	_, lift := r.Lift(ctx, none, start)
	_, client := r.Client(ctx, none)
	for i, err := range []error{r.SetOverride(ctx, registry.OverrideRecord{Action: fairshare.Allow}), unsay, lift,
		client,
		r.Note(ctx, none, "x"), r.Label(ctx, registry.Label{Name: "x"})} {
		if !errors.Is(err, key.ErrNoClient) {
			t.Errorf("%d: %v", i, err)
		}
	}
	err := r.SetOverride(ctx, registry.OverrideRecord{Client: ID("192.0.2.1")})
	if !errors.Is(err, registry.ErrArgument) {
		t.Errorf("an override without an action: %v", err)
	}
}
