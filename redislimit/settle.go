package redislimit

import (
	"context"
	"time"

	"fairshare"
)

// Settle implements [fairshare.Limiter]. It never waits.
func (l *Limiter) Settle(_ context.Context, now time.Time, charges []fairshare.Charge) error {
	if len(charges) == 0 {
		return nil
	}
	c := l.core
	at := c.clock.correct(now)
	r := newRequest(len(charges))
	defer requests.Put(r)
	secret := c.secret.Load()
	r.charges = append(r.charges[:0], charges...)
	for i := range r.charges {
		r.charges[i].Key = r.add(secret, charges[i].Limit, charges[i].Key)
	}
	c.book.lock(r.set)
	l.entries(r, at.UnixNano(), false)
	members, ns := c.members.Load(), at.UnixNano()
	away := false
	for i := range r.charges {
		ch := &r.charges[i]
		if !ch.At.IsZero() {
			ch.At = c.clock.correct(ch.At)
		}
		if r.refs[i] == none {
			continue
		}
		e, s := c.book.at(r.refs[i]), l.specs[ch.Limit]
		e.at = ns
		share := s.share(members)
		urgent := false
		if !c.isUp(e.tag) {
			away = true
			c.stats.handing.Add(1)
		}
		switch {
		case s.kind == concurrent:
			if ch.Cost >= 0 || e.own <= 0 {
				ch.Cost = 0
			} else {
				e.own--
			}
		default:
			if s.held {
				ch.Held = min(max(0, ch.Held), e.own) // whatever is on its way
				e.own -= ch.Held
			}
			if ch.Cost != 0 {
				e.pend.charge(s, s.amount(ch.Cost, ch.Every), ns, ch.At.UnixNano())
				e.unacked = addSaturated(e.unacked, max(0, ch.Cost))
				urgent = e.unacked >= (share+1)/2
			}
		}
		c.queue(r.refs[i], e, urgent)
	}
	err := l.local.Settle(context.Background(), at, r.charges)
	c.book.unlock(r.set)
	if away {
		l.settleAway(r, at)
	}
	return err
}
