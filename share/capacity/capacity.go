// Package capacity finds how many requests an upstream can process at once, from its latency. Start
// with [New]. Pass every finished request to [Capacity.Sample], and let [Capacity.Slots] requests
// in.
//
// Time is divided into rounds with constant slots. A round lasts until its score is known to about
// 6 % (at least 1/4 s and 5 requests one after another, rarely more than 5 s). The duration of a
// request is compared with the usual duration of the same path without a queue. Logarithms limit
// the effect of a heavy tail:
//
//	network: mean of ln(took/usual) − ln(1 − part that failed)
//	score:   median over the networks
//
// Each network has one vote, independent of its requests. Networks of clients without standing have
// at most half as many votes as those with standing. As long as few have standing, the same holds for
// clients that were seen a while ago and those that were not. The usual time of a path is a geometric mean
// with bounded steps (Huber 1964). The first 3 samples of a path do not vote. Paths and networks
// are stored in tables of fixed size, in which new entries never replace entries in use.
//
// The floor is the score without a queue, and slowdown = exp(score − floor). An upstream of k
// workers or cores with n > k requests in progress has slowdown n/k (Little's law), wherever its
// queue is. While requests wait for turns:
//
//	slowdown ≤ 1.2   more slots: an eighth; in the next rounds a quarter, then a half
//	slowdown ≤ 1.5   no change
//	above, and every 30 s or 100 requests one after another   a probe: a round with 3/5 of the slots, or fewer
//
// A probe distinguishes a queue caused by too many slots from an upstream that is slow by itself:
//
//	score falls by more than ln 1.25   fewer slots help: as many as give slowdown 1.3, after a
//	                                   second round with all slots has confirmed it
//	else                               they do not: all slots return, and this is the new floor
//
// So pages whose latency an attacker chooses are not mistaken for a queue, whatever part of the
// networks the attacker has: their latency does not follow the slots. A number of slots that was
// too high is not tried again for 10 to 20 s, or for 5 minutes if the costs of requests are mixed.
// Failures count only by their share: a quick 503 does not count as a quick answer, and a page that
// always fails raises the floor.
//
// The first requests get Start slots at once, so that a burst at a site with room does not wait. After
// a first round of a second or longer, if most slots were in use, a probe with 4 slots shows whether
// there was a queue. If so, all begins again with 4 slots, otherwise all slots stay. After a quiet first
// round there are 8 slots, or as many as were in use. Slots grow above 8 only after rounds in which at
// least half of them were in use on average.
//
// When a burst follows a quiet start, slots double each round until a score is high (the slow start
// of TCP, RFC 5681, section 3.1). These rounds need little precision. The round before serves as
// the probe of the last doubling.
//
// In simulations (see the tests) it settles in some 10 s with pages of 20 ms, and in 3 minutes with
// pages of 1 s. Then the upstream is 93 to 99 % busy, and requests take 1.1 to 1.5 times as long as
// alone. With one or two workers whose pages vary much, it is less exact: 80 % busy, or five slots
// instead of one. In that case set the capacity.
//
// The ideas have these sources. TCP Vegas (Brakmo and Peterson 1995): the delay above a base is the
// queue. BBR (Cardwell et al. 2016): find the base by sending less for a moment. BIC (Xu et al.
// 2004): remember the last number that was too high. Netflix's concurrency-limits: gradient limits.
// The median of means is from Nemirovsky and Yudin (1983).
package capacity

import (
	"math"
	"time"
)

// Options are the bounds of a Capacity.
type Options struct {
	Min, Max int // 0 or less: 1 and 1024; a Max below Min counts as Min

	// Lag is how long it takes until other slots are in force; 0: they are at once.
	Lag time.Duration
}

// A Sample is one finished request.
type Sample struct {
	Now     int64         // when it finished, in ns; never decreases
	Path    uint64        // seeded hash
	Network uint64        // seeded hash
	Took    time.Duration // from its turn to the end of the upstream's work
	Inside  int           // requests in progress when it began, including itself
	Waiting bool          // a request waited for a turn meanwhile
	Failed  bool          // 5xx, timeout, broken connection: its time is ignored
	Known   bool          // the client has standing
	Seen    bool          // the client was seen a while ago

	// Part is the part of the requests in progress that are sampled, above 0 to 1; 0: all are.
	Part float64
}

// rank orders clients by their standing.
func (s *Sample) rank() uint8 {
	switch {
	case s.Known:
		return 2
	case s.Seen:
		return 1
	}
	return 0
}

// Start is the number of slots before any sample, within the bounds.
const Start = 32

const (
	calmSlots   = 8 // after a first round in which most slots were free, unless more were in use
	beyondLeast = 8 // requests that tell whether there are more workers
	testedSlots = 4 // in the probe of the slots at the start, and when they were too many
)

// beyond describes requests of clients with standing that began while more requests than the workers were
// in progress. If these are not slower than others, there are more workers.
type beyond struct {
	n   int
	off float64 // sum of ln(took/usual)
}

// A Capacity finds how many requests the upstream can process at once. It is not safe for
// concurrent use. It needs 250 KiB.
type Capacity struct {
	min, max int
	lag      int64 // ns, see Options.Lag
	slots    int

	paths    paths
	networks networks
	stray    path // all paths without their own usual time, together
	strayed  bool // most samples are of such paths, so they vote too
	strays   int  // samples of such paths, of the last seen
	seen     int  // up to 256

	round round
	score score // score of the last round with all slots

	mean, square float64 // of ln(took/usual), smoothed
	failing      float64 // share of failures, smoothed
	typical      float64 // ns of a request, median over the networks in the last round
	each         float64 // requests of a network in the last round, median

	cold     bool    // it is not known yet whether the slots at the start are too many
	born     int64   // when the first request began that has finished
	scored   bool    // a round has ended
	anchored bool    // the floor was tested, or measured without a queue
	floor    float64 // score of an upstream without a queue
	slow     float64 // expected ln slowdown with the present slots, at least 0
	steady   bool    // there is no queue, so usual times may be updated

	workers   float64 // that the upstream has, smoothed; 0: not measured
	beyond    beyond
	before    float64 // the workers before the last step while costs were mixed; 0: no step, or taken back
	steps     int     // of these in a row
	stepped   int64   // when it was last decided whether there is room for a step,
	stepUntil int64   // and before this there is none
	starting  bool    // the floor was measured without a queue, and no later score was high

	phase      phase
	full       int     // slots before the probe
	fewer      int     // slots of the probe
	probeScore float64 // score of the probe
	chosen     bool    // the reason was a high score, which may be chance

	probeAt  int64 // latest time of the next probe
	streak   int   // rounds in a row in which slots grew
	stalled  int   // probes of the slots at the start in which nothing finished
	stalls   int   // since the last sample
	last     int64 // time of the last sample
	barred   int   // number of slots that was too high
	barUntil int64
	barFor   time.Duration

	offs, times, counts []float32 // scratch
}

// New returns a Capacity with Start slots, or the nearest within the bounds.
func New(opts Options) *Capacity {
	const places = networkSets * ways
	c := &Capacity{
		slots: Start, cold: true, strayed: true, square: 1, each: 1, streak: fast,
		probeAt: math.MaxInt64, barFor: barLeast,
		offs: make([]float32, 0, places), times: make([]float32, 0, places), counts: make([]float32, 0, places),
	}
	c.networks.touched = make([]uint16, 0, places)
	c.Replace(opts)
	return c
}

// Replace changes the bounds and keeps what was measured. Other bounds end a probe without a result.
func (c *Capacity) Replace(opts Options) {
	least, most := max(opts.Min, 1), opts.Max
	if most < 1 {
		most = 1024
	}
	most = max(most, least)
	c.lag = max(int64(opts.Lag), 0)
	if least == c.min && most == c.max {
		return
	}
	c.min, c.max = least, most
	if c.phase == probing {
		c.slots = c.full
	}
	c.phase = watching
	c.set(c.slots)
}

// Resume begins with slots that somebody else has found. The other measurements are forgotten.
func (c *Capacity) Resume(slots int) {
	fresh := New(Options{Min: c.min, Max: c.max, Lag: time.Duration(c.lag)})
	*c = *fresh
	if slots != Start {
		c.cold, c.probeAt = false, 0
	}
	c.set(slots)
}

// Slots returns how many requests may be in progress now.
func (c *Capacity) Slots() int { return c.slots }

// Workers returns about how many requests the upstream processes without a queue inside it. That is
// at most Slots. It is measured while requests wait that have similar costs; before that it is Slots.
func (c *Capacity) Workers() int {
	if c.workers == 0 {
		return c.slots
	}
	return min(c.slots, max(int(c.workers+0.5), c.min))
}

// Sample adds one finished request. It may change Slots.
func (c *Capacity) Sample(s Sample) {
	if c.networks.round == 0 {
		c.begin(s.Now, 0)
		c.born = s.Now - int64(s.Took)
	}
	c.stalls = 0
	s.Took = min(max(s.Took, 1), time.Hour)
	if s.Now < c.round.start {
		return // the slots may have been different while it ran
	}
	if c.cold && c.phase == probing && s.Inside > c.slots { // it began before the probe
		return
	}
	c.round.finished++
	c.round.took += float64(s.Took)
	if s.Part > 0 {
		c.round.unseen += float64(s.Took) * (1/min(s.Part, 1) - 1)
	}
	c.round.least = min(c.round.least, s.Inside)
	c.last = s.Now
	if s.Waiting || s.Inside >= c.slots-c.slots/8 {
		c.round.pressed++
		if c.round.run++; c.round.run == onset && c.phase == watching &&
			2*(c.round.pressed-onset) < c.round.finished-onset {
			c.begin(s.Now, warmLags) // a calm time has ended: its samples must not hide the change
			return
		}
	} else {
		c.round.run = 0
	}
	if s.Failed {
		c.failing += (failedMost - c.failing) / memory
		if n := c.networks.find(&s); n != nil && n.rank <= s.rank() {
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

// learn updates the usual time of the sample's path. It returns the deviation of the sample, in ln;
// ok is false if the path has no usual time yet.
func (c *Capacity) learn(s *Sample) (off float64, ok bool) {
	took := math.Log(float64(s.Took))
	usual := float32(took - c.slow - c.floor)
	p := c.paths.find(s.Path, s.Now)
	if c.seen++; c.seen == 256 {
		c.strayed = c.strays > 192
		c.seen, c.strays = 0, 0
	}
	if p != nil && p.n >= voteAfter {
		off = took - float64(p.usual)
		if p.n < learning && !c.starting && !c.cold || c.steady {
			p.learn(usual, s)
		}
		return off, true
	}
	c.strays++
	if c.strayed && c.stray.n >= voteAfter {
		off, ok = took-float64(c.stray.usual), true
	}
	if c.stray.n < learning && !c.starting && (!c.cold || c.stray.n < voteAfter) || c.steady {
		c.stray.learn(usual, s)
	}
	if p != nil {
		p.learn(usual, s)
	}
	return off, ok
}

// vote adds the sample to its network's vote in the round.
func (c *Capacity) vote(s *Sample, off float64) {
	n := c.networks.find(s)
	if n == nil || n.rank > s.rank() {
		return // only the clients of the highest rank vote for their network
	}
	off = max(off, c.floor+offLeast)
	if s.rank() > 0 && s.Inside > c.Workers() {
		c.beyond.n++
		c.beyond.off += off
	}
	n.n++
	n.off += float32(off)
	n.time += float32(s.Took)
	c.round.votes++
	last := float64(memory)
	if c.starting || c.cold {
		last = startMemory
	}
	c.mean += (off - c.mean) / last
	c.square += (off*off - c.square) / last
}
