package memlimit

import (
	"bytes"
	"testing"
	"time"

	"fairshare"
)

// A client that has spent a limit of errors has spent it after a restart with more memory, too. The states of an old
// set then belong to several homes, and some are guests of the next set.
func TestMarksOfGuestsAfterGrowth(t *testing.T) {
	limit := fairshare.Limit{Name: "errors", Resource: fairshare.Errors, N: 5, Window: time.Hour}
	for _, sets := range []int64{150, 200, 250, 300, 399} {
		for range 8 { // each table has another secret
			old := opened(t, 100*setBytes, limit)
			const keys = 250 // of 700 slots
			for i := range keys {
				charge := fairshare.Charge{Limit: 0, Key: number(i), Cost: 5}
				if err := old.Settle(ctx, start, []fairshare.Charge{charge}); err != nil {
					t.Fatal(err)
				}
			}
			snapshot := snapshotOf(t, old, start)
			l, twin := opened(t, sets*setBytes, limit), opened(t, sets*setBytes, limit)
			for _, to := range []*Limiter{l, twin} {
				if _, err := to.Load(bytes.NewReader(snapshot), start); err != nil {
					t.Fatal(err)
				}
			}
			twin.table.markAll()
			for i := range keys {
				got, want := take(t, l, 0, number(i), 1, start).Over, take(t, twin, 0, number(i), 1, start).Over
				if got != want {
					t.Fatalf("%d sets: key %d is over the limit: %v, want %v", sets, i, got, want)
				}
			}
		}
	}
}
