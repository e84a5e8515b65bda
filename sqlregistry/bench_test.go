package sqlregistry

import (
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// BenchmarkWrite writes batches of 250 known clients, as a server does.
func BenchmarkWrite(b *testing.B) {
	r := opened(b, "", Options{})
	b.ReportAllocs()
	for b.Loop() {
		check(b, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(0, 250, start)}))
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/250, "µs/client")
	stats, err := r.Stats(ctx)
	check(b, "Stats", err)
	if stats.Clients != 250 {
		b.Errorf("%+v", stats)
	}
}

// BenchmarkWriteBan writes one new ban at a time, whose client is known.
func BenchmarkWriteBan(b *testing.B) {
	r := opened(b, "", Options{})
	check(b, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(0, 10_000, start)}))
	n := 0
	for b.Loop() {
		n++
		ban := fairshare.BanRecord{Client: many(n % 10_000), Rule: "rapid requests", Kind: fairshare.ByAddr,
			Began: start.Add(time.Duration(n)), Until: start.Add(time.Hour)}
		check(b, "Write", r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{ban}}))
	}
	stats, err := r.Stats(ctx)
	check(b, "Stats", err)
	if stats.Bans != int64(min(n, 10_000)) {
		b.Errorf("%+v after %d", stats, n)
	}
}

// BenchmarkChanges polls when nothing has changed, as a server does all the time.
func BenchmarkChanges(b *testing.B) {
	r := opened(b, "", Options{})
	check(b, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: id("192.0.2.1"),
		Action: fairshare.Block}))
	c, err := r.Changes(ctx, registry.Version{})
	check(b, "Changes", err)
	b.ReportAllocs()
	for b.Loop() {
		if c, err = r.Changes(ctx, c.Version); c.Overrides || err != nil {
			b.Fatal(c, err)
		}
	}
}
