package sqlregistry

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// FirstSeen reports each client that sent a request once, with the time of its first
// request, and no client that only has an operator's decision.
func TestFirstSeenReportsEachClientOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry.db")
	r := opened(t, path, Options{})
	collect := func(r *Registry) map[fairshare.ClientID]time.Time {
		t.Helper()
		all := map[fairshare.ClientID]time.Time{}
		check(t, "FirstSeen", r.FirstSeen(ctx, func(id fairshare.ClientID, first time.Time) bool {
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
	check(t, "Label", r.Label(ctx, registry.Label{Client: id("198.51.100.0/24"), Name: "partner"}))
	const n = 3*firstSeenPage + 7
	want := map[fairshare.ClientID]time.Time{id("googlebot"): start, id("2001:db8:1::/64"): start.Add(time.Hour)}
	b := registry.Batch{Clients: manyDirty(0, n, start.Add(time.Minute))}
	for i := range b.Clients {
		want[b.Clients[i].Client] = start.Add(time.Minute)
	}
	for id, first := range want {
		b.Clients = append(b.Clients, registry.ClientDelta{Client: id, FirstSeen: first, LastSeen: first.Add(time.Hour),
			Spent: registry.Spent{Requests: 1}})
	}
	check(t, "Write", r.Write(ctx, b))
	// A later request changes nothing, an earlier one does.
	again, before := many(1), many(2)
	want[before] = start
	check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{{Client: again,
		FirstSeen: start.Add(time.Hour),
		LastSeen:  start.Add(time.Hour)}, {Client: before, FirstSeen: start, LastSeen: start}}}))
	same(t, "FirstSeen", collect(r), want)

	count := 0
	check(t, "FirstSeen", r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool {
		count++
		return count < firstSeenPage+1
	}))
	if count != firstSeenPage+1 {
		t.Errorf("%d were reported, want an end after %d", count, firstSeenPage+1)
	}
	// The callback may write: no lock is held.
	count = 0
	check(t, "FirstSeen", r.FirstSeen(ctx, func(id fairshare.ClientID, first time.Time) bool {
		if count++; count%firstSeenPage == 0 {
			check(t, "Write", r.Write(ctx, registry.Batch{Clients: []registry.ClientDelta{{Client: id, FirstSeen: first,
				LastSeen: start.Add(2 * time.Hour)}}}))
		}
		return true
	}))
	if count != len(want) {
		t.Errorf("%d were reported during writes, want %d", count, len(want))
	}
	same(t, "FirstSeen, reading only", collect(opened(t, path, Options{ReadOnly: true})), want)
	check(t, "Close", r.Close())
	if err := r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool { return true }); err == nil ||
		!strings.HasSuffix(err.Error(), "closed") {
		t.Errorf("of a closed registry: %v", err)
	}
}

// BenchmarkFirstSeen reads all clients, as a server does at its start.
func BenchmarkFirstSeen(b *testing.B) {
	const n = 100_000
	r := opened(b, "", Options{Clients: n})
	for i := 0; i < n; i += 5000 {
		check(b, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(orderly+i, 5000, start)}))
	}
	b.ReportAllocs()
	for b.Loop() {
		all := 0
		check(b, "FirstSeen", r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool { all++; return true }))
		if all != n {
			b.Fatalf("%d, want %d", all, n)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e9, "ns/client")
}
