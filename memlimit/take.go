package memlimit

import (
	"math/bits"
	"sync/atomic"

	"fairshare"
)

// A work is one take of a group on its way.
type work struct {
	spot    // where its state is, if there is one
	l       *limit
	home    int // its home set; not of a concurrent limit
	hash    uint64
	cost    uint64 // of a held limit: what is held for the key
	take    int32  // its index in the takes
	key     int8   // of a tracked limit: its index in keyHashes.known; −1: it is own
	tracked bool   // see limit.tracked
	over    bool
	second  bool // the set after home is locked too
	unread  bool // view is not filled in: the state is fresh
	view
	own holder
}

// holder returns the key of a tracked limit.
func (w *work) holder(keys *keyHashes) *holder {
	if w.key < 0 {
		return &w.own
	}
	return &keys.known[int(w.key)%len(keys.known)].holder
}

// A toLock is a work whose set is to be locked. They are sorted by home before they are.
type toLock struct {
	home int
	work int // its index
}

// mostTakes is the number of takes of a request for which nothing is allocated. A request has a
// ceiling for each limit at most.
const mostTakes = 64

// takeGroup takes the dry takes or the others. It reports whether all passed, and whether there are
// takes that are not of the group. What it charges is as if requests came one after another: it locks
// whatever it will look at before it looks, and lets go when it is done.
func (l *Limiter) takeGroup(now int64, takes []fairshare.Take, tallies []fairshare.Tally, used []int64,
	dry bool) (pass, others bool) {
	switch n := len(takes); { // clearing less memory is worth a branch
	case n <= 4:
		var few [4]work
		var locks [4]toLock
		return l.takeWorks(few[:0], locks[:0], now, takes, tallies, used, dry)
	case n <= 16:
		var many [16]work
		var locks [16]toLock
		return l.takeWorks(many[:0], locks[:0], now, takes, tallies, used, dry)
	case n <= mostTakes:
		var most [mostTakes]work
		var locks [mostTakes]toLock
		return l.takeWorks(most[:0], locks[:0], now, takes, tallies, used, dry)
	}
	return l.takeWorks(make([]work, 0, len(takes)), nil, now, takes, tallies, used, dry)
}

// takeWorks is takeGroup with room for the works of a request, which are zero, and for their locks.
func (l *Limiter) takeWorks(works []work, locks []toLock, now int64, takes []fairshare.Take, tallies []fairshare.Tally,
	used []int64, dry bool) (pass, others bool) {
	var keys keyHashes
	shards := uint64(0) // of tracked limits, one bit each
	for i := range takes {
		take := &takes[i]
		if take.DryRun != dry {
			others = true
			continue
		}
		lim := &l.limits[take.Limit]
		if take.Every != 0 {
			lim = l.pace(take.Limit, take.Every)
		}
		place := keys.find(l, take.Key)
		key := keys.at(place)
		n := len(works)
		works = works[:n+1]
		w := &works[n]
		w.slot, w.l, w.take, w.hash, w.cost = -1, lim, int32(i), key.first^lim.salt, uint64(max(0, take.Cost))
		w.home = l.table.home(w.hash)
		if lim.tracked {
			w.tracked, w.key = true, int8(place)
			if name := key.name(l); place < 0 {
				w.own = *name
			}
			shards |= 1 << shardOf(key.first)
			if lim.kind == concurrent {
				continue
			}
		}
		if l.table.surelyFresh(lim, key.first, now) {
			continue
		}
		// Locking waits for memory, one set after the other. Looking at all
		// of them first lets the processor fetch them at the same time.
		atomic.LoadUint64(&l.table.sets[w.home].head)
		if !lim.tracked {
			locks = append(locks, toLock{w.home, n})
		}
	}
	if shards != 0 {
		return l.takeTracked(now, &keys, works, locks, shards, takes, tallies, used), others
	}
	sortByHome(locks)
	pass = l.table.open(works, locks, now)
	if pass && used != nil {
		noteUsed(works, used)
	}
	l.table.closeAll(works, locks, now, pass, tallies)
	return pass, others
}

// sortByHome sorts by home. There are few locks.
func sortByHome(locks []toLock) {
	for i := 1; i < len(locks); i++ {
		for j := i; j > 0 && locks[j].home < locks[j-1].home; j-- {
			locks[j], locks[j-1] = locks[j-1], locks[j]
		}
	}
}

// open locks the sets of locks, which are sorted, reads the states
// and reports whether all pass.
func (t *table) open(works []work, locks []toLock, now int64) bool {
	pass := true
	locked := -1 // the last set that is locked
	var blank view
	window := uint64(0) // for which blank is
	for i := range locks {
		w := &works[locks[i].work]
		home, next := &t.sets[w.home], &t.sets[w.home+1]
		if locked < w.home {
			home.lock()
			locked = w.home
		}
		tag := tagOf(w.hash)
		w.in, w.slot = home, home.find(w.l.id, tag)
		if w.slot < 0 {
			overflowed := home.overflowed()
			if overflowed || !w.l.settled && !t.roomFor(w.l, len(locks), home, now) {
				if locked == w.home {
					next.lock()
					locked++
				}
			}
			w.second = locked > w.home
			if overflowed {
				t.tidy(home, next, now, works)
				w.in, w.slot = next, next.find(w.l.id, tag)
			}
		}
		if w.l.kind > windowWide || w.l.w != window {
			blank, window = w.l.blank(now), w.l.w
			if w.l.kind > windowWide {
				window = 0
			}
		}
		if w.slot >= 0 {
			w.view = w.l.loadFrom(w.in, w.slot, &blank, now)
		} else {
			w.view = blank
		}
		if w.over = !w.l.passes(&w.view, w.cost); w.over {
			pass = false
		}
	}
	return pass
}

// test tests a held limit without locking the set of its state, and reports whether it
// could. taken is what is held. Such a take writes nothing, and the shard of its key is
// locked: its state cannot be charged before the request is decided.
func (t *table) test(w *work, taken uint64, now int64) bool {
	if taken < w.l.room0 && t.surelyFresh(w.l, w.hash^w.l.salt, now) {
		w.unread = true // most clients have made no error
		return true
	}
	home := &t.sets[w.home]
	head := atomic.LoadUint64(&home.head)
	if head&(lockBit|overflowBit) != 0 {
		return false
	}
	slots := home.withID(head, w.l.id)
	if slots == 0 && taken < w.l.room0 {
		w.unread = true
		return true
	}
	v, tag := w.l.blank(now), tagOf(w.hash)
	for ; slots != 0; slots &= slots - 1 {
		i := bits.TrailingZeros8(slots)
		low := atomic.LoadUint64(&home.slot[i][0]) ^ tag
		if low > lowMask {
			continue
		}
		if !w.l.fast {
			return false
		}
		high := atomic.LoadUint64(&home.slot[i][1])
		if v = w.l.narrow(low, high, now); w.l.rewound(low, high, &v) {
			return false
		}
		break
	}
	if atomic.LoadUint64(&home.head) != head {
		return false // it may have been half a state that was read
	}
	w.view = v
	w.over = !w.l.passesWith(v, taken)
	return true
}

// closeAll charges the works of locks if all works pass, else fills in their tallies, and unlocks
// what open locked.
func (t *table) closeAll(works []work, locks []toLock, now int64, pass bool, tallies []fairshare.Tally) {
	for i := range locks {
		w := &works[locks[i].work]
		switch {
		case pass && w.l.kind == windowNarrow && !w.l.settled && w.slot >= 0: // by far the most common
			w.cur = min(w.cur+min(w.cost, w.l.most), w.l.most)
			w.in.write(w.slot, tagOf(w.hash)|w.prev, uint64(w.num)<<lowBits|w.cur)
		case pass && w.l.settled:
			w.l.storeRewound(w.spot, tagOf(w.hash), &w.view)
		case pass:
			w.l.spend(&w.view, w.cost)
			t.put(&w.spot, w.home, w.second, w.l, w.hash, &w.view, now, works)
		case w.l.held: // its tally is filled in when the sets are unlocked
			w.l.storeRewound(w.spot, tagOf(w.hash), &w.view)
		default:
			w.l.storeRewound(w.spot, tagOf(w.hash), &w.view)
			tallies[w.take] = w.l.tally(&w.view, w.cost, w.over, now)
			if w.l.kind == quiet && w.cur > 0 {
				w.noteRequest()
				w.l.store(w.in, w.slot, tagOf(w.hash), &w.view)
			}
		}
	}
	unlocked := -1
	for i := range locks {
		w := &works[locks[i].work]
		if unlocked < w.home {
			t.sets[w.home].unlock()
			unlocked = w.home
		}
		if w.second && unlocked == w.home {
			t.sets[w.home+1].unlock()
			unlocked++
		}
	}
}

// takeTracked is takeGroup with limits among works that requests in progress
// have something of. locks are those of the other works, shards those of these limits.
func (l *Limiter) takeTracked(now int64, keys *keyHashes, works []work, locks []toLock, shards uint64,
	takes []fairshare.Take, tallies []fairshare.Tally, used []int64) bool {
	l.slots.lock(shards)
	pass, locked := true, false
	for i := range works {
		w := &works[i]
		if !w.tracked {
			continue
		}
		key := w.holder(keys)
		taken := uint64(l.slots.shards[shardOf(key.first)].taken.get(key, w.l.id))
		switch {
		case !w.l.held:
			w.cur = taken
			w.over = w.cur+w.cost > w.l.allowed
		case l.table.test(w, taken, now):
			w.cost = taken
		default: // it is read under a lock
			w.cost, locked = taken, true
			locks = append(locks, toLock{w.home, i})
		}
		if w.over {
			pass = false
		}
	}
	sortByHome(locks)
	if !l.table.open(works, locks, now) {
		pass = false
	}
	for i := 0; locked && i < len(works); i++ { // held ones that were read under a lock
		if w := &works[i]; w.l.held && w.in != nil && !w.over && !w.l.passesWith(w.view, w.cost) {
			w.over, pass = true, false
		}
	}
	if pass && used != nil {
		noteUsed(works, used)
	}
	l.table.closeAll(works, locks, now, pass, tallies)
	for i := range works {
		if w := &works[i]; !w.tracked {
			continue
		} else if pass {
			l.hold(w, w.holder(keys), &takes[w.take], &tallies[w.take], now)
		} else if !w.l.held {
			tallies[w.take] = fairshare.Tally{Over: w.over, Used: int64(w.cur)}
		} else {
			if w.unread {
				w.view = w.l.blank(now)
			}
			tallies[w.take] = w.l.tallyHeld(w.view, w.cost, w.over, now)
		}
	}
	l.slots.unlock(shards)
	return pass
}

// hold notes what a request has of a tracked limit whose group passes. The shard is locked.
func (l *Limiter) hold(w *work, key *holder, take *fairshare.Take, tally *fairshare.Tally, now int64) {
	sh, before, more := &l.slots.shards[shardOf(key.first)], w.cur, int64(w.cost)
	if w.l.held {
		before = w.cost
		more, tally.Expected = l.expected(w.l, sh, w.hash, take.Page, now)
		tally.Held = more
	}
	switch {
	case more <= 0:
	case before == 0:
		sh.taken.begin(key, w.l.id, more)
	default:
		sh.taken.add(key, w.l.id, more)
	}
}

// noteUsed notes what counts against each limit before works are charged.
func noteUsed(works []work, used []int64) {
	for i := range works {
		w := &works[i]
		switch {
		case w.l.kind == concurrent:
			used[w.take] = int64(w.cur)
		case w.l.held:
			used[w.take] = w.l.used(&w.view) + int64(w.cost)
		default:
			used[w.take] = w.l.used(&w.view)
		}
	}
}

// note sets the time of dry takes of quiet limits that were not asked: every
// request breaks the pause.
func (l *Limiter) note(now int64, takes []fairshare.Take) {
	var keys keyHashes
	for i := range takes {
		if lim := &l.limits[takes[i].Limit]; takes[i].DryRun && lim.kind == quiet {
			l.table.change(lim, keys.of(l, takes[i].Key).first^lim.salt, now, 0, 0)
		}
	}
}
