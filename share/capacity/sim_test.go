package capacity

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// A world is an upstream, its clients and the queue in front of it, in virtual time.
type world struct {
	workers int     // requests processed at once, the rest queues; 0: all requests share the cores
	cores   float64 // shared equally by all requests in progress
	// speed returns the upstream's speed at a time, usually 1. It changes in steps of 100 ms.
	speed func(now float64) float64
	// crew, if set, returns the number of workers (or cores) at a time.
	crew func(now float64) int
	// room is the number of requests above which requests fail at once; 0: no limit.
	room    int
	clients []*client
	opts    Options

	c       *Capacity
	rng     *rand.Rand
	now     float64 // seconds
	events  arrivals
	waiting []*job
	stalls  bool    // they are looked for
	stirred float64 // when a request last began or finished
	inside  []*job
	log     []second
	used    map[uint64]float64
	zipf    *rand.Zipf

	least, most int     // extremes of the slots
	mostFrom    float64 // time from which most counts
	burst       float64 // when the last request of a client without pause finished
}

// A client sends a request, waits for the answer, pauses, and repeats this.
type client struct {
	network uint64
	known   bool
	from    float64                                // time of its first request
	until   float64                                // 0: without end
	pause   func(w *world) float64                 // between an answer and the next request; nil: none
	page    func(w *world) (path uint64, d demand) // the page it requests
	roaming bool                                   // each request comes from a new network
}

// A demand describes a page: first a delay without the upstream's workers, then work on one of
// them.
type demand struct {
	delay, work float64
	fails       bool
}

type job struct {
	client  *client
	network uint64
	path    uint64
	demand
	came, began float64
	inside      int
	waited      bool
	failing     bool
}

// A second sums up one second of a run.
type second struct {
	slots  float64 // mean
	done   int
	work   float64 // work that was done
	took   float64 // sum
	waited float64 // sum, before their turns
	failed int
}

type arrival struct {
	at float64
	c  *client
}
type arrivals []arrival

func (a arrivals) Len() int           { return len(a) }
func (a arrivals) Less(i, j int) bool { return a[i].at < a[j].at }
func (a arrivals) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *arrivals) Push(x any)        { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func (w *world) run(seed uint64, seconds int) {
	w.rng = rand.New(rand.NewPCG(seed, 1))
	w.c = New(w.opts)
	w.used = map[uint64]float64{}
	w.log = make([]second, seconds)
	w.least, w.most = w.c.Slots(), 0
	if w.speed == nil {
		w.speed = func(float64) float64 { return 1 }
	}
	for _, c := range w.clients {
		at := c.from
		if c.pause != nil {
			at += c.pause(w) * w.rng.Float64()
		}
		heap.Push(&w.events, arrival{at, c})
	}
	end := float64(seconds)
	for w.now < end {
		next := min(end, math.Floor(w.now*10+1e-9)/10+0.1)
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		speed := w.speed(w.now)
		if w.crew != nil && w.workers > 0 {
			w.workers = w.crew(w.now)
		} else if w.crew != nil {
			w.cores = float64(w.crew(w.now))
		}
		share := speed
		working := 0
		for _, j := range w.inside {
			if j.delay <= 0 {
				working++
			}
		}
		if w.workers == 0 {
			share *= min(1, w.cores/float64(max(1, working)))
		}
		busy := 0
		for _, j := range w.inside {
			if j.delay > 0 {
				next = min(next, w.now+j.delay)
			} else if busy++; (w.workers == 0 || busy <= w.workers) && share > 0 {
				next = min(next, w.now+j.work/share)
			}
		}
		w.pass(max(0, next-w.now), share)
		w.now = max(w.now, next)
		w.finish()
		for len(w.events) > 0 && w.events[0].at <= w.now {
			w.arrive(heap.Pop(&w.events).(arrival).c)
		}
		w.admit()
		if w.stalls && len(w.waiting) > 0 && w.now-w.stirred >= w.c.StallAfter().Seconds() {
			w.stirred = w.now
			w.c.Stall(int64(w.now * 1e9))
			w.admit()
		}
		w.extremes()
	}
}

// extremes notes the least and the most slots.
func (w *world) extremes() {
	w.least = min(w.least, w.c.Slots())
	if w.now >= w.mostFrom {
		w.most = max(w.most, w.c.Slots())
	}
}

// pass does d seconds of work.
func (w *world) pass(d, share float64) {
	s := &w.log[min(int(w.now), len(w.log)-1)]
	s.slots += d * float64(w.c.Slots())
	busy := 0
	for _, j := range w.inside {
		if j.delay > 0 {
			j.delay -= d
			if j.delay < 1e-9 {
				j.delay = 0
			}
		} else if busy++; w.workers == 0 || busy <= w.workers {
			j.work -= d * share
			s.work += d * share
		}
	}
}

func (w *world) arrive(c *client) {
	if c.until > 0 && w.now >= c.until {
		return
	}
	j := &job{client: c, came: w.now, network: c.network}
	if c.roaming {
		j.network = w.rng.Uint64()
	}
	j.path, j.demand = c.page(w)
	w.waiting = append(w.waiting, j)
}

// admit serves the network with the least use first, and reserves half of the slots for known
// clients while there are any.
func (w *world) admit() {
	for len(w.waiting) > 0 && len(w.inside) < w.c.Slots() {
		known := 0
		for _, j := range w.inside {
			if j.client.known {
				known++
			}
		}
		prefer := 2*known < w.c.Slots()
		first := 0
		for i, j := range w.waiting[:min(len(w.waiting), 1000)] {
			least := w.waiting[first]
			if a, b := j.client.known == prefer, least.client.known == prefer; a != b {
				if a {
					first = i
				}
			} else if w.used[j.network] < w.used[least.network] {
				first = i
			}
		}
		j := w.waiting[first]
		w.waiting = append(w.waiting[:first], w.waiting[first+1:]...)
		w.inside = append(w.inside, j)
		j.began, j.inside, w.stirred = w.now, len(w.inside), w.now
		j.waited = len(w.waiting) > 0
		if w.room > 0 && len(w.inside) > w.room {
			j.failing, j.delay, j.work = true, 0.001, 0
		}
	}
}

func (w *world) finish() {
	for i := 0; i < len(w.inside); i++ {
		j := w.inside[i]
		if j.delay > 0 || j.work > 1e-9 {
			continue
		}
		w.inside = append(w.inside[:i], w.inside[i+1:]...)
		i--
		took := w.now - j.began
		w.stirred = w.now
		w.used[j.network] += took
		s := &w.log[min(int(w.now), len(w.log)-1)]
		s.took += took
		s.waited += j.began - j.came
		if j.failing || j.fails {
			s.failed++
		} else {
			s.done++
		}
		w.c.Sample(Sample{
			Now: int64(w.now * 1e9), Path: j.path, Network: j.network,
			Took: time.Duration(took * 1e9), Inside: j.inside,
			Waiting: j.waited || len(w.waiting) > 0, Failed: j.failing || j.fails, Known: j.client.known,
		})
		w.extremes()
		at := w.now
		if j.client.pause == nil {
			w.burst = w.now
		} else {
			at += j.client.pause(w)
		}
		heap.Push(&w.events, arrival{at, j.client})
	}
}

// A summary describes a range of seconds.
type summary struct {
	slots, cv  float64 // mean, and standard deviation / mean
	low, high  float64
	throughput float64 // answers a second
	work       float64 // seconds of work a second
	took       float64 // mean
	failed     float64 // part
}

func (w *world) between(a, b int) summary {
	var s summary
	s.low = math.Inf(1)
	var sq, took float64
	var done, failed int
	for _, x := range w.log[a:b] {
		s.slots += x.slots
		sq += x.slots * x.slots
		s.low, s.high = min(s.low, x.slots), max(s.high, x.slots)
		done += x.done
		failed += x.failed
		took += x.took
		s.work += x.work
	}
	n := float64(b - a)
	s.slots /= n
	s.cv = math.Sqrt(max(0, sq/n-s.slots*s.slots)) / s.slots
	s.throughput = float64(done) / n
	s.work /= n
	s.took = took / float64(max(1, done+failed))
	s.failed = float64(failed) / float64(max(1, done+failed))
	return s
}

// waited returns the mean wait for a turn in the seconds from a to b.
func (w *world) waited(a, b int) float64 {
	sum, n := 0.0, 0
	for _, x := range w.log[a:b] {
		sum += x.waited
		n += x.done + x.failed
	}
	return sum / float64(max(1, n))
}

func always(d float64) func(*rand.Rand) float64 { return func(*rand.Rand) float64 { return d } }

func exponential(mean float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return max(1e-6, r.ExpFloat64()*mean) }
}

// bimodal is fast, but slow in a share of the cases.
func bimodal(fast, slow, part float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 {
		if r.Float64() < part {
			return slow
		}
		return fast
	}
}

// greedy returns n clients in some networks that request pages of that work without pause.
func greedy(n, networks, pages int, work func(*rand.Rand) float64) []*client {
	cs := make([]*client, n)
	for i := range cs {
		cs[i] = &client{network: uint64(i%networks) + 1, page: func(w *world) (uint64, demand) {
			return uint64(w.rng.IntN(pages)) + 1, demand{work: work(w.rng)}
		}}
	}
	return cs
}

// polite returns n known clients in some networks that pause between requests.
func polite(n, networks int, pause float64, work func(*rand.Rand) float64) []*client {
	cs := make([]*client, n)
	for i := range cs {
		cs[i] = &client{
			network: uint64(i%networks) + 1000, known: true,
			pause: func(w *world) float64 { return w.rng.ExpFloat64() * pause },
			page: func(w *world) (uint64, demand) {
				return uint64(w.rng.IntN(30)) + 1, demand{work: work(w.rng)}
			},
		}
	}
	return cs
}
