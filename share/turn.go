package share

import (
	"context"
	"math"
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

	busy   *Busy
	waiter *waiter // while the request waits
}

// States of a Turn.
const (
	created uint8 = iota
	waits
	inside
	refused
	ended
)

// wake ends the wait of a request. It is called once, with the lock held.
func (t *Turn) wake() {
	if w := t.waiter; w != nil {
		t.waiter, w.turn = nil, nil
		w.ready <- t // never blocks: the buffer has one place
	}
}

// A waiter lets one request after another wait. All that ends a wait comes by one channel, which costs less than
// waiting for several.
type waiter struct {
	ready  chan *Turn // receives the turn when the wait is over
	onGone func()     // is called when an endable context ends

	// Guarded by Queue.mu.
	queue *Queue
	turn  *Turn       // that waits; nil: none does
	until int64       // when its longest wait ends
	timer *time.Timer // ends it. It is not stopped when a wait is over: the next one ends later
	fires int64       // when the timer fires; 0: it is not set
}

// longestTimer bounds for how long the timer of a waiter that is no longer used keeps its memory.
const longestTimer = 10 * time.Second

func newWaiter(q *Queue) *waiter {
	w := &waiter{ready: make(chan *Turn, 1), queue: q}
	w.onGone = w.gone
	w.timer = time.AfterFunc(time.Hour, w.late)
	w.timer.Stop()
	return w
}

// wait begins a wait of at most that long. The lock is held.
func (w *waiter) wait(t *Turn, most time.Duration) {
	t.waiter, w.turn = w, t
	w.until = w.queue.schedule.now + int64(min(most, math.MaxInt64/2)) // the sum does not overflow
	if w.fires == 0 || w.until < w.fires {
		w.set(w.queue.schedule.now)
	}
}

// set sets the timer.
func (w *waiter) set(now int64) {
	after := min(time.Duration(w.until-now), longestTimer)
	w.fires = now + int64(after)
	w.timer.Reset(after)
}

// late ends a wait that has lasted for the longest time.
func (w *waiter) late() {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	w.fires = 0
	if w.turn == nil {
		return
	}
	now := q.now()
	if now < w.until {
		w.set(now)
		return
	}
	q.schedule.expire(w.turn, now)
	q.noteBusy()
}

// gone ends the wait of a request whose client has hung up, if it is not over.
func (w *waiter) gone() {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := w.turn; t != nil {
		q.schedule.leave(t, q.now())
		q.noteBusy()
		t.wake()
	}
}

// An endable is a context that reports its end without a channel: each channel of Done needs memory, and
// keeps that of its request from being used again.
type endable interface {
	// OnEnd has f called at the end. It returns false if it cannot.
	OnEnd(f func()) bool
	// OffEnd returns whether f will not be called.
	OffEnd() bool
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
		w.wait(t, c.wait)
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

	if err := w.over(ctx, t); err != nil {
		return nil, err
	}
	return t, nil
}

// over returns when the wait is over, and lets another request use w. The error is that of Queue.Wait.
func (w *waiter) over(ctx context.Context, t *Turn) error {
	var err error
	if c, ok := ctx.(endable); ok && c.OnEnd(w.onGone) {
		<-w.ready
		if !c.OffEnd() {
			err = ctx.Err()
			w.timer.Stop() // no other request may use w, because gone may still be called
		} else {
			defer w.queue.waiters.Put(w)
		}
	} else {
		select {
		case <-w.ready:
			err = ctx.Err()
		case <-ctx.Done():
			err = ctx.Err()
			w.gone()
			<-w.ready
		}
		defer w.queue.waiters.Put(w)
	}
	switch {
	case t.state == refused:
		return t.busy
	case err != nil && t.state == inside:
		q := w.queue
		q.mu.Lock()
		defer q.mu.Unlock()
		q.schedule.leave(t, q.now())
		q.noteBusy()
	}
	return err
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
		q.useSlots()
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
// is less than sampleCalm ago, or the slots bound nothing, as in a dry run.
func (q *Queue) skips(t *Turn) bool {
	s := q.schedule
	return s.dry ||
		s.now-q.sampled < sampleCalm && !t.failed && s.waited < t.began && t.insideThen < s.slots-s.slots/8
}
