package cputime

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSlowMatchesAModel compares slow with a model that simulates a sample in steps of 1 µs and
// tries numbers of cores.
func TestSlowMatchesAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 50 {
		const from, to = 1, 2_000_001
		l := newLedger(64)
		var foreseen float64
		rates := map[*request]float64{}
		l.last = from
		for i := range 1 + rng.IntN(12) {
			r := &request{hash: uint64(i), began: from + rng.Int64N(to-from)/1000*1000}
			if rng.IntN(3) > 0 {
				r.end = r.began + 1000 + rng.Int64N(to-r.began)/1000*1000
				r.end = min(r.end, to)
			}
			l.open = append(l.open, r)
			rate := 0.1 + 0.9*rng.Float64()
			rates[r] = rate
			r.known = &path{rate: float32(rate)}
		}
		l.measure(to)
		for _, r := range l.open {
			foreseen += float64(r.own) * float64(r.known.rate)
		}
		used := foreseen * rng.Float64()
		l.cut(from, to)
		l.foresee()
		l.slow(used)

		model := func(cores float64) (map[*request]float64, float64) {
			shares, sum := map[*request]float64{}, 0.0
			for at := int64(from); at < to; at += 1000 {
				demand := 0.0
				for _, r := range l.open {
					if r.began <= at && (r.end == 0 || r.end > at) {
						demand += rates[r]
					}
				}
				for _, r := range l.open {
					if r.began <= at && (r.end == 0 || r.end > at) {
						x := rates[r] * min(1, cores/demand) * 1000
						shares[r] += x
						sum += x
					}
				}
			}
			return shares, sum
		}
		low, high := 0.0, 16.0
		for range 40 {
			mid := (low + high) / 2
			if _, sum := model(mid); sum < used {
				low = mid
			} else {
				high = mid
			}
		}
		want, _ := model(high)
		for i, r := range l.open {
			if math.Abs(r.share-want[r]) > 1+1e-4*want[r] {
				t.Fatalf("round %d, request %d: share %.0f, the model has %.0f", round, i, r.share, want[r])
			}
		}
	}
}

// TestSharesKeepTheirBounds gives a ledger random samples. No request is charged more than its own
// time, and all together at most the CPU time used.
func TestSharesKeepTheirBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		l := newLedger(4)
		now := int64(1)
		l.unsampled(now, nil)
		var used int64
		for range 30 {
			from := now
			now += 1 + rng.Int64N(100_000_000)
			for range rng.IntN(120) {
				r := &request{hash: rng.Uint64N(10), began: from + rng.Int64N(now-from)}
				if rng.IntN(2) == 0 {
					r.end = r.began + rng.Int64N(200_000_000)
				}
				l.open = append(l.open, r)
			}
			for _, r := range l.open {
				if r.end == 0 && rng.IntN(4) == 0 {
					r.end = now
				}
			}
			u := usage{used: rng.Int64N(4*(now-from) + 1), processes: rng.IntN(8)}
			for rest, i := u.used, 0; i < u.processes && rest > 0; i++ {
				p := min(rest, rng.Int64N(now-from)+1)
				u.parts = append(u.parts, part{i, p})
				rest -= p
			}
			used += u.used
			all := append([]*request(nil), l.open...)
			l.sample(now, &u, nil)
			for _, r := range all {
				end := now
				if r.end != 0 {
					end = min(end, r.end)
				}
				if got := r.spent.Load(); got < 0 || got > max(0, end-r.began) {
					t.Fatalf("%d ns charged for %d ns in progress", got, end-r.began)
				}
				if rate := float64(r.known.rate); !(rate > 0 && rate <= 1) {
					t.Fatalf("rate %v", rate)
				}
			}
		}
		if l.charged+l.background != used {
			t.Fatalf("%d charged and %d not charged, of %d", l.charged, l.background, used)
		}
		if over := l.charged - used; over > 30*200 {
			t.Fatalf("%d ns more charged than used", over)
		}
	}
}

// Without samples, requests that wait for a heavy one are not charged for it: all together are
// charged at most the time of all cores.
func TestUnsampledTimeIsNoMoreThanTheCores(t *testing.T) {
	for _, test := range []struct {
		requests int
		want     int64 // ns each, of a second
	}{{1, 1e9}, {2, 1e9}, {8, 25e7}} {
		l := newLedger(2)
		l.unsampled(1, nil)
		for range test.requests {
			l.open = append(l.open, &request{began: 1, end: 1e9 + 1})
		}
		for _, r := range l.unsampled(1e9+1, nil) {
			if got := r.spent.Load(); got != test.want {
				t.Errorf("%d requests: %d ns, want %d", test.requests, got, test.want)
			}
		}
		if want := test.want * int64(test.requests); l.own != want {
			t.Errorf("%d requests: %d ns in all, want %d", test.requests, l.own, want)
		}
	}
}

func TestManySegmentsAreBounded(t *testing.T) {
	l := newLedger(2)
	l.unsampled(1, nil)
	for i := range int64(5000) {
		l.open = append(l.open, &request{began: 1 + i*10_000, end: 5_001 + i*10_000})
	}
	settled := l.sample(50_000_001, &usage{used: 20_000_000}, nil)
	if len(l.cuts) > maxSegments+1 {
		t.Errorf("%d cuts", len(l.cuts))
	}
	var sum int64
	for _, r := range settled {
		sum += r.spent.Load()
	}
	if len(settled) != 5000 || math.Abs(float64(sum-20_000_000)) > 5000 {
		t.Errorf("%d settled with %d ns", len(settled), sum)
	}
}

// TestFloodOfPathsKeepsKnownPaths: paths with one request each do not replace known paths.
func TestFloodOfPathsKeepsKnownPaths(t *testing.T) {
	p := newPaths()
	rng := rand.New(rand.NewPCG(7, 8))
	known := make([]uint64, 300)
	for i := range known {
		known[i] = rng.Uint64()
		for range 50 {
			p.use(known[i])
		}
		p.find(known[i]).rate = 0.25
	}
	for range 20_000 {
		p.use(rng.Uint64())
	}
	for _, hash := range known {
		if q := p.find(hash); q == &p.unknown || q.rate != 0.25 {
			t.Fatalf("path %x is forgotten", hash)
		}
	}
	if p.known > sets*ways {
		t.Errorf("%d paths known, room for %d", p.known, sets*ways)
	}
}

func TestUnusedPathsAreReplaced(t *testing.T) {
	p := newPaths()
	for i := range uint64(ways) { // one set is full
		for range 10 {
			p.use(1 + i*sets)
		}
	}
	fresh := uint64(1 + ways*sets)
	for range 100 {
		p.use(fresh)
	}
	if p.find(fresh) == &p.unknown {
		t.Error("a path asked for 100 times has no place")
	}
}

func TestOrderFindsRequestsAtOnce(t *testing.T) {
	for _, n := range []int{1, 4, 16} {
		rng := rand.New(rand.NewPCG(uint64(n), 1))
		var o order
		var open []*request
		now := int64(1)
		for range 3000 {
			now += 10_000_000
			for len(open) < 40 {
				open = append(open, &request{began: now - 5_000_000 + int64(len(open))})
			}
			r := open[rng.IntN(n)]
			r.end = now - 2_000_000
			o.note(open, now)
			for i, other := range open {
				if other == r {
					open = append(open[:i], open[i+1:]...)
					break
				}
			}
		}
		if got := o.servers(); got != n {
			t.Errorf("%d worked on at once, want %d", got, n)
		}
	}
}
