package share

import (
	sorted "container/heap"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/share/capacity"
)

// A simulation is a scheduler in front of an upstream, in virtual time. Requests in progress run in
// parallel; each takes the cost set by its client.
type simulation struct {
	t       *testing.T
	s       *scheduler
	rand    *rand.Rand
	wait    time.Duration
	retry   time.Duration // time until a refused client tries again
	now     int64
	events  events
	ready   chan *Turn
	of      map[*Turn]arrival
	busy    float64 // slot-ns that were in use
	began   int64   // of the time of busy
	largest int     // most nodes at once

	found   *capacity.Capacity // sets the slots, if not nil
	workers int                // of the upstream, if fewer than slots
	working int
	pending []func()
	slower  float64 // factor on all costs; 0: 1

	queue *Queue // makes the claims of callers with a request, if not nil
}

// A caller sends requests: a constant number always open, or at a rate.
type caller struct {
	network, addr uint64
	class         uint8
	weight        float64                        // 0: 1
	open          int                            // requests always open
	every         time.Duration                  // between requests, if not 0
	page          int                            // requests at once; 0: 1
	poisson       bool                           // every is the mean of an exponential distribution
	cost          time.Duration                  // of each
	costs         func(*rand.Rand) time.Duration // in place of cost
	path          uint64
	fresh         bool                     // each request comes from a new address
	networks      uint64                   // number of networks of these addresses; 0: each has its own
	ages          bool                     // the class is that of the time since the first request
	first         int64                    // when that was
	request       func() fairshare.Request // makes the claim, instead of network and addr
	from, until   time.Duration            // 0: the whole time

	sent, served, refused, late int
	took                        float64 // ns of the upstream's time
	waits                       []time.Duration
	latency                     []time.Duration
	retry                       []time.Duration
}

func (c *caller) claim(r *rand.Rand) *Claim {
	weight := c.weight
	if weight == 0 {
		weight = 1
	}
	network, addr := c.network, c.addr
	if c.fresh {
		network, addr = r.Uint64(), r.Uint64()
		if c.networks > 0 {
			network %= c.networks
		}
	}
	return &Claim{keys: [MaxParts + 1]uint64{network<<8 | uint64(c.class),
		network<<32 ^ addr<<8 | uint64(c.class) | 1<<60},
		depth: 2, class: c.class, weight: weight}
}

func (c *caller) takes(r *rand.Rand) time.Duration {
	if c.costs != nil {
		return c.costs(r)
	}
	return c.cost
}

// An arrival is a request of a caller, and its continuation.
type arrival struct {
	*caller
	over func()
	away func() // after a refusal; nil: over, a little later
}

type event struct {
	at  int64
	seq int
	do  func()
}
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newSimulation(t *testing.T, slots, queue int) *simulation {
	sim := &simulation{
		t: t, s: newScheduler(), rand: rand.New(rand.NewPCG(1, 2)), wait: 10 * time.Second, retry: time.Second,
		ready: make(chan *Turn, 1<<16), of: map[*Turn]arrival{},
	}
	sim.s.set(slots, queue, false, 0)
	return sim
}

func (sim *simulation) after(d time.Duration, do func()) {
	sorted.Push(&sim.events, event{sim.now + int64(d), sim.events.Len() + int(sim.s.order), do})
}

// run lets the callers send requests for that long.
func (sim *simulation) run(long time.Duration, callers ...*caller) {
	for _, c := range callers {
		until := c.until
		if until == 0 {
			until = long
		}
		end := sim.now + int64(until)
		switch {
		case c.every > 0:
			var send func()
			send = func() {
				if sim.now < end {
					for range max(c.page, 1) {
						sim.send(c, nil)
					}
					next := c.every
					if c.poisson {
						next = time.Duration(float64(next) * sim.rand.ExpFloat64())
					}
					sim.after(next, send)
				}
			}
			sim.after(c.from, send)
		default:
			var again func()
			again = func() {
				if sim.now < end {
					sim.send(c, again)
				}
			}
			sim.after(c.from, func() {
				for range c.open {
					again()
				}
			})
		}
	}
	end := sim.now + int64(long)
	for len(sim.events) > 0 && sim.events[0].at <= end {
		e := sorted.Pop(&sim.events).(event)
		sim.pass(e.at)
		e.do()
		sim.settle()
		sim.largest = max(sim.largest, len(sim.s.nodes))
		if sim.s.waiting > 0 && sim.s.inside < sim.s.slots-max(sim.s.slots/8, 1) && sim.s.workers == 0 {
			sim.t.Fatalf("%d wait, and %d of %d slots are in use", sim.s.waiting, sim.s.inside, sim.s.slots)
		}
	}
	sim.pass(end)
}

func (sim *simulation) pass(at int64) {
	busy := min(sim.s.inside, sim.s.slots)
	if sim.workers > 0 {
		busy = sim.working
	}
	sim.busy += float64(at-sim.now) * float64(busy)
	sim.now = at
}

// send sends one request. It calls over after the answer, or a little after a refusal.
func (sim *simulation) send(c *caller, over func()) { sim.sendOr(c, over, nil, 0) }

// sendOr does the same, but calls away after a refusal. The request waits for at most that long; 0:
// as long as others.
func (sim *simulation) sendOr(c *caller, over, away func(), most time.Duration) {
	t := &Turn{waiter: &waiter{ready: sim.ready}}
	if c.ages {
		if c.sent == 0 {
			c.first = sim.now
		}
		c.class = classOf(time.Duration(sim.now - c.first))
	}
	sim.of[t] = arrival{c, over, away}
	c.sent++
	claim, wait := (*Claim)(nil), sim.wait
	if c.request != nil {
		req := c.request()
		req.Time = noon.Add(time.Duration(sim.now))
		made := sim.queue.Claim(&req)
		claim, c.class = &made, made.class
		wait = made.wait
	} else {
		claim = c.claim(sim.rand)
	}
	if most > 0 {
		wait = min(wait, most)
	}
	sim.s.arrive(t, claim, sim.now)
	if t.state == inside {
		sim.begun(t)
	} else if t.state == waits {
		sim.after(wait, func() {
			if t.state == waits {
				sim.s.expire(t, sim.now)
			}
		})
	}
}

// settle handles requests whose wait is over.
func (sim *simulation) settle() {
	for {
		select {
		case t := <-sim.ready:
			if t.state == inside {
				sim.begun(t)
				continue
			}
			a := sim.of[t]
			c := a.caller
			delete(sim.of, t)
			if t.busy.Waited {
				c.late++
			} else {
				c.refused++
			}
			c.retry = append(c.retry, t.busy.RetryAfter)
			switch {
			case a.away != nil:
				a.away()
			case a.over != nil:
				sim.after(sim.retry, a.over)
			}
		default:
			return
		}
	}
}

func (sim *simulation) begun(t *Turn) {
	a := sim.of[t]
	c := a.caller
	took := c.takes(sim.rand)
	c.waits = append(c.waits, time.Duration(sim.now-t.arrived))
	if sim.slower > 0 {
		took = time.Duration(float64(took) * sim.slower)
	}
	sim.work(took, func() {
		delete(sim.of, t)
		sim.s.pass(sim.now)
		if sim.found != nil {
			sim.found.Sample(capacity.Sample{
				Now: sim.now, Path: c.path, Network: c.network + 1, Took: time.Duration(sim.now - t.began),
				Inside: t.insideThen, Waiting: sim.s.waited >= t.began,
				Known: c.class <= settled, Seen: c.class <= seenBefore,
			})
			sim.s.slots, sim.s.workers = sim.found.Slots(), sim.found.Workers()
		}
		sim.s.done(t, sim.now)
		c.served++
		c.took += float64(took)
		c.latency = append(c.latency, time.Duration(sim.now-t.arrived))
		if a.over != nil {
			a.over()
		}
	})
}

// work runs a job on a worker of the upstream, or at once if the workers are unlimited.
func (sim *simulation) work(took time.Duration, done func()) {
	if sim.workers == 0 {
		sim.after(took, done)
		return
	}
	start := func() {
		sim.working++
		sim.after(took, func() {
			sim.working--
			if len(sim.pending) > 0 {
				next := sim.pending[0]
				sim.pending = sim.pending[1:]
				next()
			}
			done()
		})
	}
	if sim.working < sim.workers {
		start()
	} else {
		sim.pending = append(sim.pending, start)
	}
}

func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Clone(of)
	slices.Sort(of)
	return of[min(int(q*float64(len(of))), len(of)-1)]
}

// jain returns Jain's fairness index: 1 if all values are equal.
func jain(of []float64) float64 {
	var sum, squares float64
	for _, x := range of {
		sum += x
		squares += x * x
	}
	return sum * sum / (squares * float64(len(of)))
}

// some returns the numbers of slots to simulate.
func some(slots ...int) []int {
	if raceDetector {
		return []int{2}
	}
	return slots
}

func near(got, want, part float64) bool { return math.Abs(got-want) <= part*want }
