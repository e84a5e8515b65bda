package capacity

import (
	"math"
	"testing"
)

// A site on the same machine needs a tenth of a millisecond. Its latency varies with what else the machine
// does, and each turn takes a moment to begin. It gets enough slots to be busy, and a queue inside it
// delays nobody by more than two milliseconds.
func TestQuickSiteIsBusy(t *testing.T) {
	for seed := range uint64(3) {
		cs := greedy(64, 1, 1, nil)
		for _, c := range cs {
			c.page = func(w *world) (uint64, demand) {
				return 1, demand{delay: w.rng.ExpFloat64() * 0.0003, work: 0.0001}
			}
		}
		load, until, sum, n := 0.0, 0.0, 0.0, 0.0
		w := &world{workers: 1, clients: cs}
		w.speed = func(now float64) float64 {
			if now >= until {
				until = now + 0.1
				load = 0.8*load + 0.25*w.rng.NormFloat64()
				sum, n = sum+math.Exp(-math.Abs(load)), n+1
			}
			return math.Exp(-math.Abs(load))
		}
		w.run(seed, 20)
		got := w.between(5, 20)
		t.Logf("%+.3v, mean speed %.2f", got, sum/n)
		if got.work < 0.9*sum/n || got.took > 0.002 {
			t.Errorf("%+.3v, mean speed %.2f", got, sum/n)
		}
		if raceDetector {
			break
		}
	}
}
