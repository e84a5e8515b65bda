package redislimit_test

import (
	"context"
	"fmt"
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
