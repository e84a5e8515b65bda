package memlimit

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"fairshare"
)

// A State is what one key has spent of one limit, without what requests in
// progress have. The zero State is fresh.
type State struct {
	// Num is the number of the present window since the Unix epoch. Of GCRA it is
	// the theoretical arrival time, and of Quiet the time of the last request, in ns
	// since the Unix epoch.
	Num int64
	// Prev and Cur are the costs of the last and of the present window. Of GCRA Prev
	// is the part of a ns by which the arrival time is later, in units of 1/D ns,
	// where W/N is a fraction with the denominator D in its lowest terms. Of Quiet
	// Cur is the count.
	Prev, Cur int64
}

// State returns the state of a limit for a key as of now. It is for programs
// that keep the counters in step with a store.
func (l *Limiter) State(limit int, key []byte, every time.Duration, now time.Time) State {
	defer runtime.KeepAlive(l.table)
	lim := l.limit(limit, every)
	if lim.kind == concurrent {
		return State{}
	}
	v := l.table.view(lim, l.table.secret.hash(key)^lim.salt, now.UnixNano())
	switch {
	case lim.fresh(&v):
		return State{}
	case lim.kind == gcraNarrow || lim.kind == gcraWide:
		return State{Num: v.num + int64(v.ns), Prev: int64(v.prev)}
	}
	return State{Num: v.num, Prev: int64(v.prev), Cur: int64(v.cur)}
}

// SetState replaces the state of a limit for a key. Amounts outside of what the
// limiter can hold are brought into bounds.
func (l *Limiter) SetState(limit int, key []byte, every time.Duration, now time.Time, s State) {
	defer runtime.KeepAlive(l.table)
	lim, at := l.limit(limit, every), now.UnixNano()
	if lim.kind == concurrent {
		return
	}
	v := lim.blank(at)
	s.Prev, s.Cur = max(0, s.Prev), max(0, s.Cur)
	switch {
	case s == State{}:
	case lim.kind == gcraNarrow || lim.kind == gcraWide:
		if s.Num >= at && uint64(s.Num)-uint64(at) <= farthest {
			v.ns, v.prev = uint64(s.Num)-uint64(at), min(uint64(s.Prev), lim.den-1)
		}
	case lim.kind == quiet:
		v.num, v.cur = s.Num, min(uint64(s.Cur), lim.most)
	default:
		v.num, v.prev, v.cur = s.Num, min(uint64(s.Prev), lim.most), min(uint64(s.Cur), lim.most)
	}
	hash := l.table.secret.hash(key) ^ lim.salt
	p := l.table.reach(lim, hash, at)
	if p.slot >= 0 || !lim.fresh(&v) {
		l.table.storeAt(&p, lim, hash, &v, at)
	}
	p.release()
}

// HasLost reports whether a live state was given up for a new one since the start. Until then
// each key has all its counts.
func (l *Limiter) HasLost() bool { return l.table.hasLost.Load() }

// AddHeld adds to what requests in progress of a key have of a limit, or
// subtracts from it: slots of a concurrent limit, or what is held. Requests of
// other programs count so as well.
func (l *Limiter) AddHeld(limit int, key []byte, amount int64) {
	lim := &l.limits[limit]
	if amount == 0 || !lim.tracked {
		return
	}
	var keys keyHashes
	k := keys.of(l, key).name(l)
	sh := &l.slots.shards[shardOf(k.first)]
	sh.mu.Lock()
	if amount > 0 {
		sh.taken.add(k, lim.id, min(amount, math.MaxInt64/4))
	} else {
		sh.taken.giveBack(k, lim.id, -max(amount, -math.MaxInt64))
	}
	sh.mu.Unlock()
	runtime.KeepAlive(l.table)
}

// TakeRoom is [Limiter.Take] that also reports in used[i] what counted against
// the limit of takes[i] just before it was taken, rounded up. It is filled in only
// for takes of a group that passes.
func (l *Limiter) TakeRoom(now time.Time, takes []fairshare.Take, tallies []fairshare.Tally, used []int64) error {
	if len(takes) != len(tallies) || len(takes) != len(used) {
		return fmt.Errorf("%d takes, %d tallies and %d amounts", len(takes), len(tallies), len(used))
	}
	clear(tallies)
	l.takeBoth(now.UnixNano(), takes, tallies, used)
	runtime.KeepAlive(l.table)
	return nil
}
