package memlimit

import (
	"fairshare"
	"sync/atomic"
)

// takeFast is takeOne for what is by far the most common: a state that is
// there, at home, in a narrow layout, of a limit charged on arrival. It
// reports false if the take is not of this kind; then it did nothing.
func (t *table) takeFast(l *limit, hash uint64, now int64, cost uint64, tally *fairshare.Tally) bool {
	s := &t.sets[t.home(hash)]
	s.lock()
	head := atomic.LoadUint64(&s.head) &^ lockBit
	tag := tagOf(hash)
	for i := range s.slot {
		low := s.slot[i][0] ^ tag
		if low > lowMask || s.id(i) != l.id {
			continue
		}
		high := s.slot[i][1]
		if l.kind == gcraNarrow {
			v := l.ahead(int64(high), low, now)
			debt := l.add(span{v.ns, v.prev}, l.spent(cost))
			if !l.burst.less(debt) && int64(debt.ns) <= int64(^uint64(0)>>1)-max(now, 0) {
				s.slot[i] = [2]uint64{tag | debt.frac, uint64(now) + debt.ns}
				atomic.StoreUint64(&s.head, head)
				return true
			}
			atomic.StoreUint64(&s.head, head)
			*tally = l.tally(&v, cost, true, now)
			return true
		}
		v := l.roll(high>>lowBits, low, high&lowMask, now)
		if l.passes(&v, cost) {
			s.slot[i] = [2]uint64{tag | v.prev, uint64(v.num)<<lowBits | (v.cur + cost)}
			atomic.StoreUint64(&s.head, head)
			return true
		}
		atomic.StoreUint64(&s.head, head)
		*tally = l.tally(&v, cost, true, now)
		return true
	}
	atomic.StoreUint64(&s.head, head)
	return false
}
