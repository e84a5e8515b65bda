package memlimit

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// A holdings behaves like a map under random additions and removals, and
// becomes small again. Holders may be kept over changes.
func TestHoldingsAgreesWithMap(t *testing.T) {
	seeds := uint64(20)
	if raceEnabled || testing.Short() { // one goroutine
		seeds = 2
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var h holdings
		model := map[holding]int64{}
		kept := map[keyName]*holder{}
		random := func() (*holder, holding) { // few values of first, so that cells meet
			k := holding{keyName{uint64(rnd.IntN(40)) * 8, uint64(rnd.IntN(4))}, uint16(1 + rnd.IntN(6))}
			if kept[k.keyName] == nil || rnd.IntN(3) == 0 {
				kept[k.keyName] = &holder{keyName: k.keyName, cellIndex: rnd.IntN(3) - 1}
			}
			return kept[k.keyName], k
		}
		for step := range 20_000 {
			of, k := random()
			n := int64(rnd.IntN(3)) + 1
			switch {
			case rnd.IntN(100) >= 60-20*(step/4000%3):
				h.giveBack(of, k.id, n)
				if model[k] -= n; model[k] <= 0 {
					delete(model, k)
				}
			case h.get(of, k.id) == 0:
				h.begin(of, k.id, n)
				model[k] += n
			default:
				h.add(of, k.id, n)
				model[k] += n
			}
			of, k = random()
			if got := h.get(of, k.id); got != model[k] {
				t.Fatalf("seed %d, step %d: %+v has %d, want %d", seed, step, k, got, model[k])
			}
			used := 0
			for i := range h.cells {
				if h.cells[i].ids != 0 {
					used++
				}
			}
			if h.n != used || used > len(model) {
				t.Fatalf("seed %d, step %d: %d of %d cells for %d amounts", seed, step, h.n, used, len(model))
			}
		}
		if got := maps.Collect(h.all()); !maps.Equal(got, model) {
			t.Fatalf("seed %d: %v, want %v", seed, got, model)
		}
		for k := range model {
			h.giveBack(&holder{keyName: k.keyName}, k.id, 1<<40)
		}
		if h.n != 0 || len(h.cells) > fewestCells {
			t.Errorf("seed %d: %d cells of %d after all were given back", seed, h.n, len(h.cells))
		}
	}
}
