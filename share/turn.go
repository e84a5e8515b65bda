package share

import (
	"context"
	"time"

	"fairshare/share/capacity"
)

// A Turn is a request that the upstream may work on.
type Turn struct {
	queue *Queue

	state  uint8
	waited bool
	failed bool
	side   uint8

	leaf           *node
	before, behind *Turn // of the client's that wait; then of those that run

	arrived, began, due int64
	expected            float64 // ns that it was to cost, when it came or when it began
	charged             float64 // ns so far

	// For the capacity.
	path, network uint64
	insideThen    int // how many were inside when it began, with it

	busy  *Busy
	ready chan *Turn // gets it when the wait is over; nil before
}

// States of a Turn.
const (
	unborn uint8 = iota
	waits
	inside
	refused
	ended
)

func (t *Turn) wake() {
	if t.ready != nil {
		t.ready <- t // there is room
	}
}

// Wait returns a turn: at once, or after waiting for it. The error is a *Busy
// or that of ctx; then there is nothing to be done.
func (q *Queue) Wait(ctx context.Context, c *Claim) (*Turn, error) {
	t := &Turn{queue: q, path: c.path, network: c.network}
	q.mu.Lock()
	q.schedule.arrive(t, c, q.now())
	if t.state == waits {
		t.ready = make(chan *Turn, 1)
	}
	state := t.state
	q.mu.Unlock()
	switch state {
	case inside:
		return t, nil
	case refused:
		return nil, t.busy
	}

	timer := time.NewTimer(c.wait)
	defer timer.Stop()
	var err error
	late := false
	select {
	case <-t.ready:
		err = ctx.Err()
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		late = true
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case t.state == refused:
		return nil, t.busy
	case err != nil:
		q.schedule.leave(t, q.now())
		return nil, err
	case late && t.state == waits:
		q.schedule.expire(t, q.now())
		return nil, t.busy
	}
	return t, nil
}

// Done says that the upstream is done. Only the first call counts, and none
// after Headed.
func (t *Turn) Done() { t.finish(false) }

// Headed says that the answer has begun and has no end: the slot is free, and
// only the time so far is charged.
func (t *Turn) Headed() { t.finish(true) }

// Failed says, before Done, that the upstream gave no proper answer: its time
// says nothing of its capacity.
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
	if !headed {
		q.capacity.Sample(capacity.Sample{
			Now: s.now, Path: t.path, Network: t.network, Took: time.Duration(s.now - t.began),
			Inside: t.insideThen, Waiting: s.waited >= t.began, Failed: t.failed, Known: t.side == standing,
		})
		s.slots = q.capacity.Slots()
	}
	s.done(t, now)
}
