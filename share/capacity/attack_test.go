package capacity

import (
	"math"
	"testing"
	"time"
)

// A client that chooses the latency of its pages cannot change the slots, from one network or many.
func TestClientCannotMoveTheSlots(t *testing.T) {
	cases := []struct {
		name     string
		networks int
		page     func(w *world) (uint64, demand)
	}{
		{"pages of 10 s", 1, func(*world) (uint64, demand) { return 999, demand{delay: 10} }},
		{"slow on a popular page", 1, func(*world) (uint64, demand) { return 5, demand{delay: 1} }},
		{"slow on all pages", 5, func(w *world) (uint64, demand) {
			return uint64(w.rng.IntN(30)) + 1,
				demand{delay: 1}
		}},
		{"fast, then slow, and again", 5, func(w *world) (uint64, demand) {
			if math.Mod(w.now, 14) < 7 {
				return 5, demand{work: 0.001}
			}
			return 5, demand{delay: 2}
		}},
		{"slow at first, then fast", 5, func(w *world) (uint64, demand) {
			if w.now < 40 {
				return uint64(w.rng.IntN(30)) + 1, demand{delay: 1}
			}
			return uint64(w.rng.IntN(30)) + 1, demand{work: 0.001}
		}},
		{"errors", 1, func(*world) (uint64, demand) { return 7, demand{delay: 0.001, fails: true} }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cs := greedy(100, 20, 30, exponential(0.02))
			for i := range 50 {
				cs = append(cs, &client{network: uint64(5000 + i%c.networks), page: c.page})
			}
			w := &world{workers: 8, clients: cs, stalls: true}
			w.run(1, 120)
			got := w.between(40, 120)
			t.Logf("%+.3v", got)
			if got.slots < 7 || got.slots > 14 || got.low < 3 || got.high > 24 {
				t.Errorf("%+.3v", got)
			}
		})
	}
}

// A flood of new networks requests slow pages. The networks with standing show that the upstream
// has not changed.
func TestNewNetworksDoNotMoveTheSlots(t *testing.T) {
	flood := make([]*client, 400)
	for i := range flood {
		flood[i] = &client{roaming: true, from: 60, page: func(w *world) (uint64, demand) {
			return uint64(w.rng.IntN(30)) + 1, demand{work: 0.04, delay: 0.2 * math.Mod(math.Floor(w.now/5), 2)}
		}}
	}
	w := &world{workers: 8, clients: append(polite(100, 25, 0.3, exponential(0.02)), flood...)}
	w.run(1, 150)
	got := w.between(70, 150)
	t.Logf("%+.3v", got)
	if got.slots < 6 || got.slots > 40 {
		t.Errorf("%+.3v", got)
	}
}

// Few polite clients compete with a fleet that always sends requests, from four networks or from a
// new network each time.
func TestFleetsDoNotChangeTheSlots(t *testing.T) {
	roaming := greedy(400, 400, 30, exponential(0.02))
	for _, c := range roaming {
		c.roaming = true
	}
	for name, fleet := range map[string][]*client{"four": greedy(400, 4, 30, exponential(0.02)), "roaming": roaming} {
		w := &world{workers: 8, clients: append(polite(20, 20, 1, exponential(0.02)), fleet...)}
		w.run(1, 150)
		got := w.between(45, 150)
		t.Logf("%s: %+.3v", name, got)
		if got.work < 0.92*8 || got.took > 2*0.02 {
			t.Errorf("%s: %+.3v", name, got)
		}
	}
}

// A newcomer whose requests fail does not vote for a network in which clients have standing.
func TestNewcomersFailuresDoNotCountInKnownNetworks(t *testing.T) {
	score := func(failures int) float64 {
		c := New(Options{})
		now := int64(0)
		for i := range 20 {
			for network := range uint64(8) {
				now += 1e6
				known := Sample{Now: now, Path: 1, Network: network + 1, Took: 20 * time.Millisecond, Known: true}
				newcomer := known
				newcomer.Known, newcomer.Failed = false, true
				c.Sample(known)
				for range failures {
					c.Sample(newcomer)
				}
			}
			if c.round.votes == 0 && i > 2 {
				t.Fatal("nothing is counted")
			}
		}
		return c.poll().value
	}
	if calm, attacked := score(0), score(5); attacked != calm {
		t.Errorf("score %.2f, and %.2f with failures of newcomers", calm, attacked)
	}
}
