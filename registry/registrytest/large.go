package registrytest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

// Large measures a registry with that many clients; it fails only if an answer is
// wrong.
func Large(t *testing.T, clients int, open Opener) {
	const name = "large"
	bounds := registry.Bounds{Clients: clients, Bans: clients}
	r := open(t, name, bounds)
	took := func(what string, n int, do func()) {
		t.Helper()
		var times []time.Duration
		for range n {
			begin := time.Now()
			do()
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		t.Logf("%-44s median %10s  90%% %10s  most %10s", what, round(times[n/2]), round(times[n*9/10]),
			round(times[n-1]))
	}
	at, have, fresh := start, 0, Orderly
	writes := func() {
		t.Helper()
		suffix := fmt.Sprintf(" at %d rows", have)
		took("Write 250 new"+suffix, 40, func() {
			at = at.Add(time.Second)
			Check(t, "Write", r.Write(ctx, registry.Batch{Clients: ManyDeltas(fresh, 250, at)}))
			fresh += 250
		})
		took("Write 250 known, any"+suffix, 40, func() {
			at = at.Add(time.Second)
			b := ManyDeltas(0, 250, at)
			for i := range b {
				b[i].Client = Many(rand.IntN(have))
			}
			Check(t, "Write", r.Write(ctx, registry.Batch{Clients: b}))
		})
		took("Write 250 known, the same"+suffix, 40, func() {
			at = at.Add(time.Second)
			Check(t, "Write", r.Write(ctx, registry.Batch{Clients: ManyDeltas(100, 250, at)}))
		})
		took("Write 250 bans, new"+suffix, 10, func() {
			b := make([]fairshare.BanRecord, 250)
			for i := range b {
				b[i] = fairshare.BanRecord{Client: Many(rand.IntN(have)), Rule: "rapid requests",
					Kind:  fairshare.ByAddr,
					Began: at, Until: at.Add(time.Hour), Since: at.Add(time.Hour)}
			}
			Check(t, "Write", r.Write(ctx, registry.Batch{Bans: b}))
		})
		took("Write 1 ban"+suffix, 40, func() {
			Check(t, "Write", r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{{
				Client: Many(rand.IntN(have)), Rule: "x",
				Kind: fairshare.ByAddr, Began: at, Until: at.Add(time.Hour)}}}))
		})
		took("SetOverride"+suffix, 20, func() {
			Check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: Many(rand.IntN(have)),
				Action: fairshare.Block,
				Since:  at}))
		})
		took("Client"+suffix, 20, func() {
			f, err := r.Client(ctx, Many(rand.IntN(have)))
			if err != nil || f == nil {
				t.Fatal(f, err)
			}
		})
		version := registry.Version{}
		took("Changes, none"+suffix, 1000, func() {
			c, err := r.Changes(ctx, version)
			Check(t, "Changes", err)
			version = c.Version
		})
	}
	fill := func(to int) {
		begin, from := time.Now(), have
		for have < to {
			n := min(10_000, to-have)
			Check(t, "Write", r.Write(ctx, registry.Batch{Clients: ManyDeltas(have, n, at)}))
			have += n
			at = at.Add(time.Second)
		}
		s, err := r.Stats(ctx)
		Check(t, "Stats", err)
		t.Logf("%d rows more in %s; %d MB for %d rows, %d B a row", have-from, round(time.Since(begin)), s.Bytes>>20,
			s.Clients, s.Bytes/s.Clients)
	}
	fill(1000)
	writes()
	fill(clients / 5)
	writes()
	fill(clients)
	writes()
	for _, sort := range []string{"requests", "refused", "cpu", "last-seen"} {
		for _, q := range []registry.Query{{Sort: sort}, {Sort: sort, Limit: 10_000}, {Sort: sort, Bot: "bot7"}} {
			took(fmt.Sprintf("Clients %+v", q), 2, func() {
				got, err := r.Clients(ctx, q)
				if err != nil || len(got) == 0 {
					t.Fatal(len(got), err)
				}
			})
		}
	}
	took("TotalTime, all looked at", 2, func() {
		_, err := r.TotalTime(ctx)
		Check(t, "TotalTime", err)
	})
	bans := min(1_000_000, clients)
	begin := time.Now()
	for i := 0; i < bans; i += 5000 {
		b := make([]fairshare.BanRecord, 5000)
		for j := range b {
			b[j] = fairshare.BanRecord{Client: Many(i + j), Rule: "rapid requests", Kind: fairshare.ByAddr, Began: at,
				Until: at.Add(time.Hour), Since: at.Add(time.Hour)}
		}
		Check(t, "Write", r.Write(ctx, registry.Batch{Bans: b}))
	}
	t.Logf("%d bans more in %s", bans, round(time.Since(begin)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	took("Bans, all", 1, func() {
		for _, err := range r.Bans(ctx, at, true) {
			Check(t, "Bans", err)
			if n++; n == bans/2 {
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
		}
	})
	t.Logf("%d bans; %d KiB more in use in the middle", n, (int64(after.HeapInuse)-int64(before.HeapInuse))>>10)
	fewer := bounds
	fewer.Clients = max(have-100_000, 1)
	r = open(t, name, fewer)
	took("Prune 250 over the bound", 20, func() {
		_, err := r.Prune(ctx, at, 250)
		Check(t, "Prune", err)
	})
	bounds.Clients = have * 2
	r = open(t, name, bounds)
	took("Prune nothing", 20, func() {
		_, err := r.Prune(ctx, at, 250)
		Check(t, "Prune", err)
	})
	took("FirstSeen, all", 1, func() {
		n := 0
		Check(t, "FirstSeen", r.FirstSeen(ctx, func(fairshare.ClientID, time.Time) bool { n++; return true }))
		t.Logf("%d clients", n)
	})
	took("Open", 5, func() { r = open(t, name, bounds) })
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
