package limittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// A Group is several limiters that count together in a store.
type Group struct {
	Members []fairshare.Limiter
	Slack   float64                     // part of a limit that may be admitted beyond it
	Flush   func(context.Context) error // has all members report what is pending
	Kill    func(member int)            // ends a member without a word, as a crash does
	Join    func() fairshare.Limiter    // returns one more member, which knows nothing yet
}

// over returns how many requests all members together may admit of a limit.
func (g *Group) most(l *fairshare.Limit) int64 {
	n := int64(len(g.Members))
	if n == 1 || l.Exact {
		return l.Allowed()
	}
	return l.Allowed() + n*(int64(g.Slack*float64(l.Allowed()))/n)
}

func (g *Group) flush(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// RunGroup checks that limiters which count together keep their bound, also when
// they are asked at the same moment, and that they agree at rest. open returns so
// many members of a new group.
func RunGroup(t *testing.T, open func(t testing.TB, limits []fairshare.Limit, members int) *Group) {
	t.Run("at once", func(t *testing.T) { runGroupAtOnce(t, open) })
	t.Run("refunds", func(t *testing.T) { runGroupRefunds(t, open) })
	t.Run("several limits", func(t *testing.T) { runGroupLimits(t, open) })
	t.Run("slots", func(t *testing.T) { runGroupSlots(t, open) })
	t.Run("settled", func(t *testing.T) { runGroupSettled(t, open) })
	t.Run("killed", func(t *testing.T) { runGroupKilled(t, open) })
}

// each runs a function for each member from several goroutines at once.
func (g *Group) each(goroutines int, do func(member int, l fairshare.Limiter)) {
	var wg sync.WaitGroup
	for i, l := range g.Members {
		for range goroutines {
			wg.Go(func() { do(i, l) })
		}
	}
	wg.Wait()
}

// take takes cost of a limit and reports whether it passed.
func take(t *testing.T, l fairshare.Limiter, at time.Time, limit int, key string, cost int64) (fairshare.Tally, bool) {
	tallies := make([]fairshare.Tally, 1)
	takes := []fairshare.Take{{Limit: limit, Key: []byte(key), Cost: cost}}
	if err := l.Take(context.Background(), at, takes, tallies); err != nil {
		t.Error(err)
	}
	return tallies[0], !tallies[0].Over
}

// peekUsed returns what a member sees as used.
func peekUsed(t *testing.T, l fairshare.Limiter, at time.Time, limit int, key string) int64 {
	t.Helper()
	tallies := make([]fairshare.Tally, 1)
	takes := []fairshare.Take{{Limit: limit, Key: []byte(key), Cost: 1}}
	if err := l.(fairshare.Peeker).Peek(context.Background(), at, takes, tallies); err != nil {
		t.Fatal(err)
	}
	return tallies[0].Used
}

// runGroupAtOnce asks all members at one moment until each of them refuses.
func runGroupAtOnce(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	for _, members := range []int{1, 3, 5} {
		for _, limit := range []fairshare.Limit{
			{Name: "ten", Resource: fairshare.Requests, N: 10, Window: time.Hour},
			{Name: "many", Resource: fairshare.Requests, N: 1200, Window: time.Hour},
			{Name: "exact", Resource: fairshare.Requests, N: 300, Window: time.Hour, Exact: true},
			{Name: "gcra", Resource: fairshare.Requests, N: 400, Window: time.Hour, Algorithm: fairshare.GCRA},
			{Name: "quiet", Resource: fairshare.Requests, N: 100, Window: time.Hour, Algorithm: fairshare.Quiet},
		} {
			t.Run(fmt.Sprint(limit.Name, " of ", members), func(t *testing.T) {
				g := open(t, []fairshare.Limit{limit}, members)
				var admitted atomic.Int64
				g.each(4, func(_ int, l fairshare.Limiter) {
					for refused := 0; refused < 20; {
						if _, ok := take(t, l, start, 0, "k", 1); ok {
							admitted.Add(1)
						} else {
							refused++
						}
					}
				})
				n := admitted.Load()
				if n < limit.N || n > g.most(&limit) {
					t.Errorf("%d were admitted, want %d to %d", n, limit.N, g.most(&limit))
				}
				t.Logf("%d of %d were admitted, at most %d may be", n, limit.N, g.most(&limit))
				g.flush(t)
				if used := peekUsed(t, g.Join(), start, 0, "k"); used < min(n, limit.N) || used > n {
					t.Errorf("at rest %d are used, %d were admitted", used, n)
				}
			})
		}
	}
}

// runGroupRefunds takes and refunds random costs at one moment.
func runGroupRefunds(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		limit := fairshare.Limit{Name: "r", Resource: fairshare.Requests, N: 200, Window: time.Hour,
			Algorithm: algorithm}
		g := open(t, []fairshare.Limit{limit}, 3)
		var charged, highest atomic.Int64
		var seed atomic.Uint64
		g.each(2, func(_ int, l fairshare.Limiter) {
			r := rand.New(rand.NewPCG(seed.Add(1), 7))
			for range 400 {
				cost := 1 + r.Int64N(4)
				if _, ok := take(t, l, start, 0, "k", cost); !ok {
					continue
				}
				n := charged.Add(cost)
				for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
				}
				if r.IntN(3) > 0 {
					charged.Add(-cost) // before the refund, so that the count is never too high
					if err := l.Settle(context.Background(), start, []fairshare.Charge{
						{Key: []byte("k"), Cost: -cost, At: start}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
		if n := highest.Load(); n > g.most(&limit) {
			t.Errorf("%v: %d were admitted at once, at most %d may be", algorithm, n, g.most(&limit))
		}
		g.flush(t)
		want := charged.Load()
		if used := peekUsed(t, g.Join(), start, 0, "k"); used != want {
			t.Errorf("%v: at rest %d are used, want %d", algorithm, used, want)
		}
	}
}

// runGroupLimits takes several limits of several keys in one request.
func runGroupLimits(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	limits := []fairshare.Limit{
		{Name: "client", Resource: fairshare.Requests, N: 30, Window: time.Hour},
		{Name: "all", Resource: fairshare.Requests, N: 100, Window: time.Hour},
		{Name: "dry", Resource: fairshare.Requests, N: 20, Window: time.Hour, DryRun: true},
	}
	g := open(t, limits, 3)
	const keys = 5
	var passed, dryPassed [keys]atomic.Int64
	g.each(3, func(_ int, l fairshare.Limiter) {
		tallies := make([]fairshare.Tally, 3)
		for i := range 120 {
			k := i % keys
			key := []byte{'k', byte(k)}
			takes := []fairshare.Take{{Limit: 0, Key: key, Cost: 1}, {Limit: 1, Key: []byte("all"), Cost: 1},
				{Limit: 2, Key: key, Cost: 1, DryRun: true}}
			if err := l.Take(context.Background(), start, takes, tallies); err != nil {
				t.Error(err)
				return
			}
			if !tallies[0].Over && !tallies[1].Over {
				passed[k].Add(1)
				if !tallies[2].Over {
					dryPassed[k].Add(1)
				}
			}
		}
	})
	g.flush(t)
	sum := int64(0)
	other := g.Join()
	for k := range keys {
		n, dry := passed[k].Load(), dryPassed[k].Load()
		sum += n
		if n > g.most(&limits[0]) || dry > g.most(&limits[2]) {
			t.Errorf("key %d: %d passed of 30, and %d the dry limit of 20", k, n, dry)
		}
		key := string([]byte{'k', byte(k)})
		for limit, want := range map[int]int64{0: n, 2: dry} {
			if used := peekUsed(t, other, start, limit, key); used != want {
				t.Errorf("key %d, limit %q: %d are used, %d passed", k, limits[limit].Name, used, want)
			}
		}
	}
	if sum < 90 || sum > g.most(&limits[1]) {
		t.Errorf("%d passed, of 100 for all", sum)
	}
}

// runGroupSlots begins and ends requests: never are more in progress than are
// allowed, and at rest none is.
func runGroupSlots(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	limits := []fairshare.Limit{{Name: "slots", Resource: fairshare.Concurrent, N: 5}}
	g := open(t, limits, 3)
	var inProgress, passed atomic.Int64
	g.each(4, func(_ int, l fairshare.Limiter) {
		for range 60 {
			if _, ok := take(t, l, start, 0, "k", 1); !ok {
				continue
			}
			passed.Add(1)
			if n := inProgress.Add(1); n > 5 {
				t.Errorf("%d of 5 slots are taken", n)
			}
			time.Sleep(100 * time.Microsecond)
			inProgress.Add(-1)
			back := []fairshare.Charge{{Key: []byte("k"), Cost: -1}}
			if err := l.Settle(context.Background(), start, back); err != nil {
				t.Error(err)
			}
		}
	})
	t.Logf("%d of 720 passed", passed.Load())
	g.flush(t)
	// A member that refuses looks again at the store.
	end := time.Now().Add(10 * time.Second)
	for taken := 0; taken < 5; {
		if _, ok := take(t, g.Members[taken%3], start, 0, "k", 1); ok {
			taken++
		} else if time.Now().After(end) {
			t.Fatalf("at rest only %d of 5 slots are free", taken)
		}
	}
	if _, ok := take(t, g.Members[0], start, 0, "k", 1); ok {
		t.Error("a sixth slot of five")
	}
}

// runGroupSettled charges what is known after the answer.
func runGroupSettled(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	for _, resource := range []fairshare.Resource{fairshare.Bytes, fairshare.Errors, fairshare.Time} {
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			limit := fairshare.Limit{Name: "s", Resource: resource, N: 1000, Window: time.Hour, Algorithm: algorithm}
			cost := int64(3)
			if resource.CountsAnswers() {
				cost = 1
			}
			g := open(t, []fairshare.Limit{limit}, 3)
			var charged atomic.Int64
			g.each(1, func(_ int, l fairshare.Limiter) {
				for refused := 0; refused < 3; {
					tally, ok := take(t, l, start, 0, "k", 1)
					if !ok {
						refused++
						continue
					}
					charged.Add(cost)
					if err := l.Settle(context.Background(), start, []fairshare.Charge{{Key: []byte("k"), Cost: cost,
						Held: tally.Held, Ends: true, Total: cost}}); err != nil {
						t.Error(err)
					}
				}
			})
			_, most := limit.AtOnce()
			bound := g.most(&limit) + 3*cost*most
			if n := charged.Load(); n > bound || n < limit.N/2 {
				t.Errorf("%v %v: %d were charged, at most %d may be", resource, algorithm, n, bound)
			}
			g.flush(t)
			if used := peekUsed(t, g.Join(), start, 0, "k"); used != charged.Load() {
				t.Errorf("%v %v: at rest %d are used, %d were charged", resource, algorithm, used, charged.Load())
			}
		}
	}
}

// runGroupKilled ends half of the members while they have slots. Their slots end,
// and what they have reported stays.
func runGroupKilled(t *testing.T, open func(testing.TB, []fairshare.Limit, int) *Group) {
	limits := []fairshare.Limit{
		{Name: "slots", Resource: fairshare.Concurrent, N: 4},
		{Name: "requests", Resource: fairshare.Requests, N: 400, Window: time.Hour},
	}
	g := open(t, limits, 4)
	for i := range 4 {
		if _, ok := take(t, g.Members[i], start, 0, "k", 1); !ok {
			t.Fatalf("slot %d of 4 is refused", i)
		}
	}
	var admitted atomic.Int64
	g.each(1, func(member int, l fairshare.Limiter) {
		for range 50 {
			if _, ok := take(t, l, start, 1, "k", 1); ok {
				admitted.Add(1)
			}
		}
		if member < 2 {
			g.Kill(member)
		}
	})
	g.Members = g.Members[2:]
	end := time.Now().Add(20 * time.Second)
	for taken := 0; taken < 2; time.Sleep(10 * time.Millisecond) {
		if _, ok := take(t, g.Members[0], start, 0, "k", 1); ok {
			taken++
		} else if time.Now().After(end) {
			t.Fatalf("only %d of the 2 slots of killed members are free", taken)
		}
	}
	g.each(2, func(_ int, l fairshare.Limiter) {
		for refused := 0; refused < 20; {
			if _, ok := take(t, l, start, 1, "k", 1); ok {
				admitted.Add(1)
			} else {
				refused++
			}
		}
	})
	// A killed member takes at most the f that it had not reported with it.
	bound := limits[1].N + 4*(int64(g.Slack*400)/4) + 2*(int64(g.Slack*400)/2)
	if n := admitted.Load(); n < limits[1].N || n > bound {
		t.Errorf("%d were admitted, want %d to %d", n, limits[1].N, bound)
	}
}
