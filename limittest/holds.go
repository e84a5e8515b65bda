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

// held lists all resources of which requests in progress hold something.
var held = []fairshare.Resource{fairshare.Bytes, fairshare.Errors, fairshare.CPU, fairshare.Time, fairshare.Cost}

// begin takes one of each limit for a key, and gives nothing back.
func (s seat) begin(at time.Duration, key string, limits ...int) []fairshare.Tally {
	s.Helper()
	takes := make([]fairshare.Take, len(limits))
	for i, l := range limits {
		takes[i] = fairshare.Take{Limit: l, Key: []byte(key), Cost: 1}
	}
	tallies := make([]fairshare.Tally, len(takes))
	for i := range tallies {
		tallies[i] = fairshare.Tally{Over: true, Held: -1} // must be overwritten
	}
	if err := s.limiter.Take(context.Background(), start.Add(at), takes, tallies); err != nil {
		s.Fatalf("Take at %v: %v", at, err)
	}
	return tallies
}

// teach has requests of a key cost that of a limit, and leaves nothing spent.
func (s seat) teach(limit int, l *fairshare.Limit, key string, costs ...int64) {
	s.Helper()
	for _, cost := range costs {
		s.charge(0, fairshare.Charge{Limit: limit, Key: []byte(key), Ends: true, Total: cost})
	}
	if got := s.begin(0, key, limit)[0]; got.Over {
		s.Fatalf("%v: who cost %d lately holds nothing, and is over: %+v", l.Resource, costs, got)
	} else {
		s.charge(0, fairshare.Charge{Limit: limit, Key: []byte(key), Held: got.Held})
	}
}

// eachHeld runs a test for each resource and algorithm that holds.
func eachHeld(t *testing.T, n int64, open func(testing.TB, []fairshare.Limit) fairshare.Limiter, test func(*testing.T, seat, *fairshare.Limit)) {
	for _, resource := range held {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			l := fairshare.Limit{Resource: resource, N: n, Window: 10 * s, Algorithm: algorithm}
			t.Run(fmt.Sprint(resource, " ", algorithm), func(t *testing.T) {
				test(t, seat{t, open(t, []fairshare.Limit{l})}, &l)
			})
		}
	}
}

// runExpected checks what is held for a request: what those before it cost.
func runExpected(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	eachHeld(t, 1000, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
		want := func(key string, least, most int64) {
			t.Helper()
			got := seat.begin(0, key, 0)[0]
			if got.Over || got.Used != 0 || got.Wait != 0 || got.Reset != 0 || got.Held < least*unit(l) || got.Held > most*unit(l) {
				t.Errorf("key %q: got %+v, want %d to %d units of 1/%d held", key, got, least, most, unit(l))
			}
			seat.charge(0, fairshare.Charge{Key: []byte(key), Held: got.Held})
		}
		want("k", 0, 1000) // nobody knows
		for range 40 {
			seat.teach(0, l, "k", 70)
		}
		want("k", 70, 70)
		want("new", 70, 70) // the limit's own
		for range 100 {
			seat.teach(0, l, "dear", 300)
		}
		want("dear", 300, 300)
		want("k", 70, 70)
		want("new", 70, 300)
		seat.teach(0, l, "k", 0)
		want("k", 1, 69)
		for range 200 {
			seat.teach(0, l, "k", 0)
		}
		want("k", 0, 0)
		want("dear", 300, 300)
		for range 50 {
			seat.teach(0, l, "k", math.MaxInt64)
		}
		want("k", 1000, 1000) // at most what is allowed
		for range 400 {
			seat.teach(0, l, "k", -5, math.MinInt64) // counts as nothing
		}
		want("k", 0, 0)
	})
	t.Run("burst", func(t *testing.T) {
		l := fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: 10 * s, Algorithm: fairshare.GCRA, Burst: 50}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		seat.charge(0, fairshare.Charge{Key: []byte("k"), Ends: true, Total: 900})
		if got := seat.begin(0, "k", 0)[0]; got.Held != 50 {
			t.Errorf("of a burst of 50: %+v", got)
		}
	})
	t.Run("not held", func(t *testing.T) {
		seat := seat{t, open(t, []fairshare.Limit{
			{Name: "requests", Resource: fairshare.Requests, N: 1000, Window: 10 * s},
			{Name: "slots", Resource: fairshare.Concurrent, N: 1000},
			{Name: "refusals", Resource: fairshare.Refusals, N: 1000, Window: 10 * s},
		})}
		for range 3 {
			for i, got := range seat.begin(0, "k", 0, 1, 2) {
				if got != pass {
					t.Errorf("limit %d: %+v", i, got)
				}
			}
		}
	})
	t.Run("less than one", func(t *testing.T) { // one error in ten requests
		l := fairshare.Limit{Resource: fairshare.Errors, N: 10, Window: 10 * s}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		for range 20 {
			seat.teach(0, &l, "k", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		}
		n, sum := 0, int64(0)
		for {
			got := seat.begin(0, "k", 0)[0]
			if got.Over {
				if got.Used != 10 || got.Wait != 0 {
					t.Errorf("got %+v, want 10 used and no wait", got)
				}
				break
			}
			if n++; got.Held < 1 || got.Held > 255 || n > 2560 {
				t.Fatalf("request %d: %+v", n, got)
			}
			if sum += got.Held; sum-got.Held >= 10*256 {
				t.Fatalf("request %d passes when %d/256 are held already", n, sum-got.Held)
			}
		}
		if sum < 10*256 {
			t.Errorf("request %d is refused when only %d/256 are held", n+1, sum)
		}
	})
}

// runFiveHundred asks for five hundred dear pages before the first is done.
func runFiveHundred(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, c := range []struct {
		asked         int
		n, cost, pass int64
	}{
		{500, 1000, 100, 10},
		{20, 1000, 99, 11},
		{60, 1000, 1, 60}, // 1000 would
		{5, 1000, 3000, 1},
		{10, 7, 2, 4},
		{5, 1, 1, 1},
	} {
		t.Run(fmt.Sprintf("%d of %d each", c.n, c.cost), func(t *testing.T) {
			eachHeld(t, c.n, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
				seat.teach(0, l, "k", c.cost)
				var inProgress []int64
				each, full := min(c.cost, c.n), c.pass < int64(c.asked)
				for i := range c.asked {
					got := seat.begin(0, "k", 0)[0]
					if int64(i) < c.pass {
						if want := (fairshare.Tally{Held: each * unit(l)}); got != want {
							t.Fatalf("request %d: got %+v, want %+v", i, got, want)
						}
						inProgress = append(inProgress, got.Held)
						continue
					}
					if got.Wait != 0 || !got.Over || got.Used != each*c.pass || got.Held != 0 || got.Reset <= 0 {
						t.Fatalf("request %d: got %+v, want over at %d with no wait", i, got, each*c.pass)
					}
				}
				// Other keys hold nothing, and each that settles makes room for as much.
				if got := seat.begin(0, "other", 0)[0]; got.Over {
					t.Errorf("another key: %+v", got)
				}
				seat.charge(1, fairshare.Charge{Key: []byte("k"), Held: inProgress[0]})
				if got := seat.begin(1, "k", 0)[0]; full && got.Over {
					t.Errorf("one was given back: %+v", got)
				}
				if got := seat.begin(1, "k", 0)[0]; full && !got.Over {
					t.Errorf("one was given back, and two pass")
				}
				// Once they have cost what was expected the state alone is over.
				for range c.pass {
					seat.charge(1, fairshare.Charge{Key: []byte("k"), Cost: each, Held: inProgress[0], Ends: true, Total: each})
				}
				if got := seat.begin(1, "k", 0)[0]; full && (!got.Over || got.Used < c.n || got.Wait <= 0 || got.Reset < got.Wait) {
					t.Errorf("when all are settled: %+v", got)
				}
			})
		})
	}
}

// runHolds checks what is in the way: what is spent, what is held, or both.
func runHolds(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	k := []byte("k")
	t.Run("window", func(t *testing.T) {
		l := fairshare.Limit{Resource: fairshare.Bytes, N: 100, Window: 10 * s}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		want := func(at time.Duration, want fairshare.Tally) {
			t.Helper()
			if got := seat.begin(at, "k", 0)[0]; got != want {
				t.Errorf("at %v: got %+v, want %+v", at, got, want)
			}
		}
		seat.teach(0, &l, "k", 30)
		seat.charge(0, fairshare.Charge{Key: k, Cost: 40})
		want(0, fairshare.Tally{Held: 30})
		want(0, fairshare.Tally{Held: 30})
		want(0, over(100, 0, 20*s))                                             // 40 + 60: nobody knows how long
		want(10*s, over(100, 0, 20*s))                                          // as if spent now: nothing of it is in the last window
		want(15*s, fairshare.Tally{Held: 30})                                   // 20 + 60
		want(15*s, over(110, 0, 15*s))                                          //
		want(1000*time.Hour, fairshare.Tally{Held: 30})                         // time alone gives nothing back
		want(1000*time.Hour, over(120, 0, 20*s))                                //
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Held: 60})         //
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Cost: 99})         //
		want(1000*time.Hour, over(159, 0, 20*s))                                // 99 alone would pass
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Cost: 1})          //
		want(1000*time.Hour, over(160, 10*s+1, 20*s))                           // the wait is that of what is spent alone
		want(1000*time.Hour+10*s+1, over(160, 0, 20*s-1))                       //
		seat.charge(1000*time.Hour+10*s+1, fairshare.Charge{Key: k, Held: 60})  //
		want(1000*time.Hour+10*s+1, fairshare.Tally{Held: 30})                  //
		seat.charge(1000*time.Hour+10*s+1, fairshare.Charge{Key: k, Cost: 200}) //
		want(1000*time.Hour+10*s+1, over(330, 15*s, 20*s-1))
	})
	t.Run("gcra", func(t *testing.T) {
		l := fairshare.Limit{Resource: fairshare.CPU, N: 100, Window: 10 * s, Algorithm: fairshare.GCRA}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		want := func(at time.Duration, want fairshare.Tally) {
			t.Helper()
			if got := seat.begin(at, "k", 0)[0]; got != want {
				t.Errorf("at %v: got %+v, want %+v", at, got, want)
			}
		}
		seat.teach(0, &l, "k", 60)
		want(0, fairshare.Tally{Held: 60})
		want(0, fairshare.Tally{Held: 60})
		want(0, over(120, 0, 12*s))
		want(time.Hour, over(120, 0, 12*s))
		seat.charge(time.Hour, fairshare.Charge{Key: k, Cost: 150})
		want(time.Hour, over(200, 5*s+1, 20*s)) // settling goes to twice the burst, and so does what is held
		want(time.Hour+5*s, over(200, 1, 20*s))
		want(time.Hour+5*s+1, over(200, 0, 20*s)) // 100 − 10⁻⁸ and 120
		seat.charge(time.Hour+5*s+1, fairshare.Charge{Key: k, Held: 60})
		want(time.Hour+5*s+1, over(160, 0, 16*s-1))
		seat.charge(time.Hour+5*s+1, fairshare.Charge{Key: k, Held: 60})
		want(time.Hour+5*s+1, fairshare.Tally{Held: 60})
	})
	t.Run("so far", func(t *testing.T) { // a long answer is charged while it is in progress
		l := fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: 10 * s}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		seat.teach(0, &l, "k", 100)
		first := seat.begin(0, "k", 0)[0].Held
		for _, part := range []struct{ cost, held, used int64 }{
			{30, 30, 1000}, {30, 30, 1000}, {30, 30, 1000}, {30, 10, 1020}, {500, 0, 1520},
		} {
			seat.charge(0, fairshare.Charge{Key: k, Cost: part.cost, Held: part.held})
			first -= part.held
			others := int64(0) // that make it full
			for {
				got := seat.begin(0, "k", 0)[0]
				if got.Over {
					break
				}
				if got.Held != 100 || others > 1000 {
					t.Fatalf("what is charged so far teaches nothing: %+v", got)
				}
				others += got.Held
			}
			seat.charge(0, fairshare.Charge{Key: k, Held: others})
			if got := seat.take(0, 1)[0]; got.Over {
				t.Errorf("after %+v: %+v", part, got)
			}
		}
		if first != 0 {
			t.Fatalf("%d are held", first)
		}
		// 30 + 30 + 30 + 30 + 500 are charged and nothing is held: 380 are left.
		for i := range 4 {
			if got := seat.begin(0, "k", 0)[0]; got.Over {
				t.Errorf("request %d: %+v", i, got)
			}
		}
		if got, want := seat.begin(0, "k", 0)[0], over(1020, 0, 20*s); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		// The end tells what it cost in all.
		seat.charge(0, fairshare.Charge{Key: k, Held: 400})
		seat.charge(0, fairshare.Charge{Key: k, Cost: 1, Ends: true, Total: 621})
		if got := seat.begin(0, "k", 0)[0].Held; got <= 100 || got >= 621 {
			t.Errorf("after 100 and 621 %d are held", got)
		}
	})
	t.Run("lies", func(t *testing.T) {
		eachHeld(t, 100, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
			seat.teach(0, l, "k", 50)
			seat.teach(0, l, "other", 50)
			for _, key := range []string{"k", "other"} {
				for range 2 {
					if got := seat.begin(0, key, 0)[0]; got.Over {
						t.Fatalf("%q: %+v", key, got)
					}
				}
			}
			full := func(key string, want bool) {
				t.Helper()
				got := seat.begin(0, key, 0)[0]
				if got.Over != want {
					t.Errorf("%q: %+v", key, got)
				}
				if !got.Over {
					seat.charge(0, fairshare.Charge{Key: []byte(key), Held: got.Held})
				}
			}
			for _, lie := range []int64{0, -1, math.MinInt64} { // gives nothing back, takes nothing
				seat.charge(0, fairshare.Charge{Key: k, Held: lie})
				full("k", true)
			}
			seat.charge(0, fairshare.Charge{Key: k, Held: -100 * unit(l), Ends: true, Total: 50})
			full("k", true)
			seat.charge(0, fairshare.Charge{Key: k, Held: 50 * unit(l)})
			full("k", false)
			for range 3 { // more than is held: that is all there is
				seat.charge(0, fairshare.Charge{Key: k, Held: math.MaxInt64})
			}
			full("other", true)
			for i, want := range []bool{false, false, true} {
				if got := seat.begin(0, "k", 0)[0]; got.Over != want {
					t.Errorf("request %d after more was given back than was held: %+v", i, got)
				}
			}
			seat.charge(0, fairshare.Charge{Key: []byte("nobody"), Held: 50})
			full("nobody", false)
		})
	})
	t.Run("groups", func(t *testing.T) { // all or none, and the dry ones among themselves
		limits := []fairshare.Limit{
			{Name: "bytes", Resource: fairshare.Bytes, N: 100, Window: 10 * s},
			{Name: "cpu", Resource: fairshare.CPU, N: 1000, Window: 10 * s, Algorithm: fairshare.GCRA},
			{Name: "few", Resource: fairshare.Requests, N: 3, Window: 10 * s},
			{Name: "slots", Resource: fairshare.Concurrent, N: 9},
			{Name: "dry time", Resource: fairshare.Time, N: 100, Window: 10 * s, DryRun: true},
			{Name: "dry cost", Resource: fairshare.Cost, N: 100, Window: 10 * s, DryRun: true},
		}
		seat := seat{t, open(t, limits)}
		seat.teach(0, &limits[0], "k", 25)
		seat.teach(1, &limits[1], "k", 100)
		seat.teach(4, &limits[4], "k", 60)
		seat.teach(5, &limits[5], "k", 10)
		ask := func(want ...fairshare.Tally) {
			t.Helper()
			takes := make([]fairshare.Take, len(limits))
			for i := range takes {
				takes[i] = fairshare.Take{Limit: i, Key: k, Cost: 1, DryRun: limits[i].DryRun}
			}
			got := make([]fairshare.Tally, len(takes))
			if err := seat.limiter.Take(context.Background(), start, takes, got); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s: got %+v, want %+v", limits[i].Name, got[i], want[i])
				}
			}
		}
		holds := func(n int64) fairshare.Tally { return fairshare.Tally{Held: n} }
		spent := func(used int64, reset time.Duration) fairshare.Tally {
			return fairshare.Tally{Used: used, Reset: reset}
		}
		ask(holds(25), holds(100), pass, pass, holds(60), holds(10*256))
		ask(holds(25), holds(100), pass, pass, holds(60), holds(10*256))
		ask(holds(25), holds(100), pass, pass, over(120, 0, 20*s), spent(20, 20*s))
		for range 2 { // nothing is held for who is refused, neither here nor in the dry group
			ask(spent(75, 20*s), spent(300, 3*s), over(3, 13333333334, 20*s), spent(3, 0), pass, pass)
		}
		seat.charge(0, fairshare.Charge{Limit: 2, Key: k, Cost: -2, At: start})
		ask(holds(25), holds(100), pass, pass, over(120, 0, 20*s), spent(20, 20*s))
		for range 2 {
			ask(over(100, 0, 20*s), spent(400, 4*s), spent(2, 20*s), spent(4, 0), pass, pass)
		}
		// Only what passed is there to be given back.
		seat.charge(0,
			fairshare.Charge{Limit: 0, Key: k, Held: 100}, fairshare.Charge{Limit: 1, Key: k, Held: 400},
			fairshare.Charge{Limit: 4, Key: k, Held: 60}, fairshare.Charge{Limit: 5, Key: k, Held: 20 * 256})
		ask(holds(25), holds(100), pass, pass, holds(60), holds(10*256))
	})
}

// runSettledAtOnce checks that nothing is different for who settles each
// request before the next, as a replay does.
func runSettledAtOnce(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	ctx := context.Background()
	for seed := range 40 {
		s := newScript(uint64(seed))
		without, subject := NewModel(s.limits), open(t, s.limits)
		for n := range 120 {
			s.step()
			takes := s.takes()
			got, want := make([]fairshare.Tally, len(takes)), make([]fairshare.Tally, len(takes))
			if err := subject.Take(ctx, s.now, takes, got); err != nil {
				t.Fatal(err)
			}
			without.take(s.now, takes, want, make([]fairshare.Tally, len(takes))) // holds nothing
			var charges, bare []fairshare.Charge
			for i, take := range takes {
				l := &s.limits[take.Limit]
				c := fairshare.Charge{Limit: take.Limit, Key: take.Key, Held: got[i].Held}
				if got[i].Held = 0; got[i] != want[i] {
					t.Errorf("seed %d, step %d: take %d under %+v:\n got  %+v\n want %+v", seed, n, i, *l, got[i], want[i])
				}
				if l.Resource.Held() && !got[i].Over {
					c.Cost, c.Ends = s.cost(l), true
					c.Total = c.Cost
				} else if l.Resource == fairshare.Concurrent {
					c.Cost = -1
				}
				charges = append(charges, c)
				bare = append(bare, fairshare.Charge{Limit: c.Limit, Key: c.Key, Cost: c.Cost})
			}
			if err := subject.Settle(ctx, s.now, charges); err != nil {
				t.Fatal(err)
			}
			_ = without.Settle(ctx, s.now, bare)
			if t.Failed() {
				return
			}
		}
	}
}

// runHeldAtOnce begins and ends requests from several goroutines: never are
// more in progress than fit, exactly as many pass as are allowed, and nothing
// stays held.
func runHeldAtOnce(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	const (
		goroutines = 8
		each       = 300
		keys       = 3
		cost       = 10
	)
	limits := []fairshare.Limit{
		{Name: "few at once", Resource: fairshare.Time, N: 5 * cost, Window: time.Hour}, // nothing is charged
		{Name: "everyone", Resource: fairshare.CPU, N: 7 * cost, Window: time.Hour, Algorithm: fairshare.GCRA},
		{Name: "in all", Resource: fairshare.Cost, N: 100*cost - 1, Window: time.Hour},
		{Name: "dry", Resource: fairshare.Bytes, N: 60 * cost, Window: time.Hour, DryRun: true},
		{Name: "requests", Resource: fairshare.Requests, N: each * goroutines, Window: time.Hour},
	}
	seat := seat{t, open(t, limits)}
	names := []string{"a", "b", "c"}
	for i := range limits[:4] {
		for _, key := range append(names, "everyone") {
			seat.teach(i, &limits[i], key, cost)
		}
	}
	ctx := context.Background()
	keyOf := func(limit int, name string) []byte {
		if limits[limit].Name == "everyone" {
			return []byte("everyone")
		}
		return []byte(name)
	}
	var passed, tried, inProgress [keys]atomic.Int64
	var everyone atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			takes, tallies := make([]fairshare.Take, len(limits)), make([]fairshare.Tally, len(limits))
			var mine [][]fairshare.Charge // in progress
			end := func() {
				charges := mine[0]
				mine = mine[1:]
				everyone.Add(-1)
				inProgress[charges[0].Key[0]-'a'].Add(-1)
				if err := seat.limiter.Settle(ctx, start, charges); err != nil {
					t.Error(err)
				}
			}
			for i := range each {
				k := (g + i) % keys
				for l := range takes {
					limit := (l + g) % len(limits)
					takes[l] = fairshare.Take{Limit: limit, Key: keyOf(limit, names[k]), Cost: 1, DryRun: limits[limit].DryRun}
				}
				if err := seat.limiter.Take(ctx, start, takes, tallies); err != nil {
					t.Error(err)
					return
				}
				charges, refused, dry := make([]fairshare.Charge, 1, len(limits)), false, false
				for l, tally := range tallies {
					limit := &limits[takes[l].Limit]
					if limit.DryRun {
						dry = dry || tally.Over
					} else {
						refused = refused || tally.Over
					}
					if limit.Resource == fairshare.Requests || tally.Over {
						continue
					}
					c := fairshare.Charge{Limit: takes[l].Limit, Key: takes[l].Key, Held: tally.Held, Ends: true, Total: cost}
					if limit.Name == "in all" || limit.Name == "dry" {
						c.Cost = cost
					}
					if c.Limit == 0 {
						charges[0] = c
					} else {
						charges = append(charges, c)
					}
				}
				if refused {
					for len(mine) > 0 {
						end()
					}
					continue
				}
				// What others have ended may not be told yet, so this is never too many.
				if n := inProgress[k].Add(1); n > 5 {
					t.Errorf("%d requests of %q are in progress, of 5", n, names[k])
				}
				if n := everyone.Add(1); n > 7 {
					t.Errorf("%d requests are in progress, of 7", n)
				}
				passed[k].Add(1)
				if !dry {
					tried[k].Add(1)
				}
				if mine = append(mine, charges); len(mine) > 1 {
					end()
				}
			}
			for len(mine) > 0 {
				end()
			}
		})
	}
	wg.Wait()
	for k, name := range names {
		if n := passed[k].Load(); n > 100 {
			t.Errorf("key %q: %d passed, of 100", name, n)
		}
		if n := tried[k].Load(); n > 60 {
			t.Errorf("key %q: %d passed the dry limit, of 60", name, n)
		}
		for l := range limits[:4] {
			// What is spent is what passed; what was held is given back.
			l, want, key := l, int64(0), keyOf(l, name)
			switch limits[l].Name {
			case "everyone":
				if k > 0 {
					continue // looking at it spends it
				}
			case "in all":
				want = cost * passed[k].Load()
			case "dry":
				want = cost * tried[k].Load()
			}
			if got := spent(t, seat.limiter, limits, l, key); got != want {
				t.Errorf("key %q, limit %q: %d are spent and held, want %d", name, limits[l].Name, got, want)
			}
		}
	}
}
