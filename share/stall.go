package share

import (
	"time"

	"fairshare/share/capacity"
)

// stallEvery is how often a Queue with waiting requests looks whether anything finishes.
const stallEvery = 100 * time.Millisecond

// watchStalls makes the Queue look for stalls while requests wait: see [capacity.Capacity.Stall]. It
// also gives out slots that were kept for clients that do not come any more: see scheduler.held. It is
// called with the lock held. One timer runs at a time, and none while no request waits.
func (q *Queue) watchStalls() {
	if q.stalls != nil || q.schedule.waiting == 0 {
		return
	}
	q.stalls = time.AfterFunc(stallEvery, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.stalls = nil
		q.schedule.pass(q.now())
		q.schedule.dispatch()
		q.checkStall(q.now())
		q.noteBusy()
		q.watchStalls()
	})
}

// checkStall reports a stall to the capacity, if there is one.
func (q *Queue) checkStall(now int64) {
	s := q.schedule
	found, after := q.finder()
	if found == nil || s.dry || s.waiting == 0 || s.inside < s.slots || now-q.stirred < int64(after) {
		return
	}
	q.stirred = now
	found.Stall(now)
	if s.group != nil {
		s.group.found()
		q.press()
	}
	q.useSlots()
	s.set(s.slots, s.queue, s.dry, now)
}

// finder returns what finds the capacity here, and how long nothing may finish: nil if this program
// does not search for it.
func (q *Queue) finder() (*capacity.Capacity, time.Duration) {
	of, part := q.capacity, 1
	if g := q.schedule.group; g != nil {
		if !g.leads {
			return nil, 0
		}
		of, part = g.of, max(1, g.total/max(g.mine, 1))
	}
	found, ok := of.(*capacity.Capacity)
	if !ok {
		return nil, 0
	}
	return found, found.StallAfter() * time.Duration(part)
}
