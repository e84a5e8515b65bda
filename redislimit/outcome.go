package redislimit

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// swapped takes the reply to a script that replaces states, and returns the units that
// were not replaced.
func (k *carrier) swapped(sc *script, text string) (stale []unit, err error) {
	done := sc.units
	if text != "" {
		done = nil
		next := 1 // the number of a unit's first key
		for _, u := range sc.units {
			if len(text) >= 2 && int(text[0])|int(text[1])<<8 == next {
				stale, text = append(stale, u), text[2:]
			} else {
				done = append(done, u)
			}
			next += u.keys
		}
		if text != "" {
			return nil, errReply
		}
	}
	for st := range k.statesOf(done) {
		st.reply = reply{written: true, offset: st.offset, records: st.records, ends: st.ends, stored: st.swap.state}
	}
	for a := range k.inquiriesOf(done) {
		a.q.note(a, passed)
	}
	k.core.stats.swapped.Add(int64(len(done)))
	k.core.stats.stale.Add(int64(len(stale)))
	k.conclude(done, true)
	return stale, nil
}

// apply takes the reply to a script that decides.
func (k *carrier) apply(sc *script, text string) error {
	c := k.core
	replies := []byte(text)
	decisions := 0
	for a := range k.inquiriesOf(sc.units) {
		if !a.q.parts[a.from].reads {
			decisions++
		}
	}
	if len(replies) < 1+decisions {
		return errReply
	}
	bad, verdicts, rest := replies[0], replies[1:1+decisions], replies[1+decisions:]
	var err error
	for st := range k.statesOf(sc.units) {
		if rest, err = st.reply.parse(rest, st.spec); err != nil {
			return err
		}
	}
	if bad > 0 {
		c.stats.unreadable.Add(int64(bad))
		c.events.unreadable(int(bad))
	}
	next := 0
	for a := range k.inquiriesOf(sc.units) {
		if !a.q.parts[a.from].reads {
			a.q.note(a, [...]int32{refused, dryRefused, passed}[min(verdicts[next], 2)])
			next++
		}
	}
	k.conclude(sc.units, false)
	return nil
}

// conclude takes the replies about units, whose verdicts are noted. If all have passed, nothing is undone.
func (k *carrier) conclude(units []unit, passed bool) {
	mono := k.core.mono()
	for st := range k.statesOf(units) {
		k.merge(st, mono, passed)
	}
	if !passed {
		for a := range k.inquiriesOf(units) {
			k.undo(a)
		}
	}
	k.master.breaker.succeeded()
	for a := range k.inquiriesOf(units) {
		a.q.answer(k.core, mono)
	}
}

// merge brings the view up to date with the store's reply about a state. What the
// store has refused is still in a view that did not differ, see undo.
func (k *carrier) merge(st *sent, mono int64, passed bool) {
	c, s, r := k.core, st.spec, &st.reply
	sh := &c.book[st.ref.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := c.book.at(st.ref)
	e.stored = r.stored
	e.offset, e.records, e.ends = r.offset, r.records, r.ends
	if e.known && r.differs && st.base != [tokenBytes]byte{} {
		e.offset = 0 // others write it, too
	}
	e.batch, e.known, e.seen = 0, true, mono
	e.unacked = max(0, e.unacked-st.unacked)
	if passed {
		e.provisional -= st.provisional
	}
	if r.written {
		e.base = k.batch.token
	} else if r.differs {
		e.base = r.token
	}
	key := e.key.name.bytes()
	if s.tracked {
		e.acked = st.own // and what passed, see undo
		if r.others != e.others {
			s.local.AddHeld(s.index, key[:], r.others-e.others)
			e.others = r.others
		}
	}
	if r.differs {
		e.views, e.lost = e.views+1, false
	}
	if r.differs && s.kind != concurrent {
		at := time.Unix(0, e.at)
		view := s.with(r.stored, &e.pend)
		if !s.tracked && e.provisional != 0 { // those of this batch that were refused are undone next
			later := delta{}
			later.charge(s, e.provisional-st.provisional, e.at, e.at)
			view = s.with(view, &later)
		}
		s.local.SetState(s.index, key[:], e.every, at, view)
	}
	if e.reports() && e.queued == unqueued {
		c.queue(st.ref, e, false)
	}
}

// undo takes from the view what the store has refused.
func (k *carrier) undo(a inquiry) {
	c := k.core
	for i := a.from; i < a.to; i++ {
		p := &a.q.parts[i]
		sh := &c.book[p.ref.shard()]
		sh.mu.Lock()
		e := c.book.at(p.ref)
		e.provisional -= p.amount
		key := e.key.name.bytes()
		switch {
		case p.reads:
			e.readers--
		case p.inView && p.spec.tracked:
			e.acked += p.cost
		case p.inView:
		case p.spec.tracked:
			p.inView = true // until the question ends: its request may not wait, and give it back itself
			c.queue(p.ref, e, false)
		case !k.batch.states[p.state].reply.differs:
			p.spec.charge(key[:], -p.cost, p.every, a.q.at)
		}
		sh.mu.Unlock()
	}
}

// lost takes the failure of scripts. What was not executed is reported again; what
// may have been is merged by maximum later.
func (k *carrier) lost(scripts []script, err error) {
	if len(scripts) == 0 {
		return
	}
	c, b := k.core, &k.batch
	executed := mayBeExecuted(err)
	if !c.stalled(b.began, err) {
		k.master.away(reason(err))
	}
	for i := range scripts {
		sc := &scripts[i]
		for st := range k.statesOf(sc.units) {
			sh := &c.book[st.ref.shard()]
			sh.mu.Lock()
			e := c.book.at(st.ref)
			e.batch, e.stored = 0, st.stored
			if executed {
				e.floor = true
				e.unacked = max(0, e.unacked-st.unacked)
			} else {
				e.pend.merge(st.spec, st.delta)
			}
			e.noted = e.noted || st.noted
			e.floor = e.floor || st.floor
			if e.reports() && e.queued == unqueued {
				c.queue(st.ref, e, false)
			}
			sh.mu.Unlock()
		}
		for a := range k.inquiriesOf(sc.units) {
			c.unanswered(a, executed)
		}
	}
}

// unanswered ends an ask that the store did not answer. What it charged is in the
// view, and is reported later.
func (c *core) unanswered(a inquiry, executed bool) {
	for i := a.from; i < a.to; i++ {
		p := &a.q.parts[i]
		atomic.StoreInt32(&p.verdict, noAnswer)
		p.inView = true
		sh := &c.book[p.ref.shard()]
		sh.mu.Lock()
		e := c.book.at(p.ref)
		if p.reads {
			e.readers--
		} else {
			e.provisional -= p.amount
			switch {
			case p.spec.tracked:
			case executed:
				e.floor = true
			default:
				ns := a.q.at.UnixNano()
				e.pend.charge(p.spec, p.amount, ns, ns)
			}
			c.queue(p.ref, e, false)
		}
		sh.mu.Unlock()
	}
	a.q.answer(c, c.mono())
}

// mayBeExecuted reports whether a command with that error may have changed states.
func mayBeExecuted(err error) bool {
	if _, ok := rueidis.IsRedisErr(err); ok {
		return strings.HasPrefix(err.Error(), "OOM") || strings.HasPrefix(err.Error(), "ERR")
	}
	return !errors.Is(err, rueidis.ErrClosing) && !errors.Is(err, errConnecting)
}
