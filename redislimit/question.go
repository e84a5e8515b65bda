package redislimit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// A question is what one request asks the store.
type question struct {
	parts       []part // by tag, those of a tag together
	outstanding atomic.Int32
	state       atomic.Int32
	done        chan struct{}
	at          time.Time
	began       int64 // monotonic ns
	needsStore  bool  // else all parts have credit
}

// A part is one take of a question.
type part struct {
	ref    ref // pinned until the answer
	key    bookKey
	tag    uint64
	take   int32
	dry    bool
	credit bool   // not asked
	reads  bool   // asks for the state only
	views  uint32 // of the entry when the view was charged
	inView bool   // after the answer: the view contains it
	spec   *spec
	every  time.Duration
	cost   int64 // or what is held
	amount int64 // cost in the unit of deltas

	verdict int32 // of the parts with this tag
	state   int   // its place in the batch
}

// States of a question, and verdicts.
const (
	waiting int32 = iota
	answered
	abandonedPass
	abandonedDry
	abandonedRefuse

	passed     int32 = 100 + iota
	dryRefused       // the dry group was refused
	refused
	noAnswer
	late
)

var questions = sync.Pool{New: func() any { return &question{done: make(chan struct{}, 1)} }}

func newQuestion() *question {
	q := questions.Get().(*question)
	*q = question{parts: q.parts[:0], done: q.done}
	return q
}

func (q *question) release() {
	clear(q.parts)
	questions.Put(q)
}

// submit hands a question to the carriers.
func (l *Limiter) submit(q *question) {
	for i := 1; i < len(q.parts); i++ { // usually they are in order
		if compareParts(&q.parts[i-1], &q.parts[i]) > 0 {
			slices.SortStableFunc(q.parts, func(a, b part) int { return compareParts(&a, &b) })
			break
		}
	}
	tags := int32(0)
	for i := range q.parts {
		if !q.parts[i].credit && (i == 0 || q.parts[i].tag != q.parts[i-1].tag || q.parts[i-1].credit) {
			tags++
		}
	}
	q.outstanding.Store(tags)
	n := len(q.parts)
	for i := 0; i < n; {
		from, tag := i, q.parts[i].tag
		for i < n && q.parts[i].tag == tag && !q.parts[i].credit {
			i++
		}
		to := i
		for i < n && q.parts[i].tag == tag {
			i++
		}
		if to > from { // after the last one, q may be answered and in use again
			l.core.hand(inquiry{q, from, to, tag})
		}
	}
}

// compareParts compares parts by tag.
func compareParts(a, b *part) int {
	if n := cmp.Compare(a.tag, b.tag); n != 0 {
		return n
	}
	return order(a) - order(b)
}

// order sorts the parts of a tag: those that are asked first, and dry ones last.
func order(p *part) int {
	n := 0
	if p.credit {
		n = 2
	}
	if p.dry {
		n++
	}
	return n
}

var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

// wait waits for the answer.
func (q *question) wait(c *core, limit time.Duration) int32 {
	t := timers.Get().(*time.Timer)
	t.Reset(limit)
	defer func() {
		t.Stop()
		timers.Put(t)
	}()
	select {
	case <-q.done:
		return q.outcome()
	case <-t.C:
		return late
	}
}

// note notes the verdict about the parts of an inquiry.
func (q *question) note(a inquiry, verdict int32) {
	for i := a.from; i < a.to; i++ {
		p := &q.parts[i]
		atomic.StoreInt32(&p.verdict, verdict) // a request that no longer waits may read it
		p.inView = verdict == passed || verdict == dryRefused && !p.dry
	}
}

// outcome returns the verdict when all parts are answered.
func (q *question) outcome() int32 {
	verdict := passed
	for i := range q.parts {
		p := &q.parts[i]
		if p.credit {
			continue
		}
		switch p.verdict {
		case noAnswer:
			return noAnswer
		case refused:
			verdict = refused
		case dryRefused:
			if verdict == passed {
				verdict = dryRefused
			}
		}
	}
	return verdict
}

// answer notes that the parts of one tag are answered. When all are, it has the
// request go on, or ends the question if the request does not wait any more. mono is the
// present time.
func (q *question) answer(c *core, mono int64) {
	if q.outstanding.Add(-1) > 0 {
		return
	}
	if q.needsStore && q.outcome() != noAnswer {
		c.stats.trip(mono - q.began)
	}
	if q.state.CompareAndSwap(waiting, answered) {
		q.done <- struct{}{}
		return
	}
	want := q.state.Load() - abandonedPass + passed
	q.resolve(c, want)
	q.release()
}

// resolve makes view and store agree with a verdict.
func (q *question) resolve(c *core, want int32) {
	for i := range q.parts {
		p := &q.parts[i]
		if p.reads {
			continue
		}
		wanted := want == passed || want == dryRefused && !p.dry
		if p.inView == wanted && !p.credit || p.credit && wanted {
			continue
		}
		sh := &c.book[p.key.shard()]
		sh.mu.Lock()
		at, ok := c.book.find(&p.key)
		if !ok { // it has gone
			at = c.book.add(&p.key, p.tag, p.spec.tracked, q.at.UnixNano(), c.drop, nil)
		}
		e := c.book.at(at)
		if !ok {
			e.every = p.every
		}
		key := e.key.name.bytes()
		sign := int64(1)
		if !wanted {
			sign = -1
		}
		if p.spec.tracked {
			e.own = max(0, e.own+sign*p.cost)
			p.spec.local.AddHeld(p.spec.index, key[:], sign*p.cost)
		} else {
			ns := q.at.UnixNano()
			p.spec.charge(key[:], sign*p.cost, p.every, q.at)
			e.pend.charge(p.spec, sign*p.amount, ns, ns)
		}
		c.queue(at, e, false)
		sh.mu.Unlock()
	}
}

// charge charges the view, or refunds it if cost is below zero.
func (s *spec) charge(key []byte, cost int64, every time.Duration, at time.Time) {
	charge := [1]fairshare.Charge{{Limit: s.index, Key: key, Cost: cost, Every: every, At: at}}
	_ = s.local.Settle(context.Background(), at, charge[:])
}

// deadline returns how long a request waits.
func (c *core) deadline(q *question) time.Duration {
	if c.opts.fixedWait {
		return c.opts.Wait
	}
	p99 := time.Duration(c.stats.p99.Load())
	if p99 == 0 { // nothing is known yet
		return c.opts.Wait
	}
	return min(max(4*p99, 2*time.Millisecond), c.opts.Wait)
}
