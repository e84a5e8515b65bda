package redislimit

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// An awayTable counts what a member admits while the store is away: a share of
// each limit, apart from the view.
type awayTable struct {
	members int64
	limiter *memlimit.Limiter
}

// awayMemory is the part of Options.Memory that an awayTable takes, once it is
// needed.
const awayMemory = 8

// awayLimiter returns the limiter of a share for each of so many members.
func (l *Limiter) awayLimiter() *memlimit.Limiter {
	c := l.core
	members := c.most.Load()
	old := l.away.Load()
	if old != nil && old.members == members {
		return old.limiter
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	limits := make([]fairshare.Limit, len(l.given))
	for i := range limits {
		limits[i] = l.given[i]
		if lim := &limits[i]; lim.N > 0 && !lim.CrawlDelay {
			if lim.Algorithm == fairshare.GCRA {
				lim.Burst = max(1, lim.Allowed()/members)
			}
			lim.N = max(1, lim.N/members)
		}
	}
	var limiter *memlimit.Limiter
	var err error
	if c.away == nil {
		limiter, err = memlimit.New(limits, memlimit.Options{Memory: max(1<<16, c.opts.Memory/awayMemory)})
	} else {
		limiter, err = c.away.With(limits)
	}
	if err != nil { // the limits were checked, so only memory can be missing
		return l.local
	}
	c.away = limiter
	l.away.Store(&awayTable{members, limiter})
	return limiter
}

// takeAway decides what the store does not answer: the view has room, and so
// must this member's share. It returns the verdict and fills in tallies.
func (l *Limiter) takeAway(r *request, q *question, at time.Time, tallies []fairshare.Tally) int32 {
	c := l.core
	verdict := passed
	var takes []fairshare.Take
	var noSlot *part // of a dry run: the limits in force come first
	for i := range q.parts {
		p := &q.parts[i]
		answer := atomic.LoadInt32(&p.verdict) // of a late answer, if it comes just now
		switch {
		case answer == refused:
			return l.refuse(r, at, tallies)
		case answer == dryRefused:
			verdict = dryRefused
			continue
		case answer == passed, p.credit && c.isUp(p.tag):
			continue
		}
		if p.spec.kind == concurrent {
			if l.hasSlot(p) {
				continue
			}
			if !p.dry {
				return l.refuseSlot(r, p, tallies)
			}
			noSlot = p
			continue
		}
		takes = append(takes, r.takes[p.take])
	}
	c.stats.away.Add(1)
	if noSlot != nil || verdict == dryRefused {
		takes = slices.DeleteFunc(takes, func(t fairshare.Take) bool { return t.DryRun })
	}
	c.stats.handing.Add(int64(len(takes)))
	if l.shares() && len(takes) > 0 {
		if share := l.takeShare(r, takes, at, tallies); share != passed {
			return share
		}
	}
	if noSlot != nil {
		return l.refuseSlot(r, noSlot, tallies)
	}
	if verdict == dryRefused {
		l.explain(r, at, tallies, verdict)
	}
	return verdict
}

// takeShare takes from this member's share of limits. It returns the verdict and fills in tallies.
func (l *Limiter) takeShare(r *request, takes []fairshare.Take, at time.Time, tallies []fairshare.Tally) int32 {
	away := make([]fairshare.Tally, len(takes))
	limiter := l.awayLimiter()
	if err := limiter.Take(context.Background(), at, takes, away); err != nil {
		panic(err)
	}
	over, dryOver := false, false
	for i := range away {
		if away[i].Over && takes[i].DryRun {
			dryOver = true
		} else if away[i].Over {
			over = true
		} else if away[i].Held > 0 { // the view holds it
			_ = limiter.Settle(context.Background(), at, []fairshare.Charge{
				{Limit: takes[i].Limit, Key: takes[i].Key, Held: away[i].Held}})
		}
	}
	if !over && !dryOver {
		return passed
	}
	for i := range tallies {
		if over || r.takes[i].DryRun {
			tallies[i] = fairshare.Tally{}
		}
	}
	for i, t := range takes {
		for j := range r.takes {
			if r.takes[j].Limit == t.Limit && &r.takes[j].Key[0] == &t.Key[0] && t.DryRun != over {
				tallies[j] = away[i]
			}
		}
	}
	if over {
		return refused
	}
	return dryRefused
}

// shares reports whether this member admits a share of each limit only.
func (l *Limiter) shares() bool { return l.core.opts.Away == AwayShare && l.core.most.Load() > 1 }

// hasSlot reports whether the requests in progress here, with this one, are within
// this member's share of a concurrent limit.
func (l *Limiter) hasSlot(p *part) bool {
	c := l.core
	sh := &c.book[p.key.shard()]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r, ok := c.book.find(&p.key)
	return !l.shares() || !ok || c.book.at(r).own <= max(1, p.spec.allowed/c.most.Load())
}

// refuseSlot fills in the tally of a concurrent limit whose share is taken.
func (l *Limiter) refuseSlot(r *request, p *part, tallies []fairshare.Tally) int32 {
	for i := range tallies {
		if !p.dry || r.takes[i].DryRun {
			tallies[i] = fairshare.Tally{}
		}
	}
	tallies[p.take] = fairshare.Tally{Over: true, Used: p.spec.allowed}
	if p.dry {
		return dryRefused
	}
	return refused
}

// refuse fills in tallies when a part was refused while others had no answer.
func (l *Limiter) refuse(r *request, at time.Time, tallies []fairshare.Tally) int32 {
	l.explain(r, at, tallies, refused)
	return refused
}

// settleAway charges the share of this member while the store is away.
func (l *Limiter) settleAway(r *request, at time.Time) {
	if !l.shares() {
		return
	}
	limiter := l.awayLimiter()
	for i := range r.charges {
		ch := r.charges[i]
		ch.Held, ch.Ends = 0, false
		if ch.Cost == 0 || r.refs[i] == none {
			continue
		}
		_ = limiter.Settle(context.Background(), at, []fairshare.Charge{ch})
	}
}
