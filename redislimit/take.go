package redislimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"fairshare"
)

// A request is one call of Take, Peek or Settle on its way.
type request struct {
	items   []item
	keys    [][localKey]byte
	takes   []fairshare.Take
	charges []fairshare.Charge
	used    []int64
	refs    []ref
	set     uint64 // shards
	given   []given
	away    bool      // a master of one of the keys is away
	aside   *question // nobody waits for its answer
}

// An item is a limit and key of a request.
type item struct {
	name
	inKeys int // its place there
	limit  int
	key    []byte // as the caller names it
}

// A given is a take that the view lets pass.
type given struct {
	take   int32
	credit bool
	cost   int64
	amount int64
}

var requests = sync.Pool{New: func() any { return new(request) }}

const none ref = -1

// newRequest returns a request for so many items.
func newRequest(count int) *request {
	r := requests.Get().(*request)
	r.items, r.refs, r.set, r.away = r.items[:0], r.refs[:0], 0, false
	r.keys = slices.Grow(r.keys[:0], count)
	return r
}

// add adds an item and returns its key in the view. Equal keys are hashed once.
func (r *request) add(s *secret, limit int, key []byte) []byte {
	it := item{inKeys: len(r.keys), limit: limit, key: key}
	for j := len(r.items) - 1; j >= 0 && j >= len(r.items)-4; j-- {
		if other := r.items[j].key; len(other) == len(key) && len(key) > 0 && &other[0] == &key[0] {
			it.name, it.inKeys = r.items[j].name, r.items[j].inKeys
			break
		}
	}
	if it.inKeys == len(r.keys) {
		it.name = s.name(key)
		r.keys = append(r.keys, it.bytes())
		r.set |= 1 << it.shard()
	}
	r.items = append(r.items, it)
	return r.keys[it.inKeys][:]
}

// entries finds the entries of a request. The shards are locked.
func (l *Limiter) entries(r *request, now int64, create bool) {
	c := l.core
	last := none
	for i := range r.items {
		it := &r.items[i]
		at, s := none, l.specs[it.limit]
		if !s.private && !(s.viewOnly && create) {
			k := bookKey{it.name, l.ids[it.limit]}
			if at = c.book.next(last, &k); at == none {
				at = c.entry(&k, it.key, s, now, r.refs)
			}
			last = at
		}
		r.refs = append(r.refs, at)
	}
}

// entry returns the entry of a key, which the caller names otherwise. Those of keep stay. The shard is locked.
func (c *core) entry(k *bookKey, key []byte, s *spec, now int64, keep []ref) ref {
	if r, ok := c.book.find(k); ok {
		c.book.at(r).used = true
		return r
	}
	return c.book.add(k, c.secret.Load().tag(key), s.tracked, now, c.drop, keep)
}

// drop has the view forget what other members have of an entry that goes.
func (c *core) drop(e *entry) {
	if e.tracked && e.others > 0 {
		s, key := c.spec(e.key.id), e.key.name.bytes()
		s.local.AddHeld(s.index, key[:], -e.others)
	}
}

// Take implements [fairshare.Limiter]. A request may name a limit and key only
// once. It waits for the store only if the view does not suffice, and at most
// for Options.Wait; it ignores ctx, since a charge that is on its way cannot be
// called back.
func (l *Limiter) Take(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
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
	r.used = slices.Grow(r.used[:0], len(takes))[:len(takes)]
	for i := range r.takes {
		r.takes[i].Key = r.add(s, takes[i].Limit, takes[i].Key)
	}
	if c.opts.alwaysAsk && slices.ContainsFunc(takes, func(t fairshare.Take) bool { return t.DryRun }) {
		if err := l.Peek(context.Background(), now, takes, tallies); err != nil { // else nobody waits for dry takes
			return err
		}
	}
	q, read := l.decide(r, at, tallies, true)
	if read {
		l.read(q)
		r.refs = r.refs[:0]
		q, _ = l.decide(r, at, tallies, false)
	}
	if r.aside != nil {
		l.submit(r.aside) // which locks shards if too many questions wait
		r.aside = nil
	}
	if q != nil {
		return l.await(r, q, at, tallies)
	}
	return nil
}

// decide decides by the view. If that does not suffice it returns a question. With
// read it asks for states only, and nothing was charged.
func (l *Limiter) decide(r *request, at time.Time, tallies []fairshare.Tally, first bool) (q *question, read bool) {
	c := l.core
	c.book.lock(r.set)
	defer c.book.unlock(r.set)
	ns := at.UnixNano()
	l.entries(r, ns, true)
	if err := l.local.TakeRoom(at, r.takes, tallies, r.used); err != nil {
		panic(err) // the lengths are equal
	}
	pass, dryPass := true, true
	for i := range tallies {
		if tallies[i].Over && r.takes[i].DryRun {
			dryPass = false
		} else if tallies[i].Over {
			pass = false
		}
	}
	if !pass && l.isOpen(r, tallies) {
		c.stats.away.Add(1)
		clear(tallies)
		return nil, false
	}
	if c.firstAt.Load() == 0 {
		c.firstAt.CompareAndSwap(0, ns)
	}
	r.given = r.given[:0]
	members := c.members.Load()
	asked, old, mayLack := false, false, l.reloaded || l.local.HasLost()
	for i := range r.takes {
		if r.refs[i] == none {
			continue
		}
		t, e, s := &r.takes[i], c.book.at(r.refs[i]), l.specs[r.takes[i].Limit]
		e.at, e.every = ns, t.Every
		if !pass || t.DryRun && !dryPass {
			if s.kind == quiet && !e.noted {
				e.noted = true
				c.queueNote(r.refs[i], e)
			}
			if tallies[i].Over && e.readers == 0 && c.isOld(e, s) && c.isUp(e.tag) {
				old = old || first && !pass && !t.DryRun || pass && t.DryRun
			}
			continue
		}
		p := given{take: int32(i), cost: t.Cost}
		if s.held {
			p.cost = tallies[i].Held
		} else if s.settled {
			if !c.opts.alwaysAsk {
				continue
			}
			p.cost = 0
		}
		p.amount = s.amount(p.cost, t.Every)
		share := s.share(members)
		pending := e.unacked
		if s.tracked {
			pending = max(0, pending+e.own-e.acked)
		}
		up := c.isUp(e.tag)
		e.lost = e.lost || mayLack && up && e.known && s.lacks(e, r.used[i], ns)
		p.credit = !up || !e.lost && (e.known || c.remembers(r.refs[i], s, ns)) && share > 0 &&
			pending+p.cost <= share && r.used[i]+p.cost <= s.allowed-members*share
		r.away = r.away || !up
		if s.tracked {
			e.own += p.cost
		}
		switch {
		case !p.credit:
			asked = true
			e.provisional += p.amount
		case !s.tracked:
			e.pend.charge(s, p.amount, ns, ns)
			e.unacked = addSaturated(e.unacked, p.cost)
			fallthrough
		default:
			c.queue(r.refs[i], e, pending+p.cost >= (share+1)/2)
		}
		r.given = append(r.given, p)
	}
	if old {
		q = l.readAll(r, pass)
		if !pass {
			return q, true
		}
		c.stats.reads.Add(1) // nobody waits for what a dry run says
		q.state.Store(abandonedPass)
		r.aside, q = q, nil
	}
	if asked || r.away {
		q = newQuestion()
		for _, p := range r.given {
			t := &r.takes[p.take]
			e := c.book.at(r.refs[p.take])
			q.parts = append(q.parts, part{ref: r.refs[p.take], key: e.key, tag: e.tag, take: p.take, dry: t.DryRun,
				credit: p.credit, views: e.views, spec: l.specs[t.Limit], every: t.Every, cost: p.cost,
				amount: p.amount})
		}
		q.needsStore = asked
	} else if pass {
		c.stats.credit.Add(1)
	} else {
		c.stats.refused.Add(1)
	}
	return q, false
}

// isOpen reports whether a refused request passes because the store is away and
// Options.Away says so. The shards are locked.
func (l *Limiter) isOpen(r *request, tallies []fairshare.Tally) bool {
	c := l.core
	if c.opts.Away != AwayOpen {
		return false
	}
	for i := range tallies {
		if tallies[i].Over && !r.takes[i].DryRun && (r.refs[i] == none || c.isUp(c.book.at(r.refs[i]).tag)) {
			return false
		}
	}
	return true
}

// readAll returns a question for the states of a group that the view refuses. The
// shards are locked.
func (l *Limiter) readAll(r *request, dry bool) *question {
	q := newQuestion()
	for i := range r.takes {
		if r.refs[i] == none || r.takes[i].DryRun != dry {
			continue
		}
		e := l.core.book.at(r.refs[i])
		e.readers++
		q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, reads: true})
	}
	return q
}

// remembers reports whether this member has forgotten no state of the limit's last
// window. Then a state that it does not know has no counts of it. Without this,
// clients could have credit again by having their states evicted.
func (c *core) remembers(r ref, s *spec, ns int64) bool {
	return ns-max(c.firstAt.Load(), c.book[r.shard()].evicted) > s.forgets
}

// isOld reports whether a view that refuses is to be read again.
func (c *core) isOld(e *entry, s *spec) bool {
	return !e.known || c.opts.alwaysAsk || c.mono()-e.seen > s.refresh
}

// read waits until the states of a question are in the view.
func (l *Limiter) read(q *question) {
	c := l.core
	c.stats.reads.Add(1)
	l.submit(q)
	if q.wait(c, c.deadline(q)) == late {
		if q.state.CompareAndSwap(waiting, abandonedPass) {
			return // its last answer releases it
		}
		<-q.done
	}
	q.release()
}

// await waits for the answer to a question and fills in tallies.
func (l *Limiter) await(r *request, q *question, at time.Time, tallies []fairshare.Tally) error {
	c := l.core
	q.at = at
	verdict := noAnswer
	if q.needsStore {
		q.began = c.mono()
		c.stats.questions.Add(1)
		l.submit(q)
		if verdict = q.wait(c, c.deadline(q)); verdict == late {
			c.stats.late.Add(1)
			c.missed(q)
		}
	}
	want := verdict
	if verdict == noAnswer || verdict == late || r.away && verdict != refused {
		want = l.takeAway(r, q, at, tallies)
		switch verdict {
		case late:
			abandoned := [...]int32{abandonedPass, abandonedDry, abandonedRefuse}[want-passed]
			if !q.state.CompareAndSwap(waiting, abandoned) { // the answer came just now
				<-q.done
				q.resolve(c, want)
				q.release()
			}
		default:
			q.resolve(c, want)
			q.release()
		}
		return nil
	}
	q.resolve(c, want)
	q.release()
	if want != passed {
		l.explain(r, at, tallies, want)
	}
	return nil
}

// missed notes for the breakers that a question had no answer in time.
func (c *core) missed(q *question) {
	for i := range q.parts {
		p := &q.parts[i]
		if i > 0 && q.parts[i-1].tag == p.tag || p.credit {
			continue
		}
		if m := c.master(p.tag); m.breaker.missed(c.ownTime()) {
			m.wentAway()
		}
	}
}

// explain fills in the tallies of the group that the store refused.
func (l *Limiter) explain(r *request, at time.Time, tallies []fairshare.Tally, verdict int32) {
	peeked := make([]fairshare.Tally, len(tallies))
	if err := l.local.Peek(context.Background(), at, r.takes, peeked); err != nil {
		panic(err)
	}
	over, worst := false, -1
	for i := range tallies {
		dry := r.takes[i].DryRun
		switch {
		case verdict == refused && dry:
			tallies[i] = fairshare.Tally{}
		case verdict == refused || dry:
			tallies[i] = peeked[i]
			over = over || peeked[i].Over
			room := func(i int) int64 { return l.specs[r.takes[i].Limit].allowed - peeked[i].Used }
			if r.refs[i] != none && (worst < 0 || room(i) < room(worst)) {
				worst = i
			}
		}
	}
	if !over && worst >= 0 { // there is room again by now
		tallies[worst].Over, tallies[worst].Wait = true, time.Millisecond
	}
}
