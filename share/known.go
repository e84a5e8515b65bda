package share

import (
	"sync"
	"sync/atomic"
	"time"
)

// A known stores when each client was first seen. It is a table without pointers, allocated at first
// use. It consists of sets of eight cells, one cache line each. A cell is
//
//	2 bits   state: seen, returned, old; 0 for a free cell
//	28 bits  of the client's hash; other bits choose the set
//	34 bits  quarter seconds since 1970: when it was first seen
//
// For an old client, one that was first seen oldAfter ago or longer, the 34 bits are
//
//	17 bits  minutes since 1970: when it was first seen, or two days before last, if that is later
//	17 bits  minutes since 1970: when it was last seen; a day ago for a client from the registry
//
// 17 bits of minutes are 91 days, after which they begin again.
//
// New clients replace clients that came once, then clients that returned, in each case the one
// first seen longest ago. They replace an old client only if the set has no others, and only one
// that was not seen for a day. So a flood of new addresses does not remove old clients.
type known struct {
	once  sync.Once
	sets  int
	table []cell
}

type cell = atomic.Uint64

const (
	setSize         = 8
	defaultRemember = 1 << 21
	maxRemember     = 1 << 27

	timeBits = 34
	nameBits = 28

	stateSeen     = 1
	stateReturned = 2
	stateOld      = 3

	returnAfter = 10 * 4 // quarter seconds until another request counts as a return
	oldAfter    = 10 * time.Minute

	minuteBits = 17
	minuteMask = 1<<minuteBits - 1
	day        = 24 * 60 // minutes
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

// set returns a client's set, and the part of its hash that cells contain.
func (k *known) set(hash uint64) (set []cell, name uint64) {
	k.once.Do(func() { k.table = make([]cell, k.sets*setSize) })
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

// packOld returns the cell of an old client. first and last are minutes since 1970.
func packOld(name, first, last uint64) uint64 {
	return pack(stateOld, name, first&minuteMask<<minuteBits|last&minuteMask)
}

// minutesSince returns the minutes since a stored minute. A minute that lies less than a day in the
// future counts as now: the clock was set back.
func minutesSince(stored, now uint64) uint64 {
	passed := (now - stored) & minuteMask
	if passed > minuteMask-day {
		return 0
	}
	return passed
}

// quartersOf returns a duration in quarter seconds.
func quartersOf(d time.Duration) uint64 { return uint64(d / (time.Second / 4)) }

// minutes returns a time in quarter seconds as minutes since 1970.
func minutes(quarters uint64) uint64 { return quarters / (60 * 4) }

// age returns how long a client with that cell is known. For an old one it is at most two days.
func age(w, at uint64) time.Duration {
	state, _, then := unpack(w)
	if state == stateOld {
		return max(oldAfter, time.Duration(minutesSince(then>>minuteBits, minutes(at)))*time.Minute)
	}
	return time.Duration(at-min(then, at)) * (time.Second / 4)
}

// seen records a request of a client, and returns how long the client is known. It adds a client
// that it does not know only if add is true.
func (k *known) seen(hash uint64, now time.Time, add bool) time.Duration {
	at := quarters(now)
	set, name := k.set(hash)
	for i := range set {
		w := set[i].Load()
		state, its, then := unpack(w)
		if state == 0 || its != name {
			continue
		}
		since := age(w, at)
		next := w
		switch {
		case state == stateOld && minutesSince(then&minuteMask, minutes(at)) == 0:
		case since >= oldAfter:
			next = packOld(name, minutes(at)-min(uint64(since/time.Minute), 2*day), minutes(at))
		case state == stateSeen && quartersOf(since) >= returnAfter:
			next = pack(stateReturned, name, then)
		}
		if next != w {
			set[i].CompareAndSwap(w, next) // if it fails, another request of the client has recorded the same
		}
		return since
	}
	if add {
		k.put(set, pack(stateSeen, name, at), at)
	}
	return 0
}

// record adds a client from the registry. It may be replaced until it comes again: otherwise the
// clients of a large registry would leave no room for new ones.
func (k *known) record(hash uint64, first, now time.Time) {
	at, then := quarters(now), quarters(first)
	then = min(then, at)
	set, name := k.set(hash)
	entry := pack(stateSeen, name, then)
	if since := at - then; since >= quartersOf(oldAfter) {
		entry = packOld(name, minutes(at)-min(minutes(since), 2*day), minutes(at)-day)
	}
	for i := range set {
		w := set[i].Load()
		if state, its, _ := unpack(w); state != 0 && its == name {
			if age(w, at) < age(entry, at) {
				set[i].CompareAndSwap(w, entry)
			}
			return
		}
	}
	k.put(set, entry, at)
}

// put replaces the client that is to be forgotten, if there is one.
func (k *known) put(set []cell, w, at uint64) {
	victim, old, least := -1, uint64(0), ^uint64(0)
	for i := range set {
		was := set[i].Load()
		state, _, then := unpack(was)
		if state == stateOld {
			if minutesSince(then&minuteMask, minutes(at)) < day {
				continue
			}
			then = 0
		}
		if rank := state<<timeBits | then; rank < least {
			victim, old, least = i, was, rank
		}
	}
	if victim >= 0 {
		set[victim].CompareAndSwap(old, w) // if it fails, another client took the cell: the next request tries again
	}
}
