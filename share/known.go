package share

import (
	"sync"
	"sync/atomic"
	"time"
)

// A known stores since when clients are known. It is a table without pointers, allocated at first
// use. It consists of sets of eight words, one cache line each. A word is
//
//	2 bits   state: seen, returned, has standing; 0 for a free word
//	28 bits  of the client's hash; other bits choose the set
//	34 bits  quarter seconds since 1970: when it was first seen; with standing, when last
//
// New clients replace clients that came once, then clients that returned, in each case the one
// first seen longest ago. They replace a client with standing only if the set has no others, and
// only one that was not seen for a day. So a flood of new addresses does not remove clients with
// standing.
type known struct {
	once  sync.Once
	sets  int
	table []word
}

type word = atomic.Uint64

const (
	setSize         = 8
	defaultRemember = 1 << 21
	maxRemember     = 1 << 27

	timeBits = 34
	nameBits = 28

	stateSeen     = 1
	stateReturned = 2
	stateStanding = 3

	returnAfter = 10 * 4        // quarter seconds until another request counts as a return
	staleFor    = 24 * 3600 * 4 // quarter seconds
	noteEvery   = 60 * 4        // quarter seconds between updates of the last request of a client with standing
)

// size sets the number of clients that fit, before the table is allocated.
func (k *known) size(n int) {
	if k.sets != 0 {
		return
	}
	if n <= 0 {
		n = defaultRemember
	}
	k.sets = 1
	for k.sets*setSize < min(n, maxRemember) {
		k.sets *= 2
	}
}

// set returns a client's set, and the part of its hash that words contain.
func (k *known) set(hash uint64) (set []word, name uint64) {
	k.once.Do(func() { k.table = make([]word, k.sets*setSize) })
	i := int(hash>>nameBits) & (k.sets - 1)
	return k.table[i*setSize:][:setSize:setSize], hash & (1<<nameBits - 1)
}

func quarters(t time.Time) uint64 {
	q := t.Unix()*4 + int64(t.Nanosecond())/(1e9/4)
	return uint64(min(max(q, 0), 1<<timeBits-1))
}

func pack(state, name, at uint64) uint64 {
	return state<<(timeBits+nameBits) | name<<timeBits | at
}

func unpack(w uint64) (state, name, at uint64) {
	return w >> (timeBits + nameBits), w >> timeBits & (1<<nameBits - 1), w & (1<<timeBits - 1)
}

// after returns a time in quarter seconds, rounded up.
func after(d time.Duration) uint64 {
	return uint64((max(d, 0) + time.Second/4 - 1) / (time.Second / 4))
}

// seen records a request of a client, and reports whether the client has standing.
func (k *known) seen(hash uint64, now time.Time, knownAfter time.Duration) bool {
	if knownAfter <= 0 {
		return true
	}
	at := quarters(now)
	set, name := k.set(hash)
	for i := range set {
		w := set[i].Load()
		state, its, then := unpack(w)
		if state == 0 || its != name {
			continue
		}
		age := at - min(then, at)
		next := w
		switch {
		case state == stateStanding:
			if age >= noteEvery {
				next = pack(state, name, at)
			}
		case age >= after(knownAfter):
			state = stateStanding
			next = pack(state, name, at)
		case state == stateSeen && age >= returnAfter:
			next = pack(stateReturned, name, then)
		}
		if next != w {
			set[i].CompareAndSwap(w, next) // if it fails, another request of the client has recorded the same
		}
		return state == stateStanding
	}
	k.put(set, pack(stateSeen, name, at), at)
	return false
}

// record adds a client from the registry.
func (k *known) record(hash uint64, first, now time.Time, knownAfter time.Duration) {
	at, then := quarters(now), quarters(first)
	then = min(then, at)
	set, name := k.set(hash)
	entry := pack(stateSeen, name, then)
	if at-then >= after(knownAfter) {
		entry = pack(stateStanding, name, at)
	}
	for i := range set {
		w := set[i].Load()
		if state, its, was := unpack(w); state != 0 && its == name {
			if state != stateStanding && then < was {
				set[i].CompareAndSwap(w, entry)
			}
			return
		}
	}
	k.put(set, entry, at)
}

// put replaces the client that is to be forgotten, if there is one.
func (k *known) put(set []word, w, at uint64) {
	victim, old, least := -1, uint64(0), ^uint64(0)
	for i := range set {
		was := set[i].Load()
		state, _, then := unpack(was)
		if state == stateStanding && at-min(then, at) < staleFor {
			continue
		}
		if rank := state<<timeBits | then; rank < least {
			victim, old, least = i, was, rank
		}
	}
	if victim >= 0 {
		set[victim].CompareAndSwap(old, w) // if it fails, another client took the word: the next request tries again
	}
}
