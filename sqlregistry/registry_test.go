package sqlregistry

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	ctx   = context.Background()
	start = time.Date(2026, 11, 21, 4, 0, 0, 123456789, time.UTC)
)

// opened returns a registry in its own file, or in an existing one.
func opened(t testing.TB, path string, o Options) *Registry {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "registry.db")
	}
	r, err := Open(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func id(s string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func ids(names ...string) (ids []fairshare.ClientID) {
	for _, name := range names {
		ids = append(ids, id(name))
	}
	return ids
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// same reports a difference; nil and empty are equal.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := diff(got, want); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func diff(got, want any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// allBans returns the bans that Bans yields.
func allBans(t testing.TB, r *Registry, now time.Time, all bool) (bans []fairshare.BanRecord) {
	t.Helper()
	for b, err := range r.Bans(ctx, now, all) {
		check(t, "Bans", err)
		bans = append(bans, b)
	}
	return bans
}

func dirty(name string, at time.Time, requests int64) registry.ClientDelta {
	return registry.ClientDelta{Client: id(name), FirstSeen: at, LastSeen: at,
		Spent:     registry.Spent{Requests: requests},
		UserAgent: "agent of " + name}
}

func banned(name string, began time.Time, length time.Duration) fairshare.BanRecord {
	return fairshare.BanRecord{Client: id(name), Rule: "rapid", Kind: fairshare.ByAddr, Number: 1, Began: began,
		Until: began.Add(length), Since: began.Add(length)}
}

func TestFileIsPrivateAndCreatedOnlyOnRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	for _, o := range []Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := Open(ctx, path, o); !is(err, ErrMissing) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	r := opened(t, path, Options{})
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "hello"))
	files, err := filepath.Glob(path + "*")
	check(t, "Glob", err)
	if len(files) != 3 {
		t.Errorf("files %q, want the file, -wal and -shm", files)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		check(t, "Stat", err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", file, info.Mode())
		}
	}
}

// Operators' changes are synced, a server's data is not.
func TestOperatorsChangesAreSynced(t *testing.T) {
	r := opened(t, "", Options{})
	level := func() int64 {
		w := <-r.writer
		defer func() { r.writer <- w }()
		n, err := w.integer(ctx, "PRAGMA synchronous")
		check(t, "synchronous", err)
		return n
	}
	const normal, full = 1, 2
	client := id("192.0.2.1")
	for name, call := range map[string]func() error{
		"SetOverride": func() error {
			return r.SetOverride(ctx, registry.OverrideRecord{Client: client, Action: fairshare.Block})
		},
		"RemoveOverride": func() error { _, err := r.RemoveOverride(ctx, client); return err },
		"Lift":           func() error { _, err := r.Lift(ctx, client, start); return err },
		"Label":          func() error { return r.Label(ctx, registry.Label{Client: client, Name: "good-partner"}) },
		"Unlabel":        func() error { _, err := r.Unlabel(ctx, client, ""); return err },
		"Note":           func() error { return r.Note(ctx, client, "n") },
		"Forget":         func() error { _, err := r.Forget(ctx, client, start); return err },
	} {
		check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.2", start, 1)}}))
		if n := level(); n != normal {
			t.Errorf("Write: %d, want %d", n, normal)
		}
		check(t, name, call())
		if n := level(); n != full {
			t.Errorf("%s: %d, want %d", name, n, full)
		}
	}
}

func TestClientsAddUpAndStickyFieldsStay(t *testing.T) {
	r := opened(t, "", Options{})
	text := "bad\x00agent \xff\xfe 'quoted\""
	spent := registry.Spent{Requests: 1, Refused: 2, Blocked: 3, DryRun: 4, CPU: 5, Time: 6, Bytes: 7, Errors: 8}
	d := registry.ClientDelta{Client: id("2001:db8::/64"), FirstSeen: start, LastSeen: start.Add(time.Second),
		Spent:     spent,
		UserAgent: text, Bot: "googlebot", BotState: fairshare.Forged,
		Labels: []string{"not looked at"}, Note: "nor this"}
	check(t, "Label", r.Label(ctx, registry.Label{Client: d.Client, Name: "good-partner"}))
	check(t, "Note", r.Note(ctx, d.Client, "n"))
	for range 2 {
		check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{d, {}}}))
	}
	want := d
	want.Spent.Add(spent)
	want.Labels, want.Note, want.Sticky = []string{"good-partner"}, "n", true
	got, err := r.Clients(ctx, Query{Bot: "googlebot"})
	check(t, "Clients", err)
	same(t, "Clients", got, []registry.ClientRecord{want})
	found, err := r.Client(ctx, d.Client)
	check(t, "Client", err)
	same(t, "Client", found, &Found{Record: want})
	stats, err := r.Stats(ctx)
	check(t, "Stats", err)
	if stats.Clients != 1 || stats.Labels != 1 || stats.Bytes == 0 {
		t.Errorf("%+v", stats)
	}
}

// Clients of equal value are sorted by a second column, also if an index is used.
func TestEqualClientsAreSortedBySecondColumn(t *testing.T) {
	r := opened(t, "", Options{})
	var batch registry.Batch
	for i, name := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
		d := dirty(name, start, []int64{5, 7, 6, 8}[i])
		d.Spent.Refused, d.Spent.DryRun = []int64{0, 0, 200, 200}[i], []int64{30, 40, 1, 2}[i]
		batch.Clients = append(batch.Clients, d)
	}
	check(t, "Write", r.Write(ctx, batch))
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{Sort: "refused", Limit: 1}, []string{"192.0.2.4"}},
		{Query{Sort: "refused", Limit: 2}, []string{"192.0.2.4", "192.0.2.3"}},
		{Query{Sort: "refused"}, []string{"192.0.2.4", "192.0.2.3", "192.0.2.2", "192.0.2.1"}},
		{Query{Sort: "cpu"}, []string{"192.0.2.4", "192.0.2.2", "192.0.2.3", "192.0.2.1"}},
	} {
		got, err := r.Clients(ctx, c.q)
		check(t, "Clients", err)
		var names []string
		for _, g := range got {
			names = append(names, g.Client.String())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%+v: got %q, want %q", c.q, names, c.want)
		}
	}
}

func TestClientsAreSorted(t *testing.T) {
	r := opened(t, "", Options{})
	var batch registry.Batch
	for i, name := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64", "googlebot"} {
		d := dirty(name, start.Add(time.Duration(i%3)*time.Hour), []int64{5, 200, 7, 300, 100}[i])
		d.Spent.Refused, d.Spent.CPU = int64(i)*40, time.Duration(5-i)*4*time.Second
		if i%2 == 0 {
			d.Bot = "googlebot"
		}
		batch.Clients = append(batch.Clients, d)
	}
	check(t, "Write", r.Write(ctx, batch))
	check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("198.51.100.0/24"),
		Action: fairshare.Allow, Since: start}))
	for _, name := range []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"} {
		check(t, "Label", r.Label(ctx, registry.Label{Client: id(name), Name: "x"}))
	}
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{Limit: 2}, []string{"2001:db8::/64", "192.0.2.2"}}, // from the index
		{Query{}, []string{"2001:db8::/64", "192.0.2.2", "googlebot", "192.0.2.3", "192.0.2.1", "198.51.100.0/24",
			"203.0.113.7"}},
		{Query{Sort: "refused", Limit: 3}, []string{"googlebot", "2001:db8::/64", "192.0.2.3"}},
		{Query{Sort: "cpu", Limit: 4}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64"}},
		{Query{Sort: "last-seen", Limit: 3}, []string{"192.0.2.3", "192.0.2.2", "googlebot"}},
		{Query{Bot: "googlebot"}, []string{"googlebot", "192.0.2.3", "192.0.2.1"}},
		{Query{Label: "x"}, []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"}},
		{Query{Label: "x", Bot: "googlebot"}, []string{"192.0.2.3"}},
		{Query{Label: "y"}, nil},
		{Query{Sticky: true}, []string{"192.0.2.2", "192.0.2.3", "198.51.100.0/24", "203.0.113.7"}},
		{Query{Sticky: true, Sort: "last-seen", Limit: 2}, []string{"192.0.2.3", "192.0.2.2"}},
		{Query{Sticky: true, Bot: "googlebot"}, []string{"192.0.2.3"}},
		{Query{Sticky: true, Label: "x"}, []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"}},
	} {
		got, err := r.Clients(ctx, c.q)
		check(t, "Clients", err)
		var names []string
		for _, g := range got {
			names = append(names, g.Client.String())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%+v: got %q, want %q", c.q, names, c.want)
		}
	}
	if _, err := r.Clients(ctx, Query{Sort: "beauty"}); err == nil {
		t.Error("sorted by beauty")
	}
}

func TestLiftAndForgetRunInSteps(t *testing.T) {
	r := opened(t, "", Options{})
	var b registry.Batch
	for n := range 2*stepRows + 10 {
		name := numbered(n)
		b.Clients = append(b.Clients, dirty(name, start, 1))
		b.Bans = append(b.Bans, banned(name, start, time.Hour))
		b.Stories = append(b.Stories, registry.Story{ID: name, Client: id(name), Rule: "rapid", Last: start})
	}
	later := banned("10.0.0.200", start.Add(time.Minute), time.Hour)
	later.Rule = "later"
	b.Bans = append(b.Bans, later)
	check(t, "Write", r.Write(ctx, b))
	lifted, err := r.Lift(ctx, id("10.0.0.0/8"), start)
	check(t, "Lift", err)
	if len(lifted) != 2*stepRows+10 {
		t.Errorf("%d were lifted", len(lifted))
	}
	same(t, "the later ban", allBans(t, r, start, true), []fairshare.BanRecord{later})
	check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("10.0.0.7"),
		Action: fairshare.Allow, Since: start}))
	check(t, "Label", r.Label(ctx, registry.Label{Client: id("10.0.0.7"), Name: "x"}))
	forgotten, err := r.Forget(ctx, id("10.0.0.0/8"), start.Add(time.Hour))
	check(t, "Forget", err)
	same(t, "Forget", forgotten, Forgotten{Clients: 2*stepRows + 10, Bans: 1, Stories: 2*stepRows + 10, Labels: 1,
		Override: true})
	if found, err := r.Client(ctx, id("10.0.0.0/8")); found != nil || err != nil {
		t.Errorf("%+v remains: %v", found, err)
	}
	sound(t, r)
}

// A ban that is written after an operator lifted it does not return.
func TestWriteDoesNotUndoALift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	server, operator := opened(t, path, Options{}), opened(t, path, Options{})
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
		ban := banned(c.ban, start, time.Hour)
		if ban.Client.Bot != "" {
			ban.Kind = fairshare.ByBot
		}
		_, err := operator.Lift(ctx, id(c.lift), start.Add(c.after))
		check(t, "Lift", err)
		check(t, "Write", server.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{ban}}))
		found, err := server.Client(ctx, ban.Client)
		check(t, "Client", err)
		if kept := found != nil && len(found.Bans) > 0; kept != c.kept {
			t.Errorf("%s lifted %v after the start of a ban of %s: recorded %v", c.lift, c.after, c.ban, kept)
		}
	}
}

// A server's unwritten data about a forgotten client does not restore it.
func TestWriteDoesNotUndoAForget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	server, operator := opened(t, path, Options{}), opened(t, path, Options{})
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
		_, err := operator.Forget(ctx, id(c.forget), start.Add(c.after))
		check(t, "Forget", err)
		check(t, "Write", server.Write(ctx, registry.Batch{
			Clients: []registry.ClientDelta{{Client: id(c.client), FirstSeen: begin, LastSeen: start}},
			Stories: []registry.Story{{ID: "x" + c.client, Client: id(c.client), Rule: "rapid", First: begin,
				Last: start, Count: 2}},
		}))
		found, err := server.Client(ctx, id(c.client))
		check(t, "Client", err)
		stories, err := server.Stories(ctx, id(c.client), 0)
		check(t, "Stories", err)
		if kept := found != nil; kept != c.kept || len(stories) > 0 != c.kept {
			t.Errorf("%s forgotten %v after the last request of %s: recorded %v, stories %v", c.forget, c.after, c.client,
				kept, stories)
		}
		if c.kept && c.forget == c.client && (!found.Record.FirstSeen.Equal(start) || !stories[0].First.Equal(start)) {
			t.Errorf("%s forgotten %v after its last request begins at %v, its story at %v", c.forget, c.after,
				found.Record.FirstSeen, stories[0].First)
		}
	}
	sound(t, server)
}

// Operators' changes of an address also apply to provisional clients with it.
func TestWriteDoesNotUndoChangesOfProvisionalClients(t *testing.T) {
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
		path := filepath.Join(t.TempDir(), "registry.db")
		server, operator := opened(t, path, Options{}), opened(t, path, Options{})
		_, err := operator.Forget(ctx, id(c.forget), start)
		check(t, "Forget", err)
		before := start.Add(-time.Second)
		check(t, "Write", server.Write(ctx, registry.Batch{
			Clients: []registry.ClientDelta{{Client: c.client, FirstSeen: before, LastSeen: before}},
			Bans: []fairshare.BanRecord{{Client: c.client, Rule: "rapid", Number: 1, Began: before,
				Until: start.Add(time.Hour), Since: before}},
		}))
		found, err := server.Client(ctx, c.client)
		check(t, "Client", err)
		seen := found != nil && !found.Record.FirstSeen.IsZero()
		banned := found != nil && len(found.Bans) > 0
		if seen != c.kept || banned != c.kept {
			t.Errorf("%s forgotten: %v is recorded %v, banned %v, want %v", c.forget, c.client, seen, banned, c.kept)
		}
	}
}

// Forgetting one provisional client affects no other.
func TestWriteDoesNotUndoAForgetOfOneProvisionalClient(t *testing.T) {
	server, client := opened(t, "", Options{}), provisional("203.0.113.9", "127.0.0.1")
	_, err := server.Forget(ctx, client, start)
	check(t, "Forget", err)
	check(t, "Write", server.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("203.0.113.9", start, 1),
		{Client: client, FirstSeen: start, LastSeen: start}}}))
	if found, err := server.Client(ctx, client); found != nil || err != nil {
		t.Errorf("forgotten, and found %+v, %v", found, err)
	}
	if found, err := server.Client(ctx, id("203.0.113.9")); found == nil || err != nil {
		t.Errorf("another client is not found: %v", err)
	}
}

// The overrides of all prefixes that contain a provisional client apply, also of its
// own.
func TestOverridesOnPrefixesOfAProvisionalClient(t *testing.T) {
	for _, addr := range []string{"203.0.113.9", "2001:db8::9"} {
		r, client := opened(t, "", Options{}), provisional(addr, "127.0.0.1")
		check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: fairshare.PrefixID(client.Prefix),
			Action: fairshare.Block,
			Since:  start}))
		found, err := r.Client(ctx, client)
		check(t, "Client", err)
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

func TestChangesReportsOperatorsChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	server, operator := opened(t, path, Options{}), opened(t, path, Options{})
	hear := func(since registry.Version) registry.Changes {
		t.Helper()
		c, err := server.Changes(ctx, since)
		check(t, "Changes", err)
		return c
	}
	_, err := operator.Lift(ctx, id("192.0.2.9"), start)
	check(t, "Lift", err)
	first := hear(registry.Version{})
	if !first.Overrides || first.Lifted != nil {
		t.Errorf("the first time: %+v", first)
	}
	if c := hear(first.Version); c.Overrides || c.Lifted != nil || c.Version != first.Version {
		t.Errorf("without a change: %+v", c)
	}
	check(t, "Write", operator.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)},
		Bans: []fairshare.BanRecord{banned("192.0.2.1", start, time.Hour)}}))
	if c := hear(first.Version); c.Overrides || c.Lifted != nil {
		t.Errorf("another server wrote: %+v", c)
	}
	check(t, "SetOverride", operator.SetOverride(ctx,
		registry.OverrideRecord{Client: id("192.0.2.1"), Action: fairshare.Block, Since: start}))
	if c := hear(first.Version); !c.Overrides || c.Lifted != nil {
		t.Errorf("an override: %+v", c)
	}
	second := hear(first.Version)
	_, err = operator.Lift(ctx, id("192.0.2.0/24"), start)
	check(t, "Lift", err)
	_, err = operator.Forget(ctx, id("googlebot"), start)
	check(t, "Forget", err)
	c := hear(second.Version)
	same(t, "lifted", c.Lifted, []registry.LiftedClient{{Client: id("192.0.2.0/24"), At: start},
		{Client: id("googlebot"), At: start, Forget: true}})
	_, err = operator.Lift(ctx, id("192.0.2.7"), start.Add(time.Second))
	check(t, "Lift", err)
	late, err := server.Lifted(ctx, start.Add(time.Second))
	check(t, "Lifted", err)
	same(t, "lifted late", late, []registry.LiftedClient{{Client: id("192.0.2.7"), At: start.Add(time.Second)}})
	if c.Overrides {
		t.Error("words, which nobody changed")
	}
	_, err = operator.Prune(ctx, start.Add(ChangesStay+2*time.Second), 10)
	check(t, "Prune", err)
	if c := hear(second.Version); c.Lifted != nil {
		t.Errorf("after ChangesStay: %+v", c.Lifted)
	}
}

// A flood of stories from one network does not remove those of others.
func TestStoriesOfANetworkAreBounded(t *testing.T) {
	r := opened(t, "", Options{Stories: 100})
	write := func(name string, n int, at time.Time) {
		var b registry.Batch
		for i := range n {
			b.Stories = append(b.Stories, registry.Story{ID: name, Client: id(fmt.Sprintf(name, i/250, i%250)),
				Rule: "rapid", Last: at.Add(time.Duration(i))})
		}
		check(t, "Write", r.Write(ctx, b))
	}
	prune := func(want int64) {
		t.Helper()
		for more := true; more; {
			var err error
			more, err = r.Prune(ctx, start, 100)
			check(t, "Prune", err)
		}
		stats, err := r.Stats(ctx)
		check(t, "Stats", err)
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
		found, err := r.Stories(ctx, id(c.within), 1000)
		check(t, "Stories", err)
		if len(found) != c.want {
			t.Errorf("%d within %s, want %d", len(found), c.within, c.want)
		}
	}
}

func TestSettingsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	r := opened(t, path, Options{})
	s, err := r.Settings(ctx)
	check(t, "Settings", err)
	same(t, "Settings", s, Settings{})
	want := Settings{Policy: "/etc/site.yaml", Contact: "shop@example.org",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, IPv4Prefix: 32, IPv6Prefix: 64,
		Bots: []string{"googlebot"}, DryRun: true}
	for _, s := range []Settings{{Policy: "other", Contact: "c"}, want, want} {
		check(t, "SetSettings", r.SetSettings(ctx, s))
	}
	key, err := r.ReferenceKey(ctx)
	check(t, "ReferenceKey", err)
	check(t, "Close", r.Close())
	r = opened(t, path, Options{ReadOnly: true})
	s, err = r.Settings(ctx)
	check(t, "Settings", err)
	same(t, "Settings", s, want)
	again, err := r.ReferenceKey(ctx)
	check(t, "ReferenceKey", err)
	other, err := opened(t, "", Options{}).ReferenceKey(ctx)
	check(t, "ReferenceKey", err)
	if len(key) != 32 || string(key) != string(again) || string(key) == string(other) {
		t.Errorf("keys %x, %x and another's %x", key, again, other)
	}
}

// Each added value is bounded, so that no sum overflows. Times out of range become the
// nearest ones in range.
func TestExtremeValuesAreBounded(t *testing.T) {
	r := opened(t, "", Options{})
	d := dirty("192.0.2.1", time.Unix(-1, 0), math.MaxInt64)
	d.LastSeen, d.Spent.Bytes = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), -1
	for range 3 {
		check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{d}}))
	}
	found, err := r.Client(ctx, d.Client)
	check(t, "Client", err)
	if got := found.Record; got.Spent.Requests != 3*mostSpent || got.Spent.Bytes != 0 ||
		got.FirstSeen.Year() != 1970 || got.LastSeen.Year() != 2262 {
		t.Errorf("%+v", got)
	}
}

func TestHeaviestClientsOfANetwork(t *testing.T) {
	r := opened(t, filepath.Join(t.TempDir(), "registry.db"), Options{})
	var b registry.Batch
	for name, requests := range map[string]int64{
		"203.0.113.1": 5, "203.0.113.2": 500, "203.0.113.3": 50, "203.0.113.255": 50, "203.0.113.4": 0,
		"203.0.112.255": 9000, "203.0.114.0": 9000, "2001:db8::/64": 7, "2001:db8:0:ffff::/64": 8,
		"2001:db8:1::/64": 9000,
	} {
		b.Clients = append(b.Clients, dirty(name, start, requests))
	}
	check(t, "Write", r.Write(ctx, b))
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
		found, err := r.Heaviest(ctx, id(c.network), c.limit)
		var got []string
		for i := range found {
			got = append(got, fmt.Sprint(found[i].Client, " ", found[i].Spent.Requests))
		}
		if text := strings.Join(got, ", "); err != nil || text != c.want {
			t.Errorf("%s: %s, %v; want %s", c.network, text, err, c.want)
		}
	}
}
