package capacity

import (
	"math"
	"time"
)

const (
	growBelow  = 0.18 // ln 1.2: slots grow up to this slowdown
	fastBelow  = 0.10 // ln 1.1: up to this slowdown they grow faster each round
	probeAbove = 0.40 // ln 1.5: a probe follows above this slowdown
	elastic    = 0.22 // ln 1.25: a probe helped if the score falls by this much
	floorUp    = 0.26 // ln 1.3: most by which an unclear probe raises the floor
	target     = 1.3  // target slowdown when slots are removed
	probeTo    = 0.6  // share of the slots that a probe uses
	probeLeast = 0.4  // least share
	fast       = 2    // rounds of growth before slots grow by half

	probeEvery = 30 * time.Second // while requests wait
	probeLags  = 100              // or this many typical times, if that is longer
	barLeast   = 10 * time.Second // a number of slots that was too high is not tried again for this long,
	barMost    = 20 * time.Second // twice as long after each further failure
	blindFor   = 10 * time.Second // so long without enough quick or slow requests beyond the workers: see estimate
	barMixed   = 5 * time.Minute  // the same while costs are mixed: then one slot too many delays cheap requests much
)

// steps are the parts by which slots and workers grow: first, in the next round, and then.
var steps = [...]float64{1. / 8, 1. / 4, 1. / 2}

// A phase is the purpose of a round.
type phase uint8

const (
	watching   phase = iota
	probing          // with fewer slots
	confirming       // with all slots again, to confirm that the probe helped
)

// control sets the slots of the next round from the score of the last. demand is true if requests
// waited or nearly all slots were in use.
func (c *Capacity) control(now int64, sc score, demand bool) {
	switch c.phase {
	case probing:
		c.probed(now, sc, demand)
		return
	case confirming:
		c.phase = watching
		c.conclude(now, sc.value-c.probeScore)
		return
	}
	c.cold = c.cold && c.slots > max(testedSlots, c.min)
	if c.cold && demand { // see whether requests are faster with few slots
		c.score, c.phase, c.full = sc, probing, c.slots
		c.set(testedSlots)
		c.fewer = c.slots
		return
	}
	used := (c.round.took + c.round.unseen) / float64(max(now-c.round.start, 1)) // requests in progress, mean
	was := c.score
	c.score = sc
	c.lower(now, sc, used, demand)
	slowdown := sc.value - c.floor
	c.steady = slowdown <= growBelow
	c.slow = max(0, slowdown)
	if demand && c.anchored {
		c.estimate(now, sc, slowdown, used)
	}
	if demand && 2*used >= float64(c.slots) && c.starting && c.started(now, sc, slowdown, sc.value-was.value) {
		return
	}
	switch {
	case !demand: // idle time says nothing about slots
		c.streak = 0
	case c.streak > 0 && slowdown > growBelow+sc.err && c.mixed(sc): // the last step was too much
		c.streak = 0
		c.bar(now, c.slots)
		c.barUntil = now + int64(barMixed)
		c.set(c.slots - max(1, c.slots/9))
	case c.slots > c.min && (slowdown > probeAbove || !c.anchored && slowdown > growBelow || now >= c.probeAt):
		c.probe(slowdown)
	case slowdown <= growBelow && (2*used >= float64(c.slots) || c.slots < calmSlots):
		c.grow(now, slowdown)
	}
}

// estimate updates the workers after a round in which requests waited. By Little's law, at least
// used/slowdown workers were busy, and with a queue inside the upstream at most slots/slowdown.
//
// While the costs of requests are mixed, the expensive ones are bounded by the workers, and one too many
// delays the cheap ones much. So the workers grow only if voters' requests were quick that began while
// all workers were thought to be in use, or if there were few of these for long. The last step is taken
// back if it was too much.
func (c *Capacity) estimate(now int64, sc score, slowdown, used float64) {
	least, most := used*math.Exp(-max(slowdown, 0)), float64(c.slots)*math.Exp(-max(slowdown, 0))
	if !c.mixed(sc) {
		c.beyond, c.stepped, c.before, c.steps = beyond{}, now, 0, 0
		switch {
		case c.workers == 0:
			c.workers = most
		case slowdown > fastBelow && c.workers > most:
			c.workers += (most - c.workers) / 4
		case c.workers < least:
			c.workers += (least - c.workers) / 4
		}
		return
	}
	known := c.beyond.n >= beyondLeast
	room := known && c.beyond.off/float64(c.beyond.n)-c.floor <= fastBelow
	switch {
	case c.workers == 0:
		c.workers = most
	case slowdown > growBelow+sc.err && c.before > 0:
		c.workers, c.before, c.steps = c.before, 0, 0
		c.stepUntil = now + int64(barMixed)
	case slowdown <= fastBelow && now >= c.stepUntil && c.workers < float64(c.slots) &&
		(room || !known && now-c.stepped > int64(blindFor)):
		c.before = c.workers
		c.workers = min(c.workers+max(1, c.workers*steps[min(c.steps, fast)]), float64(c.slots))
		c.steps++
	case !known:
		return
	}
	c.beyond, c.stepped = beyond{}, now
}

// started handles a round of the slow start with demand: the slots double. A high score ends the
// slow start, and the round before, with half the slots, serves as the probe. If the costs of requests
// are mixed, slots grow by an eighth, and the last step is taken back. The first score may
// be somewhat high, because the floor comes from few requests. started reports whether it has set
// the slots.
func (c *Capacity) started(now int64, sc score, slowdown, rise float64) bool {
	grown := c.fewer > 0 && c.fewer < c.slots
	mixed := c.mixed(sc)
	if slowdown <= growBelow || !grown && slowdown <= probeAbove {
		c.fewer = c.slots
		if mixed {
			c.set(c.slots + max(1, c.slots/8))
		} else {
			c.set(2 * c.slots)
		}
		return true
	}
	c.starting = false
	if grown && mixed {
		c.bar(now, c.slots)
		c.barUntil = now + int64(barMixed)
		c.set(c.fewer)
		return true
	}
	if !grown || slowdown <= probeAbove {
		return false
	}
	c.full = c.slots
	c.probeAt = now + max(int64(probeEvery), int64(probeLags*c.typical))
	c.conclude(now, rise)
	c.slow = max(0, slowdown+math.Log(float64(c.slots)/float64(c.full)))
	return true
}

// lower sets the floor after a round that was not a probe. used is the mean number of requests in progress.
func (c *Capacity) lower(now int64, sc score, used float64, demand bool) {
	was := c.floor
	switch {
	case !c.scored:
		c.scored = true
		c.floor = sc.value
		if c.cold {
			c.warmed(max(calmSlots, int(used), c.round.least+calmSlots/2))
		}
		return
	case c.slots == c.min: // a probe is impossible
		c.floor += (sc.value - c.floor) / 2
		c.anchored = true
	case !demand:
		c.floor += (sc.value - c.floor) / 4
		c.starting = c.starting || !c.anchored
		c.anchored = true
	default:
		c.floor = min(c.floor, sc.value+2*sc.err+sc.skew)
		if c.anchored && was-c.floor > elastic { // the upstream is faster: check whether there is still a queue
			c.probeAt = now
		}
	}
}

// warmed sets the slots after the start if there was no queue, so that the score is the floor.
func (c *Capacity) warmed(slots int) {
	c.cold, c.anchored, c.starting = false, true, true
	c.set(slots)
}

// restart forgets what was measured if there were too many slots at the start.
func (c *Capacity) restart() {
	fresh := New(Options{Min: c.min, Max: c.max, Lag: time.Duration(c.lag)})
	fresh.networks, fresh.typical = c.networks, c.typical
	*c = *fresh
	c.cold = false
	c.set(testedSlots)
}

// probe starts a round with fewer slots.
func (c *Capacity) probe(slowdown float64) {
	part := max(min(probeTo, target*math.Exp(-slowdown)), probeLeast)
	if !c.anchored {
		part = probeLeast
	}
	c.phase = probing
	c.chosen = slowdown > probeAbove
	c.full = c.slots
	c.set(min(int(part*float64(c.slots)+0.5), c.slots-1))
	c.fewer = c.slots
}

// probed evaluates a probe.
func (c *Capacity) probed(now int64, sc score, demand bool) {
	c.phase = watching
	if c.cold {
		fall := c.score.value - sc.value
		switch {
		case !demand: // too few requests for a result
			c.set(c.full)
		case fall > elastic:
			c.restart()
		default:
			c.scored, c.score, c.floor = true, sc, sc.value
			c.warmed(c.full)
		}
		return
	}
	c.set(c.full)
	if !demand { // too few requests for a result
		return
	}
	fall := c.score.value - sc.value
	if fall < -elastic { // something else has changed: probe again
		c.probeAt = now
		return
	}
	if c.anchored && fall > elastic/2 {
		c.floor = min(sc.value, c.floor+floorUp)
	} else {
		c.floor = sc.value
	}
	c.anchored = true
	c.probeScore = sc.value
	c.probeAt = now + max(int64(probeEvery), int64(probeLags*c.typical))
	if fall > elastic && c.chosen {
		c.phase = confirming
		return
	}
	c.conclude(now, fall)
	if c.slots == c.fewer {
		c.score = sc
	}
}

// conclude sets the slots after a probe in which the score fell by fall.
func (c *Capacity) conclude(now int64, fall float64) {
	if fall <= elastic {
		return
	}
	next := int(target * float64(c.full) * math.Exp(-fall))
	if next <= c.fewer { // there may still be a queue
		next = c.fewer
		c.probeAt = now
	}
	c.streak, c.slow = 0, 0
	if next < c.slots {
		c.bar(now, c.slots)
		c.set(next)
	}
}

// grow adds slots.
func (c *Capacity) grow(now int64, slowdown float64) {
	step := 1 + steps[min(c.streak, fast)]
	c.streak++
	if slowdown > fastBelow && c.anchored {
		step, c.streak = 1.125, 0
	}
	next := max(c.slots+1, int(float64(c.slots)*step))
	if c.barred > c.slots { // half of the distance (BIC)
		next = min(next, c.slots+max(1, (c.barred-c.slots)/2))
	}
	if now < c.barUntil && next >= c.barred {
		next = max(c.barred-1, c.slots)
	}
	c.set(next)
}

// bar prevents that a number of slots that was too high is tried again soon.
func (c *Capacity) bar(now int64, slots int) {
	c.barFor = min(2*c.barFor, barMost)
	if slots != c.barred {
		c.barFor = barLeast
	}
	c.barred, c.barUntil = slots, now+int64(c.barFor)
}

// set changes the slots within the bounds. Until the next round, fewer slots are expected to be
// faster in proportion.
func (c *Capacity) set(slots int) {
	slots = min(max(slots, c.min), c.max)
	if slots < c.slots {
		c.slow = max(0, c.slow+math.Log(float64(slots)/float64(c.slots)))
	}
	c.steady = c.steady && slots == c.slots
	c.slots = slots
}
