package memlimit

import (
	"iter"
	"math/bits"
	"sync/atomic"
)

// marks has a bit for each set of a table. Bits take 1/1024 of the memory of the sets,
// so that most of them are in the cache of the processor when the sets are not.
type marks []atomic.Uint64

func newMarks(sets int) marks { return make(marks, (sets+63)/64) }

func (m marks) has(set int) bool { return m[uint(set)/64].Load()>>(uint(set)%64)&1 != 0 }

func (m marks) add(set int) {
	if !m.has(set) { // otherwise others need not load the line again
		m[uint(set)/64].Or(1 << (uint(set) % 64))
	}
}

func (m marks) remove(set int) { m[uint(set)/64].And(^(1 << (uint(set) % 64))) }

// all returns the sets with a bit, in ascending order.
func (m marks) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range m {
			for word := m[i].Load(); word != 0; word &= word - 1 {
				if !yield(64*i + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
