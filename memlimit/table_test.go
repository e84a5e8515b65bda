package memlimit

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"fairshare"
)

var (
	ctx   = context.Background()
	start = time.Unix(1_800_000_000, 0)
)

func opened(t testing.TB, memory int64, limits ...fairshare.Limit) *Limiter {
	t.Helper()
	l, err := New(limits, Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func perMinute(n int64) fairshare.Limit {
	return fairshare.Limit{Name: "requests", Resource: fairshare.Requests, N: n, Window: time.Minute}
}

func number(i int) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(i)) }

func take(t testing.TB, l *Limiter, limit int, key []byte, cost int64, at time.Time) fairshare.Tally {
	t.Helper()
	var tallies [1]fairshare.Tally
	if err := l.Take(ctx, at, []fairshare.Take{{Limit: limit, Key: key, Cost: cost}}, tallies[:]); err != nil {
		t.Fatal(err)
	}
	return tallies[0]
}

// used returns the count of a key under a limit: it takes more than n allows.
func used(t testing.TB, l *Limiter, limit int, key []byte, at time.Time) int64 {
	t.Helper()
	return take(t, l, limit, key, l.limits[limit].most1(), at).Used
}

// most1 is one more than is allowed: it is refused and changes nothing.
func (l *limit) most1() int64 { return int64(l.allowed) + 1 }

// check fails if a set is locked, if its slots contradict one another, or if a mark of it is missing.
func check(t *testing.T, table *table) {
	t.Helper()
	limits := *table.limits.Load()
	for n := range table.sets {
		s := &table.sets[n]
		if s.head&lockBit != 0 {
			t.Fatalf("set %d is still locked", n)
		}
		for i := 0; i < setSlots; i++ {
			id, home := s.id(i), n
			if s.guest(i) {
				home--
			}
			if id != 0 && !(table.used.has(n) && table.used.has(home)) {
				t.Fatalf("set %d: slot %d has a state, and the set or its home is not marked", n, i)
			}
			switch {
			case id == 0:
				if s.guest(i) {
					t.Fatalf("set %d: empty slot %d is a guest", n, i)
				}
			case id == secondHalf:
				t.Fatalf("set %d: slot %d is half a state", n, i)
			case int(id) >= len(limits):
				t.Fatalf("set %d: slot %d is of limit %d", n, i, id)
			case limits[id].wide:
				if i&1 != 0 || s.id(i+1) != secondHalf {
					t.Fatalf("set %d: slot %d is not the first of two", n, i)
				}
				i++
			}
			if s.guest(i) && (n == 0 || !table.sets[n-1].overflowed()) {
				t.Fatalf("set %d: slot %d is a guest of nobody", n, i)
			}
		}
	}
}

func TestFloodFreesNobody(t *testing.T) {
	flood, memory := 10_000_000, int64(4<<20)
	if raceEnabled || testing.Short() {
		flood, memory = 300_000, 128<<10
	}
	l := opened(t, memory, perMinute(10))
	for i := range 100 {
		take(t, l, 0, number(-1-i), 10, start)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var (
		takes   = []fairshare.Take{{Cost: 1}}
		tallies [1]fairshare.Tally
		key     [8]byte
	)
	for i := range flood {
		binary.LittleEndian.PutUint64(key[:], uint64(i))
		takes[0].Key = key[:]
		if err := l.Take(ctx, start.Add(time.Duration(i)), takes, tallies[:]); err != nil || tallies[0].Over {
			t.Fatalf("newcomer %d: %+v, %v", i, tallies[0], err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 64<<10 {
		t.Errorf("%d bytes were allocated during the flood", grown)
	}
	for i := range 100 {
		if got := take(t, l, 0, number(-1-i), 1, start.Add(time.Second)); !got.Over || got.Used != 10 {
			t.Errorf("offender %d after the flood: %+v", i, got)
		}
	}
	stats := l.Stats(start.Add(time.Second))
	if stats.Memory > memory {
		t.Errorf("%d bytes of %d", stats.Memory, memory)
	}
	if want := int64(flood)*slotBytes + memory; stats.Needed < want || stats.Needed > 4*want {
		t.Errorf("needed %d bytes for %d states", stats.Needed, flood)
	}
	check(t, l.table)
}

func TestNearestToFreshGoesFirst(t *testing.T) {
	t.Run("least", func(t *testing.T) {
		l := opened(t, 2*setBytes, perMinute(100)) // one home, and the set after it
		order := rand.Perm(14)
		for _, i := range order {
			take(t, l, 0, number(i), int64(i+1), start)
		}
		for n := range 13 { // each new key has spent more than those that remain
			take(t, l, 0, number(100+n), 50, start)
			for i := range 14 {
				want := int64(i + 1)
				if i <= n {
					want = 0
				}
				if got := used(t, l, 0, number(i), start); got != want {
					t.Fatalf("after newcomer %d, client of %d: %d is counted", n, i+1, got)
				}
			}
		}
		if got := l.Stats(start).Lost; got != 13 {
			t.Errorf("%d are lost", got)
		}
		check(t, l.table)
	})
	t.Run("older", func(t *testing.T) {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.Quiet} {
			limit := perMinute(100)
			limit.Algorithm = algorithm
			l := opened(t, 2*setBytes, limit)
			take(t, l, 0, number(0), 10, start) // counts in full at the end of its window
			for i := 1; i < 14; i++ {
				take(t, l, 0, number(i), 10, start.Add(59*time.Second))
			}
			now := start.Add(59 * time.Second)
			if algorithm == fairshare.Window { // 10 of the last window against 10 of this
				now = start.Add(time.Minute)
				for i := 1; i < 14; i++ {
					take(t, l, 0, number(i), 1, now)
				}
			}
			take(t, l, 0, number(100), 90, now)
			for i := range 14 {
				if got := used(t, l, 0, number(i), now); (got == 0) != (i == 0) {
					t.Errorf("%v: client %d: %d is counted", algorithm, i, got)
				}
			}
		}
	})
	t.Run("other limits", func(t *testing.T) {
		daily, wide := perMinute(1000), perMinute(1<<40)
		daily.Name, daily.Window = "daily", 24*time.Hour
		wide.Name, wide.Resource = "wide", fairshare.Bytes
		short := perMinute(10)
		short.Window, short.Algorithm = 10*time.Second, fairshare.GCRA
		l := opened(t, 2*setBytes, daily, short, wide)
		take(t, l, 1, []byte("offender"), 10, start)
		for i := range 5000 {
			take(t, l, 0, number(i), 1, start)
			if i%3 == 0 {
				if err := l.Settle(ctx, start, []fairshare.Charge{{Limit: 2, Key: number(i),
					Cost: 1 << 30}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := take(t, l, 1, []byte("offender"), 1, start); !got.Over {
			t.Error("one request a day pushed out who was over a limit of ten seconds")
		}
		check(t, l.table)
	})
}

func TestFreshStatesAreNoLoss(t *testing.T) {
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		limit := perMinute(10)
		limit.Algorithm = algorithm
		l := opened(t, 2*setBytes, limit)
		for round := range 20 {
			now := start.Add(time.Duration(round) * 2 * time.Minute)
			for i := range 14 {
				take(t, l, 0, number(100*round+i), 10, now)
			}
			for i := range 14 {
				if got := take(t, l, 0, number(100*round+i), 1, now); !got.Over {
					t.Fatalf("%v, round %d: client %d: %+v", algorithm, round, i, got)
				}
			}
		}
		if got := l.Stats(start).Lost; got != 0 {
			t.Errorf("%v: %d are lost", algorithm, got)
		}
		check(t, l.table)
	}
}

// At 32 bytes a client less than one in a hundred is lost, and what is left
// is exact.
func TestLossAtLoad(t *testing.T) {
	const states = 100_000
	l := opened(t, 32*states, perMinute(100))
	for i := range states {
		take(t, l, 0, number(i), int64(1+i%5), start)
		take(t, l, 0, number(i/2), 1, start)
	}
	wrong := int64(0)
	for i := range states {
		want := int64(1 + i%5)
		if i < states/2 {
			want += 2
		}
		if got := used(t, l, 0, number(i), start); got != want {
			wrong++
		}
	}
	stats := l.Stats(start)
	t.Logf("%d of %d states are lost, %d counts differ, about %d live", stats.Lost, states, wrong, stats.Live)
	if stats.Lost > states/100 || wrong > 2*stats.Lost {
		t.Errorf("%d of %d states are lost, %d counts differ", stats.Lost, states, wrong)
	}
	if stats.Live < states*9/10 || stats.Live > states*11/10 {
		t.Errorf("%d states are live, estimated %d", states, stats.Live)
	}
	check(t, l.table)
}

// A look-up compares up to 14 tags of 36 bits, which are independent of the
// set: that is below 2^-32.
func TestTagsAreIndependentOfSets(t *testing.T) {
	l := opened(t, 1<<20, perMinute(1))
	const keys, bits = 1 << 18, 12 // of the tag, so that there is something to count
	type homeAndTag struct {
		home int
		tag  uint64
	}
	seen := map[homeAndTag]int{}
	pairs := 0
	for i := range keys {
		var key keyHashes
		hash := key.of(l, number(i)).first ^ l.limits[0].salt
		for _, tag := range []uint64{tagOf(hash) >> (64 - bits), 1<<bits + tagOf(hash)>>lowBits&(1<<bits-1)} {
			p := homeAndTag{l.table.home(hash), tag}
			pairs += seen[p]
			seen[p]++
		}
	}
	// Of n keys with both ends of the tag: 2·n²/2 pairs, each the same with chance 1/(sets·2^bits).
	want := float64(keys) * keys / float64(len(l.table.sets)-1) / (1 << bits)
	if float64(pairs) > want*1.2 || float64(pairs) < want*0.8 {
		t.Errorf("%d pairs share a set and part of the tag, by chance it would be %.0f", pairs, want)
	}
	if tagBits < 36 || 2*setSlots > 16 {
		t.Errorf("%d places with tags of %d bits", 2*setSlots, tagBits)
	}
}

// Window numbers of every layout last ten years.
func TestWindowNumbersLast(t *testing.T) {
	for _, resource := range []fairshare.Resource{fairshare.Requests, fairshare.Bytes} {
		for w := fairshare.MinWindow; w <= fairshare.MaxWindow; w = w*21/20 + 1 {
			l := opened(t, 2*setBytes, fairshare.Limit{Resource: resource, N: 10, Window: w})
			if resource == fairshare.Bytes {
				if err := l.Settle(ctx, start, []fairshare.Charge{{Key: []byte("k"), Cost: 10}}); err != nil {
					t.Fatal(err)
				}
			} else {
				take(t, l, 0, []byte("k"), 10, start)
			}
			if got := take(t, l, 0, []byte("k"), 1, start); !got.Over {
				t.Fatalf("%v per %v: %+v", resource, w, got)
			}
			for _, later := range []time.Duration{2 * w, 365 * 24 * time.Hour, 5 * 365 * 24 * time.Hour,
				3652 * 24 * time.Hour} {
				if later = max(later, 2*w); take(t, l, 0, []byte("k"), 1, start.Add(later.Truncate(w))).Over {
					t.Errorf("%v per %v: over again after %v", resource, w, later)
				}
				if resource == fairshare.Requests {
					l = opened(t, 2*setBytes, fairshare.Limit{Resource: resource, N: 10, Window: w})
					take(t, l, 0, []byte("k"), 10, start)
				}
			}
		}
	}
}

// Many goroutines in two sets: no goroutine waits permanently, and the sets stay consistent.
func TestCrowdInOneSet(t *testing.T) {
	limits := []fairshare.Limit{
		perMinute(5),
		{Name: "gcra", Resource: fairshare.Requests, N: 7, Window: time.Second, Algorithm: fairshare.GCRA},
		{Name: "quiet", Resource: fairshare.Requests, N: 50, Window: time.Millisecond, Algorithm: fairshare.Quiet},
		{Name: "wide", Resource: fairshare.Bytes, N: 1 << 42, Window: time.Second},
		{Name: "narrow", Resource: fairshare.Bytes, N: 1 << 20, Window: time.Minute},
		{Name: "slots", Resource: fairshare.Concurrent, N: 50},
		{Name: "tiny", Resource: fairshare.Requests, N: 2, Window: time.Millisecond},
		{Name: "dry", Resource: fairshare.Requests, N: 2, Window: time.Second, DryRun: true},
	}
	for _, sets := range []int64{2, 3, 9} {
		l := opened(t, sets*setBytes, limits...)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 7))
				takes, tallies := make([]fairshare.Take, 0, 8), make([]fairshare.Tally, 8)
				for n := range 3000 {
					now := start.Add(time.Duration(n)*100*time.Microsecond + time.Duration(r.IntN(1000)))
					takes = takes[:0]
					for _, i := range r.Perm(len(limits))[:1+r.IntN(len(limits))] {
						takes = append(takes, fairshare.Take{Limit: i, Key: number(r.IntN(30)), Cost: 1,
							DryRun: limits[i].DryRun})
					}
					if err := l.Take(ctx, now, takes, tallies[:len(takes)]); err != nil {
						t.Error(err)
					}
					charges := make([]fairshare.Charge, 0, 8)
					for _, take := range takes {
						cost := int64(1 - 2*r.IntN(2))
						if limits[take.Limit].Resource == fairshare.Concurrent {
							cost = -1
						}
						charges = append(charges, fairshare.Charge{Limit: take.Limit, Key: take.Key, Cost: cost,
							At: now, Held: r.Int64N(1 << 30)})
					}
					if err := l.Settle(ctx, now, charges); err != nil {
						t.Error(err)
					}
					if n%500 == 0 {
						l.Stats(now)
						if _, err := l.With(limits[:1+g]); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		check(t, l.table)
	}
}

func TestNoAllocation(t *testing.T) {
	limits := []fairshare.Limit{{Name: "slots", Resource: fairshare.Concurrent, N: 50}}
	for i := range 9 {
		l := perMinute(1000)
		l.Name = fmt.Sprint(i)
		l.Algorithm = fairshare.Algorithm(i % 3)
		limits = append(limits, l)
	}
	l := opened(t, 1<<20, limits...)
	tallies := make([]fairshare.Tally, len(limits))
	for _, n := range []int{1, 2, len(limits)} {
		var takes []fairshare.Take
		for i := range n {
			takes = append(takes, fairshare.Take{Limit: len(limits) - 1 - i, Key: []byte("198.51.100.7"), Cost: 1})
		}
		back := []fairshare.Charge{{Key: []byte("198.51.100.7"), Cost: -1}}
		if got := testing.AllocsPerRun(500, func() {
			if err := l.Take(ctx, start, takes, tallies[:n]); err != nil {
				t.Fatal(err)
			}
			if err := l.Settle(ctx, start, back); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%d takes: %v allocations", n, got)
		}
	}
}
