package memlimit

import (
	"math"
	"math/bits"
	"time"

	"fairshare"
)

// This file is the arithmetic of limits over views: which costs
// pass, the new counts, how long to wait. See GCRA in ITU-T I.371 and the sliding window
// counter of fairshare.Window. All products are of 128 bits.

// passes reports whether cost fits.
func (l *limit) passes(v *view, cost uint64) bool {
	switch l.kind {
	case quiet:
		return v.cur+cost <= l.allowed
	case gcraNarrow, gcraWide:
		debt := span{v.ns, v.prev}
		if l.settled {
			return debt.less(l.burst)
		}
		debt = l.add(debt, l.spent(cost))
		return !l.burst.less(debt) && debt.ns <= uint64(math.MaxInt64)-uint64(max(v.num, 0))
	}
	if l.settled && v.prev+v.cur < l.allowed || !l.settled && v.prev+v.cur+cost <= l.allowed {
		return true // even if all of prev still counted
	}
	roomHi, roomLo, ok := l.room(cost)
	hi, lo := l.weight(v)
	return ok && (hi < roomHi || hi == roomHi && lo <= roomLo)
}

// passesWith is passes of a held limit as if what is held were spent now.
func (l *limit) passesWith(v view, held uint64) bool {
	l.hold(&v, held)
	return l.passes(&v, 0)
}

// hold charges what is held to a view that is not stored.
func (l *limit) hold(v *view, held uint64) {
	if l.kind <= windowWide {
		v.cur += held // there is room for more than counts saturate at
		return
	}
	l.settle(v, held)
}

// room returns the most that prev·(W−e) + cur·W may be for cost to pass, and
// false if it never passes.
func (l *limit) room(cost uint64) (hi, lo uint64, ok bool) {
	if l.settled {
		hi, lo = bits.Mul64(l.allowed, l.w)
		lo, borrow := bits.Sub64(lo, 1, 0) // strictly below N·W
		return hi - borrow, lo, true
	}
	if cost > l.allowed {
		return 0, 0, false
	}
	hi, lo = bits.Mul64(l.allowed-cost, l.w)
	return hi, lo, true
}

// weight returns prev·(W−e) + cur·W.
func (l *limit) weight(v *view) (hi, lo uint64) {
	hi, lo = bits.Mul64(v.cur, l.w)
	h, p := bits.Mul64(v.prev, l.w-v.ns)
	lo, carry := bits.Add64(lo, p, 0)
	return hi + h + carry, lo
}

// spend charges cost, which has passed.
func (l *limit) spend(v *view, cost uint64) {
	switch l.kind {
	case gcraNarrow, gcraWide:
		debt := l.add(span{v.ns, v.prev}, l.spent(cost))
		v.ns, v.prev = debt.ns, debt.frac
	case quiet:
		v.cur = min(v.cur+min(cost, l.most), l.most)
		v.noteRequest()
	default:
		v.cur = min(v.cur+min(cost, l.most), l.most)
	}
}

// noteRequest notes the time of a request under a quiet limit.
func (v *view) noteRequest() { v.num = max(v.num, int64(v.ns)) }

// settle charges cost without asking.
func (l *limit) settle(v *view, cost uint64) {
	switch l.kind {
	case gcraNarrow, gcraWide:
		before := span{v.ns, v.prev}
		debt := l.add(before, l.spent(min(cost, 2*l.allowed)))
		if l.ceiling.less(debt) {
			debt = l.ceiling
		}
		if debt.less(before) {
			debt = before
		}
		debt.ns = min(debt.ns, uint64(math.MaxInt64)-uint64(max(v.num, 0)))
		v.ns, v.prev = debt.ns, debt.frac
	default:
		l.spend(v, cost)
	}
}

// refund takes back cost, which was charged at time at.
func (l *limit) refund(v *view, cost uint64, at int64) {
	switch l.kind {
	case quiet:
		v.cur -= min(v.cur, cost)
	case gcraNarrow, gcraWide:
		debt, back := span{v.ns, v.prev}, l.spent(cost)
		if !back.less(debt) {
			v.ns, v.prev = 0, 0
			return
		}
		if debt.frac < back.frac {
			debt.ns, debt.frac = debt.ns-1, debt.frac+l.den
		}
		v.ns, v.prev = debt.ns-back.ns, debt.frac-back.frac
	default:
		switch charged := l.blank(at); v.num - charged.num {
		case 0:
			v.cur -= min(v.cur, cost)
		case 1:
			v.prev -= min(v.prev, cost)
		}
	}
}

// spent returns cost·T.
func (l *limit) spent(cost uint64) span {
	if cost == 1 {
		return l.interval
	}
	return l.times(cost)
}

func (a span) less(b span) bool { return a.ns < b.ns || a.ns == b.ns && a.frac < b.frac }

// add returns a + b; both are at most 292 years.
func (l *limit) add(a, b span) span {
	sum := span{a.ns + b.ns, a.frac + b.frac}
	if sum.frac >= l.den {
		sum.ns, sum.frac = sum.ns+1, sum.frac-l.den
	}
	return sum
}

// tally returns the figures of a take in a group that does not pass.
func (l *limit) tally(v *view, cost uint64, over bool, now int64) fairshare.Tally {
	var late int64 // how far now is before the state's own time
	if l.kind <= windowWide && !l.fresh(v) {
		late = v.num*int64(l.w) + int64(v.ns) - now
	}
	tally := fairshare.Tally{Over: over, Used: l.used(v), Reset: time.Duration(l.timeLeft(v) + late)}
	switch {
	case over && l.allowed == 0: // no request ever passes
		tally.Wait = time.Duration(l.w)
	case over:
		tally.Wait = time.Duration(l.wait(v, cost) + late)
	}
	return tally
}

// tallyHeld is tally of a held limit: what is held counts as used, but nobody
// knows how long it will be in the way.
func (l *limit) tallyHeld(v view, held uint64, over bool, now int64) fairshare.Tally {
	alone := l.tally(&v, 0, over && !l.passes(&v, 0), now)
	l.hold(&v, held)
	tally := l.tally(&v, 0, false, now)
	tally.Over, tally.Wait, tally.Held = over, alone.Wait, int64(held)
	return tally
}

// used returns what counts against the limit, rounded up.
func (l *limit) used(v *view) int64 {
	switch l.kind {
	case quiet:
		return int64(v.cur)
	case gcraNarrow, gcraWide: // ⌈(ns + frac/den)·den/wg⌉
		hi, lo := bits.Mul64(v.ns, l.den)
		lo, carry := bits.Add64(lo, v.prev, 0)
		return quotientUp(hi+carry, lo, l.wg)
	}
	hi, lo := bits.Mul64(v.prev, l.w-v.ns)
	return int64(v.cur) + quotientUp(hi, lo, l.w)
}

func quotientUp(hi, lo, by uint64) int64 {
	if hi >= by {
		return math.MaxInt64
	}
	q, rest := bits.Div64(hi, lo, by)
	if rest > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// wait returns the ns until cost, which does not pass now, would pass alone.
// A cost above all that is allowed never does: then it is the time to fresh.
func (l *limit) wait(v *view, cost uint64) int64 {
	switch l.kind {
	case quiet:
		return int64(l.w)
	case gcraNarrow, gcraWide:
		debt := span{v.ns, v.prev}
		if l.settled { // the first ns at which debt < burst
			less := debt.ns - l.burst.ns
			if debt.frac >= l.burst.frac {
				less++
			}
			return int64(less)
		}
		if cost > l.allowed {
			return l.timeLeft(v)
		}
		debt = l.add(debt, l.spent(cost))
		if debt.less(l.burst) {
			return l.timeLeft(v) // it passes, but no clock would show the time
		}
		less := debt.ns - l.burst.ns
		if debt.frac > l.burst.frac {
			less++
		}
		return int64(min(less, math.MaxInt64))
	}
	roomHi, roomLo, ok := l.room(cost)
	if !ok {
		return l.timeLeft(v)
	}
	rest := l.w - v.ns // of this window
	curHi, curLo := bits.Mul64(v.cur, l.w)
	if curHi < roomHi || curHi == roomHi && curLo <= roomLo {
		// In this window, or at the very start of the next: prev·(W−e) ≤ room − cur·W.
		lo, borrow := bits.Sub64(roomLo, curLo, 0)
		q, _ := bits.Div64(roomHi-curHi-borrow, lo, v.prev)
		return int64(rest - q)
	}
	// In the next, or at the very start of the one after: cur·(W−e) ≤ room.
	q, _ := bits.Div64(roomHi, roomLo, v.cur)
	return int64(rest + l.w - q)
}
