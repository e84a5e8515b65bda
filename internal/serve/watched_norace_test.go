//go:build !race

// With the race detector a sync.Pool drops objects at random, so that allocations cannot be counted.

package serve

import "testing"

// What counts for operators allocates nothing.
func TestWatchingARequestAllocatesNothing(t *testing.T) {
	var allocs [2]float64
	for i, on := range []bool{false, true} {
		send, n := watched(t, on), 0
		for range 20_000 {
			send(n)
			n++
		}
		allocs[i] = testing.AllocsPerRun(5000, func() {
			send(n)
			n++
		})
	}
	if allocs[1] > allocs[0] {
		t.Errorf("%v allocations, without it %v", allocs[1], allocs[0])
	}
}
