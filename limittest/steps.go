package limittest

import (
	"context"
	"testing"
	"time"

	"fairshare"
)

// start is the beginning of a window of any whole number of minutes up to an
// hour.
var start = time.Unix(1_800_000_000, 0)

// A seat is one limiter in a test.
type seat struct {
	testing.TB
	limiter fairshare.Limiter
}

// take takes cost of each limit in turn for the key "k" at start + at.
func (s seat) take(at time.Duration, costs ...int64) []fairshare.Tally {
	s.Helper()
	takes := make([]fairshare.Take, len(costs))
	for i, c := range costs {
		takes[i] = fairshare.Take{Limit: i, Key: []byte("k"), Cost: c}
	}
	return s.takeAll(at, takes...)
}

// takeAll takes at start + at, and gives back at once what is held then.
func (s seat) takeAll(at time.Duration, takes ...fairshare.Take) []fairshare.Tally {
	s.Helper()
	tallies := make([]fairshare.Tally, len(takes))
	for i := range tallies {
		tallies[i] = fairshare.Tally{Over: true, Used: -1} // must be overwritten
	}
	if err := s.limiter.Take(context.Background(), start.Add(at), takes, tallies); err != nil {
		s.Fatalf("Take at %v: %v", at, err)
	}
	for i := range tallies {
		if held := tallies[i].Held; held != 0 && !tallies[i].Over {
			s.charge(at, fairshare.Charge{Limit: takes[i].Limit, Key: takes[i].Key, Held: held})
			tallies[i].Held, tallies[i].Expected = 0, 0
		}
	}
	return tallies
}

// want fails unless a take of cost of the first limit is answered so.
func (s seat) want(at time.Duration, cost int64, want fairshare.Tally) {
	s.Helper()
	if got := s.take(at, cost)[0]; got != want {
		s.Errorf("take of %d at %v: got %+v, want %+v", cost, at, got, want)
	}
}

// settle charges the first limit, or refunds what was taken at start + of.
func (s seat) settle(at time.Duration, cost int64, of time.Duration) {
	s.Helper()
	s.charge(at, fairshare.Charge{Key: []byte("k"), Cost: cost, At: start.Add(of)})
}

// charge settles at start + at.
func (s seat) charge(at time.Duration, charges ...fairshare.Charge) {
	s.Helper()
	if err := s.limiter.Settle(context.Background(), start.Add(at), charges); err != nil {
		s.Fatalf("Settle of %+v at %v: %v", charges, at, err)
	}
}

var pass fairshare.Tally

func over(used int64, wait, reset time.Duration) fairshare.Tally {
	return fairshare.Tally{Over: true, Used: used, Wait: wait, Reset: reset}
}

const (
	ms = time.Millisecond
	s  = time.Second
)

func runTables(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	type step struct {
		at   time.Duration
		cost int64
		want fairshare.Tally
	}
	for _, table := range []struct {
		name  string
		limit fairshare.Limit
		steps []step
	}{
		{"window", fairshare.Limit{Resource: fairshare.Requests, N: 4, Window: 10 * s}, []step{
			{0, 1, pass},
			{0, 3, pass},
			{0, 1, over(4, 12500*ms, 20*s)},          // only in the next window: 4·(10 s − e) + 10 s ≤ 40 s
			{0, 4, over(4, 20*s, 20*s)},              // only in the one after
			{12500*ms - 1, 1, over(4, 1, 7500*ms+1)}, // a nanosecond too early; used is rounded up
			{12500 * ms, 1, pass},                    // a refused request changed nothing
			{12500 * ms, 1, over(4, 2500*ms, 17500*ms)},
			{15 * s, 1, pass},
			{30*s - 1, 4, over(1, 1, 1)}, // what is left of the last window is less than one, and too much
			{30 * s, 4, pass},            // two windows later: fresh
			{40 * s, 1, over(4, 2500*ms, 10*s)},
			{49 * s, 3, pass},               // 4·0.1 + 3 ≤ 4
			{49 * s, 1, over(4, 1*s, 11*s)}, // 3 of the next window's 4
		}},
		{"window of one", fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: 3 * s}, []step{
			{2 * s, 1, pass},
			{2 * s, 1, over(1, 4*s, 4*s)},
			{3 * s, 1, over(1, 3*s, 3*s)}, // not while any of the last window counts
			{6*s - 1, 1, over(1, 1, 1)},
			{6 * s, 1, pass},
		}},
		{"gcra", fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 10 * s, Algorithm: fairshare.GCRA,
			Burst: 2}, []step{
			{0, 1, pass},
			{0, 1, pass},
			{0, 1, over(2, 3333333334, 6666666667)},        // T is 3333333333⅓ ns
			{3333333333, 1, over(2, 1, 3333333334)},        // a third of a nanosecond too early
			{3333333334, 1, pass},                          //
			{10 * s, 2, pass},                              // the third interval ends at 10 s sharp: fresh
			{10 * s, 2, over(2, 6666666667, 6666666667)},   //
			{10*s + 1, 3, over(2, 6666666666, 6666666666)}, // above the burst: never; the wait is that to fresh
			{time.Hour, 2, pass},
		}},
		{"gcra without burst", fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: 1 * s,
			Algorithm: fairshare.GCRA}, []step{
			{0, 2, pass},
			{0, 1, over(2, 500*ms, 1*s)},
			{500 * ms, 1, pass},
			{1 * s, 2, over(1, 500*ms, 500*ms)},
			{1 * s, 1, pass},
		}},
		{"quiet", fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: 3 * s, Algorithm: fairshare.Quiet},
			[]step{
				{0, 1, pass},
				{2 * s, 1, pass},
				{2 * s, 1, over(2, 3*s, 3*s)},
				{5*s - 1, 1, over(2, 3*s, 3*s)}, // refused requests prolong it
				{8*s - 2, 1, over(2, 3*s, 3*s)},
				{11*s - 2, 1, pass}, // a pause of 3 s sharp
				{11*s - 2, 1, pass}, // the count started from zero
				{11*s - 2, 1, over(2, 3*s, 3*s)},
			}},
	} {
		t.Run(table.name, func(t *testing.T) {
			seat := seat{t, open(t, []fairshare.Limit{table.limit})}
			for _, step := range table.steps {
				seat.want(step.at, step.cost, step.want)
			}
		})
	}
}

// runPaced takes from one limit at the rates of the takes.
func runPaced(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	seat := seat{t, open(t, []fairshare.Limit{{CrawlDelay: true, Resource: fairshare.Requests, N: 1,
		Window: fairshare.MaxCrawlDelay, Algorithm: fairshare.GCRA, Burst: 3}})}
	for i, step := range []struct {
		at, every time.Duration
		want      fairshare.Tally
	}{
		{0, 10 * s, pass},
		{0, 10 * s, pass},
		{0, 10 * s, pass},
		{0, 10 * s, over(3, 10*s, 30*s)},
		{10 * s, 10 * s, pass},
		{10 * s, 20 * s, pass}, // a slower rate has more room at once: 60 s
		{10 * s, 20 * s, over(3, 10*s, 50*s)},
		{60 * s, 1 * s, pass},
	} {
		take := fairshare.Take{Key: []byte("k"), Cost: 1, Every: step.every}
		if got := seat.takeAll(step.at, take)[0]; got != step.want {
			t.Errorf("step %d: got %+v, want %+v", i, got, step.want)
		}
	}
}

func runAllOrNone(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	seat := seat{t, open(t, []fairshare.Limit{
		{Name: "few", Resource: fairshare.Requests, N: 2, Window: 10 * s},
		{Name: "many", Resource: fairshare.Requests, N: 5, Window: time.Minute},
		{Name: "quiet", Resource: fairshare.Requests, N: 9, Window: 5 * s, Algorithm: fairshare.Quiet},
		{Name: "slots", Resource: fairshare.Concurrent, N: 9},
	})}
	tell := func(at time.Duration, want ...fairshare.Tally) {
		t.Helper()
		got := seat.take(at, 1, 1, 1, 1)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("at %v, limit %d: got %+v, want %+v", at, i, got[i], want[i])
			}
		}
	}
	tell(0, pass, pass, pass, pass)
	tell(0, pass, pass, pass, pass)
	refused := []fairshare.Tally{
		over(2, 15*s, 20*s),
		{Used: 2, Reset: 2 * time.Minute}, // not over, not charged, but with figures
		{Used: 2, Reset: 5 * s},
		{Used: 2},
	}
	tell(0, refused...)
	tell(0, refused...) // the first refusal charged nothing
	// The refusals at 0 and 4 s were noted by the quiet limit: still 2 at 8 s.
	refused[0], refused[1].Reset = over(2, 11*s, 16*s), 2*time.Minute-4*s
	tell(4*s, refused...)
	refused[0], refused[1].Reset = over(2, 7*s, 12*s), 2*time.Minute-8*s
	tell(8*s, refused...)
	tell(15*s, pass, pass, pass, pass)
	if got, want := seat.take(15*s, 1)[0], over(2, 5*s, 15*s); got != want {
		t.Errorf("alone at 15 s: got %+v, want %+v", got, want)
	}
}

func runDryGroup(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	seat := seat{t, open(t, []fairshare.Limit{
		{Name: "dry two", Resource: fairshare.Requests, N: 2, Window: 10 * s},
		{Name: "three", Resource: fairshare.Requests, N: 3, Window: 10 * s},
		{Name: "dry nine", Resource: fairshare.Requests, N: 9, Window: 10 * s},
	})}
	for i, want := range [][]fairshare.Tally{
		{pass, pass, pass},
		{pass, pass, pass},
		{over(2, 15*s, 20*s), pass, {Used: 2, Reset: 20 * s}}, // the dry ones stop one another only
		{pass, over(3, 13333333334, 20*s), pass},              // the dry ones were not asked
	} {
		k := []byte("k")
		for n, got := range seat.takeAll(0,
			fairshare.Take{Limit: 0, Key: k, Cost: 1, DryRun: true},
			fairshare.Take{Limit: 1, Key: k, Cost: 1},
			fairshare.Take{Limit: 2, Key: k, Cost: 1, DryRun: true},
		) {
			if got != want[n] {
				t.Errorf("request %d, limit %d: got %+v, want %+v", i, n, got, want[n])
			}
		}
	}
}

func runSettled(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	for _, resource := range []fairshare.Resource{fairshare.Bytes, fairshare.Errors, fairshare.Refusals,
		fairshare.CPU, fairshare.Time, fairshare.Cost} {
		t.Run(resource.String(), func(t *testing.T) {
			seat := seat{t, open(t, []fairshare.Limit{{Resource: resource, N: 100, Window: 10 * s}})}
			seat.want(0, 1e6, pass) // its cost is not looked at, and nothing is charged
			seat.settle(0, 99, 0)
			seat.want(0, 1, pass) // 99 < 100
			seat.settle(0, 1, 0)
			seat.want(0, 1, over(100, 10*s+1, 20*s)) // strictly below: not at the start of the next window
			seat.want(10*s, 1, over(100, 1, 10*s))
			seat.want(10*s+1, 1, pass)
			seat.settle(10*s+1, 900, 0) // one answer overshoots by far
			seat.want(10*s+1, 1, over(1000, 18888888888, 20*s-1))
			seat.want(28888888888, 1, over(101, 1, 1111111112))
			seat.want(28888888889, 1, pass)
		})
	}
	t.Run("gcra", func(t *testing.T) {
		seat := seat{t, open(t, []fairshare.Limit{{Resource: fairshare.Bytes, N: 100, Window: 10 * s,
			Algorithm: fairshare.GCRA}})}
		seat.settle(0, 99, 0)
		seat.want(0, 1, pass)
		seat.settle(0, 50, 0)
		seat.want(0, 1, over(149, 4900*ms+1, 14900*ms))
		seat.want(4900*ms+1, 1, pass)
	})
}

func runRefunds(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	requests := func(a fairshare.Algorithm) []fairshare.Limit {
		return []fairshare.Limit{{Resource: fairshare.Requests, N: 4, Window: 10 * s, Algorithm: a}}
	}
	t.Run("window", func(t *testing.T) {
		seat := seat{t, open(t, requests(fairshare.Window))}
		seat.want(9*s, 4, pass)
		seat.settle(9*s, -1, 9*s)
		seat.want(9*s, 2, over(3, 1*s+3333333334, 11*s))
		seat.want(9*s, 1, pass)
		seat.settle(12*s, -2, 9*s) // off the last window: 2·0.8 is left
		seat.want(12*s, 4, over(2, 8*s, 8*s))
		seat.want(12*s, 2, pass)
		seat.settle(12*s, -1, 30*s) // a time to come: nothing
		seat.settle(25*s, -2, 9*s)  // its window is gone: nothing
		seat.want(25*s, 4, over(1, 5*s, 5*s))
		seat.settle(25*s, -9, 12*s) // more than was taken: not below fresh
		seat.want(25*s, 4, pass)
	})
	t.Run("gcra", func(t *testing.T) {
		seat := seat{t, open(t, requests(fairshare.GCRA))}
		seat.want(0, 4, pass)
		seat.settle(0, -1, 0)
		seat.want(0, 2, over(3, 2500*ms, 7500*ms))
		seat.want(0, 1, pass)
		seat.settle(9*s, -3, 0) // not below fresh
		seat.want(9*s, 4, pass)
		seat.want(9*s, 1, over(4, 2500*ms, 10*s))
	})
	t.Run("quiet", func(t *testing.T) {
		seat := seat{t, open(t, requests(fairshare.Quiet))}
		seat.want(0, 4, pass)
		seat.settle(1*s, -1, 0)
		seat.want(1*s, 1, pass)
		seat.settle(10*s, -1, 1*s) // is no request: the pause goes on
		seat.want(11*s, 4, pass)
	})
	t.Run("nothing taken", func(t *testing.T) {
		for _, a := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
			seat := seat{t, open(t, requests(a))}
			seat.settle(0, -3, 0)
			seat.want(0, 4, pass)
			if got := seat.take(0, 1)[0]; !got.Over {
				t.Errorf("%v: a refund of nothing gave more than is allowed", a)
			}
		}
	})
}

func runSlots(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	seat := seat{t, open(t, []fairshare.Limit{{Resource: fairshare.Concurrent, N: 2}})}
	full := fairshare.Tally{Over: true, Used: 2}
	seat.settle(0, -1, 0) // none is taken
	seat.want(0, 1, pass)
	seat.want(0, 1, pass)
	seat.want(0, 1, full)
	seat.want(1000*time.Hour, 1, full) // time alone gives none back
	seat.settle(0, -1, 0)
	seat.want(0, 1, pass)
	seat.want(0, 1, full)
	for range 5 { // two are taken, so only two come back
		seat.settle(0, -1, 0)
	}
	seat.want(0, 1, pass)
	seat.want(0, 1, pass)
	seat.want(0, 1, full)
}

// runPeek reads the figures of a limit between takes, if the limiter can. Reading
// them changes nothing.
func runPeek(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	limit := fairshare.Limit{Resource: fairshare.Requests, N: 4, Window: 10 * s}
	limiter := open(t, []fairshare.Limit{limit})
	peeker, ok := limiter.(fairshare.Peeker)
	if !ok {
		t.Skip("the limiter is not a Peeker")
	}
	seat := seat{t, limiter}
	peek := func(at time.Duration, cost int64, want fairshare.Tally) {
		t.Helper()
		tallies := []fairshare.Tally{{Over: true, Used: -1}} // must be overwritten
		takes := []fairshare.Take{{Key: []byte("k"), Cost: cost}}
		for range 3 {
			if err := peeker.Peek(context.Background(), start.Add(at), takes, tallies); err != nil {
				t.Fatalf("Peek at %v: %v", at, err)
			}
			if tallies[0] != want {
				t.Errorf("Peek of %d at %v: got %+v, want %+v", cost, at, tallies[0], want)
			}
		}
	}
	peek(0, 1, fairshare.Tally{})
	seat.want(0, 3, pass)
	peek(0, 1, fairshare.Tally{Used: 3, Reset: 20 * s})
	peek(0, 2, over(3, 13333333334, 20*s))
	seat.want(0, 1, pass)
	peek(0, 1, over(4, 12500*ms, 20*s))
	peek(15*s, 2, fairshare.Tally{Used: 2, Reset: 5 * s})
	peek(40*s, 4, fairshare.Tally{})
	seat.want(15*s, 2, pass)
}
