package capacity

import (
	"math"
	"time"
)

const (
	votesLeast  = 24   // of a round of any length
	knownLeast  = 3    // networks with standing that have most votes,
	seenLeast   = 8    // and networks that were seen before
	mixedCosts  = 3    // times the usual cost: see mixed
	eachLeast   = 4    // requests of a network, when there are few networks
	precision   = 0.06 // target error of a score
	rough       = 0.15 // target error in the slow start
	sure        = 3    // distance from a threshold, in errors, at which fewer votes are enough
	memory      = 256  // samples in the moving variance
	startMemory = 32   // the same in the slow start
	onset       = 16   // requests under pressure in a row that end a calm round

	offLeast   = -1  // lower bound of ln(took/usual), because the quickest answers vary most
	failedMost = 0.9 // upper bound of the share of failures

	roundLeast = 250 * time.Millisecond
	roundCalm  = 2 * time.Second // a round with shorter typical times lasts longer, so that variations average out
	coldLeast  = time.Second     // of the first round,
	coldLags   = 2               // in typical times
	roundLong  = 5 * time.Second // after this, or longLags typical times, less precision is enough
	warmLeast  = 100 * time.Millisecond
	lags       = 5 // least length of a round in typical times; a queue needs as long to drain
	warmLags   = 2 // typical times that a queue needs to build up
	longLags   = 20
)

// A round is a period with constant slots.
type round struct {
	start    int64 // samples that finished earlier do not count
	checkAt  int64 // judged not earlier than this,
	check    int   // and not with fewer votes
	finished int
	took     float64 // ns of all of them together
	unseen   float64 // ns of requests that were not sampled, estimated
	least    int     // least number of requests in progress when one began
	pressed  int     // of those that finished, while all slots were in use or a request waited
	run      int     // number of the latest samples that were pressed
	votes    int     // samples with a usual time, or failures
}

// A score says how slow the requests of a round were.
type score struct {
	value   float64 // median over networks of the mean of ln(took/usual)
	err     float64 // standard error
	skew    float64 // most by which the median may be below the mean
	few     bool    // too few requests of too few networks
	typical float64 // ns of a request, median
	each    float64 // requests of a network, median
}

// begin starts a round. Samples that finish in the next warm typical times do not count, because
// the slots may have been different while they ran.
func (c *Capacity) begin(now int64, warm float64) {
	start := now
	if warm > 0 {
		start += max(int64(warmLeast), int64(warm*c.typical)) + c.lag
	}
	c.round = round{start: start, checkAt: start + c.shortest(c.typical), check: votesLeast, least: math.MaxInt}
	c.networks.begin()
}

// mixed reports whether most of the upstream's time goes to requests that are much more expensive than
// those of most voters. These would wait long behind them inside the upstream. The time in a queue inside
// the upstream, which is the same for all requests, does not count.
func (c *Capacity) mixed(sc score) bool {
	queued := sc.typical * (1 - math.Exp(min(c.floor-sc.value, 0)))
	return c.round.took > float64(c.round.finished)*(mixedCosts*(sc.typical-queued)+queued)
}

// shortest returns the least length of a round, in ns, so that effects between requests average
// out.
func (c *Capacity) shortest(typical float64) int64 {
	if c.cold && c.phase == watching {
		return max(int64(coldLeast)<<min(2*c.stalled, 6), int64(coldLags*typical))
	}
	return max(int64(roundLeast), int64(lags*typical), min(int64(3*lags*typical), int64(roundCalm)))
}

// judge ends the round if it has enough votes, and sets the slots of the next.
func (c *Capacity) judge(now int64) {
	age := now - c.round.start
	sc := c.poll()
	least := c.shortest(sc.typical)
	if c.stalled == 0 {
		least = min(least, int64(roundLong))
	}
	if age < least && !c.overshot(sc) {
		c.round.checkAt = c.round.start + least
		if c.starting && c.fewer > 0 || c.mixed(sc) {
			c.round.checkAt, c.round.check = now, c.round.votes+c.round.votes/2
		}
		return
	}
	long := max(int64(roundLong), int64(longLags*sc.typical))
	if age < long && (sc.err > precision || sc.few) && !c.clear(sc) && !c.overshot(sc) {
		c.round.check = c.round.votes + c.round.votes/2
		return
	}
	c.typical, c.each = sc.typical, sc.each
	was := c.slots
	c.control(now, sc, 2*c.round.pressed > c.round.finished)
	switch {
	case c.slots < was && c.phase == probing && c.cold:
		c.begin(now, warmLags)
	case c.slots < was:
		c.begin(now, lags)
	case c.slots > was:
		c.begin(now, warmLags)
	default:
		c.begin(now, 0)
	}
}

// overshot reports whether there are clearly too many slots in the slow start, or while the costs of
// requests are mixed. Then the round ends at once: while it lasts, all requests wait inside the upstream.
func (c *Capacity) overshot(sc score) bool {
	soon := c.starting && c.fewer > 0 || c.phase == watching && c.mixed(sc)
	return soon && sc.value-c.floor > probeAbove+sure*sc.err+sc.skew
}

// clear reports whether a score is so far from all thresholds that an error above the target is
// acceptable.
func (c *Capacity) clear(sc score) bool {
	err := sure*sc.err + sc.skew
	slowdown := sc.value - c.floor
	switch {
	case c.cold && c.phase == watching:
		return true
	case !c.scored:
		return sc.err < 2*rough
	case c.starting:
		return sc.err < rough
	case c.phase == probing:
		err = sure*math.Hypot(sc.err, c.score.err) + sc.skew
		fall := c.score.value - sc.value - elastic
		return fall > err || -fall > err*2/3 // giving slots back has no risk
	case c.streak >= fast && slowdown < (growBelow+probeAbove)/2 && sc.err+sc.skew < rough:
		return true // too many slots are noticed soon
	}
	return slowdown-err > probeAbove || slowdown+err < growBelow
}

// poll returns the score of the round so far. If clients with standing vote in knownLeast networks or
// more, the other networks have at most half as many votes. Otherwise the same holds for clients that
// were seen before, in seenLeast networks.
func (c *Capacity) poll() score {
	all := c.networks.all[:]
	others, ranks := len(all), [3]int{}
	for _, i := range c.networks.touched {
		ranks[all[i].rank]++
	}
	least := uint8(0) // rank of those whose votes all count
	if knowns, seen := ranks[2], ranks[1]+ranks[2]; knowns >= knownLeast {
		least, others = 2, knowns/2
	} else if seen >= seenLeast {
		least, others = 1, seen/2
	}
	c.offs, c.times, c.counts = c.offs[:0], c.times[:0], c.counts[:0]
	for _, i := range c.networks.touched {
		n := &all[i]
		if n.n+n.failed == 0 {
			continue
		}
		if n.rank < least {
			if others == 0 {
				continue
			}
			others--
		}
		off := float32(c.score.value)
		if n.n > 0 {
			off = n.off / float32(n.n)
			c.times = append(c.times, n.time/float32(n.n))
		}
		failed := min(float64(n.failed)/float64(n.failed+n.n), failedMost)
		c.offs = append(c.offs, off-float32(math.Log1p(-failed)))
		c.counts = append(c.counts, float32(n.n+n.failed))
	}
	networks := len(c.counts)
	each := max(1, float64(median(c.counts)))
	scatter := max(0, c.square-c.mean*c.mean) + c.failing/(1-c.failing)
	sc := score{
		value:   float64(median(c.offs)),
		err:     1.3 * math.Sqrt(scatter/(each*float64(max(1, networks)))), // 1.25 for the median of normal means
		skew:    2 * scatter * max(0, 1/each-1/c.each),
		few:     each < eachLeast && networks < networkSets,
		typical: float64(median(c.times)),
		each:    each,
	}
	if len(c.times) == 0 {
		sc.typical = c.typical
	}
	return sc
}
