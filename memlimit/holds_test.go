package memlimit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

func bytesLimit(n int64) fairshare.Limit {
	return fairshare.Limit{Name: "bytes", Resource: fairshare.Bytes, N: n, Window: time.Minute}
}

func settle(t testing.TB, l *Limiter, at time.Time, charges ...fairshare.Charge) {
	t.Helper()
	if err := l.Settle(ctx, at, charges); err != nil {
		t.Fatal(err)
	}
}

// ends has a request of a key cost that, as one that held nothing.
func ends(t testing.TB, l *Limiter, limit int, key []byte, cost int64, at time.Time) {
	t.Helper()
	settle(t, l, at, fairshare.Charge{Limit: limit, Key: key, Ends: true, Total: cost})
}

// expects tells what the means expect a request of a key to cost.
func expects(t testing.TB, l *Limiter, limit int, key []byte) int64 {
	t.Helper()
	got := take(t, l, limit, key, 1, start)
	if got.Over {
		t.Fatalf("%+v", got)
	}
	settle(t, l, start, fairshare.Charge{Limit: limit, Key: key, Held: got.Held})
	return got.Expected
}

// idle fails if anything is held or taken.
func idle(t *testing.T, l *Limiter) {
	t.Helper()
	for i := range l.slots.shards {
		for k, n := range l.slots.shards[i].taken.all() {
			t.Errorf("shard %d: %d of %+v are still taken", i, n, k)
		}
	}
}

// Expensive pages stay remembered, whatever cheap or less expensive pages are
// asked for; and the memory stays as it is.
func TestFloodForgetsNoExpensivePage(t *testing.T) {
	l := opened(t, 1<<20, bytesLimit(1<<20))
	page := func(i int) fairshare.Page {
		n := number(i)
		return fairshare.Page{Path: l.table.secret.hash(n), Folder: l.table.secret.hash(n[:7])}
	}
	asks := func(i int) (expected int64) {
		tallies := make([]fairshare.Tally, 1)
		take := fairshare.Take{Key: []byte("new"), Cost: 1, Page: page(i)}
		if err := l.Take(ctx, start, []fairshare.Take{take}, tallies); err != nil || tallies[0].Over {
			t.Fatal(tallies, err)
		}
		settle(t, l, start, fairshare.Charge{Key: take.Key, Held: tallies[0].Held})
		return tallies[0].Expected
	}
	const expensive = 100
	for i := range expensive {
		settle(t, l, start, fairshare.Charge{Key: number(i), Ends: true, Total: 1 << 18, Page: page(-1 - i)})
	}
	flood := 100_000
	if raceEnabled || testing.Short() {
		flood = 20_000
	}
	var before, after runtime.MemStats
	for i := range flood {
		if i == flood/2 {
			runtime.ReadMemStats(&before)
		}
		at := start.Add(time.Duration(i) * time.Microsecond)
		for _, cost := range []int64{1000, 1 << 17} {
			settle(t, l, at, fairshare.Charge{Key: number(i), Ends: true, Total: cost, Page: page(i + int(cost)<<20)})
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc) - int64(before.TotalAlloc); grown > 128*int64(flood) { // the keys
		t.Errorf("%d bytes were allocated", grown)
	}
	for i := range expensive {
		if got := asks(-1 - i); got != 1<<18 {
			t.Errorf("page %d after the flood: %d are expected", i, got)
		}
	}
}

// Cheap requests of very many keys do not displace expensive ones, and take no
// additional memory. Expensive ones that were not seen for long are displaced.
func TestFloodForgetsNoDearMean(t *testing.T) {
	l := opened(t, 8<<20, bytesLimit(1<<20), fairshare.Limit{Name: "cost", Resource: fairshare.Cost, N: 400,
		Window: time.Minute})
	const offenders = 100
	for i := range offenders {
		ends(t, l, 0, number(-1-i), 1<<18, start)
		ends(t, l, 1, number(-1-i), 100, start) // is less, and as much of what is allowed
	}
	flood := 200_000
	if raceEnabled || testing.Short() {
		flood = 30_000
	}
	var before, after runtime.MemStats
	for i := range flood {
		if i == flood/2 {
			runtime.ReadMemStats(&before)
		}
		at := start.Add(time.Duration(i) * time.Microsecond)
		ends(t, l, 0, number(i), 1000+int64(i%1000), at)
		ends(t, l, 1, number(i), 1, at)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc) - int64(before.TotalAlloc); grown > 128*int64(flood) { // the keys
		t.Errorf("%d bytes were allocated", grown)
	}
	n := 0
	for i := range l.slots.shards {
		n += len(l.slots.shards[i].means)
	}
	if n != 1<<13 {
		t.Errorf("%d means are remembered", n)
	}
	for i := range offenders {
		if got := expects(t, l, 0, number(-1-i)); got != 1<<18 {
			t.Errorf("offender %d after the flood: %d", i, got)
		}
		if got := expects(t, l, 1, number(-1-i)); got != 100 {
			t.Errorf("offender %d after the flood: cost %d", i, got)
		}
	}
	// A new key whose requests are expensive is remembered, whatever is expected of others.
	newcomer := []byte("newcomer")
	ends(t, l, 0, newcomer, 1<<17, start.Add(time.Second))
	if got := expects(t, l, 0, newcomer); got != 1<<17 {
		t.Errorf("newcomer: %d", got)
	}
	later := start.Add(90 * 24 * time.Hour)
	for i := range flood {
		ends(t, l, 0, number(i), 1000, later)
	}
	forgotten := 0
	for i := range offenders {
		if got := expects(t, l, 0, number(-1-i)); got == 0 {
			forgotten++
		}
	}
	if forgotten < offenders*9/10 {
		t.Errorf("of %d who were not seen for months %d are forgotten", offenders, forgotten)
	}
}

func TestMeansFor(t *testing.T) {
	for memory, want := range map[int64]int{1: 8, 1 << 20: 16, 5 << 20: 80, 64 << 20: 1024, 1 << 40: 1024} {
		if got := meansFor(memory); got != want {
			t.Errorf("%d bytes: %d means a shard, want %d", memory, got, want)
		}
	}
}

// Requests in progress settle through the limiter that took them, whatever
// becomes of the policy meanwhile.
func TestWithKeepsWhatIsHeld(t *testing.T) {
	k := []byte("k")
	before := opened(t, 1<<20, bytesLimit(1000))
	ends(t, before, 0, k, 400, start)
	var held [3]int64
	for i := range held {
		held[i] = take(t, before, 0, k, 1, start).Held
	}
	if held != [3]int64{400, 400, 400} {
		t.Fatal(held)
	}
	with := func(l *Limiter, limits ...fairshare.Limit) *Limiter {
		t.Helper()
		next, err := l.With(limits)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	gone := with(before)                                 // without that limit
	back := with(gone, perMinute(5), bytesLimit(300))    // and again
	large := with(back, bytesLimit(1<<40), perMinute(5)) // its counters need more room: it starts from zero
	if got := take(t, back, 1, k, 1, start); !got.Over || got.Wait != 0 || got.Used != 1200 {
		t.Errorf("three are in progress: %+v", got)
	}
	restarted := take(t, large, 0, k, 1, start)
	if restarted.Over || restarted.Expected != 400 {
		t.Errorf("no request is in progress under the new counters, but the mean cost is known: %+v", restarted)
	}
	settle(t, before, start,
		fairshare.Charge{Key: k, Held: held[0], Cost: 200, Ends: true, Total: 200},
		fairshare.Charge{Key: k, Held: held[1], Ends: true})
	if got := take(t, back, 1, k, 1, start); !got.Over || got.Wait != 0 || got.Used != 600 {
		t.Errorf("one of 400 is in progress, 200 are spent: %+v", got)
	}
	settle(t, before, start, fairshare.Charge{Key: k, Held: held[2], Cost: 50, Ends: true, Total: 329})
	if got := take(t, back, 1, k, 1, start); got.Over || got.Held != 300 { // 328.3
		t.Errorf("the mean goes on, and is at most what is allowed now: %+v", got)
	}
	settle(t, back, start, fairshare.Charge{Limit: 1, Key: k, Held: 300})
	settle(t, large, start, fairshare.Charge{Key: k, Held: restarted.Held})
	idle(t, large)
}

func TestResetForgetsWhatIsHeld(t *testing.T) {
	l := opened(t, 1<<20, bytesLimit(6400))
	k := []byte("k")
	for range 2 {
		if got := take(t, l, 0, k, 1, start); got.Held != 1600 {
			t.Errorf("at first: %+v", got)
		}
		ends(t, l, 0, k, 5000, start)
		take(t, l, 0, k, 1, start)
		if got := l.Stats(start).InProgress; got != 0 {
			t.Errorf("%d slots of concurrent limits are taken; there is none", got)
		}
		l.Reset()
		idle(t, l)
	}
}

// Nobody is in progress after a restart.
func TestSnapshotLeavesOutWhatIsHeld(t *testing.T) {
	limits := []fairshare.Limit{bytesLimit(1000), {Name: "cpu", Resource: fairshare.CPU, N: 1000, Window: time.Minute,
		Algorithm: fairshare.GCRA}}
	l := opened(t, 1<<20, limits...)
	k := []byte("k")
	for i := range limits {
		ends(t, l, i, k, 500, start)
		settle(t, l, start, fairshare.Charge{Limit: i, Key: k, Cost: 999})
		if got := take(t, l, i, k, 1, start); got.Over || got.Held != 500 {
			t.Fatalf("%+v", got)
		}
	}
	again := opened(t, 1<<20, limits...)
	if loaded, err := again.Load(bytes.NewReader(snapshotOf(t, l, start)), start); err != nil || loaded.States != 2 {
		t.Fatalf("%+v, %v", loaded, err)
	}
	for i := range limits {
		if got := take(t, l, i, k, 1, start); !got.Over || got.Wait != 0 {
			t.Errorf("before: %+v", got)
		}
		if got := take(t, again, i, k, 1, start); got.Over || got.Held != 250 { // as of a new key
			t.Errorf("after: %+v", got)
		}
		settle(t, again, start, fairshare.Charge{Limit: i, Key: k, Cost: 1})
		if got := take(t, again, i, k, 1, start); !got.Over || got.Wait == 0 {
			t.Errorf("after one more: %+v", got)
		}
	}
}

// A limit of CPU time, time or cost takes 16 bytes a client unless it is huge.
func TestStatesAreSmall(t *testing.T) {
	const percent = 10_000 // µs a second of one core
	for _, c := range []struct {
		resource fairshare.Resource
		n        int64
		window   time.Duration
		slots    int
	}{
		{fairshare.CPU, 7 * percent * 4 * 15, 15 * time.Second, 1},
		{fairshare.CPU, 100 * percent * 128 * 15, 15 * time.Second, 1},
		{fairshare.CPU, 100 * percent * 64 * 60, time.Minute, 1},
		{fairshare.Time, 100 * percent * 3600, time.Hour, 1},
		{fairshare.Time, 30e6, 24 * time.Hour, 1},
		{fairshare.Cost, 1e6, time.Minute, 1},
		{fairshare.Cost, 1e6, time.Second, 2},
		{fairshare.CPU, fairshare.MaxMicros, fairshare.MaxWindow, 2},
		{fairshare.Cost, fairshare.MaxBytes, time.Hour, 2},
	} {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			l, err := newLimit(&fairshare.Limit{Resource: c.resource, N: c.n, Window: c.window, Algorithm: algorithm})
			if err != nil {
				t.Fatal(err)
			}
			if l.wide && c.slots == 1 {
				t.Errorf("%v of %d in %v, %v: 32 bytes", c.resource, c.n, c.window, algorithm)
			}
			if algorithm == fairshare.Window && !l.wide && c.slots == 2 {
				t.Errorf("%v of %d in %v: 16 bytes", c.resource, c.n, c.window)
			}
			if algorithm == fairshare.Window && l.most < 2*l.allowed {
				t.Errorf("%v of %d in %v: counts go to %d", c.resource, c.n, c.window, l.most)
			}
		}
	}
}

// Requests of many keys that begin and end allocate nothing, however many are
// in progress.
func TestHoldingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var limits []fairshare.Limit
	for i, r := range []fairshare.Resource{fairshare.CPU, fairshare.Time, fairshare.Bytes, fairshare.Errors,
		fairshare.Cost, fairshare.Concurrent} {
		limits = append(limits, fairshare.Limit{Name: fmt.Sprint(i), Resource: r, N: 1 << 20, Window: time.Minute})
		if r == fairshare.Concurrent {
			limits[i].Window = 0
		}
	}
	l := opened(t, 1<<20, limits...)
	const inProgress = 500
	takes, tallies := make([]fairshare.Take, len(limits)), make([]fairshare.Tally, len(limits))
	var open [inProgress][]fairshare.Charge
	var keys [inProgress][8]byte
	n := 0
	request := func() {
		n++
		charges, key := open[n%inProgress], keys[n%inProgress][:]
		if charges != nil {
			settle(t, l, start, charges...)
		}
		key[0], key[1], key[2] = byte(n), byte(n>>8), byte(n>>16)
		for i := range takes {
			takes[i] = fairshare.Take{Limit: i, Key: key, Cost: 1}
		}
		if err := l.Take(ctx, start, takes, tallies); err != nil {
			t.Fatal(err)
		}
		charges = charges[:0]
		for i := range takes {
			if tallies[i].Over {
				t.Fatalf("%+v", tallies)
			}
			c := fairshare.Charge{Limit: i, Key: key, Cost: 1, Held: tallies[i].Held, Ends: true, Total: 1}
			if limits[i].Resource == fairshare.Concurrent {
				c = fairshare.Charge{Limit: i, Key: key, Cost: -1}
			}
			charges = append(charges, c)
		}
		open[n%inProgress] = charges
	}
	for range 40 * inProgress {
		request()
	}
	if got := testing.AllocsPerRun(20*inProgress, request); got != 0 {
		t.Errorf("%v allocations a request", got)
	}
	for i := range open {
		settle(t, l, start, open[i]...)
	}
	idle(t, l)
}

// Requests of several goroutines in a few sets, through policies that change:
// all is given back, and the sets stay whole.
func TestCrowdHolds(t *testing.T) {
	limits := []fairshare.Limit{
		perMinute(2000),
		{Name: "cpu", Resource: fairshare.CPU, N: 400, Window: time.Second},
		{Name: "time", Resource: fairshare.Time, N: 1 << 45, Window: time.Second},
		{Name: "cost", Resource: fairshare.Cost, N: 50, Window: time.Millisecond, Algorithm: fairshare.GCRA},
		{Name: "errors", Resource: fairshare.Errors, N: 9, Window: 10 * time.Millisecond},
		{Name: "bytes", Resource: fairshare.Bytes, N: 1 << 20, Window: time.Minute, DryRun: true},
		{Name: "slots", Resource: fairshare.Concurrent, N: 50},
		{Name: "dry", Resource: fairshare.CPU, N: 20, Window: time.Second, DryRun: true},
	}
	for _, sets := range []int64{2, 9} {
		l := opened(t, sets*setBytes, limits...)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 11))
				takes, tallies := make([]fairshare.Take, 0, 8), make([]fairshare.Tally, 8)
				type progress struct {
					through *Limiter
					charges []fairshare.Charge
				}
				var open []progress
				for n := range 2000 {
					now := start.Add(time.Duration(n)*100*time.Microsecond + time.Duration(r.IntN(1000)))
					through, err := l, error(nil)
					if n%10 == 0 {
						if through, err = l.With(limits); err != nil {
							t.Error(err)
						}
					}
					takes = takes[:0]
					for _, i := range r.Perm(len(limits))[:1+r.IntN(len(limits))] {
						takes = append(takes, fairshare.Take{Limit: i, Key: number(r.IntN(30)), Cost: 1,
							DryRun: limits[i].DryRun})
					}
					if err := through.Take(ctx, now, takes, tallies[:len(takes)]); err != nil {
						t.Error(err)
					}
					var pass [2]bool
					for want := range pass {
						pass[want] = true
						for i, take := range takes {
							if !take.DryRun || want == 1 {
								pass[want] = pass[want] && !tallies[i].Over
							}
						}
					}
					p := progress{through: through}
					for i, take := range takes {
						if resource := limits[take.Limit].Resource; resource == fairshare.Concurrent && pass[0] {
							p.charges = append(p.charges, fairshare.Charge{Limit: take.Limit, Key: take.Key, Cost: -1})
						} else if resource.Held() {
							cost, held := r.Int64N(1+limits[take.Limit].N/20), tallies[i].Held
							if !pass[0] || take.DryRun && !pass[1] {
								held = 0 // that is what others hold
							}
							p.charges = append(p.charges, fairshare.Charge{Limit: take.Limit, Key: take.Key,
								Cost: cost, Held: held, Ends: pass[0], Total: cost})
						}
					}
					if open = append(open, p); len(open) > 20 || n == 1999 {
						for len(open) > r.IntN(20) || n == 1999 && len(open) > 0 {
							i := r.IntN(len(open))
							if err := open[i].through.Settle(ctx, now, open[i].charges); err != nil {
								t.Error(err)
							}
							open[i] = open[len(open)-1]
							open = open[:len(open)-1]
						}
					}
				}
			})
		}
		wg.Wait()
		check(t, l.table)
		idle(t, l)
	}
}

// Requests learn the costs of pages while the policy is replaced again and again by one with a new limit.
func TestPagesAreLearntDuringReloads(t *testing.T) {
	var now atomic.Pointer[Limiter]
	now.Store(opened(t, 1<<20, bytesLimit(1000)))
	var requests sync.WaitGroup
	var done atomic.Bool
	for i := range 4 {
		requests.Go(func() {
			for page := uint64(i + 1); !done.Load(); page += 4 {
				settle(t, now.Load(), start, fairshare.Charge{Key: number(i), Ends: true, Total: 900 + int64(page%100),
					Page: fairshare.Page{Path: page * 0x9E3779B97F4A7C15}})
			}
		})
	}
	for i := range maxLimits - 1 {
		limit := bytesLimit(1000)
		limit.Name = fmt.Sprint("bytes ", i)
		next, err := now.Load().With([]fairshare.Limit{limit})
		if err != nil {
			t.Fatal(err)
		}
		now.Store(next)
		if i%64 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	done.Store(true)
	requests.Wait()
}
