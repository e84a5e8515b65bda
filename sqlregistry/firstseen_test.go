package sqlregistry

import (
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

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
