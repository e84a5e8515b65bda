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

// costly lists all resources of which requests in progress hold what they may
// cost.
var costly = []fairshare.Resource{fairshare.Bytes, fairshare.CPU, fairshare.Time, fairshare.Cost}

// many is how many requests of a key settle until the key may have most at once.
const many = 12

// holding is the tally of a take that passes and holds what is expected.
func holding(n int64) fairshare.Tally { return fairshare.Tally{Held: n, Expected: n} }

// overHeld is over with what is held of it.
func overHeld(used, held int64, wait, reset time.Duration) fairshare.Tally {
	tally := over(used, wait, reset)
	tally.Held = held
	return tally
}

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
		s.Fatalf("%v: a key whose requests cost %d holds nothing, and is over: %+v", l.Resource, costs, got)
	} else {
		s.charge(0, fairshare.Charge{Limit: limit, Key: []byte(key), Held: got.Held})
	}
}

// eachCostly runs a test for each costly resource and algorithm.
func eachCostly(t *testing.T, n int64, open func(testing.TB, []fairshare.Limit) fairshare.Limiter,
	test func(*testing.T, seat, *fairshare.Limit)) {
	for _, resource := range costly {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			l := fairshare.Limit{Resource: resource, N: n, Window: 10 * s, Algorithm: algorithm}
			t.Run(fmt.Sprint(resource, " ", algorithm), func(t *testing.T) {
				test(t, seat{t, open(t, []fairshare.Limit{l})}, &l)
			})
		}
	}
}

// runExpected checks what is held for a request.
func runExpected(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	eachCostly(t, 1600, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
		at := time.Duration(0)
		wantPage := func(key string, page fairshare.Page, held, expected int64) {
			t.Helper()
			tallies := make([]fairshare.Tally, 1)
			take := fairshare.Take{Key: []byte(key), Cost: 1, Page: page}
			if err := seat.limiter.Take(context.Background(), start.Add(at), []fairshare.Take{take},
				tallies); err != nil {
				t.Fatal(err)
			}
			if want := (fairshare.Tally{Held: held, Expected: expected}); tallies[0] != want {
				t.Errorf("key %q, page %v: got %+v, want %+v", key, page, tallies[0], want)
			}
			seat.charge(at, fairshare.Charge{Key: []byte(key), Held: tallies[0].Held})
		}
		want := func(key string, held, expected int64) {
			t.Helper()
			wantPage(key, fairshare.Page{}, held, expected)
		}
		ends := func(key string, page fairshare.Page, costs ...int64) {
			t.Helper()
			for _, cost := range costs {
				seat.charge(at, fairshare.Charge{Key: []byte(key), Ends: true, Total: cost, Page: page})
			}
		}
		want("k", 400, 0) // a new key: four at once
		for i, held := range []int64{320, 267, 229, 200, 178, 160, 146, 134, 124, 115, 107, 100, 100, 100} {
			ends("k", fairshare.Page{}, 70)
			want("k", held, 70)
			want(fmt.Sprint("new ", i), 400, 0) // whatever others do
		}
		at += 10 * s
		want("k", 100, 70)
		at++
		want("k", 400, 70) // it was idle for a window
		ends("k", fairshare.Page{}, 70)
		want("k", 320, 70)
		for range 200 {
			ends("k", fairshare.Page{}, 0)
		}
		want("k", 100, 1) // cheap requests cannot lower the floor
		for range 400 {
			ends("k", fairshare.Page{}, -5, math.MinInt64) // counts as nothing
		}
		want("k", 100, 1)
		for range 200 {
			ends("k", fairshare.Page{}, math.MaxInt64)
		}
		want("k", 1600, 1600) // at most what is allowed
		ends("k", fairshare.Page{}, 0)
		want("k", 1400, 1400) // and the mean remembers at most that
		for range 200 {
			ends("k", fairshare.Page{}, math.MaxInt64)
		}
		for range many {
			ends("steady", fairshare.Page{}, 300)
		}
		want("steady", 300, 300)

		page := func(path, folder uint64) fairshare.Page { return fairshare.Page{Path: path, Folder: folder} }
		ends("other", page(1, 10), 200)
		ends("other", page(2, 10), 40)
		ends("other", page(3, 20), 100) // no more than the floor
		for range 100 {
			ends("cheap", page(4, 20), 1)
		}
		wantPage("cheap", page(1, 10), 200, 200)
		wantPage("cheap", page(2, 10), 100, 40)
		wantPage("cheap", page(5, 10), 180, 180) // the folder's: 200, and an eighth of the way to 40
		wantPage("cheap", page(3, 20), 100, 1)
		wantPage("cheap", page(1, 20), 200, 200)
		wantPage("cheap", page(9, 20), 100, 1)
		wantPage("cheap", page(0, 10), 180, 180)
		wantPage("steady", page(1, 10), 300, 300) // the key's own is more
		for range 200 {
			ends("other", page(1, 10), 1000)
		}
		wantPage("cheap", page(1, 10), 400, 400) // others can take away no more than that
		wantPage("cheap", page(6, 10), 400, 400)
		wantPage("new", page(1, 10), 400, 400)
		for range 200 {
			ends("other", page(1, 10), 0)
		}
		wantPage("cheap", page(1, 10), 100, 1)
	})
	t.Run("shared", func(t *testing.T) { // unrelated clients may have more at once
		for _, c := range []struct {
			by                    []fairshare.KeyKind
			fresh, settled, after int64
		}{
			{[]fairshare.KeyKind{fairshare.ByAddr}, 12800, 3200, 16},
			{[]fairshare.KeyKind{fairshare.ByCookie}, 12800, 3200, 16},
			{[]fairshare.KeyKind{fairshare.ByNetwork, fairshare.ByBot}, 12800, 3200, 16},
			{[]fairshare.KeyKind{fairshare.ByNetwork}, 1600, 400, 128},
			{[]fairshare.KeyKind{fairshare.ByEveryone, fairshare.ByPath}, 1600, 400, 128},
			{[]fairshare.KeyKind{fairshare.ByHost, fairshare.ByUserAgent}, 1600, 400, 128},
		} {
			l := fairshare.Limit{Resource: fairshare.Cost, N: 51200, Window: 10 * s}
			for _, kind := range c.by {
				part := fairshare.KeyPart{Kind: kind}
				if kind == fairshare.ByCookie {
					part.Name = "session"
				}
				l.By = append(l.By, part)
			}
			seat := seat{t, open(t, []fairshare.Limit{l})}
			if got, want := seat.begin(0, "k", 0)[0], (fairshare.Tally{Held: c.fresh}); got != want {
				t.Errorf("by %v: got %+v, want %+v", c.by, got, want)
			}
			for range 200 {
				seat.charge(0, fairshare.Charge{Key: []byte("k"), Ends: true})
			}
			if got, want := seat.begin(0, "k", 0)[0], (fairshare.Tally{Held: c.settled}); got != want {
				t.Errorf("by %v, settled: got %+v, want %+v", c.by, got, want)
			}
			_, most := l.AtOnce()
			if most != c.after {
				t.Errorf("by %v: %d at once, want %d", c.by, most, c.after)
			}
		}
	})
	t.Run("burst", func(t *testing.T) {
		l := fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: 10 * s, Algorithm: fairshare.GCRA, Burst: 50}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		if got, want := seat.begin(0, "new", 0)[0], (fairshare.Tally{Held: 13}); got != want {
			t.Errorf("of a burst of 50: %+v", got)
		}
		seat.charge(0, fairshare.Charge{Key: []byte("k"), Ends: true, Total: 900})
		if got := seat.begin(0, "k", 0)[0]; got != holding(50) {
			t.Errorf("of a burst of 50: %+v", got)
		}
	})
	t.Run("errors", func(t *testing.T) { // each is 1, whatever came before it, of this client or of others
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			l := fairshare.Limit{Resource: fairshare.Errors, N: 12, Window: 10 * s, Algorithm: algorithm}
			seat := seat{t, open(t, []fairshare.Limit{l})}
			for i := range 600 {
				page := fairshare.Page{Path: 1, Folder: 2}
				seat.charge(0, fairshare.Charge{Key: []byte("k"), Ends: true, Page: page})
				seat.charge(0, fairshare.Charge{Key: fmt.Append(nil, "other ", i), Cost: 1, Ends: true, Total: 1,
					Page: page})
			}
			for _, key := range []string{"k", "new"} {
				for i := range 12 {
					if got := seat.begin(0, key, 0)[0]; got != holding(1) {
						t.Fatalf("%s, request %d: %+v", key, i, got)
					}
				}
				if got := seat.begin(0, key, 0)[0]; !got.Over || got.Wait != 0 || got.Used != 12 || got.Held != 12 {
					t.Errorf("%s, request 13: %+v", key, got)
				}
				seat.charge(0, fairshare.Charge{Key: []byte(key), Held: 1, Ends: true})
				if got := seat.begin(0, key, 0)[0]; got != holding(1) {
					t.Errorf("%s, once one has settled: %+v", key, got)
				}
			}
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
}

// runFiveHundred asks for five hundred expensive pages before the first is
// done.
func runFiveHundred(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, c := range []struct {
		asked               int
		n, cost, each, pass int64
	}{
		{500, 1000, 100, 100, 10},
		{20, 1000, 99, 99, 11},
		{60, 1000, 1, 63, 16}, // 1000 would, one after another
		{5, 1000, 3000, 1000, 1},
		{10, 7, 2, 2, 4},
		{5, 1, 1, 1, 1},
	} {
		t.Run(fmt.Sprintf("%d of %d each", c.n, c.cost), func(t *testing.T) {
			eachCostly(t, c.n, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
				for range many {
					seat.teach(0, l, "k", c.cost)
				}
				for i := range c.asked {
					got := seat.begin(0, "k", 0)[0]
					if int64(i) < c.pass {
						if want := (fairshare.Tally{Held: c.each, Expected: min(c.cost, c.n)}); got != want {
							t.Fatalf("request %d: got %+v, want %+v", i, got, want)
						}
						continue
					}
					if got.Wait != 0 || !got.Over || got.Used != c.each*c.pass || got.Held != got.Used ||
						got.Reset <= 0 {
						t.Fatalf("request %d: got %+v, want over at %d with no wait", i, got, c.each*c.pass)
					}
				}
				// Other keys hold nothing, and each that settles makes room for as much.
				if got := seat.begin(0, "other", 0)[0]; got.Over {
					t.Errorf("another key: %+v", got)
				}
				seat.charge(1, fairshare.Charge{Key: []byte("k"), Held: c.each})
				if got := seat.begin(1, "k", 0)[0]; got.Over {
					t.Errorf("one was given back: %+v", got)
				}
				if got := seat.begin(1, "k", 0)[0]; !got.Over {
					t.Errorf("one was given back, and two pass")
				}
				// Once they have cost what was held the state alone is over.
				for range c.pass {
					seat.charge(1, fairshare.Charge{Key: []byte("k"), Cost: c.each, Held: c.each, Ends: true,
						Total: c.each})
				}
				if got := seat.begin(1, "k", 0)[0]; !got.Over || got.Used < c.n || got.Held != 0 || got.Wait <= 0 ||
					got.Reset < got.Wait {
					t.Errorf("when all are settled: %+v", got)
				}
			})
		})
	}
}

// runHolds checks why a request is over: spent costs, held costs, or both.
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
		want(0, holding(30))
		want(0, holding(30))
		want(0, overHeld(100, 60, 0, 20*s)) // 40 + 60: nobody knows how long
		// as if spent now: nothing of it is in the last window
		want(10*s, overHeld(100, 60, 0, 20*s))
		want(15*s, holding(30))                                         // 20 + 60
		want(15*s, overHeld(110, 90, 0, 15*s))                          //
		want(1000*time.Hour, holding(30))                               // time alone gives nothing back
		want(1000*time.Hour, overHeld(120, 120, 0, 20*s))               //
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Held: 60}) //
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Cost: 99}) //
		want(1000*time.Hour, overHeld(159, 60, 0, 20*s))                // 99 alone would pass
		seat.charge(1000*time.Hour, fairshare.Charge{Key: k, Cost: 1})  //
		// only spent costs determine the wait
		want(1000*time.Hour, overHeld(160, 60, 10*s+1, 20*s))
		want(1000*time.Hour+10*s+1, overHeld(160, 60, 0, 20*s-1))               //
		seat.charge(1000*time.Hour+10*s+1, fairshare.Charge{Key: k, Held: 60})  //
		want(1000*time.Hour+10*s+1, holding(30))                                //
		seat.charge(1000*time.Hour+10*s+1, fairshare.Charge{Key: k, Cost: 200}) //
		want(1000*time.Hour+10*s+1, overHeld(330, 30, 15*s, 20*s-1))
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
		want(0, holding(60))
		want(0, holding(60))
		want(0, overHeld(120, 120, 0, 12*s))
		want(time.Hour, overHeld(120, 120, 0, 12*s))
		seat.charge(time.Hour, fairshare.Charge{Key: k, Cost: 150})
		want(time.Hour, overHeld(200, 120, 5*s+1, 20*s)) // settling goes to twice the burst, and so does what is held
		want(time.Hour+5*s, overHeld(200, 120, 1, 20*s))
		want(time.Hour+5*s+1, overHeld(200, 120, 0, 20*s)) // 100 − 10⁻⁸ and 120
		seat.charge(time.Hour+5*s+1, fairshare.Charge{Key: k, Held: 60})
		want(time.Hour+5*s+1, overHeld(160, 60, 0, 16*s-1))
		seat.charge(time.Hour+5*s+1, fairshare.Charge{Key: k, Held: 60})
		want(time.Hour+5*s+1, holding(60))
	})
	t.Run("so far", func(t *testing.T) { // a long answer is charged while it is in progress
		l := fairshare.Limit{Resource: fairshare.Bytes, N: 1000, Window: 10 * s}
		seat := seat{t, open(t, []fairshare.Limit{l})}
		for range many {
			seat.teach(0, &l, "k", 100)
		}
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
		if got, want := seat.begin(0, "k", 0)[0], overHeld(1020, 400, 0, 20*s); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		// The last charge has its whole cost.
		seat.charge(0, fairshare.Charge{Key: k, Held: 400})
		seat.charge(0, fairshare.Charge{Key: k, Cost: 1, Ends: true, Total: 621})
		if got := seat.begin(0, "k", 0)[0].Held; got <= 100 || got >= 621 {
			t.Errorf("after 100 and 621 %d are held", got)
		}
	})
	t.Run("lies", func(t *testing.T) {
		eachCostly(t, 100, open, func(t *testing.T, seat seat, l *fairshare.Limit) {
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
			seat.charge(0, fairshare.Charge{Key: k, Held: -100, Ends: true, Total: 50})
			full("k", true)
			seat.charge(0, fairshare.Charge{Key: k, Held: 50})
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
		for range many {
			seat.teach(0, &limits[0], "k", 25)
			seat.teach(1, &limits[1], "k", 100)
			seat.teach(4, &limits[4], "k", 60)
			seat.teach(5, &limits[5], "k", 10)
		}
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
		spent := func(used int64, reset time.Duration) fairshare.Tally {
			return fairshare.Tally{Used: used, Reset: reset}
		}
		held := func(used int64, reset time.Duration) fairshare.Tally {
			return fairshare.Tally{Used: used, Reset: reset, Held: used}
		}
		ask(holding(25), holding(100), pass, pass, holding(60), holding(10))
		ask(holding(25), holding(100), pass, pass, holding(60), holding(10))
		ask(holding(25), holding(100), pass, pass, overHeld(120, 120, 0, 20*s), held(20, 20*s))
		for range 2 { // a refused request holds nothing, neither here nor in the dry group
			ask(held(75, 20*s), held(300, 3*s), over(3, 13333333334, 20*s), spent(3, 0), pass, pass)
		}
		seat.charge(0, fairshare.Charge{Limit: 2, Key: k, Cost: -2, At: start})
		ask(holding(25), holding(100), pass, pass, overHeld(120, 120, 0, 20*s), held(20, 20*s))
		for range 2 {
			ask(overHeld(100, 100, 0, 20*s), held(400, 4*s), spent(2, 20*s), spent(4, 0), pass, pass)
		}
		// Only what passed is there to be given back.
		seat.charge(0,
			fairshare.Charge{Limit: 0, Key: k, Held: 100}, fairshare.Charge{Limit: 1, Key: k, Held: 400},
			fairshare.Charge{Limit: 4, Key: k, Held: 60}, fairshare.Charge{Limit: 5, Key: k, Held: 20})
		ask(holding(25), holding(100), pass, pass, holding(60), holding(10))
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
			without.take(s.now, takes, want, false)
			var charges, bare []fairshare.Charge
			for i, take := range takes {
				l := &s.limits[take.Limit]
				c := fairshare.Charge{Limit: take.Limit, Key: take.Key, Held: got[i].Held}
				if got[i].Held, got[i].Expected = 0, 0; got[i] != want[i] {
					t.Errorf("seed %d, step %d: take %d under %+v:\n got  %+v\n want %+v", seed, n, i, *l, got[i],
						want[i])
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
			for range many {
				seat.teach(i, &limits[i], key, cost)
			}
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
					takes[l] = fairshare.Take{Limit: limit, Key: keyOf(limit, names[k]), Cost: 1,
						DryRun: limits[limit].DryRun}
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
					c := fairshare.Charge{Limit: takes[l].Limit, Key: takes[l].Key, Held: tally.Held, Ends: true,
						Total: cost}
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
				// Other goroutines may not have reported their ends yet, so this count is never too high.
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
			// Used is the number of requests that passed; what they held is given back.
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
