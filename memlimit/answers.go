package memlimit

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// answerMarks tell which keys may have counts of answers, that is, of errors and failures. Most clients have none, so
// a look at the marks often saves one at a set of the table for each such limit. A key without a mark has no state of
// these limits that is not fresh. Several keys share a mark.
//
// A mark ends in the epoch in which its states are fresh by themselves. A word has marksPerWord keys:
//
//	16 bits  of keys whose marks end in the epoch of the word or before
//	16 bits  of keys whose marks end before it
//	32 bits  the epoch of the word, in which the last of its marks ends
//
// The zero word has no mark. Words change on their own, so nothing needs to be swept. A word that is more than an
// epoch old keeps its marks until the next one, in case the time of its change is a wrong one, far ahead.
type answerMarks struct {
	entries []atomic.Uint64 // a power of two
	shift   uint8           // what is left of a hash is the number of its mark
	epoch   uint8           // the length of an epoch is 2^epoch ns
}

const (
	marksPerWord = 16
	marksMask    = 1<<marksPerWord - 1
	epochShift   = 2 * marksPerWord

	shortEpoch = 42 // 73 minutes
	longEpoch  = 48 // 78 hours, at least
)

// newAnswerMarks returns marks for a table of so many sets. They take at most 1/1024 of the memory of these.
func newAnswerMarks(sets int, epoch uint8) answerMarks {
	length := max(0, bits.Len(uint(sets))-7)
	return answerMarks{make([]atomic.Uint64, 1<<length), uint8(60 - length), epoch}
}

// number returns the number of the mark of a key, whose hash has no salt.
func (m *answerMarks) number(hash uint64) uint64 { return hash >> (m.shift & 63) }

// has reports whether a key has a mark at time now.
func (m *answerMarks) has(hash uint64, now int64) bool {
	at := m.number(hash)
	word := m.entries[at/marksPerWord%uint64(len(m.entries))].Load()
	if word == 0 {
		return false
	}
	if left := int32(uint32(word>>epochShift) - uint32(now>>m.epoch)); left > 0 {
		word |= word >> marksPerWord
	} else if left < 0 {
		return false
	}
	return word>>(at%marksPerWord)&1 != 0
}

// add adds the mark of a key, whose states are fresh at a time end; now is the present time.
func (m *answerMarks) add(hash uint64, now, end int64) { m.addAt(m.number(hash), now, end) }

// addAt is add by the number of the mark.
func (m *answerMarks) addAt(at uint64, now, end int64) {
	word, bit := &m.entries[at/marksPerWord], uint64(1)<<(at%marksPerWord)
	present, last := uint32(now>>m.epoch), uint32(end>>m.epoch)
	for {
		old := word.Load()
		epoch, current, before := uint32(old>>epochShift), old&marksMask, old>>marksPerWord&marksMask
		switch left := int32(epoch - present); {
		case left == 0:
			before = 0
		case left == -1:
			before, current = 0, 0
		}
		switch later := int32(last - epoch); {
		case current|before == 0:
			epoch, current = last, bit
		case later > 0:
			epoch, current, before = last, bit, before|current
		case later == 0:
			current |= bit
		default:
			before |= bit
		}
		next := uint64(epoch)<<epochShift | before<<marksPerWord | current
		if next == old || word.CompareAndSwap(old, next) {
			return
		}
	}
}

// addAll adds the marks of all keys whose hashes, with a salt, are from first to last.
func (m *answerMarks) addAll(first, last, salt uint64, now, end int64) {
	for at := m.number(first); at <= m.number(last); at++ {
		m.addAt(at^m.number(salt), now, end)
	}
}

// clear removes all marks.
func (m *answerMarks) clear() {
	for i := range m.entries {
		m.entries[i].Store(0)
	}
}

// marks returns the index in table.answers of the marks of a limit that counts answers. They depend on what the limit
// is, not on its N.
func (l *limit) marks() int {
	if l.w < 1<<(shortEpoch-1) {
		return 0
	}
	return 1
}

// noteAnswers notes that a key, whose hash has the salt of l, has the state v of l.
func (t *table) noteAnswers(l *limit, hash uint64, v *view, now int64) {
	if l.countsAnswers() {
		t.answers[l.marks()].add(hash^l.salt, now, l.freshAt(v, now))
	}
}

// surelyFresh reports whether a key has no state of l, or one that is fresh by time now. It does not look at the set.
// The hash has no salt.
func (t *table) surelyFresh(l *limit, hash uint64, now int64) bool {
	return l.countsAnswers() && !t.answers[l.marks()].has(hash, now)
}

// freshAt returns when v will be fresh by itself.
func (l *limit) freshAt(v *view, now int64) int64 {
	if l.kind <= windowWide {
		now = v.num*int64(l.w) + int64(v.ns) // now, or a later time of the state itself
	}
	return now + min(l.timeLeft(v), math.MaxInt64-max(now, 0))
}
