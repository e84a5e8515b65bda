package memlimit

import (
	"math/bits"
	"sync/atomic"

	"fairshare"
)

// A work is one take of a group on its way.
type work struct {
	spot   // where its state is, if there is one
	l      *limit
	home   int // its home set
	hash   uint64
	other  uint64 // second half of its name in slots, if it has one
	cost   uint64 // of a held limit: what is held for the key
	take   int32  // its index in the takes
	shard  uint8  // of slots
	over   bool
	second bool // the set after home is locked too
	peeked bool // its state was read without a lock
	view
}

// name returns the name in slots.
func (w *work) name() slotKey { return slotKey{w.hash, w.other, w.l.id} }

// takeGroup takes the dry takes or the others, and reports whether all
// passed. What it charges is as if requests came one after another: it locks
// whatever it will look at before it looks, and lets go when it is done.
func (l *Limiter) takeGroup(now int64, takes []fairshare.Take, tallies []fairshare.Tally, dry bool) bool {
	if len(takes) <= 4 { // clearing less memory is worth a branch
		var few [4]work
		return l.takeWorks(few[:0], now, takes, tallies, dry)
	}
	if len(takes) <= 16 {
		var many [16]work
		return l.takeWorks(many[:0], now, takes, tallies, dry)
	}
	var most [64]work // with a ceiling for each limit
	return l.takeWorks(most[:0], now, takes, tallies, dry)
}

// takeWorks is takeGroup with room for the works of a request.
func (l *Limiter) takeWorks(works []work, now int64, takes []fairshare.Take, tallies []fairshare.Tally, dry bool) bool {
	var keys keyHashes
	concurrents, tracked := 0, false
	for i := range takes {
		if takes[i].DryRun != dry {
			continue
		}
		lim := l.limit(takes[i].Limit, takes[i].Every)
		key := keys.of(l, takes[i].Key)
		w := work{
			spot: spot{slot: -1}, l: lim, take: int32(i),
			hash: key.hash ^ lim.salt,
			cost: uint64(max(0, takes[i].Cost)),
		}
		if lim.tracked {
			tracked = true
			w.other, w.shard = key.second(l), uint8(shardOf(key.hash))
			if lim.kind == concurrent {
				concurrents++
				w.home = -1
				works = append(works, w)
				continue
			}
		}
		w.home = l.table.home(w.hash)
		// Locking waits for memory, one set after the other. Looking at all
		// of them first lets the processor fetch them at the same time.
		s := &l.table.sets[w.home]
		atomic.LoadUint64(&s.head)
		atomic.LoadUint64(&s.slot[setSlots-1][1])
		works = append(works, w)
	}
	for i := 1; i < len(works); i++ { // by home
		for j := i; j > 0 && works[j].home < works[j-1].home; j-- {
			works[j], works[j-1] = works[j-1], works[j]
		}
	}
	if tracked {
		return l.takeTracked(now, works, concurrents, takes, tallies)
	}
	pass := l.table.open(works, now)
	l.table.closeAll(works, now, pass, tallies)
	return pass
}

// open locks the sets of works, which are sorted by home, reads the states
// and reports whether all pass.
func (t *table) open(works []work, now int64) bool {
	pass := true
	locked := -1 // the last set that is locked
	for i := range works {
		w := &works[i]
		home, next := &t.sets[w.home], &t.sets[w.home+1]
		if w.l.held && locked < w.home && t.peek(w, home, now) {
			if w.over = !w.l.passes(&w.view, w.cost); w.over {
				pass = false
			}
			continue
		}
		if locked < w.home {
			home.lock()
			locked = w.home
		}
		tag := tagOf(w.hash)
		w.in, w.slot = home, home.find(w.l.id, tag)
		if w.slot < 0 {
			overflowed := home.overflowed()
			if overflowed || !w.l.settled && !t.roomFor(w.l, len(works), home, now) {
				if locked == w.home {
					next.lock()
					locked++
				}
			}
			w.second = locked > w.home
			if overflowed {
				t.tidy(home, next, now, works[:i])
				w.in, w.slot = next, next.find(w.l.id, tag)
			}
		}
		if w.slot >= 0 {
			w.view = w.l.load(w.in, w.slot, now)
		} else {
			w.view = w.l.blank(now)
		}
		if w.over = !w.l.passes(&w.view, w.cost); w.over {
			pass = false
		}
	}
	return pass
}

// peek reads the state of a held limit without locking its set, and reports
// whether it could. Such a take writes nothing, and the shard of its key is
// locked: its state cannot be charged before the request is decided.
func (t *table) peek(w *work, home *set, now int64) bool {
	head := atomic.LoadUint64(&home.head)
	if head&(lockBit|overflowBit) != 0 {
		return false
	}
	v, tag := w.l.blank(now), tagOf(w.hash)
	for i := range home.slot {
		low := atomic.LoadUint64(&home.slot[i][0]) ^ tag
		if low > lowMask || home.idAt(head, i) != w.l.id {
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
	w.view, w.peeked = v, true
	return true
}

// closeAll charges works if all pass, else fills in their tallies, and unlocks
// what open locked.
func (t *table) closeAll(works []work, now int64, pass bool, tallies []fairshare.Tally) {
	for i := range works {
		w := &works[i]
		switch {
		case pass && w.l.settled:
			w.l.storeRewound(w.spot, tagOf(w.hash), &w.view)
		case pass:
			w.l.spend(&w.view, w.cost)
			var next *set
			if w.second {
				next = &t.sets[w.home+1]
			}
			t.put(&w.spot, &t.sets[w.home], next, w.l, tagOf(w.hash), &w.view, now, works)
		case w.l.held:
			w.l.storeRewound(w.spot, tagOf(w.hash), &w.view)
			tallies[w.take] = w.l.tallyHeld(w.view, w.cost, w.over, now)
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
	for i := range works {
		w := &works[i]
		if w.peeked {
			continue
		}
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
// have something of; the first of them are concurrent.
func (l *Limiter) takeTracked(now int64, works []work, concurrents int, takes []fairshare.Take,
	tallies []fairshare.Tally) bool {
	var wanted uint64 // shards, one bit each
	for i := range works {
		if works[i].l.tracked {
			wanted |= 1 << works[i].shard
		}
	}
	for rest := wanted; rest != 0; rest &= rest - 1 {
		l.slots.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	pass := true
	for i := range works {
		w := &works[i]
		if !w.l.tracked {
			continue
		}
		name := w.name()
		taken := uint64(l.slots.shards[w.shard].taken.get(&name))
		if w.l.held {
			w.cost = taken
			continue
		}
		w.cur = taken
		if w.over = w.cur+w.cost > w.l.allowed; w.over {
			pass = false
		}
	}
	if !l.table.open(works[concurrents:], now) {
		pass = false
	}
	for i := range works {
		if w := &works[i]; w.l.held && w.cost > 0 && !w.over && !w.l.passesWith(w.view, w.cost) {
			w.over, pass = true, false
		}
	}
	l.table.closeAll(works[concurrents:], now, pass, tallies)
	for i := range works {
		w := &works[i]
		switch {
		case pass && w.l.tracked:
			sh, cost := &l.slots.shards[w.shard], int64(w.cost)
			if w.l.held {
				tally := &tallies[w.take]
				cost, tally.Expected = l.expected(w.l, sh, w.hash, takes[w.take].Page, now)
				tally.Held = cost
			}
			if cost > 0 {
				name := w.name()
				sh.taken.add(&name, cost)
			}
		case !pass && w.l.kind == concurrent:
			tallies[w.take] = fairshare.Tally{Over: w.over, Used: int64(w.cur)}
		}
	}
	for rest := wanted; rest != 0; rest &= rest - 1 {
		l.slots.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
	return pass
}

// note sets the time of dry takes of quiet limits that were not asked: every
// request breaks the pause.
func (l *Limiter) note(now int64, takes []fairshare.Take) {
	var keys keyHashes
	for i := range takes {
		if lim := &l.limits[takes[i].Limit]; takes[i].DryRun && lim.kind == quiet {
			l.table.change(lim, keys.of(l, takes[i].Key).hash^lim.salt, now, 0, 0)
		}
	}
}
