package capacity

import "time"

const (
	stallLeast = 250 * time.Millisecond
	stallGaps  = 8 // usual times between two requests that finish
)

// StallAfter returns how long nothing may finish, while all slots are in use and requests wait,
// before Stall is called: 250 ms, or eight times the usual time between two requests that finish. Until
// a first request has finished, 250 ms, then 1 s.
func (c *Capacity) StallAfter() time.Duration {
	gap := c.typical / float64(max(c.slots, 1))
	switch {
	case c.networks.round == 0: // nothing has finished ever
		return stallLeast << min(2*c.stalls, 2)
	case c.cold && c.phase == watching:
		gap = float64(c.last-c.born) / float64(max(c.round.finished, 1))
	}
	return max(stallLeast, time.Duration(stallGaps*gap))
}

// Stall reports at time now, in ns, that all slots are in use, requests wait, and nothing has
// finished for [Capacity.StallAfter]. There are no samples then: the requests in progress may wait
// for something else, as long polls do, and the upstream may have room. So a quarter more slots are
// tried (before any request has finished twice as many, then half more), until something finishes and
// shows how slow it was. A stalled probe ends without a result.
// There are no more slots if the last score showed a queue, and not as many as were too many
// recently.
//
// With pages that take long, an attacker gets some more of them in than slots were found: a quarter
// more for each 250 ms that these keep all slots. The next scores take the slots away again.
func (c *Capacity) Stall(now int64) {
	if c.phase != watching {
		c.phase = watching
		c.probeAt = now + int64(probeEvery)
		c.set(c.full)
		if c.cold {
			c.stalled++
		}
		c.begin(now, warmLags)
		return
	}
	if c.scored && c.score.value-c.floor > growBelow {
		return
	}
	next := c.slots + max(1, c.slots/4)
	if c.networks.round == 0 { // nothing has finished ever
		next = 2 * c.slots
		if c.stalls > 0 {
			next = c.slots + max(1, c.slots/2)
		}
		c.stalls++
		c.set(next)
		return
	}
	if now < c.barUntil {
		next = min(next, c.barred-1)
	}
	if next > c.slots && c.slots < c.max {
		c.set(next)
		c.begin(now, warmLags)
	}
}
