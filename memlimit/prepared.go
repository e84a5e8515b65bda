package memlimit

import (
	"cmp"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"fairshare"
)

// prepared are takes of limits whose states take one slot, or which count what requests
// in progress have, at most 1 each. See [fairshare.PreparedTakes].
type prepared struct {
	of        *Limiter
	keys      []preparedKey
	spent     []preparedTake        // of limits that are charged on arrival
	resources fairshare.ResourceSet // of tracked limits
}

// A preparedTake is a take of one limit under one of the keys. It repeats what is needed of the limit.
type preparedTake struct {
	salt, allowed, w uint64
	l                *limit
	id               uint16
	key              uint8
	narrow           bool // it is windowNarrow
}

// A preparedKey has the tracked limits of one key, see limit.tracked.
type preparedKey struct {
	tracked   []*limit
	ids       uint64                // of these limits, as in a cell of holdings; 0: there are none or too many
	room      [cellLanes]int64      // of each of ids: a fresh state passes if less is taken
	marks     [2]bool               // that the limits look at, see table.answers
	resources fairshare.ResourceSet // of these limits
}

// mostPrepared is how many limits that are charged on arrival may be prepared.
const mostPrepared = 8

var _ fairshare.Preparer = (*Limiter)(nil)

// PreparesFor implements [fairshare.Preparer].
func (l *Limiter) PreparesFor(limiter fairshare.Limiter) bool { return limiter == fairshare.Limiter(l) }

// Prepare implements [fairshare.Preparer].
func (l *Limiter) Prepare(limits, keys []int) fairshare.PreparedTakes {
	p := &prepared{of: l}
	for i, limit := range limits {
		lim, key := &l.limits[limit], keys[i]
		if key < 0 || key >= fairshare.MaxPreparedKeys {
			return nil
		}
		for key >= len(p.keys) {
			p.keys = append(p.keys, preparedKey{})
		}
		switch {
		case lim.kind == concurrent, lim.tracked && lim.fast && !lim.costly:
			p.keys[key].tracked = append(p.keys[key].tracked, lim)
			p.keys[key].resources |= 1 << lim.resource
			p.resources |= 1 << lim.resource
		case lim.fast && !lim.settled && len(p.spent) < mostPrepared:
			p.spent = append(p.spent, preparedTake{lim.salt, lim.allowed, lim.w, lim, lim.id, uint8(key),
				lim.kind == windowNarrow})
		default:
			return nil
		}
	}
	slices.SortStableFunc(p.spent, func(a, b preparedTake) int { return cmp.Compare(a.w, b.w) })
	for i := range p.keys {
		key := &p.keys[i]
		if len(key.tracked) > cellLanes {
			continue
		}
		for lane, lim := range key.tracked {
			key.ids |= uint64(lim.id) << (16 * lane)
			if key.room[lane] = int64(lim.allowed); lim.kind != concurrent {
				key.room[lane] = int64(lim.room0)
				key.marks[lim.marks()] = true
			}
		}
	}
	return p
}

// A spending is a take of a limit that is charged on arrival, on its way. low and high are what is to be stored.
type spending struct {
	set       *set
	state     *[2]uint64 // of its state; nil: it has none yet
	low, high uint64
}

// Take implements [fairshare.PreparedTakes].
func (p *prepared) Take(now time.Time, keys [][]byte, names *fairshare.KeyNames) bool {
	l := p.of
	if len(keys) != len(p.keys) {
		return false
	}
	shards := uint64(0)
	for i := range p.keys {
		name := &names[i%len(names)]
		if i > 0 && unsafe.SliceData(keys[i]) == unsafe.SliceData(keys[0]) && len(keys[i]) == len(keys[0]) {
			name[0] = names[0][0] // they are the same memory
		} else {
			name[0] = l.table.secret.hash(keys[i])
		}
		if len(p.keys[i].tracked) > 0 {
			name[1] = l.slots.second.hash(keys[i])
			shards |= 1 << shardOf(name[0])
		}
	}
	pass := p.take(now.UnixNano(), shards, names)
	runtime.KeepAlive(l.table)
	return pass
}

// take is Take. It locks the shards, and then the sets that it charges.
func (p *prepared) take(now int64, shards uint64, names *fairshare.KeyNames) bool {
	t := p.of.table
	var space [mostPrepared]spending
	all := space[:len(p.spent)]
	for i := range all {
		take := &p.spent[i]
		s := &t.sets[t.home(names[take.key%fairshare.MaxPreparedKeys][0]^take.salt)]
		// Locking waits for memory, one set after the other. Looking at all
		// of them first lets the processor fetch them at the same time.
		atomic.LoadUint64(&s.head)
		all[i].set = s
	}
	p.of.slots.lock(shards)
	pass := true
	var cells [fairshare.MaxPreparedKeys]int // of the keys, as in holder.cellIndex
	for i := range p.keys {
		if key := &p.keys[i]; pass && len(key.tracked) > 0 {
			cells[i%len(cells)], pass = key.mayHold(p.of, &names[i%len(names)], now)
		}
	}
	if pass = pass && p.spendAll(all, names, now); pass {
		for i := range p.keys {
			if key := &p.keys[i]; len(key.tracked) > 0 {
				key.hold(p.of.slots, &names[i%len(names)], cells[i%len(cells)])
			}
		}
	}
	p.of.slots.unlock(shards)
	return pass
}

// spendAll charges 1 of each limit if all pass. It locks the sets in any order, and gives up if one stays locked.
func (p *prepared) spendAll(all []spending, names *fairshare.KeyNames, now int64) bool {
	t, spent := p.of.table, p.spent[:len(all)]
	window, num := uint64(0), uint64(0) // the number of the present window of that length
	for i := range all {
		s, take := &all[i], &spent[i]
		set := s.set
		if !set.lockSoon() {
			giveUp(all[:i])
			return false
		}
		tag := tagOf(names[take.key%fairshare.MaxPreparedKeys][0] ^ take.salt)
		var low, high uint64 // of its state
		if slot := set.find(take.id, tag); slot >= 0 {
			s.state = &set.slot[slot]
			low, high = s.state[0]&lowMask, s.state[1]
		} else if set.overflowed() || !t.roomFor(take.l, 1, set, now) {
			giveUp(all[:i+1])
			return false
		}
		if take.narrow {
			if take.w != window {
				window, num = take.w, uint64(take.l.numOf(now))
			}
			prev, cur := low, high&lowMask
			switch gone := (num - high>>lowBits) & narrowNumbers; {
			case gone == 0:
			case gone == 1:
				prev, cur = cur, 0
			case gone <= narrowNumbers-narrowNumbers>>2 || s.state == nil:
				prev, cur = 0, 0
			default: // the state is ahead of now
				prev = take.allowed
			}
			if prev+cur < take.allowed { // it surely passes
				s.low, s.high = tag|prev, num<<lowBits|(cur+1)
				continue
			}
		}
		l := take.l
		v := l.blank(now)
		if s.state != nil {
			v = l.narrow(low, high, now)
		}
		if !l.passes(&v, 1) {
			giveUp(all[:i+1])
			return false
		}
		l.spend(&v, 1)
		s.low, s.high = l.encode(tag, &v)
	}
	for i := range all {
		s := &all[i]
		if s.state == nil {
			take := &spent[i]
			t.begin(s, take.l, names[take.key%fairshare.MaxPreparedKeys][0]^take.salt, now)
		}
		if s.state[0] != s.low {
			storeWord(&s.state[0], s.low)
		}
		storeWord(&s.state[1], s.high)
		s.set.unlock()
	}
	return true
}

// giveUp unlocks sets.
func giveUp(locked []spending) {
	for i := range locked {
		locked[i].set.unlock()
	}
}

// begin gives a new state a place in its set, which has one that is fresh.
func (t *table) begin(s *spending, l *limit, hash uint64, now int64) {
	p := t.choose(s.set, nil, l, now, nil)
	t.evict(p, l, now, false)
	t.noteStored(s.low)
	t.noteUse(t.home(hash), false)
	s.state = &s.set.slot[p.slot]
}

// holderOf returns a key on its way through holdings.
func holderOf(name *[2]uint64) holder { return holder{keyName{name[0], name[1]}, -1} }

// mayHold reports whether a key may have 1 more of each tracked limit, and returns the index of its cell, if there is
// one. It returns false if that cannot be said without a lock. The shard is locked.
func (k *preparedKey) mayHold(l *Limiter, name *[2]uint64, now int64) (index int, may bool) {
	t, taken := l.table, &l.slots.shards[shardOf(name[0])].taken
	of, c := holderOf(name), (*cell)(nil)
	if taken.n > 0 {
		c = taken.first(&of)
	}
	if k.hasRoom(c) && !(k.marks[0] && t.answers[0].has(name[0], now)) &&
		!(k.marks[1] && t.answers[1].has(name[0], now)) {
		return of.cellIndex, true
	}
	index = of.cellIndex
	for lane, lim := range k.tracked {
		amount := uint64(0)
		switch {
		case c == nil:
		case c.has(lane, lim.id):
			amount = uint64(c.held[lane])
		default:
			amount = uint64(taken.get(&of, lim.id))
		}
		if lim.kind == concurrent {
			if amount >= lim.allowed {
				return index, false
			}
			continue
		}
		hash := name[0] ^ lim.salt
		home := t.home(hash)
		if amount < lim.room0 && t.surelyFresh(lim, name[0], now) {
			continue // as in table.test
		}
		w := work{l: lim, home: home, hash: hash}
		if !t.test(&w, amount, now) || w.over {
			return index, false
		}
	}
	return index, true
}

// hasRoom reports whether a fresh key may have 1 more of each tracked limit, if all that it has is in the cell c.
// false means that it is not known.
func (k *preparedKey) hasRoom(c *cell) bool {
	if k.ids == 0 || c != nil && c.ids != k.ids {
		return false
	}
	for lane := range k.tracked {
		taken := int64(0)
		if c != nil {
			taken = c.held[lane%cellLanes]
		}
		if taken >= k.room[lane%cellLanes] {
			return false
		}
	}
	return true
}

// hold notes that a key has 1 more of each tracked limit. The shard is locked, and index is that of a cell of the key,
// if it has one.
func (k *preparedKey) hold(s *slots, name *[2]uint64, index int) {
	taken := &s.shards[shardOf(name[0])].taken
	of, c := holderOf(name), (*cell)(nil)
	switch {
	case taken.n == 0:
	case uint(index) < uint(len(taken.cells)) && taken.cells[index].keyName == of.keyName &&
		taken.cells[index].ids != 0:
		c, of.cellIndex = &taken.cells[index], index
	default:
		c = taken.first(&of)
	}
	if c == nil && k.ids != 0 {
		c = taken.insert(&of)
		c.ids, c.held = k.ids, [...]int64{1, 1, 1, 1}
		return
	}
	for lane, lim := range k.tracked {
		if c.has(lane, lim.id) {
			c.held[lane]++
			continue
		}
		taken.add(&of, lim.id, 1)
		c = nil // it may have moved
	}
}

// Release implements [fairshare.PreparedTakes].
func (p *prepared) Release(names *fairshare.KeyNames, resources fairshare.ResourceSet) {
	if resources&p.resources == 0 {
		return
	}
	shards := uint64(0)
	for i := range p.keys {
		if len(p.keys[i].tracked) > 0 {
			shards |= 1 << shardOf(names[i%len(names)][0])
		}
	}
	p.of.slots.lock(shards)
	for i := range p.keys {
		if key := &p.keys[i]; len(key.tracked) > 0 {
			key.giveBack(p.of.slots, &names[i%len(names)], resources)
		}
	}
	p.of.slots.unlock(shards)
}

// giveBack gives 1 of each tracked limit of some resources back. The shard is locked.
func (k *preparedKey) giveBack(s *slots, name *[2]uint64, resources fairshare.ResourceSet) {
	taken := &s.shards[shardOf(name[0])].taken
	if taken.n == 0 {
		return
	}
	of := holderOf(name)
	c := taken.first(&of)
	if c != nil && c.ids == k.ids && k.resources&^resources == 0 && c.held == [...]int64{1, 1, 1, 1} {
		taken.remove(of.cellIndex) // of the only request in progress
		return
	}
	for lane, lim := range k.tracked {
		if !resources.Has(lim.resource) {
			continue
		}
		if c.has(lane, lim.id) {
			if c.held[lane] > 1 {
				c.held[lane]--
				continue
			}
			if others := c.ids &^ (0xFFFF << (16 * lane & 63)); others != 0 {
				c.ids = others
				continue
			}
		}
		taken.giveBack(&of, lim.id, 1)
		c = nil // it may have moved
	}
}
