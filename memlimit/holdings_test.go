package memlimit

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// A holdings behaves like a map under random additions and removals, and
// becomes small again.
func TestHoldingsAgreesWithMap(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var h holdings
		model := map[slotKey]int64{}
		key := func() slotKey { // few values of first, so that entries meet
			return slotKey{uint64(rnd.IntN(40)) * 8, uint64(rnd.IntN(8)), uint16(rnd.IntN(3))}
		}
		for step := range 20_000 {
			k, n := key(), int64(rnd.IntN(3))+1
			if rnd.IntN(100) < 60-20*(step/4000%3) {
				h.add(&k, n)
				model[k] += n
			} else {
				h.giveBack(&k, n)
				if model[k] -= n; model[k] <= 0 {
					delete(model, k)
				}
			}
			k = key()
			if got := h.get(&k); got != model[k] {
				t.Fatalf("seed %d, step %d: %+v has %d, want %d", seed, step, k, got, model[k])
			}
			if h.n != len(model) {
				t.Fatalf("seed %d, step %d: %d entries, want %d", seed, step, h.n, len(model))
			}
		}
		if got := maps.Collect(h.all()); !maps.Equal(got, model) {
			t.Fatalf("seed %d: %v, want %v", seed, got, model)
		}
		for k := range model {
			h.giveBack(&k, 1<<40)
		}
		if h.n != 0 || len(h.entries) > fewestHoldings {
			t.Errorf("seed %d: %d entries in %d places after all were given back", seed, h.n, len(h.entries))
		}
	}
}
