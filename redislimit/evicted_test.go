package redislimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// When the table of the view is full, it gives states up that the book still knows. The store decides then, and the
// view has its state again.
func TestEvictedViewGivesNoSecondAllowance(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
		limits := []fairshare.Limit{
			{Name: "ten", Resource: fairshare.Requests, N: 10, Window: time.Hour, Algorithm: algorithm, Exact: true},
		}
		l := open(t, store, limits, redislimit.Patient(redislimit.Options{}))
		if passed, _ := admit(t, l, "k", 10); passed != 10 {
			t.Fatalf("%v: %d of 10 passed", algorithm, passed)
		}
		flush(t, l)
		tallies := make([]fairshare.Tally, 1)
		for i := 0; redislimit.Viewed(l, 0, []byte("k"), now); i++ {
			if i == 1e6 {
				t.Fatal("the view still has the state")
			}
			takes := []fairshare.Take{{Key: fmt.Append(nil, i), Cost: 10}}
			err := l.Local().Take(context.Background(), now.Add(time.Minute), takes, tallies)
			if err != nil {
				t.Fatal(err)
			}
		}
		if passed, _ := admit(t, l, "k", 10); passed != 0 {
			t.Errorf("%v: %d more passed of 10 that were used up", algorithm, passed)
		}
		asked := l.Status().Questions
		passed, _ := admit(t, l, "k", 10)
		if again := l.Status().Questions - asked; passed != 0 || again != 0 {
			t.Errorf("%v: then %d passed, and %d asked the store", algorithm, passed, again)
		}
	}
}

// A group whose members lose the view of a client all the time admits no more than it does otherwise.
func TestLostViewsKeepTheBound(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	const members = 3
	window := fairshare.Limit{Name: "l", Resource: fairshare.Requests, N: 600, Window: time.Hour}
	gcra, quiet, exact, cost, failures := window, window, window, window, window
	gcra.Algorithm, quiet.Algorithm, exact.Algorithm = fairshare.GCRA, fairshare.Quiet, fairshare.Quiet
	exact.Exact = true
	cost.Resource, failures.Resource, failures.Algorithm = fairshare.Cost, fairshare.Errors, fairshare.GCRA
	for _, limit := range []fairshare.Limit{window, gcra, quiet, exact, cost, failures} {
		t.Run(fmt.Sprint(limit.Resource, " ", limit.Algorithm, " exact ", limit.Exact), func(t *testing.T) {
			limits := []fairshare.Limit{limit}
			g := openGroup(t, store, limits, members, redislimit.Patient(redislimit.Options{}))
			bound := limit.N + members*int64(redislimit.DefaultSlack*float64(limit.N)/members)
			switch {
			case limit.Exact:
				bound = limit.N
			case limit.Resource == fairshare.Errors:
				bound = limit.N + (limit.N+members)/2
			}
			r, key, admitted := rand.New(rand.NewPCG(1, 2)), []byte("k"), int64(0)
			tallies := make([]fairshare.Tally, 1)
			for range 4 * limit.N {
				l := g.Members[r.IntN(members)].(*redislimit.Limiter)
				takes := []fairshare.Take{{Key: key, Cost: 1}}
				if err := l.Take(t.Context(), now, takes, tallies); err != nil {
					t.Fatal(err)
				}
				if !tallies[0].Over {
					admitted++
					if limit.Resource.Held() {
						charge := fairshare.Charge{Key: key, Cost: 1, Held: tallies[0].Held, Ends: true, Total: 1}
						if err := l.Settle(t.Context(), now, []fairshare.Charge{charge}); err != nil {
							t.Fatal(err)
						}
					}
				}
				switch r.IntN(12) {
				case 0, 1, 2:
					redislimit.LoseView(l, 0, key, now)
				case 3:
					flush(t, l)
				}
			}
			if admitted > bound || admitted < limit.N {
				t.Errorf("%d were admitted, want %d to %d", admitted, limit.N, bound)
			}
			t.Logf("%d of %d were admitted, at most %d may be", admitted, limit.N, bound)
		})
	}
}
