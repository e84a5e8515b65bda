package cputime

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A simulated upstream has workers that take requests in order of arrival and share cores. Time
// advances in steps of 0.1 ms.
type upstream struct {
	workers    int
	cores      float64
	threads    bool    // of one process
	background float64 // cores used without a request
	clients    []caller
}

// A caller is a client of the simulated upstream.
type caller struct {
	path   func(*rand.Rand) string
	work   func(*rand.Rand) []float64 // ms: CPU, waiting, CPU, …
	always int                        // requests unfinished open, each begun 5 ms or so after the last one ended
	rate   float64                    // further requests a second
}

type simulated struct {
	*request
	client int
	work   []float64
	worker int
}

// run simulates an upstream for that many seconds. It returns for each client the ms spent and
// charged, and the ms charged to no client.
func (u upstream) run(l *ledger, seconds int, rng *rand.Rand) (spent, charged []float64, lost float64) {
	const step = 100_000 // ns
	const every = 50_000_000
	n := len(u.clients)
	spent, charged = make([]float64, n), make([]float64, n)
	starts := make([][]float64, n) // ms at which a caller begins its next
	for i, c := range u.clients {
		for range c.always {
			starts[i] = append(starts[i], rng.Float64()*100)
		}
		if c.rate > 0 {
			starts[i] = append(starts[i], rng.ExpFloat64()/c.rate*1000)
		}
	}
	owner := map[*request]int{}
	var queued, running []*simulated
	busy := make([]bool, u.workers)
	used := make([]float64, u.workers) // ns in this sample
	var settled []*request
	background, usedAll := 0.0, 0.0
	next := int64(every)
	l.unsampled(1, nil)
	for now := int64(1); now < int64(seconds)*1e9; now += step {
		ms := float64(now) / 1e6
		for i, c := range u.clients {
			open := c.rate > 0
			for k := 0; k < len(starts[i]); k++ {
				if ms < starts[i][k] {
					continue
				}
				r := &simulated{request: &request{hash: hashOf(c.path(rng)), began: now}, client: i,
					work: slices.Clone(c.work(rng))}
				owner[r.request] = i
				l.open = append(l.open, r.request)
				queued = append(queued, r)
				if open && k == len(starts[i])-1 {
					starts[i][k] += rng.ExpFloat64() / c.rate * 1000
				} else {
					starts[i][k] = math.Inf(1)
				}
			}
		}
		for len(queued) > 0 {
			worker := slices.Index(busy, false)
			if worker < 0 {
				break
			}
			busy[worker] = true
			queued[0].worker = worker
			running = append(running, queued[0])
			queued = queued[1:]
		}
		ready := 0
		for _, r := range running {
			if len(r.work)%2 == 1 {
				ready++
			}
		}
		speed := min(1, u.cores/float64(max(ready, 1)))
		unfinished := running[:0]
		for _, r := range running {
			rest := 0.1
			for len(r.work) > 0 && rest > 1e-9 {
				pace := 1.0
				if len(r.work)%2 == 1 {
					pace = speed
				}
				d := min(rest*pace, r.work[0])
				r.work[0] -= d
				rest -= d / pace
				if len(r.work)%2 == 1 {
					spent[r.client] += d
					w := r.worker
					if u.threads {
						w = 0
					}
					used[w] += d * 1e6
				}
				if r.work[0] <= 1e-9 {
					r.work = r.work[1:]
				}
			}
			if len(r.work) > 0 {
				unfinished = append(unfinished, r)
				continue
			}
			r.end = now + step
			busy[r.worker] = false
			if c := u.clients[r.client]; c.always > 0 {
				k := slices.Index(starts[r.client], math.Inf(1))
				starts[r.client][k] = ms + 0.1 + 5*(0.5+rng.Float64())
			}
		}
		running = unfinished
		if now+step >= next {
			next = now + step + every + int64(rng.Float64()*every/10) // a late timer
			seen := usage{processes: u.workers + 1, threads: u.workers + 1}
			if u.threads {
				seen.processes, seen.threads = 1, u.workers
			}
			total := u.background * float64(now+step-l.last)
			background += total
			for worker, ns := range used {
				if ns > 0 {
					seen.parts = append(seen.parts, part{worker + 1, int64(ns)})
				}
				total += ns
				used[worker] = 0
			}
			seen.used = int64(total)
			usedAll += total
			settled = l.sample(now+step, &seen, settled[:0])
			for _, r := range settled {
				charged[owner[r]] += float64(r.spent.Load()) / 1e6
				delete(owner, r)
			}
		}
	}
	for r, i := range owner {
		charged[i] += float64(r.spent.Load()) / 1e6
	}
	return spent, charged, (float64(l.background) - background) / 1e6
}

func hashOf(path string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(path) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func at(path string) func(*rand.Rand) string { return func(*rand.Rand) string { return path } }
func cpu(ms ...float64) func(*rand.Rand) []float64 {
	return func(r *rand.Rand) []float64 {
		noisy := slices.Clone(ms)
		for i := range noisy {
			noisy[i] *= 0.8 + 0.4*r.Float64()
		}
		return noisy
	}
}
func random(ms float64) func(*rand.Rand) []float64 {
	return func(r *rand.Rand) []float64 { return []float64{ms * r.ExpFloat64()} }
}
func times(n int, c caller) []caller { return slices.Repeat([]caller{c}, n) }

// A scenario has bounds for the error of the heavy client's sum and of each light client's, %. The
// bounds of clients that mostly wait are wide, and only detect that results get worse.
type scenario struct {
	name         string
	u            upstream
	seconds      int
	heavy, light float64
}

func scenarios() []scenario {
	heavy := func(ms float64, n int) []caller {
		return []caller{{path: at("/heavy"), work: cpu(ms), always: n}}
	}
	light := func(path string, rate float64, ms ...float64) []caller {
		return times(8, caller{path: at(path), work: cpu(ms...), rate: rate})
	}
	var many []caller
	for i := range 20 {
		many = append(many, caller{path: at(fmt.Sprint("/", i)), work: cpu(float64(i+1) / 2), rate: 8})
	}
	unique := times(8, caller{path: func(r *rand.Rand) string { return fmt.Sprint("/", r.Uint64()) }, work: cpu(5),
		rate: 3})
	randomly := append([]caller{{path: at("/heavy"), work: random(200), always: 2}},
		times(8, caller{path: at("/a"), work: random(5), rate: 3})...)
	rare := []caller{{path: at("/heavy"), work: cpu(1000), rate: 0.2}}
	waiting := []caller{{path: at("/heavy"), work: cpu(100, 100, 100), always: 3}}
	processes := func(n int, clients ...[]caller) upstream {
		return upstream{workers: n, cores: 2, clients: slices.Concat(clients...)}
	}
	threads := func(n int, cores float64, clients ...[]caller) upstream {
		return upstream{workers: n, cores: cores, threads: true, clients: slices.Concat(clients...)}
	}
	noisy := processes(8, heavy(200, 1), light("/a", 2, 5))
	noisy.background = 0.1
	return []scenario{
		{"processes: a heavy client", processes(8, heavy(200, 1), light("/a", 2, 5)), 40, 5, 15},
		{"processes: four heavy clients on two cores", processes(8, heavy(200, 4), light("/a", 2, 5)), 40, 5, 20},
		{"processes: heavy clients on the light clients' path", processes(8, heavy(200, 4), light("/heavy", 2, 5)),
			40, 5, 15},
		{"processes: 30 heavy clients for 8", processes(8, heavy(100, 30), light("/a", 2, 5)), 60, 5, 15},
		{"processes: 8 heavy clients for 4", processes(4, heavy(100, 8), light("/a", 2, 5)), 60, 5, 15},
		{"processes: nearly all taken", processes(8, heavy(100, 7), light("/a", 2, 2)), 40, 5, 30},
		{"processes: many short pages", processes(8, heavy(200, 1), many), 40, 5, 20},
		{"processes: random costs", processes(8, randomly), 40, 5, 15},
		{"processes: unique paths", processes(8, heavy(200, 2), unique), 40, 5, 15},
		{"processes: background work", noisy, 40, 5, 15},
		{"processes: light pages wait, a heavy client", processes(32, heavy(500, 1), light("/a", 3, 1, 50, 1)), 60,
			10, 120},
		{"processes: light pages wait, two heavy clients", processes(32, heavy(500, 2), light("/a", 3, 1, 50, 1)), 60,
			10, 120},
		{"one thread", threads(1, 1, heavy(200, 1), light("/a", 2, 3)), 40, 2, 5},
		{"one thread: a heavy client now and then", threads(1, 1, rare, light("/a", 2, 3)), 60, 2, 5},
		{"one thread: a heavy client on the light clients' path", threads(1, 1, heavy(200, 1), light("/heavy", 2, 3)),
			40, 2, 5},
		{"threads with a lock", threads(32, 1, heavy(1000, 4), light("/a", 2, 3)), 40, 5, 15},
		{"threads: a heavy client", threads(32, 2, heavy(200, 1), light("/a", 2, 5)), 40, 5, 15},
		{"threads: four heavy clients on two cores", threads(32, 2, heavy(200, 4), light("/a", 2, 5)), 40, 5, 15},
		{"threads: many short pages", threads(32, 2, heavy(200, 1), many), 40, 5, 15},
		{"threads: unique paths", threads(32, 2, heavy(200, 2), unique), 40, 5, 15},
		{"threads: light pages wait, two heavy clients", threads(32, 2, heavy(500, 2), light("/a", 3, 1, 50, 1)), 60,
			60, 2000},
		{"threads: all wait", threads(32, 2, waiting, light("/a", 3, 1, 100, 1)), 60, 60, 2500},
	}
}

// TestSharingOut checks how exact the sums of clients are with several kinds of upstreams, from the
// first second on.
func TestSharingOut(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			l := newLedger(2)
			spent, charged, lost := s.u.run(&l, s.seconds, rand.New(rand.NewPCG(1, 2)))
			var lights []float64
			all := 0.0
			for i := range spent {
				off := 100 * (charged[i]/spent[i] - 1)
				bound := s.light
				if i == 0 {
					bound = s.heavy
				} else {
					lights = append(lights, off)
				}
				if math.Abs(off) > bound {
					t.Errorf("client %d: %.0f ms charged, %.0f ms spent: %+.1f %%, want within %v %%", i, charged[i],
						spent[i], off, bound)
				}
				all += spent[i]
			}
			if math.Abs(lost) > all/25 {
				t.Errorf("%.0f ms of %.0f ms were charged to no request", lost, all)
			}
			slices.Sort(lights)
			t.Logf("heavy client %+.1f %%, light clients %+.1f to %+.1f %%, no client %+.1f %%, %d at once",
				100*(charged[0]/spent[0]-1), lights[0], lights[len(lights)-1], 100*lost/all, l.order.servers())
		})
	}
}
