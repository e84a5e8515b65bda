package replay

import (
	"math/rand/v2"
	"testing"
)

// For any order of times, no request is lost and every bin has the right time.
func TestChartAcceptsTimesInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var c chart
		at := rnd.Int64N(1 << 60)
		lowest, highest := at, at
		const n = 50
		for range n {
			c.add(at, true)
			lowest, highest = min(lowest, at), max(highest, at)
			at += rnd.Int64N(1<<(20+rnd.IntN(38))) * int64(1-2*rnd.IntN(2))
			at = max(at, 0)
		}
		var total int64
		for i, b := range c.bins {
			total += b.requests
			begin := (c.base + int64(i)) * c.width
			if b.requests > 0 && (begin > highest || begin+c.width <= lowest) {
				t.Errorf("seed %d: a bin at %d, times are %d to %d", seed, begin, lowest, highest)
			}
			if b.refused != b.requests {
				t.Errorf("seed %d: %d refused of %d", seed, b.refused, b.requests)
			}
		}
		if total != n {
			t.Errorf("seed %d: %d of %d are counted", seed, total, n)
		}
	}
}
