package sqlregistry

import (
	"fmt"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// In a flood that is faster than Prune, the file stays bounded, and Write still
// records known clients, banned ones and those with an operator's decision.
func TestWriteStaysNearTheBounds(t *testing.T) {
	const bound = 160
	const clients, stories = bound + bound/16, bound + bound/16
	r := opened(t, "", Options{Clients: bound, Stories: bound})
	counted := func() Stats {
		t.Helper()
		s, err := r.Stats(ctx)
		check(t, "Stats", err)
		for table, n := range map[string]int64{"clients": s.Clients, "stories": s.Stories} {
			check(t, "reading", r.reading(ctx, func(l *link) error {
				rows, err := l.integer(ctx, "SELECT count(*) FROM "+table)
				if rows != n {
					t.Errorf("%d %s, but %d are counted", rows, table, n)
				}
				return err
			}))
		}
		return s
	}
	requests := func(name string, want int64) {
		t.Helper()
		found, err := r.Client(ctx, id(name))
		check(t, "Client", err)
		if found == nil {
			found = new(Found)
		}
		if n := found.Record.Spent.Requests; n != want {
			t.Errorf("%s has %d requests, want %d", name, n, want)
		}
	}
	told := func(name string) registry.Story {
		return registry.Story{ID: name, Client: id(name), Rule: "rapid", First: start, Last: start}
	}
	calls := registry.Batch{Clients: []registry.ClientDelta{dirty("192.0.2.1", start, 1)},
		Stories: []registry.Story{told("192.0.2.1")}}
	check(t, "Write", r.Write(ctx, calls))
	at := start
	for i := range 40 { // half of a batch is from one network, the rest from many
		var b registry.Batch
		for j := range 100 {
			at = at.Add(time.Second)
			name := fmt.Sprintf("10.1.%d.%d", i, j)
			if j%2 > 0 {
				name = fmt.Sprintf("%d.%d.1.1", 11+i, j)
			}
			b.Clients = append(b.Clients, dirty(name, at, 1))
			s := told(name)
			s.First, s.Last = at, at
			b.Stories = append(b.Stories, s)
		}
		b.Clients = append(b.Clients, dirty("192.0.2.1", at, 1))
		check(t, "Write", r.Write(ctx, b))
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
		check(t, "Story", err)
		if len(found) != want {
			t.Errorf("%d stories of %s, want %d", len(found), name, want)
		}
	}

	// Clients with an operator's decision or a ban are added; then their updates add up.
	check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("198.51.100.1"),
		Action: fairshare.Block, Since: start}))
	check(t, "Label", r.Label(ctx, registry.Label{Client: id("198.51.100.2"), Name: "good-partner"}))
	check(t, "Note", r.Note(ctx, id("198.51.100.3"), "called on Monday"))
	b := registry.Batch{Bans: []fairshare.BanRecord{banned("198.51.100.4", at, time.Hour)}}
	for i := range 5 {
		b.Clients = append(b.Clients, dirty(fmt.Sprintf("198.51.100.%d", i+1), at, 7))
	}
	check(t, "Write", r.Write(ctx, b))
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
		check(t, "Prune", err)
	}
	check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{dirty("198.51.100.5", at, 3)}}))
	requests("198.51.100.5", 3)
	if s := counted(); s.Clients != bound+1 || s.Stories > bound {
		t.Errorf("%+v", s)
	}
}
