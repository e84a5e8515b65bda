package sqlregistry

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/registry"
)

var long = flag.Int("long", 0,
	"rows of the large registry that TestLarge makes in the temporary folder, as 5000000: about 2.5 GB and three minutes")

// many returns client i, from anywhere in the address space; a tenth are IPv6. The
// first ones are in the order of their addresses, so that a file is created faster;
// those from orderly on are not.
func many(i int) fairshare.ClientID {
	x := uint64(i) << 40
	if i >= orderly {
		x = uint64(i) * 0x9E3779B97F4A7C15
	}
	if i%10 == 0 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], 0x20010db8<<32|x>>32)
		return fairshare.PrefixID(netip.PrefixFrom(netip.AddrFrom16(b), 64))
	}
	return fairshare.PrefixID(netip.PrefixFrom(netip.AddrFrom4(
		[4]byte{byte(x >> 56), byte(x >> 48), byte(x >> 40), byte(x >> 32)}), 32))
}

const orderly = 1 << 24

// manyDirty returns updates of some of them. Few have many requests, as is usual.
func manyDirty(first, n int, at time.Time) []registry.ClientDelta {
	all := make([]registry.ClientDelta, n)
	for i := range all {
		rank := float64(rand.IntN(1<<30)+1) / (1 << 30)
		s := registry.Spent{Requests: int64(min(2/rank, 1e6)), Bytes: 12345, Time: time.Duration(50e6 / rank)}
		s.Refused = s.Requests / 3
		s.CPU = s.Time / 2
		all[i] = registry.ClientDelta{Client: many(first + i), FirstSeen: at, LastSeen: at, Spent: s,
			UserAgent: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"}
		if i%50 == 0 {
			all[i].Bot, all[i].BotState = fmt.Sprintf("bot%d", i/50%20), fairshare.Forged
		}
	}
	return all
}

// TestLarge measures a large registry; it fails only if an answer is wrong.
func TestLarge(t *testing.T) {
	if *long == 0 {
		t.Skip("go test ./sqlregistry -run TestLarge -v -long 5000000 measures a large registry")
	}
	dir, err := os.MkdirTemp("", "fairshare")
	check(t, "MkdirTemp", err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "registry.db")
	o := Options{Clients: *long, Bans: *long}
	r, err := Open(ctx, path, o)
	check(t, "Open", err)
	defer func() { check(t, "Close", r.Close()) }()
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
	at, have, fresh := start, 0, orderly
	writes := func() {
		t.Helper()
		suffix := fmt.Sprintf(" at %d rows", have)
		took("Write 250 new"+suffix, 40, func() {
			at = at.Add(time.Second)
			check(t, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(fresh, 250, at)}))
			fresh += 250
		})
		took("Write 250 known, any"+suffix, 40, func() {
			at = at.Add(time.Second)
			b := manyDirty(0, 250, at)
			for i := range b {
				b[i].Client = many(rand.IntN(have))
			}
			check(t, "Write", r.Write(ctx, registry.Batch{Clients: b}))
		})
		took("Write 250 known, the same"+suffix, 40, func() {
			at = at.Add(time.Second)
			check(t, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(100, 250, at)}))
		})
		took("Write 250 bans, new"+suffix, 10, func() {
			b := make([]fairshare.BanRecord, 250)
			for i := range b {
				b[i] = fairshare.BanRecord{Client: many(rand.IntN(have)), Rule: "rapid requests",
					Kind:  fairshare.ByAddr,
					Began: at, Until: at.Add(time.Hour), Since: at.Add(time.Hour)}
			}
			check(t, "Write", r.Write(ctx, registry.Batch{Bans: b}))
		})
		took("Write 1 ban"+suffix, 40, func() {
			check(t, "Write", r.Write(ctx, registry.Batch{Bans: []fairshare.BanRecord{{
				Client: many(rand.IntN(have)), Rule: "x",
				Kind: fairshare.ByAddr, Began: at, Until: at.Add(time.Hour)}}}))
		})
		took("SetOverride"+suffix, 20, func() {
			check(t, "SetOverride", r.SetOverride(ctx, registry.OverrideRecord{Client: many(rand.IntN(have)),
				Action: fairshare.Block,
				Since:  at}))
		})
		took("Client"+suffix, 20, func() {
			f, err := r.Client(ctx, many(rand.IntN(have)))
			if err != nil || f == nil {
				t.Fatal(f, err)
			}
		})
		version := registry.Version{}
		took("Changes, none"+suffix, 1000, func() {
			c, err := r.Changes(ctx, version)
			check(t, "Changes", err)
			version = c.Version
		})
	}
	fill := func(to int) {
		begin, from := time.Now(), have
		for have < to {
			n := min(10_000, to-have)
			check(t, "Write", r.Write(ctx, registry.Batch{Clients: manyDirty(have, n, at)}))
			have += n
			at = at.Add(time.Second)
		}
		s, err := r.Stats(ctx)
		check(t, "Stats", err)
		info, err := os.Stat(path)
		check(t, "Stat", err)
		t.Logf("%d rows more in %s; the file has %d MB for %d rows, %d B a row; with -wal %d MB", have-from,
			round(time.Since(begin)), info.Size()>>20, s.Clients, info.Size()/s.Clients, s.Bytes>>20)
	}
	fill(1000)
	writes()
	fill(*long / 5)
	writes()
	fill(*long)
	writes()
	for _, sort := range []string{"requests", "refused", "cpu", "last-seen"} {
		for _, q := range []Query{{Sort: sort}, {Sort: sort, Limit: 10_000}, {Sort: sort, Bot: "bot7"}} {
			took(fmt.Sprintf("Clients %+v", q), 2, func() {
				got, err := r.Clients(ctx, q)
				if err != nil || len(got) == 0 {
					t.Fatal(len(got), err)
				}
			})
		}
	}
	took("Clients, all looked at for 50", 1, func() {
		check(t, "reading", r.reading(ctx, func(l *link) error {
			rows, err := clientRows(ctx, l, "1 ORDER BY +requests DESC LIMIT 50")
			if len(rows) != 50 {
				t.Error(len(rows))
			}
			return err
		}))
	})
	bans := 1_000_000
	begin := time.Now()
	for i := 0; i < bans; i += 5000 {
		b := make([]fairshare.BanRecord, 5000)
		for j := range b {
			b[j] = fairshare.BanRecord{Client: many(i + j), Rule: "rapid requests", Kind: fairshare.ByAddr, Began: at,
				Until: at.Add(time.Hour), Since: at.Add(time.Hour)}
		}
		check(t, "Write", r.Write(ctx, registry.Batch{Bans: b}))
	}
	t.Logf("%d bans more in %s", bans, round(time.Since(begin)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	took("Bans, all", 1, func() {
		for _, err := range r.Bans(ctx, at, true) {
			check(t, "Bans", err)
			if n++; n == bans/2 {
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
		}
	})
	t.Logf("%d bans; %d KiB more in use in the middle", n, (int64(after.HeapInuse)-int64(before.HeapInuse))>>10)
	r.o.Clients = have - 100_000
	took("Prune 250 over the bound", 20, func() {
		_, err := r.Prune(ctx, at, 250)
		check(t, "Prune", err)
	})
	r.o.Clients = have * 2
	took("Prune nothing", 20, func() {
		_, err := r.Prune(ctx, at, 250)
		check(t, "Prune", err)
	})
	took("Close", 1, func() { check(t, "Close", r.Close()) })
	took("Open and Close", 5, func() {
		r, err = Open(ctx, path, o)
		check(t, "Open", err)
		check(t, "Close", r.Close())
	})
	took("Open", 1, func() {
		r, err = Open(ctx, path, o)
		check(t, "Open", err)
	})
}

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
