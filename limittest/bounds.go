package limittest

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// runNoDrift takes from a gcra limit at exactly its rate for a long time. Its
// interval is not a whole number of nanoseconds.
func runNoDrift(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	checkNoDrift(t, open, 5000)
}

// checkNoDrift takes so many times.
func checkNoDrift(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter, times int64) {
	for _, n := range []int64{7, 999_983} {
		seat := seat{t, open(t, []fairshare.Limit{{Resource: fairshare.Requests, N: n, Window: 1 * s,
			Algorithm: fairshare.GCRA, Burst: 2}})}
		seat.want(0, 2, pass)
		for k := int64(1); k <= times; k++ { // the k-th interval ends at ⌈k·W/N⌉
			end := time.Duration((k*int64(1*s) + n - 1) / n)
			if got := seat.take(end-1, 1)[0]; !got.Over || got.Wait != 1 {
				t.Fatalf("N %d, a nanosecond before interval %d ends: got %+v", n, k, got)
			}
			if got := seat.take(end, 1)[0]; got.Over {
				t.Fatalf("N %d, interval %d: got %+v", n, k, got)
			}
		}
	}
}

// runNever takes from limits that let nothing pass.
func runNever(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, window := range []time.Duration{fairshare.MinWindow, 1 * s, fairshare.MaxWindow} {
		seat := seat{t, open(t, []fairshare.Limit{
			{Name: "never", Resource: fairshare.Requests, Window: window},
			{Name: "other", Resource: fairshare.Requests, N: 1, Window: window},
		})}
		for i := range 5 {
			at := time.Duration(i) * window / 3
			seat.want(at, 1, fairshare.Tally{Over: true, Wait: window})
			if got := seat.take(at, 1, 1); !got[0].Over || got[1].Over || got[1].Used != 0 {
				t.Errorf("take %d: got %+v; the other limit must pass and count nothing", i, got)
			}
		}
	}
}

// runCap settles far too much of a gcra limit.
func runCap(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, cost := range []int64{100, fairshare.MaxBytes, math.MaxInt64} {
		seat := seat{t, open(t, []fairshare.Limit{{Resource: fairshare.Bytes, N: 10, Window: 10 * s,
			Algorithm: fairshare.GCRA, Burst: 20}})}
		seat.settle(0, cost, 0)
		seat.want(0, 1, over(40, 20*s+1, 40*s)) // twice the burst
		seat.settle(1*s, cost, 0)
		seat.want(1*s, 1, over(40, 20*s+1, 40*s)) // moved on with the time, no further
		seat.want(21*s+1, 1, pass)
	}
}

// runCorners holds limits at their bounds against a Model.
func runCorners(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	ctx := context.Background()
	for _, resource := range []fairshare.Resource{fairshare.Requests, fairshare.Bytes, fairshare.Errors,
		fairshare.CPU, fairshare.Time, fairshare.Cost} {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			for _, window := range []time.Duration{fairshare.MinWindow, 6 * ms, 7 * ms, fairshare.MaxWindow - 1,
				fairshare.MaxWindow} {
				most := most(resource)
				for _, n := range []int64{1, 2, most - 1, most} {
					limits := []fairshare.Limit{{Resource: resource, N: n, Window: window, Algorithm: algorithm}}
					name := fmt.Sprintf("%v %v %v %d", resource, algorithm, window, n)
					model, subject := NewModel(limits), open(t, limits)
					at := start
					for i, cost := range []int64{n, 1, n, n/2 + 1, n, 1, n - n/2, n, n} {
						at = at.Add(time.Duration(i) * window / 7)
						got, want := make([]fairshare.Tally, 1), make([]fairshare.Tally, 1)
						takes := []fairshare.Take{{Key: []byte("k"), Cost: cost}}
						if err := subject.Take(ctx, at, takes, got); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						model.take(at, takes, want, true)
						if got[0] != want[0] {
							t.Errorf("%s, take %d of %d: got %+v, want %+v", name, i, cost, got[0], want[0])
						}
						if resource.Settled() {
							charges := []fairshare.Charge{{Key: []byte("k"), Cost: cost/4 + 1}}
							if err := subject.Settle(ctx, at, charges); err != nil {
								t.Fatalf("%s: %v", name, err)
							}
							_ = model.Settle(ctx, at, charges)
						}
					}
					// A charge saturates and never wraps.
					for range 3 {
						charges := []fairshare.Charge{{Key: []byte("k"), Cost: math.MaxInt64}}
						if err := subject.Settle(ctx, at, charges); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
						if got := (seat{t, subject}).take(at.Sub(start), 1)[0]; !got.Over || got.Used < n ||
							got.Wait <= 0 || got.Reset < got.Wait {
							t.Errorf("%s: after an endless charge: %+v", name, got)
						}
					}
				}
			}
		}
	}
}

// runOlder asks with times before 1970 and with times that step back.
func runOlder(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	ctx := context.Background()
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		limits := []fairshare.Limit{{Resource: fairshare.Requests, N: 3, Window: 10 * s, Algorithm: algorithm}}
		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 1), time.Unix(-5e9, 0), time.Unix(9e9, 0),
			time.Unix(1<<40, 0)} {
			limiter := open(t, limits)
			passed := 0
			for i := range 20 { // to and fro within a window and a bit
				tallies := make([]fairshare.Tally, 1)
				now := at.Add(time.Duration(i%5-2) * 2900 * time.Microsecond)
				if err := limiter.Take(ctx, now, []fairshare.Take{{Key: []byte("k"), Cost: 1}}, tallies); err != nil {
					t.Fatal(err)
				}
				if !tallies[0].Over {
					passed++
				}
			}
			if passed > 3 {
				t.Errorf("%v around %v: %d of 3 passed", algorithm, at, passed)
			}
		}
		// An older time counts as the beginning of the state's own window.
		seat := seat{t, open(t, limits)}
		seat.want(20*s, 3, pass)
		if got := seat.take(19*s, 1)[0]; !got.Over {
			t.Errorf("%v: an older time let one more in", algorithm)
		}
	}
}

// runFarAhead takes once a day ahead: afterwards the limit counts as before, and
// is free again after two windows.
func runFarAhead(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		for _, n := range []int64{1, 3} {
			for _, resource := range []fairshare.Resource{fairshare.Requests, fairshare.Errors} {
				if resource == fairshare.Errors && algorithm == fairshare.Quiet {
					continue
				}
				limit := fairshare.Limit{Resource: resource, N: n, Window: 10 * s, Algorithm: algorithm}
				seat := seat{t, open(t, []fairshare.Limit{limit})}
				spend := func(at time.Duration) (passes bool) {
					tally := seat.take(at, 1)[0]
					if resource == fairshare.Errors && !tally.Over {
						seat.settle(at, 1, 0)
					}
					return !tally.Over
				}
				if spend(0); !spend(24 * time.Hour) {
					t.Errorf("%v of %d %v: refused a day later", algorithm, n, resource)
				}
				passed := int64(0)
				for range 10 {
					if spend(1 * s) {
						passed++
					}
				}
				if passed >= n {
					t.Errorf("%v of %d %v: %d passed after a request a day ahead", algorithm, n, resource, passed)
				}
				if !spend(31 * s) {
					t.Errorf("%v of %d %v: refused after three windows", algorithm, n, resource)
				}
			}
		}
	}
}

// runAtOnce asks from several goroutines at one moment: what passes must be
// exactly what is allowed.
func runAtOnce(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	const (
		goroutines = 8
		each       = 400
		keys       = 5
	)
	limits := []fairshare.Limit{
		{Name: "window", Resource: fairshare.Requests, N: 100, Window: time.Hour},
		{Name: "gcra", Resource: fairshare.Requests, N: 120, Window: time.Hour, Algorithm: fairshare.GCRA},
		{Name: "everyone", Resource: fairshare.Requests, N: 450, Window: time.Hour},
		{Name: "slots", Resource: fairshare.Concurrent, N: 3},
		{Name: "bytes", Resource: fairshare.Bytes, N: 1e9, Window: time.Hour},
		{Name: "dry", Resource: fairshare.Requests, N: 60, Window: time.Hour, DryRun: true},
	}
	limiter := open(t, limits)
	ctx := context.Background()
	var passed, dryPassed, inProgress [keys]atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			takes, tallies := make([]fairshare.Take, len(limits)), make([]fairshare.Tally, len(limits))
			for i := range each {
				k := (g + i) % keys
				key := []byte{byte(k)}
				for l := range takes {
					limit := (l + g) % len(limits)
					takes[l] = fairshare.Take{Limit: limit, Key: key, Cost: 1, DryRun: limits[limit].DryRun}
					if takes[l].Limit == 2 {
						takes[l].Key = []byte("everyone")
					}
				}
				// A little apart, to and fro.
				now := start.Add(time.Duration((g*i)%7) * time.Nanosecond)
				if err := limiter.Take(ctx, now, takes, tallies); err != nil {
					t.Error(err)
					return
				}
				refused, dryRefused, held := false, false, int64(0)
				for l, tally := range tallies {
					held += tally.Held // of the bytes
					if tally.Over {
						if takes[l].DryRun {
							dryRefused = true
						} else {
							refused = true
						}
					}
				}
				if refused {
					continue
				}
				if n := inProgress[k].Add(1); n > 3 {
					t.Errorf("%d slots of 3 are taken", n)
				}
				passed[k].Add(1)
				if !dryRefused {
					dryPassed[k].Add(1)
				}
				inProgress[k].Add(-1)
				if err := limiter.Settle(ctx, now, []fairshare.Charge{{Limit: 3, Key: key, Cost: -1},
					{Limit: 4, Key: key, Cost: 10, Held: held, Ends: true, Total: 10}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum := int64(0)
	for k := range keys {
		n := passed[k].Load()
		sum += n
		if n > 100 {
			t.Errorf("key %d: %d of 100 passed", k, n)
		}
		if d := dryPassed[k].Load(); d != min(n, 60) {
			t.Errorf("key %d: %d passed, %d of them the dry limit of 60", k, n, d)
		}
		// What was charged is what passed.
		for l, want := range []int64{n, n, -1, 0, 10 * n, min(n, 60)} {
			if want < 0 {
				continue
			}
			if got := spent(t, limiter, limits, l, []byte{byte(k)}); got != want {
				t.Errorf("key %d, limit %q: %d are spent, %d passed", k, limits[l].Name, got, want)
			}
		}
	}
	if sum != 450 {
		t.Errorf("%d passed, of 450 for everyone", sum)
	}
	if got := spent(t, limiter, limits, 2, []byte("everyone")); got != sum {
		t.Errorf("everyone: %d are spent, %d passed", got, sum)
	}
}

// spent tells how much of a limit is used, by a take that spends what is left.
func spent(t *testing.T, limiter fairshare.Limiter, limits []fairshare.Limit, limit int, key []byte) int64 {
	t.Helper()
	l := limits[limit]
	ctx, tallies := context.Background(), make([]fairshare.Tally, 1)
	now := start.Add(7 * time.Nanosecond) // no earlier than any charge
	if l.Resource.Settled() {             // charge until it is over
		if err := limiter.Settle(ctx, now, []fairshare.Charge{{Limit: limit, Key: key, Cost: l.N}}); err != nil {
			t.Fatal(err)
		}
	}
	for cost := l.N; ; cost = 1 {
		if err := limiter.Take(ctx, now, []fairshare.Take{{Limit: limit, Key: key, Cost: cost}}, tallies); err != nil {
			t.Fatal(err)
		}
		switch used := tallies[0].Used; {
		case !tallies[0].Over && cost == l.N:
			return 0
		case !tallies[0].Over:
			t.Fatalf("limit %q: 1 passes where %d does not, without a tally that says so", l.Name, l.N)
		case l.Resource.Settled():
			return used - l.N
		default:
			return used
		}
	}
}
