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
// The zero word has no mark. Words change on their own, so nothing needs to be swept.
//
// Times may go back, so that states that were fresh count again. Then all keys count as marked that are looked at in
// an epoch before the latest one in which a mark was removed. A word that is more than an epoch old keeps its marks
// until the next one. So a single wrong time far ahead removes none.
type answerMarks struct {
	entries []atomic.Uint64 // a power of two
	shift   uint8           // what is left of a hash is the number of its mark
	epoch   uint8           // the length of an epoch is 2^epoch ns
	removed atomic.Int64    // the latest epoch in which a mark was removed
}

const (
	marksPerWord = 16
	marksMask    = 1<<marksPerWord - 1
	epochShift   = 2 * marksPerWord

	shortEpoch = 42 // 73 minutes
	longEpoch  = 48 // 78 hours, at least
)

// make makes room for the marks of a table of so many sets, in at most 1/1024 of the memory of these.
func (m *answerMarks) make(sets int, epoch uint8) {
	length := max(0, bits.Len(uint(sets))-7)
	m.entries, m.shift, m.epoch = make([]atomic.Uint64, 1<<length), uint8(60-length), epoch
}

// number returns the number of the mark of a key, whose hash has no salt.
func (m *answerMarks) number(hash uint64) uint64 { return hash >> (m.shift & 63) }

// epochOf returns the number of the epoch of a time.
func (m *answerMarks) epochOf(at int64) int64 { return at >> (m.epoch & 63) }

// has reports whether a key has a mark at time now.
func (m *answerMarks) has(hash uint64, now int64) bool {
	at, present := m.number(hash), m.epochOf(now)
	word := m.entries[at/marksPerWord].Load()
	if word != 0 {
		switch left := int32(uint32(word>>epochShift) - uint32(present)); {
		case left > 0:
			word |= word >> marksPerWord
		case left < 0:
			word = 0
		}
		if word>>(at%marksPerWord)&1 != 0 {
			return true
		}
	}
	return present < m.removed.Load() // after the word, see addAt
}

// add adds the mark of a key, whose states are fresh at a time end; now is the present time.
func (m *answerMarks) add(hash uint64, now, end int64) { m.addAt(m.number(hash), now, end) }

// addAt is add by the number of the mark.
func (m *answerMarks) addAt(at uint64, now, end int64) {
	word, bit := &m.entries[at/marksPerWord], uint64(1)<<(at%marksPerWord)
	now, end = m.epochOf(now), m.epochOf(end)
	present, last := uint32(now), uint32(end)
	for {
		old := word.Load()
		epoch, current, before := uint32(old>>epochShift), old&marksMask, old>>marksPerWord&marksMask
		had := current | before
		switch left := int32(epoch - present); {
		case left == 0:
			before = 0
		case left == -1:
			before, current = 0, 0
		}
		if had != current|before {
			m.noteRemoved(now) // before the marks are gone
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

// noteRemoved notes that marks are removed in an epoch.
func (m *answerMarks) noteRemoved(epoch int64) {
	for {
		latest := m.removed.Load()
		if epoch <= latest || m.removed.CompareAndSwap(latest, epoch) {
			return
		}
	}
}

// clear removes all marks, before the sets of all present states are reset.
func (m *answerMarks) clear() {
	m.removed.Store(0)
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
