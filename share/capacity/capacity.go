// Package capacity finds how many requests an upstream works on at once, by
// watching its latency. Start with [New]; tell every finished request to
// [Capacity.Sample] and let [Capacity.Slots] requests in.
//
// Time is cut in rounds of constant slots. The score of a round is what its
// requests took, as a multiple of what the same paths are used to:
//
//	network: (Σ took / Σ usual) / (1 − part that failed)      round: the median over the networks
//
// so a network counts once, whatever it asks for, and slow pages are not an
// overload. Only requests that began in the round count. Usual times are
// geometric means with bounded steps (Huber): ln usual += w · clamp(ln(took/slowdown) − ln usual, ±2).
//
// The floor is the score without a queue, and slowdown = score / floor. By
// Little's law an upstream of k workers (or cores) with n > k requests inside
// has slowdown n/k, wherever its queue is. With somebody waiting:
//
//	slowdown ≤ 1.2         more slots: +1/8, when that goes on +1/4, then +1/2
//	slowdown ≤ 1.5         left alone
//	above, and at times    a probe: one round with 3/5 of the slots (less if it is far above)
//
// A probe tells a queue of our own making from an upstream that is slow by
// itself. With e = score before / score of the probe:
//
//	e > 1.25               fewer slots help: from now on 1.3 · slots / e, at least those of the probe
//	else                   they do not: the slots return, and the score of the probe is the floor
//
// The ideas are those of TCP Vegas (Brakmo, Peterson 1995: the delay above a
// base tells the queue), of BBR (Cardwell et al. 2016: the base is found by
// sending less for a moment) and of Netflix's concurrency-limits; what is new
// is that no base is believed without such a test.
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
	Failed  bool          // 5xx, timeout, broken connection: it tells nothing of latency
	Known   bool          // the client has standing
}

// Start is the number of slots before anything is known, within the bounds.
const Start = 16

const (
	growBelow  = 1.2  // slowdown up to which slots grow
	fastBelow  = 1.1  // slowdown up to which they grow faster and faster
	probeAbove = 1.5  // slowdown that needs an explanation
	elastic    = 1.25 // ratio of scores from which a probe has helped
	target     = 1.3  // slowdown wanted after a shrink
	probeTo    = 0.6  // part of the slots that a probe leaves
	probeLeast = 0.4  // the least part
	failedMost = 0.9  // part of failures beyond which they count no more

	votesLeast = 16                     // of a round, whatever the time
	votesMost  = 512                    // enough for any scatter
	precision  = 0.06                   // relative error wanted of a score
	roundLeast = 100 * time.Millisecond // a round lasts at least that, and lags typical times
	roundLong  = 2 * time.Second        // after that, or longLags typical times, few votes are enough
	roundStale = time.Minute            // after that a round without enough votes starts anew
	lags       = 4
	longLags   = 10

	probeEvery = 30 * time.Second // while slots are in demand
	barLeast   = 10 * time.Second // slots that were too many are not tried again for so long,
	barMost    = 80 * time.Second // twice as long each time they are again
)

// A Capacity finds how many requests the upstream works on at once. It is not
// safe for concurrent use.
type Capacity struct {
	min, max int
	slots    int

	paths    paths
	networks networks
	stray    path // all paths without a usual time of their own, together

	// This round.
	start    int64
	checkAt  int64 // not judged before
	round    uint32
	finished int // requests that began in this round
	pressed  int // of these, while all slots were in use or somebody waited
	votes    int // that have a usual time
	known    int // of these, by clients with standing
	strays   int // without a path of their own
	led      bool
	strayed  bool // few paths are known: strays vote too

	scatter float64 // mean |ln(took / usual)|, smoothed
	typical float64 // ns a request takes, median over networks of the last round
	floor   float64 // score of an upstream without a queue; 0: not known
	slow    float64 // slowdown to be expected of the present slots, at least 1

	full     int     // slots before the probe in progress; 0: none
	score    float64 // of the round before the probe
	probeAt  int64
	anchored bool // the floor was tested
	streak   int  // rounds in a row that let slots grow fast

	barred   int // slots that were too many
	barUntil int64
	barFor   time.Duration

	ratios []float32 // scratch
	times  []float32
}

// New returns a Capacity with min(max(Start, Min), Max) slots.
func New(opts Options) *Capacity {
	c := &Capacity{slots: Start, slow: 1, streak: 2, scatter: 1, barFor: barLeast,
		ratios: make([]float32, 0, networkSets*ways), times: make([]float32, 0, networkSets*ways)}
	c.networks.touched = make([]uint16, 0, networkSets*ways)
	c.round = 1
	c.Replace(opts)
	return c
}

// Replace changes the bounds; what was learnt stays.
func (c *Capacity) Replace(opts Options) {
	c.min, c.max = opts.Min, opts.Max
	if c.min < 1 {
		c.min = 1
	}
	if c.max < 1 {
		c.max = 1024
	}
	if c.max < c.min {
		c.max = c.min
	}
	c.slots = min(max(c.slots, c.min), c.max)
	if c.full != 0 {
		c.full = min(max(c.full, c.slots), c.max)
	}
}

// Slots returns how many requests may be inside now.
func (c *Capacity) Slots() int { return c.slots }

// Sample learns from one finished request. Slots may have changed after it.
func (c *Capacity) Sample(s Sample) {
	if c.start == 0 {
		c.begin(s.Now)
		c.probeAt = s.Now
	}
	if s.Took <= 0 {
		s.Took = 1
	}
	if s.Now-int64(s.Took) < c.start || s.Inside > c.slots {
		return // it saw other slots than these
	}
	c.finished++
	if s.Waiting || s.Inside >= c.slots-c.slots/8 {
		c.pressed++
	}
	if s.Failed {
		if n := c.networks.find(&s, c.round); n != nil {
			n.failed++
		}
		return
	}

	p := c.paths.find(s.Path, s.Now)
	stray := p == nil || p.n < taught
	if stray {
		c.strays++
	}
	usual := c.teach(p, &s, stray)
	if usual > 0 {
		c.vote(&s, usual)
	}
	if s.Now >= c.checkAt && (c.votes >= votesLeast || s.Now-c.start > int64(roundStale)) {
		c.judge(s.Now)
	}
}

// teach moves the usual time of the sample's path and returns it as it was, 0
// if it has none to vote with.
func (c *Capacity) teach(p *path, s *Sample, stray bool) float32 {
	log := float32(math.Log(float64(s.Took) / c.slow))
	usual := float32(0)
	if stray {
		if c.strayed && c.stray.n >= taught {
			usual = c.stray.usual
		}
		c.stray.learn(log, s)
	}
	if p != nil {
		if !stray {
			usual = p.usual
			off := math.Abs(float64(log - p.log))
			c.scatter += (min(off, learnMost) - c.scatter) / 256
		}
		p.learn(log, s)
	}
	return usual
}

// vote adds the sample to its network's part of the round.
func (c *Capacity) vote(s *Sample, usual float32) {
	n := c.networks.find(s, c.round)
	if n == nil {
		return
	}
	if n.known && !s.Known {
		return // those with standing speak for the network
	}
	n.n++
	n.base += usual
	n.took += min(float32(s.Took), 16*usual*float32(c.slow))
	c.votes++
	if s.Known {
		c.known++
	}
}

// begin starts a round.
func (c *Capacity) begin(now int64) {
	c.start = now
	c.checkAt = now + max(int64(roundLeast), int64(lags*c.typical))
	c.round++
	c.networks.touched = c.networks.touched[:0]
	c.finished, c.pressed, c.votes, c.known, c.strays = 0, 0, 0, 0, 0
}

// judge ends the round if it is long enough, and sets the slots of the next.
func (c *Capacity) judge(now int64) {
	if c.finished >= 64 {
		c.strayed = c.strays > c.finished-c.finished/8
	}
	age := now - c.start
	need := min(max(int(c.scatter*c.scatter/(precision*precision)), votesLeast), votesMost)
	long := age >= max(int64(roundLong), int64(longLags*c.typical))
	have := c.votes
	if c.led {
		have = c.known
	}
	if have < need && !long {
		return
	}
	if c.votes < votesLeast {
		c.begin(now)
		return
	}
	score, typical := c.median()
	if early := int64(lags * typical); age < early && !long {
		c.checkAt = c.start + early
		return
	}
	c.typical = typical
	c.control(now, score, 2*c.pressed > c.finished)
	c.begin(now)
}

// median returns the score of the round and the typical time in ns. If enough
// clients with standing spoke, in at least three networks, they alone count.
func (c *Capacity) median() (score, typical float64) {
	knowns := 0
	for _, i := range c.networks.touched {
		if c.networks.all[i].known {
			knowns++
		}
	}
	c.led = c.known > 0 && knowns >= 3
	only := c.led && c.known >= votesLeast
	c.ratios, c.times = c.ratios[:0], c.times[:0]
	for _, i := range c.networks.touched {
		n := &c.networks.all[i]
		if only && !n.known || n.n == 0 {
			continue
		}
		failed := min(float32(n.failed)/float32(n.failed+n.n), failedMost)
		c.ratios = append(c.ratios, n.took/n.base/(1-failed))
		c.times = append(c.times, n.took/float32(n.n))
	}
	return float64(middle(c.ratios)), float64(middle(c.times))
}

// control sets the slots of the next round, after one with that score.
func (c *Capacity) control(now int64, score float64, demand bool) {
	if c.full != 0 {
		c.probed(now, score, demand)
		return
	}
	switch {
	case c.floor == 0:
		c.floor = score
	case c.slots == c.min:
		c.floor += (score - c.floor) / 2
		c.anchored = true
	case !demand:
		c.floor += (score - c.floor) / 4
		c.anchored = true
	case score < c.floor:
		c.floor += (score - c.floor) / 2
	}
	slowdown := score / c.floor
	c.slow = max(1, slowdown)
	if !demand {
		c.streak = 0
		return
	}
	if slowdown > probeAbove || !c.anchored || now >= c.probeAt {
		if c.probe(now, score, slowdown) {
			return
		}
	}
	if slowdown <= growBelow {
		c.grow(now, slowdown)
	}
}

// probe tries fewer slots for a round, and reports whether there are any.
func (c *Capacity) probe(now int64, score, slowdown float64) bool {
	part := max(min(probeTo, target/slowdown), probeLeast)
	fewer := max(c.min, int(part*float64(c.slots)+0.5))
	if fewer >= c.slots {
		fewer = c.slots - 1
	}
	if fewer < c.min {
		return false
	}
	c.full, c.score = c.slots, score
	c.set(fewer)
	return true
}

// probed draws the conclusion from a probe.
func (c *Capacity) probed(now int64, score float64, demand bool) {
	full, fewer := c.full, c.slots
	c.full = 0
	if !demand { // nobody was there to be slowed down
		c.set(full)
		return
	}
	c.probeAt = now + int64(probeEvery)
	e := c.score / score
	c.anchored = true
	c.floor = score
	c.slow = 1
	if e <= elastic {
		c.set(full)
		return
	}
	next := int(target*float64(full)/e + 0.5)
	if next <= fewer { // there may be a queue still
		next = fewer
		c.probeAt = now
	}
	c.streak = 0
	if next < full {
		c.bar(now, full)
	}
	c.set(min(next, full))
}

// grow adds slots.
func (c *Capacity) grow(now int64, slowdown float64) {
	step := [...]float64{1.125, 1.25, 1.5}[min(c.streak, 2)]
	if slowdown > fastBelow {
		step, c.streak = 1.125, -1
	}
	c.streak++
	next := min(max(c.slots+1, int(float64(c.slots)*step)), c.max)
	if now < c.barUntil && next >= c.barred {
		next = max(c.barred-1, c.slots)
	}
	c.set(next)
}

// bar keeps slots that were too many from being tried again soon.
func (c *Capacity) bar(now int64, slots int) {
	c.barFor = min(2*c.barFor, barMost)
	if slots != c.barred {
		c.barFor = barLeast
	}
	c.barred, c.barUntil = slots, now+int64(c.barFor)
}

func (c *Capacity) set(slots int) {
	slots = min(max(slots, c.min), c.max)
	c.slow = max(1, c.slow*float64(slots)/float64(c.slots))
	c.slots = slots
}
