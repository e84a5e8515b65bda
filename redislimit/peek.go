package redislimit

import (
	"context"
	"fmt"
	"time"

	"fairshare"
)

// Peek implements [fairshare.Peeker]. States that this member has not seen yet
// are read from the store.
func (l *Limiter) Peek(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if len(takes) != len(tallies) {
		return fmt.Errorf("%d takes and %d tallies", len(takes), len(tallies))
	}
	if len(takes) == 0 {
		return nil
	}
	c := l.core
	at := c.clock.correct(now)
	r := newRequest(len(takes))
	defer requests.Put(r)
	s := c.secret.Load()
	r.takes = append(r.takes[:0], takes...)
	for i := range r.takes {
		r.takes[i].Key = r.add(s, takes[i].Limit, takes[i].Key)
	}
	var q *question
	c.book.lock(r.set)
	l.entries(r, at.UnixNano(), true)
	for i := range r.takes {
		if r.refs[i] == none {
			continue
		}
		e := c.book.at(r.refs[i])
		if (!e.known || c.opts.alwaysAsk) && e.readers == 0 && c.isUp(e.tag) {
			if q == nil {
				q = newQuestion()
			}
			e.readers, e.at = e.readers+1, at.UnixNano()
			q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, reads: true})
		}
	}
	c.book.unlock(r.set)
	if q != nil {
		l.read(q)
	}
	return l.local.Peek(ctx, at, r.takes, tallies)
}
