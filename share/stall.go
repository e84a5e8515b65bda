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
	found, ok := q.capacity.(*capacity.Capacity)
	if !ok || s.dry || s.waiting == 0 || s.inside < s.slots || now-q.stirred < int64(found.StallAfter()) {
		return
	}
	q.stirred = now
	found.Stall(now)
	s.set(found.Slots(), s.queue, s.dry, now)
}
