package share

import (
	"sync"
	"sync/atomic"
	"time"
)

// A known remembers since when clients are known: a table of sets of eight
// words, one cache line each, made at first need, without pointers. A word is
//
//	2 bits   state: seen, came back, has standing; 0 for none
//	28 bits  of the client's hash; others choose the set
//	34 bits  quarter seconds since 1970: when it was first seen; with standing, when last
//
// A flood of new addresses takes the places of clients that came once, then of
// those that came back, the one first seen longest ago first; of those with
// standing only where no others are, and from who was not seen for a day.
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
	stateBack     = 2
	stateStanding = 3

	backAfter = 10 * 4        // quarter seconds until a client that comes counts as one that came back
	staleFor  = 24 * 3600 * 4 // quarter seconds
	noteEvery = 60 * 4        // quarter seconds: so often the last request of a client with standing is noted
)

// size sets how many clients there is room for, before the table is made.
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

// set returns a client's set and the part of its hash that stands in words.
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

// seen notes that a client sends a request, and reports whether it has
// standing.
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
		case state == stateSeen && age >= backAfter:
			next = pack(stateBack, name, then)
		}
		if next != w {
			set[i].CompareAndSwap(w, next) // another request of the client notes the same
		}
		return state == stateStanding
	}
	k.put(set, pack(stateSeen, name, at), at)
	return false
}

// tell notes what the registry says of a client.
func (k *known) tell(hash uint64, first, now time.Time, knownAfter time.Duration) {
	at, then := quarters(now), quarters(first)
	then = min(then, at)
	set, name := k.set(hash)
	told := pack(stateSeen, name, then)
	if at-then >= after(knownAfter) {
		told = pack(stateStanding, name, at)
	}
	for i := range set {
		w := set[i].Load()
		if state, its, was := unpack(w); state != 0 && its == name {
			if state != stateStanding && then < was {
				set[i].CompareAndSwap(w, told)
			}
			return
		}
	}
	k.put(set, told, at)
}

// put gives a client the place of who is to be forgotten, if anybody is.
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
		set[victim].CompareAndSwap(old, w) // else somebody else came in between: the next request will do
	}
}
