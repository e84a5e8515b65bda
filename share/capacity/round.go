package capacity

import (
	"math"
	"time"
)

const (
	votesLeast  = 24   // of a round, whatever the time
	eachLeast   = 4    // requests of a network, when there are few networks
	precision   = 0.06 // error wanted of a score
	rough       = 0.15 // error that will do at the start
	sure        = 3    // errors off a threshold from which fewer votes do
	memory      = 256  // samples that the scatter remembers
	startMemory = 32   // the same in the slow start
	onset       = 16   // pressed requests in a row that end a calm round

	offLeast   = -1  // what ln(took/usual) counts at least: the quickest answers scatter most
	failedMost = 0.9 // part of failures beyond which they count no more

	roundLeast = 250 * time.Millisecond
	roundCalm  = 2 * time.Second // typical times smaller than this allow are evened out
	roundLong  = 5 * time.Second // after that, or longLags typical times, less precision will do
	warmLeast  = 100 * time.Millisecond
	lags       = 5 // typical times that a round lasts at least, and that a queue takes to go
	warmLags   = 2 // typical times that a queue takes to come
	longLags   = 20
)

// A round is a time of constant slots.
type round struct {
	start    int64 // what finished before does not count
	checkAt  int64 // not judged before,
	check    int   // nor with fewer votes
	finished int
	pressed  int // of these, while all slots were in use or somebody waited
	run      int // the last so many were
	votes    int // that have a usual time, or failed
}

// A score tells how slow the requests of a round were.
type score struct {
	is      float64 // median over networks of the mean of ln(took/usual)
	err     float64 // standard error
	skew    float64 // the median may be so far below the mean
	few     bool    // too few requests of too few networks
	typical float64 // ns a request took, median
	each    float64 // requests of a network, median
}

// begin starts a round. What finishes in the next so many typical times may
// have seen other slots, and does not count.
func (c *Capacity) begin(now int64, warm float64) {
	start := now
	if warm > 0 {
		start += max(int64(warmLeast), int64(warm*c.typical))
	}
	c.round = round{start: start, checkAt: start + shortest(c.typical), check: votesLeast}
	c.networks.begin()
}

// shortest is how long a round lasts at least, in ns: long enough for what
// requests do to each other to even out.
func shortest(typical float64) int64 {
	return max(int64(roundLeast), int64(lags*typical), min(int64(3*lags*typical), int64(roundCalm)))
}

// judge ends the round if it tells enough, and sets the slots of the next.
func (c *Capacity) judge(now int64) {
	age := now - c.round.start
	sc := c.poll()
	if least := shortest(sc.typical); age < min(least, int64(roundLong)) {
		c.round.checkAt = c.round.start + min(least, int64(roundLong))
		return
	}
	long := max(int64(roundLong), int64(longLags*sc.typical))
	if age < long && (sc.err > precision || sc.few) && !c.clear(sc) {
		c.round.check = c.round.votes + c.round.votes/2
		return
	}
	c.typical, c.each = sc.typical, sc.each
	was := c.slots
	c.control(now, sc, 2*c.round.pressed > c.round.finished)
	switch {
	case c.slots < was:
		c.begin(now, lags)
	case c.slots > was:
		c.begin(now, warmLags)
	default:
		c.begin(now, 0)
	}
}

// clear reports whether a score is so far off all thresholds that a greater
// error than wanted will do.
func (c *Capacity) clear(sc score) bool {
	err := sure*sc.err + sc.skew
	slowdown := sc.is - c.floor
	switch {
	case !c.scored:
		return sc.err < 2*rough
	case c.starting:
		return sc.err < rough
	case c.phase == probing:
		err = sure*math.Hypot(sc.err, c.score.err) + sc.skew
		fall := c.score.is - sc.is - elastic
		return fall > err || -fall > err*2/3 // that slots are given back is no risk
	case c.streak >= fast && slowdown < (growBelow+probeAbove)/2 && sc.err+sc.skew < rough:
		return true // slots that are too many will show soon
	}
	return slowdown-err > probeAbove || slowdown+err < growBelow
}

// poll returns the score of the round so far. If clients with standing speak
// in three networks or more, the others have at most half as many votes.
func (c *Capacity) poll() score {
	all := c.networks.all[:]
	others, knowns := len(all), 0
	for _, i := range c.networks.touched {
		if all[i].known {
			knowns++
		}
	}
	if knowns >= 3 {
		others = knowns / 2
	}
	c.offs, c.times, c.counts = c.offs[:0], c.times[:0], c.counts[:0]
	for _, i := range c.networks.touched {
		n := &all[i]
		if n.n+n.failed == 0 {
			continue
		}
		if !n.known {
			if others == 0 {
				continue
			}
			others--
		}
		off := float32(c.score.is)
		if n.n > 0 {
			off = n.off / float32(n.n)
			c.times = append(c.times, n.time/float32(n.n))
		}
		failed := min(float64(n.failed)/float64(n.failed+n.n), failedMost)
		c.offs = append(c.offs, off-float32(math.Log1p(-failed)))
		c.counts = append(c.counts, float32(n.n+n.failed))
	}
	networks := len(c.counts)
	each := max(1, float64(middle(c.counts)))
	scatter := max(0, c.square-c.mean*c.mean) + c.failing/(1-c.failing)
	sc := score{
		is:      float64(middle(c.offs)),
		err:     1.3 * math.Sqrt(scatter/(each*float64(max(1, networks)))), // 1.25 for the median of normal means
		skew:    2 * scatter * max(0, 1/each-1/c.each),
		few:     each < eachLeast && networks < networkSets,
		typical: float64(middle(c.times)),
		each:    each,
	}
	if len(c.times) == 0 {
		sc.typical = c.typical
	}
	return sc
}
