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
	r := requests.Get().(*request)
	defer requests.Put(r)
	r.name(c.secret.Load(), len(takes), func(i int) []byte { return takes[i].Key })
	r.takes = append(r.takes[:0], takes...)
	var q *question
	c.book.lock(r.set)
	l.entries(r, at.UnixNano(), func(i int) int { return takes[i].Limit },
		func(i int) []byte { return takes[i].Key }, true)
	for i := range r.takes {
		r.takes[i].Key = r.keys[i][:]
		if r.refs[i] == none {
			continue
		}
		e := c.book.at(r.refs[i])
		if (!e.known || c.opts.alwaysAsk) && !e.reading && c.isUp(e.tag) {
			if q == nil {
				q = newQuestion()
			}
			e.reading, e.at = true, at.UnixNano()
			q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, reads: true})
		}
	}
	c.book.unlock(r.set)
	if q != nil {
		l.read(q)
	}
	return l.local.Peek(ctx, at, r.takes, tallies)
}
