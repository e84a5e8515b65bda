package memlimit

import (
	"sync/atomic"

	"fairshare"
)

// takeFast is takeOne for what is by far the most common: the state is there,
// at home and of one slot, and nobody else is at its set. Nothing is written,
// not even a lock, to refuse a request. It reports false if the take is not of
// this kind; then it did nothing.
func (t *table) takeFast(l *limit, hash uint64, now int64, cost uint64, tally *fairshare.Tally) bool {
	s := &t.sets[t.home(hash)]
	head := atomic.LoadUint64(&s.head)
	if head&lockBit != 0 {
		return false
	}
	tag := tagOf(hash)
	for i := range s.slot {
		low := atomic.LoadUint64(&s.slot[i][0]) ^ tag
		if low > lowMask || s.idAt(head, i) != l.id {
			continue
		}
		high := atomic.LoadUint64(&s.slot[i][1])
		v := l.narrow(low, high, now)
		if pass := l.passes(&v, cost); l.settled || !pass {
			if l.rewound(low, high, &v) {
				return false
			}
			if atomic.LoadUint64(&s.head) != head {
				return false // it may have been half a state that was read
			}
			if !pass {
				*tally = l.tally(&v, cost, true, now)
			}
			return true
		}
		l.spend(&v, cost)
		if !atomic.CompareAndSwapUint64(&s.head, head, head|lockBit) {
			return false
		}
		low, high = l.encode(tag, &v)
		s.write(i, low, high)
		s.unlockAs(head)
		return true
	}
	return false
}

// narrow reads a state of one slot whose layout is fast. low is without the
// tag.
func (l *limit) narrow(low, high uint64, now int64) view {
	if l.kind == gcraNarrow {
		return l.viewOfTAT(int64(high), low, now)
	}
	return l.roll(high>>lowBits, low, high&lowMask, now)
}
