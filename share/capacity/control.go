package capacity

import (
	"math"
	"time"
)

const (
	growBelow  = 0.18 // ln 1.2: slowdown up to which slots grow
	fastBelow  = 0.10 // ln 1.1: slowdown up to which they grow faster and faster
	probeAbove = 0.40 // ln 1.5: slowdown that needs an explanation
	elastic    = 0.22 // ln 1.25: fall of the score from which a probe has helped
	floorUp    = 0.26 // ln 1.3: what a probe that is not clear raises the floor at most
	target     = 1.3  // slowdown wanted of fewer slots
	probeTo    = 0.6  // part of the slots that a probe leaves
	probeLeast = 0.4  // the least part
	fast       = 2    // rounds that let slots grow, until they grow by half

	probeEvery = 30 * time.Second // while slots are in demand
	probeLags  = 100              // or so many typical times, if that is longer
	barLeast   = 10 * time.Second // slots that were too many are not tried again for so long,
	barMost    = 20 * time.Second // twice as long each time that they are again
)

// A phase is what a round is for.
type phase uint8

const (
	watching   phase = iota
	probing          // with fewer slots
	confirming       // with all of them again, whether the probe has helped
)

// control sets the slots of the next round, after one with that score. demand
// says that requests waited or slots were nearly all in use.
func (c *Capacity) control(now int64, sc score, demand bool) {
	switch c.phase {
	case probing:
		c.probed(now, sc, demand)
		return
	case confirming:
		c.phase = watching
		c.conclude(now, sc.is-c.during)
		return
	}
	was := c.score
	c.score = sc
	c.lower(now, sc, demand)
	slowdown := sc.is - c.floor
	c.steady = slowdown <= growBelow
	c.slow = max(0, slowdown)
	if demand && c.starting && c.started(now, slowdown, sc.is-was.is) {
		return
	}
	switch {
	case !demand: // idle time teaches nothing of slots
		c.streak = 0
	case c.slots > c.min && (slowdown > probeAbove || !c.anchored && slowdown > growBelow || now >= c.probeAt):
		c.probe(slowdown)
	case slowdown <= growBelow:
		c.grow(now, slowdown)
	}
}

// started takes a round with demand of the slow start: the slots double. A high
// score ends it, and the round before, with half the slots, was the probe. The
// first score may be somewhat high: the floor is that of few requests. It
// reports whether the slots are set.
func (c *Capacity) started(now int64, slowdown, rise float64) bool {
	grown := c.fewer > 0 && c.fewer < c.slots
	if slowdown <= growBelow || !grown && slowdown <= probeAbove {
		c.fewer = c.slots
		c.set(2 * c.slots)
		return true
	}
	c.starting = false
	if !grown || slowdown <= probeAbove {
		return false
	}
	c.full = c.slots
	c.probeAt = now + max(int64(probeEvery), int64(probeLags*c.typical))
	c.conclude(now, rise)
	c.slow = max(0, slowdown+math.Log(float64(c.slots)/float64(c.full)))
	return true
}

// lower sets the floor after a round that was no probe.
func (c *Capacity) lower(now int64, sc score, demand bool) {
	was := c.floor
	switch {
	case !c.scored:
		c.scored = true
		c.floor = sc.is
		return
	case c.slots == c.min: // there is nothing to probe with
		c.floor += (sc.is - c.floor) / 2
		c.anchored = true
	case !demand:
		c.floor += (sc.is - c.floor) / 4
		c.starting = c.starting || !c.anchored
		c.anchored = true
	default:
		c.floor = min(c.floor, sc.is+2*sc.err+sc.skew)
		if c.anchored && was-c.floor > elastic { // the upstream is faster: is there a queue still?
			c.probeAt = now
		}
	}
}

// probe tries fewer slots for a round.
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

// probed draws the conclusion from a probe.
func (c *Capacity) probed(now int64, sc score, demand bool) {
	c.phase = watching
	c.set(c.full)
	if !demand { // nobody was there to be slowed down
		return
	}
	fall := c.score.is - sc.is
	if fall < -elastic { // something else has changed: once more
		c.probeAt = now
		return
	}
	if c.anchored && fall > elastic/2 {
		c.floor = min(sc.is, c.floor+floorUp)
	} else {
		c.floor = sc.is
	}
	c.anchored = true
	c.during = sc.is
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

// conclude sets the slots after a probe in which the score fell so much.
func (c *Capacity) conclude(now int64, fall float64) {
	if fall <= elastic {
		return
	}
	next := int(target * float64(c.full) * math.Exp(-fall))
	if next <= c.fewer { // there may be a queue still
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
	step := [...]float64{1.125, 1.25, 1.5}[min(c.streak, fast)]
	c.streak++
	if slowdown > fastBelow && c.anchored {
		step, c.streak = 1.125, 0
	}
	next := max(c.slots+1, int(float64(c.slots)*step))
	if c.barred > c.slots { // half the way there (BIC)
		next = min(next, c.slots+max(1, (c.barred-c.slots)/2))
	}
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

// set changes the slots within the bounds. Until the next round tells better,
// fewer of them are expected to be as much faster.
func (c *Capacity) set(slots int) {
	slots = min(max(slots, c.min), c.max)
	if slots < c.slots {
		c.slow = max(0, c.slow+math.Log(float64(slots)/float64(c.slots)))
	}
	c.steady = c.steady && slots == c.slots
	c.slots = slots
}
