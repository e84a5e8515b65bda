package capacity

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// With every kind of upstream, within half a minute the slots are just enough to keep it busy,
// without a queue inside it, and they stay so.
func TestSettles(t *testing.T) {
	type bounds struct{ busy, slow, cv float64 }
	works := []struct {
		name string
		work func(*rand.Rand) float64
		few  bounds // for up to 3 workers, where one slot more matters
		many bounds
	}{
		{"fixed", always(0.02), bounds{0.92, 1.6, 0.4}, bounds{0.97, 1.6, 0.15}},
		{"exponential", exponential(0.02), bounds{0.85, 5.5, 0.8}, bounds{0.93, 1.7, 0.25}},
		// one in ten takes eleven times as long
		{"bimodal", bimodal(0.01, 0.11, 0.1), bounds{0.75, 5.5, 0.8}, bounds{0.85, 1.8, 0.35}},
	}
	for _, work := range works {
		for _, k := range []int{1, 2, 3, 4, 8, 16, 64} {
			if raceDetector && k > 8 {
				continue
			}
			for _, kind := range []string{"workers", "cores"} {
				t.Run(fmt.Sprint(work.name, "/", k, kind), func(t *testing.T) {
					w := &world{clients: greedy(3*k+40, 20, 30, work.work)}
					if kind == "workers" {
						w.workers = k
					} else {
						w.cores = float64(k)
					}
					want, seconds := work.many, 90
					if k <= 4 { // few requests a second
						seconds = 300
					}
					if k <= 3 {
						want = work.few
					}
					w.run(1, seconds)
					got := w.between(30, seconds)
					t.Logf("%+.3v of %d, slow %.2f", got, k, got.took/0.02)
					if got.work < want.busy*float64(k) || got.took > want.slow*0.02 || got.cv > want.cv {
						t.Errorf("busy %.3f, slow %.2f, cv %.2f; want %+v", got.work/float64(k), got.took/0.02,
							got.cv, want)
					}
				})
			}
		}
	}
}

// With pages of 20 ms the upstream reaches 90 % of its throughput within ten seconds.
func TestSettlesQuickly(t *testing.T) {
	for _, k := range []int{8, 16, 64} {
		if raceDetector && k > 8 {
			continue
		}
		w := &world{workers: k, clients: greedy(3*k+40, 20, 30, always(0.02))}
		w.run(1, 20)
		if got := w.between(10, 20); got.work < 0.9*float64(k) {
			t.Errorf("%d workers: %+.3v", k, got)
		}
	}
}

// Nine seconds after a quiet start many requests arrive at once. If all pages are alike, the
// upstream is busy a second later, and otherwise some seconds later. There are never more than
// twice as many slots as workers, or four times as many if half of the requests are for very quick
// pages.
func TestBurst(t *testing.T) {
	cases := []struct {
		name        string
		work, quick func(*rand.Rand) float64
		busy        float64 // share, in the seconds 2 to 8
		soon        float64 // share, in the second 1 to 2
		most        int
	}{
		{"fixed", always(0.02), always(0.02), 0.97, 0.97, 16},
		{"exponential", exponential(0.02), exponential(0.02), 0.65, 0.45, 16},
		{"a fleet of quick pages", always(0.02), always(0.001), 0.5, 0.5, 32},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			come := greedy(400, 4, 1, c.work)
			for i, one := range come {
				one.from = 9
				if i%2 == 0 {
					one.page = func(w *world) (uint64, demand) { return 1, demand{work: c.quick(w.rng)} }
				}
			}
			w := &world{workers: 8, clients: append(polite(20, 20, 1, c.work), come...), mostFrom: 9}
			w.run(1, 60)
			first, soon, later := w.between(10, 11), w.between(11, 17), w.between(30, 60)
			t.Logf("%+.3v, then %+.3v, then %+.3v; at most %d", first, soon, later, w.most)
			if soon.work < c.busy*8 || first.work < c.soon*8 || later.work < 0.9*8 || w.most > c.most {
				t.Errorf("%+.3v, then %+.3v, then %+.3v; at most %d", first, soon, later, w.most)
			}
		})
	}
}

// With pages of a second there are few samples per second.
func TestSlowPages(t *testing.T) {
	for _, k := range []int{2, 16} {
		for name, work := range map[string]func(*rand.Rand) float64{"fixed": always(1), "exponential": exponential(1)} {
			w := &world{workers: k, clients: greedy(50, 20, 30, work)}
			w.run(1, 1200)
			got := w.between(180, 1200)
			t.Logf("%s %d: %+.3v", name, k, got)
			if got.work < 0.8*float64(k) || got.took > 2.5 {
				t.Errorf("%d workers, %s: %+.3v", k, name, got)
			}
		}
	}
}

// A page spends most of its time outside the upstream, so two cores need at least 12 requests in
// progress.
func TestDelays(t *testing.T) {
	delay, work := exponential(0.05), exponential(0.01)
	cs := greedy(100, 20, 30, nil)
	for _, c := range cs {
		c.page = func(w *world) (uint64, demand) {
			return uint64(w.rng.IntN(30)), demand{delay: delay(w.rng), work: work(w.rng)}
		}
	}
	w := &world{cores: 2, clients: cs}
	w.run(1, 90)
	got := w.between(30, 90)
	t.Logf("%+.3v", got)
	if got.work < 0.88*2 || got.took > 2*0.06 || got.cv > 0.3 {
		t.Errorf("%+.3v", got)
	}
}

// With free capacity no request waits for long, and slots do not grow without demand.
func TestFreeCapacity(t *testing.T) {
	w := &world{workers: 8, clients: polite(400, 50, 2, exponential(0.02))}
	w.run(1, 120)
	got := w.between(30, 120)
	t.Logf("%+.3v", got)
	if got.slots < 6 || got.slots > 20 || got.took > 1.1*0.02 || w.waited(30, 120) > 0.002 {
		t.Errorf("%+.3v, mean wait %.4f s", got, w.waited(30, 120))
	}

	w = &world{workers: 8, clients: polite(5, 5, 50, exponential(0.02))} // a night
	w.run(1, 3600)
	if got := w.between(0, 3600); got.low != calmSlots || got.high != Start {
		t.Errorf("slots grew in idle time: %+.3v", got)
	}
}

// Most paths are requested rarely, or never twice.
func TestManyPaths(t *testing.T) {
	work := exponential(0.02)
	zipf := greedy(100, 20, 30, nil)
	for _, c := range zipf {
		c.page = func(w *world) (uint64, demand) {
			if w.zipf == nil {
				w.zipf = rand.NewZipf(w.rng, 1.01, 1, 100_000)
			}
			p := w.zipf.Uint64() + 1
			return p * 0x9e3779b97f4a7c15, demand{work: work(w.rng) * (0.2 + float64(p%17)/8)}
		}
	}
	unique := greedy(100, 20, 30, nil)
	for _, c := range unique {
		c.page = func(w *world) (uint64, demand) { return w.rng.Uint64(), demand{work: work(w.rng)} }
	}
	for name, cs := range map[string][]*client{"zipf": zipf, "unique": unique} {
		w := &world{workers: 8, clients: cs}
		w.run(1, 120)
		got := w.between(30, 120)
		t.Logf("%s: %+.3v", name, got)
		if got.work < 0.9*8 || got.took > 2*0.024 || got.cv > 0.35 {
			t.Errorf("%s: %+.3v", name, got)
		}
	}
}

// There are ten thousand networks with a few requests each.
func TestManyNetworks(t *testing.T) {
	cs := greedy(10_000, 10_000, 30, exponential(0.02))
	for _, c := range cs {
		c.pause = func(w *world) float64 { return 40 * w.rng.Float64() }
	}
	w := &world{workers: 8, clients: cs}
	w.run(1, 90)
	got := w.between(40, 90)
	t.Logf("%+.3v", got)
	if got.work < 0.9*8 || got.took > 2*0.02 || got.cv > 0.35 {
		t.Errorf("%+.3v", got)
	}
}

// Slots is between Min and Max at every moment.
func TestBounds(t *testing.T) {
	for _, o := range []Options{{}, {Min: 12, Max: 20}, {Min: 2, Max: 3}, {Min: 9}, {Max: 1}, {Min: 5, Max: 2},
		{Min: -1, Max: -1}} {
		lo, hi := max(o.Min, 1), o.Max
		if hi < 1 {
			hi = 1024
		}
		hi = max(lo, hi)
		w := &world{workers: 8, clients: greedy(100, 20, 30, exponential(0.02)), opts: o}
		w.run(1, 30)
		if w.least < lo || w.most > hi {
			t.Errorf("%+v: between %d and %d", o, w.least, w.most)
		}
		w.c.Replace(Options{Min: 3, Max: 4})
		if n := w.c.Slots(); n < 3 || n > 4 {
			t.Errorf("after Replace: %d", n)
		}
	}
}
