package sqlregistry

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	ctx   = context.Background()
	start = time.Date(2026, 11, 21, 4, 0, 0, 123456789, time.UTC)
)

// opened returns a registry in a file of its own, or in one that is there.
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

// same reports a difference; nil and empty are the same.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := diff(got, want); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func diff(got, want any) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

// allBans returns what Bans yields.
func allBans(t testing.TB, r *Registry, now time.Time, all bool) (bans []fairshare.Banned) {
	t.Helper()
	for b, err := range r.Bans(ctx, now, all) {
		check(t, "Bans", err)
		bans = append(bans, b)
	}
	return bans
}

func dirty(name string, at time.Time, requests int64) Dirty {
	return Dirty{Client: id(name), FirstSeen: at, LastSeen: at, Spent: fairshare.Spent{Requests: requests}, UserAgent: "agent of " + name}
}

func banned(name string, began time.Time, length time.Duration) fairshare.Banned {
	return fairshare.Banned{Client: id(name), Rule: "rapid", Kind: fairshare.ByAddr, Number: 1, Began: began, Until: began.Add(length), Since: began.Add(length)}
}

func TestFileIsPrivateAndOneIsMadeOnlyWhenAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	for _, o := range []Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := Open(ctx, path, o); !is(err, ErrNotThere) {
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

func TestClientsAddUpAndStickyFieldsStay(t *testing.T) {
	r := opened(t, "", Options{})
	text := "bad\x00agent \xff\xfe 'quoted\""
	spent := fairshare.Spent{Requests: 1, Refused: 2, Blocked: 3, Trial: 4, CPU: 5, Time: 6, Bytes: 7, Errors: 8}
	d := Dirty{Client: id("2001:db8::/64"), FirstSeen: start, LastSeen: start.Add(time.Second), Spent: spent, UserAgent: text, Bot: "googlebot", BotState: fairshare.Forged,
		Labels: []string{"not looked at"}, Note: "nor this"}
	check(t, "Label", r.Label(ctx, fairshare.Label{Client: d.Client, Name: "good-partner"}))
	check(t, "Note", r.Note(ctx, d.Client, "n"))
	for range 2 {
		check(t, "Write", r.Write(ctx, Batch{Clients: []Dirty{d, {}}}))
	}
	want := d
	want.Spent.Add(spent)
	want.Labels, want.Note, want.Sticky = []string{"good-partner"}, "n", true
	got, err := r.Clients(ctx, Query{Bot: "googlebot"})
	check(t, "Clients", err)
	same(t, "Clients", got, []fairshare.ClientRecord{want})
	found, err := r.Client(ctx, d.Client)
	check(t, "Client", err)
	same(t, "Client", found, &Found{Record: want})
	stats, err := r.Stats(ctx)
	check(t, "Stats", err)
	if stats.Clients != 1 || stats.Labels != 1 || stats.Bytes == 0 {
		t.Errorf("%+v", stats)
	}
}

func TestClientsAreSorted(t *testing.T) {
	r := opened(t, "", Options{})
	var batch Batch
	for i, name := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64", "googlebot"} {
		d := dirty(name, start.Add(time.Duration(i%3)*time.Hour), []int64{5, 200, 7, 300, 100}[i])
		d.Spent.Refused, d.Spent.CPU = int64(i)*40, time.Duration(5-i)*4*time.Second
		if i%2 == 0 {
			d.Bot = "googlebot"
		}
		batch.Clients = append(batch.Clients, d)
	}
	check(t, "Write", r.Write(ctx, batch))
	check(t, "Say", r.Say(ctx, fairshare.Said{Client: id("198.51.100.0/24"), Action: fairshare.Allow, Since: start}))
	for _, name := range []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"} {
		check(t, "Label", r.Label(ctx, fairshare.Label{Client: id(name), Name: "x"}))
	}
	for _, c := range []struct {
		q    Query
		want []string
	}{
		{Query{Limit: 2}, []string{"2001:db8::/64", "192.0.2.2"}}, // from the index
		{Query{}, []string{"2001:db8::/64", "192.0.2.2", "googlebot", "192.0.2.3", "192.0.2.1", "198.51.100.0/24", "203.0.113.7"}},
		{Query{Sort: "refused", Limit: 3}, []string{"googlebot", "2001:db8::/64", "192.0.2.3"}},
		{Query{Sort: "cpu", Limit: 4}, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::/64"}},
		{Query{Sort: "last-seen", Limit: 3}, []string{"192.0.2.3", "192.0.2.2", "googlebot"}},
		{Query{Bot: "googlebot"}, []string{"googlebot", "192.0.2.3", "192.0.2.1"}},
		{Query{Label: "x"}, []string{"192.0.2.2", "192.0.2.3", "203.0.113.7"}},
		{Query{Label: "x", Bot: "googlebot"}, []string{"192.0.2.3"}},
		{Query{Label: "y"}, nil},
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
