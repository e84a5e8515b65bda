package share

import (
	"context"
	"time"

	"fairshare/share/capacity"
)

// A Turn is a request that the upstream may process. Done and Headed are safe for concurrent use.
type Turn struct {
	queue *Queue

	state  uint8
	waited bool
	failed bool
	class  uint8

	leaf       *node  // nil while it is calm
	claim      *Claim // while leaf is nil
	prev, next *Turn  // neighbors in the client's queue, then in the list of running requests

	arrived, began, due int64
	expected            float64 // expected cost in ns, at its arrival or at its beginning
	charged             float64 // ns so far, before the factor
	factor              float64 // on what is charged

	// For the capacity.
	path, network uint64
	insideThen    int // requests in progress when it began, including itself

	busy  *Busy
	ready chan *Turn // receives the turn when the wait is over; nil until the request waits
}

// States of a Turn.
const (
	created uint8 = iota
	waits
	inside
	refused
	ended
)

func (t *Turn) wake() {
	if t.ready != nil {
		t.ready <- t // never blocks: the buffer has one place
	}
}

// A waiter lets one request after another wait.
type waiter struct {
	ready  chan *Turn    // see Turn
	gone   chan struct{} // receives a value when an endable context ends
	onGone func()        // sends it
	timer  *time.Timer   // for the longest wait
}

func newWaiter() any {
	w := &waiter{ready: make(chan *Turn, 1), gone: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	w.onGone = func() { w.gone <- struct{}{} } // never blocks: it is called once
	w.timer.Stop()
	return w
}

// An endable is a context that reports its end without a channel: each channel of Done needs memory, and
// keeps that of its request from being used again.
type endable interface {
	// OnEnd has f called at the end. It returns false if it cannot.
	OnEnd(f func()) bool
	// OffEnd returns whether f will not be called.
	OffEnd() bool
}

// watch returns a channel that becomes readable when ctx ends, and an endable whose OffEnd
// must be called, or nil.
func (w *waiter) watch(ctx context.Context) (<-chan struct{}, endable) {
	if c, ok := ctx.(endable); ok && c.OnEnd(w.onGone) {
		return w.gone, c
	}
	return ctx.Done(), nil
}

// free lets another request use w, unless a function of ended may still be called.
func (q *Queue) free(w *waiter, ended endable) {
	if ended == nil || ended.OffEnd() {
		q.waiters.Put(w)
	}
}

// Wait returns a turn, at once or after a wait. After an error, which is a *Busy or the error of
// ctx, there is no turn, and the upstream must not get the request. c must be from a Claim of this
// Queue.
func (q *Queue) Wait(ctx context.Context, c *Claim) (*Turn, error) {
	t := &c.turn
	if t.queue != nil { // the claim was used before
		t = new(Turn)
	}
	t.queue, t.path, t.network = q, c.path, c.network
	var w *waiter
	q.mu.Lock()
	q.schedule.arrive(t, c, q.now())
	if t.state == waits {
		w = q.waiters.Get().(*waiter)
		t.ready = w.ready
		q.watchStalls()
		if q.schedule.group != nil && q.schedule.waiting == 1 {
			q.press()
		}
	} else {
		q.stirred = q.schedule.now
	}
	state := t.state
	q.noteBusy()
	q.mu.Unlock()
	switch state {
	case inside:
		return t, nil
	case refused:
		return nil, t.busy
	}

	w.timer.Reset(c.wait)
	gone, ended := w.watch(ctx)
	var err error
	late := false
	select {
	case <-w.ready:
		err = ctx.Err()
		if err == nil && t.state == inside { // what changed the state has noted all else
			w.timer.Stop()
			t.ready = nil
			q.free(w, ended)
			return t, nil
		}
	case <-gone:
		err = ctx.Err()
	case <-w.timer.C:
		late = true
	}
	w.timer.Stop()

	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case t.state == refused:
		err = t.busy
	case err != nil:
		q.schedule.leave(t, q.now())
	case late && t.state == waits:
		q.schedule.expire(t, q.now())
		err = t.busy
	}
	q.noteBusy()
	select { // from now on nothing wakes it
	case <-w.ready:
	default:
	}
	t.ready = nil
	q.free(w, ended)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Waited returns how long the request waited for its turn; 0 if the turn came at once.
func (t *Turn) Waited() time.Duration {
	if !t.waited {
		return 0
	}
	return time.Duration(max(t.began-t.arrived, 0))
}

// Done reports that the upstream has finished. Only the first call counts, and none after Headed.
func (t *Turn) Done() { t.finish(false) }

// Headed reports that the answer has begun and does not end: it frees the slot, and charges only
// the time so far.
func (t *Turn) Headed() { t.finish(true) }

// Failed reports, before Done, that the upstream gave no proper answer. Then its time is not used
// to find the capacity.
func (t *Turn) Failed() { t.failed = true }

func (t *Turn) finish(headed bool) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != inside {
		return
	}
	s := q.schedule
	now := q.now()
	s.pass(now)
	if !headed && !q.skips(t) {
		q.sampled = s.now
		q.capacity.Sample(capacity.Sample{
			Now: s.now, Path: t.path, Network: t.network, Took: time.Duration(s.now - t.began),
			Inside: t.insideThen, Waiting: s.waited >= t.began, Failed: t.failed,
			Known: t.class <= settled, Seen: t.class <= seenBefore,
		})
		s.slots, s.workers = q.capacity.Slots(), q.capacity.Workers()
		if s.group != nil && s.group.leads && s.group.total != s.group.reported {
			q.press()
		}
	}
	q.stirred = s.now
	s.done(t, now)
	q.noteBusy()
}

// sampleCalm is the least time between two samples while no request waits, in ns. More samples would
// tell the capacity nothing new, and take more CPU time than all else here.
const sampleCalm = 1e6

// skips reports whether a finished request need not be a sample: there is room, and the last sample
// is less than sampleCalm ago.
func (q *Queue) skips(t *Turn) bool {
	s := q.schedule
	return s.now-q.sampled < sampleCalm && !t.failed && s.waited < t.began && t.insideThen < s.slots-s.slots/8
}
