// Package capacity finds how many requests an upstream works on at once, by
// watching its latency. Start with [New]; tell every finished request to
// [Capacity.Sample] and let [Capacity.Slots] requests in.
//
// Time is cut in rounds of constant slots, as long as it takes to know their
// score to about 6 % (at least 1/4 s and 5 requests one after another, rarely
// more than 5 s). What requests took is compared with what the same path
// usually takes without a queue, in logarithms, so that no heavy tail decides:
//
//	network: mean of ln(took/usual) − ln(1 − part that failed)
//	score:   median over the networks
//
// A network counts once, whatever it asks for, and networks of clients without
// standing count at most half as often as those with it. The usual time of a
// path is a geometric mean with bounded steps (Huber 1964), the first 3 samples
// of a path do not vote, and paths and networks live in tables of fixed size
// where nothing that is in use gives way to what is new.
//
// The floor is the score without a queue, and slowdown = exp(score − floor).
// An upstream of k workers or cores with n > k requests inside has slowdown
// n/k (Little's law), wherever its queue is. While requests wait for turns:
//
//	slowdown ≤ 1.2   more slots: an eighth; when that goes on a quarter, then a half
//	slowdown ≤ 1.5   left alone
//	above, and every 30 s or 100 requests one after another   a probe: a round with 3/5 of the slots, or fewer
//
// A probe tells a queue of our making from an upstream that is slow by itself:
//
//	score falls by more than ln 1.25   fewer slots help: as many as give slowdown 1.3, once a
//	                                   second round with all of them has confirmed it
//	else                               they do not: the slots return, and this is the new floor
//
// So pages whose latency somebody chooses are not taken for a queue, whatever
// part of the networks he has: they do not follow the slots. Slots that were too many
// are not tried again for 10 to 20 s. Failures count by their part only:
// a quick 503 is no quick answer, and a page that always fails is a floor.
//
// When a burst follows a quiet start, slots double each round until a score is
// high (the slow start of TCP, RFC 5681, section 3.1), and rounds need little
// precision. The round before is the probe of the last doubling: 8 workers of 20
// ms have 8 slots within a second, 16 for half a second, 10 from then on.
//
// In simulations (see the tests) it settles in some 10 s with pages of 20 ms,
// and in 3 minutes with pages of 1 s; then the upstream is 93 to 99 % busy and
// requests take 1.1 to 1.5 times as long as alone. An upstream of
// one or two workers whose pages scatter much is less exact: 80 % busy, or five
// slots instead of one. Set the capacity there.
//
// The ideas are those of TCP Vegas (Brakmo and Peterson 1995: the delay above
// a base is the queue), BBR (Cardwell et al. 2016: the base is found by sending
// less for a moment), BIC (Xu et al. 2004: remember what was too much) and the
// gradient limits of Netflix's concurrency-limits; the median of means is that
// of Nemirovsky and Yudin (1983).
package capacity

import (
	"math"
	"time"
)

// Options are the bounds of a Capacity.
type Options struct {
	Min, Max int // 0: 1 and 1024
}

// A Sample is one finished request.
type Sample struct {
	Now     int64         // when it finished, in ns; never runs backwards
	Path    uint64        // seeded hash
	Network uint64        // seeded hash
	Took    time.Duration // from its turn to the end of the upstream's work
	Inside  int           // requests inside when it began, itself among them
	Waiting bool          // somebody waited for a turn meanwhile
	Failed  bool          // 5xx, timeout, broken connection: its time tells nothing
	Known   bool          // the client has standing
}

// Start is the number of slots before anything is known, within the bounds.
const Start = 4

// A Capacity finds how many requests the upstream works on at once. It is not
// safe for concurrent use. It takes 250 KiB.
type Capacity struct {
	min, max int
	slots    int

	paths    paths
	networks networks
	stray    path // all paths without a usual time of their own, together
	strayed  bool // most samples are of such paths: they vote too
	strays   int  // how many, of the last
	seen     int  // up to 256

	round round
	score score // of the last round with all slots

	mean, square float64 // of ln(took/usual), smoothed
	failing      float64 // part of failures, smoothed
	typical      float64 // ns a request takes, the median over networks in the last round
	each         float64 // requests of a network in the last round, the median

	scored   bool    // there was a round
	anchored bool    // the floor was tested, or learnt without a queue
	floor    float64 // score of an upstream without a queue
	slow     float64 // ln slowdown to be expected of the present slots, at least 0
	steady   bool    // there is no queue, so usual times may be learnt

	starting bool // the floor was learnt without a queue, and no score was high since

	phase  phase
	full   int     // slots before the probe
	fewer  int     // slots of the probe
	during float64 // score of the probe
	chosen bool    // it was made for a high score, which may be chance

	probeAt  int64 // the next one at the latest
	streak   int   // rounds in a row that let slots grow
	barred   int   // slots that were too many
	barUntil int64
	barFor   time.Duration

	offs, times, counts []float32 // scratch
}

// New returns a Capacity with Start slots, or the nearest within the bounds.
func New(opts Options) *Capacity {
	const places = networkSets * ways
	c := &Capacity{
		slots: Start, strayed: true, square: 1, each: 1, streak: fast, probeAt: math.MaxInt64, barFor: barLeast,
		offs: make([]float32, 0, places), times: make([]float32, 0, places), counts: make([]float32, 0, places),
	}
	c.networks.touched = make([]uint16, 0, places)
	c.Replace(opts)
	return c
}

// Replace changes the bounds; what was learnt stays.
func (c *Capacity) Replace(opts Options) {
	c.min = max(opts.Min, 1)
	c.max = opts.Max
	if c.max < 1 {
		c.max = 1024
	}
	c.max = max(c.max, c.min)
	if c.phase == probing {
		c.slots = c.full
	}
	c.phase = watching
	c.set(c.slots)
}

// Slots returns how many requests may be inside now.
func (c *Capacity) Slots() int { return c.slots }

// Sample learns from one finished request. Slots may differ after it.
func (c *Capacity) Sample(s Sample) {
	if c.networks.round == 0 {
		c.begin(s.Now, lags)
	}
	s.Took = min(max(s.Took, 1), time.Hour)
	if s.Now < c.round.start {
		return // it may have seen other slots than these
	}
	c.round.finished++
	if s.Waiting || s.Inside >= c.slots-c.slots/8 {
		c.round.pressed++
		if c.round.run++; c.round.run == onset && c.phase == watching && 2*(c.round.pressed-onset) < c.round.finished-onset {
			c.begin(s.Now, warmLags) // a calm time is over: it shall not hide what comes
			return
		}
	} else {
		c.round.run = 0
	}
	if s.Failed {
		c.failing += (failedMost - c.failing) / memory
		if n := c.networks.find(&s); n != nil {
			n.failed++
			c.round.votes++
		}
	} else {
		c.failing -= c.failing / memory
		if off, ok := c.learn(&s); ok {
			c.vote(&s, off)
		}
	}
	if s.Now >= c.round.checkAt && c.round.votes >= c.round.check {
		c.judge(s.Now)
	}
}

// learn moves the usual time of the sample's path. It returns how far off, in
// ln, the sample was; not ok if the path has no usual time yet.
func (c *Capacity) learn(s *Sample) (off float64, ok bool) {
	took := math.Log(float64(s.Took))
	usual := float32(took - c.slow - c.floor)
	p := c.paths.find(s.Path, s.Now)
	if c.seen++; c.seen == 256 {
		c.strayed = c.strays > 192
		c.seen, c.strays = 0, 0
	}
	if p != nil && p.n >= taught {
		off = took - float64(p.usual)
		if p.n < learning && !c.starting || c.steady {
			p.learn(usual, s)
		}
		return off, true
	}
	c.strays++
	if c.strayed && c.stray.n >= taught {
		off, ok = took-float64(c.stray.usual), true
	}
	if c.stray.n < learning && !c.starting || c.steady {
		c.stray.learn(usual, s)
	}
	if p != nil {
		p.learn(usual, s)
	}
	return off, ok
}

// vote adds the sample to its network's part of the round.
func (c *Capacity) vote(s *Sample, off float64) {
	n := c.networks.find(s)
	if n == nil || n.known && !s.Known {
		return // those with standing speak for their network
	}
	off = max(off, c.floor+offLeast)
	n.n++
	n.off += float32(off)
	n.time += float32(s.Took)
	c.round.votes++
	last := float64(memory)
	if c.starting {
		last = startMemory
	}
	c.mean += (off - c.mean) / last
	c.square += (off*off - c.square) / last
}
