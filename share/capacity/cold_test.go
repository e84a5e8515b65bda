package capacity

import (
	"math"
	"slices"
	"testing"
)

// once returns n clients in some networks that each send one request at that time.
func once(n, networks int, at, work float64) (cs []*client) {
	for i := range n {
		cs = append(cs, &client{network: uint64(i%networks) + 1, from: at, until: at + 1e-6,
			page: func(*world) (uint64, demand) { return 5, demand{work: work} }})
	}
	return cs
}

// A burst at an upstream with enough room, idle or with a quiet start, hardly waits.
func TestBurstWithRoom(t *testing.T) {
	for _, c := range []struct {
		name   string
		cs     []*client
		at     float64
		latest float64 // when the last request is answered, after the burst
	}{
		{"100 of 0.5 s, cold, one network", once(100, 1, 1, 0.5), 1, 1.35},
		{"100 of 0.5 s, cold, many networks", once(100, 100, 1, 0.5), 1, 1.35},
		{"100 of 0.02 s, cold", once(100, 100, 1, 0.02), 1, 0.3},
		{"20 of 3 s, cold", once(20, 1, 1, 3), 1, 3.01},
		{"100 of 3 s, cold", once(100, 100, 1, 3), 1, 6.01},
		{"100 of 0.5 s, after 20 s", append(polite(20, 20, 1, exponential(0.02)), once(100, 50, 20, 0.5)...), 20, 4.6},
		{"100 of 0.02 s, after 20 s", append(polite(20, 20, 1, exponential(0.02)), once(100, 50, 20, 0.02)...), 20, 1},
	} {
		w := &world{stalls: true, workers: 1000, clients: c.cs}
		w.run(1, 40)
		t.Logf("%s: last %.2f s, mean wait %.3f, at most %d", c.name, w.burst-c.at, w.waited(0, 40), w.most)
		if w.burst-c.at > c.latest {
			t.Errorf("%s: the last answer comes after %.2f s", c.name, w.burst-c.at)
		}
	}
}

// A swarm that is there from the start has at most 32 requests in a small upstream, or 64 with pages that take
// longer than 250 ms, and fewer within some seconds.
func TestSwarmAtTheStart(t *testing.T) {
	for _, c := range []struct {
		name    string
		workers int
		work    float64
		within  int     // seconds until the slots fit
		slow    float64 // mean slowdown then
	}{
		{"4 workers, 20 ms", 4, 0.02, 3, 3},
		{"4 workers, 100 ms", 4, 0.1, 6, 3},
		{"8 workers, 20 ms", 8, 0.02, 3, 2.2},
		{"8 workers, 200 ms", 8, 0.2, 8, 3},
		{"4 workers, 1 s", 4, 1, 40, 3},
		{"2 workers, 50 ms", 2, 0.05, 8, 4},
	} {
		for _, networks := range []int{4, 400} {
			w := &world{stalls: true, workers: c.workers, clients: greedy(400, networks, 30, always(c.work))}
			w.run(1, 60)
			var slots []int
			for _, s := range w.log[:12] {
				slots = append(slots, int(math.Round(s.slots)))
			}
			got := w.between(c.within, c.within+10)
			t.Logf("%s, %d networks: %d, slow %.1f, busy %.2f, at most %d", c.name, networks, slots, got.took/c.work,
				got.work/float64(c.workers), slices.Max(slots))
			if got.took > c.slow*c.work || got.work < 0.6*float64(c.workers) {
				t.Errorf("%s, %d networks: slow %.1f, busy %.2f", c.name, networks, got.took/c.work,
					got.work/float64(c.workers))
			}
		}
	}
}
