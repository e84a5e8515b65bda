package memlimit

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

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

// A preparedTake is a take of one limit under one of the keys.
type preparedTake struct {
	l   *limit
	key int
}

// A preparedKey has the tracked limits of one key, see limit.tracked.
type preparedKey struct {
	tracked   []*limit
	ids       uint64                // of these limits, as in a cell of holdings; 0: there are none or too many
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
			p.spent = append(p.spent, preparedTake{lim, key})
		default:
			return nil
		}
	}
	for i := range p.keys {
		key := &p.keys[i]
		for lane, lim := range key.tracked {
			if key.ids |= uint64(lim.id) << (16 * lane); lane == cellLanes {
				key.ids = 0
				break
			}
		}
	}
	return p
}

// A spending is a take of a limit that is charged on arrival, on its way.
type spending struct {
	l    *limit
	home int
	hash uint64
	slot int // of its state, −1: it has none yet
	view
}

// Take implements [fairshare.PreparedTakes].
func (p *prepared) Take(now time.Time, keys [][]byte, names *fairshare.KeyNames) bool {
	l := p.of
	if len(keys) != len(p.keys) {
		return false
	}
	shards := uint64(0)
	for i, key := range keys {
		name := &names[i%len(names)]
		name[0] = l.table.secret.hash(key)
		if len(p.keys[i].tracked) > 0 {
			name[1] = l.slots.second.hash(key)
			shards |= 1 << shardOf(name[0])
		}
	}
	pass := p.take(now.UnixNano(), shards, names)
	runtime.KeepAlive(l.table)
	return pass
}

// take is Take. It locks the shards, and then the sets that it charges in ascending order.
func (p *prepared) take(now int64, shards uint64, names *fairshare.KeyNames) bool {
	t := p.of.table
	var space [mostPrepared]spending
	all := space[:len(p.spent)]
	for i := range all {
		take := &p.spent[i]
		hash := names[take.key%len(names)][0] ^ take.l.salt
		home := t.home(hash)
		// Locking waits for memory, one set after the other. Looking at all
		// of them first lets the processor fetch them at the same time.
		atomic.LoadUint64(&t.sets[home].head)
		j := i
		for ; j > 0 && all[j-1].home > home; j-- {
			all[j].l, all[j].home, all[j].hash = all[j-1].l, all[j-1].home, all[j-1].hash
		}
		all[j].l, all[j].home, all[j].hash = take.l, home, hash
	}
	p.of.slots.lock(shards)
	pass := true
	for i := range p.keys {
		if key := &p.keys[i]; pass && len(key.tracked) > 0 {
			pass = key.mayHold(p.of, &names[i%len(names)], now)
		}
	}
	if pass = pass && t.spendAll(all, now); pass {
		for i := range p.keys {
			if key := &p.keys[i]; len(key.tracked) > 0 {
				key.hold(p.of.slots, &names[i%len(names)])
			}
		}
	}
	p.of.slots.unlock(shards)
	return pass
}

// holderOf returns a key on its way through holdings.
func holderOf(name *[2]uint64) holder { return holder{keyName{name[0], name[1]}, -1} }

// mayHold reports whether a key may have 1 more of each tracked limit. It returns false if
// that cannot be said without a lock. The shard is locked.
func (k *preparedKey) mayHold(l *Limiter, name *[2]uint64, now int64) bool {
	t, taken := l.table, &l.slots.shards[shardOf(name[0])].taken
	of, c := holderOf(name), (*cell)(nil)
	if taken.n > 0 {
		c = taken.first(&of)
	}
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
				return false
			}
			continue
		}
		hash := name[0] ^ lim.salt
		home := t.home(hash)
		if amount < lim.room0 && t.surelyFresh(lim, home) {
			continue // as in table.test
		}
		w := work{l: lim, home: home, hash: hash}
		if !t.test(&w, amount, now) || w.over {
			return false
		}
	}
	return true
}

// hold notes that a key has 1 more of each tracked limit. The shard is locked.
func (k *preparedKey) hold(s *slots, name *[2]uint64) {
	taken := &s.shards[shardOf(name[0])].taken
	of, c := holderOf(name), (*cell)(nil)
	if taken.n > 0 {
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

// spendAll charges 1 of each limit if all pass. all is sorted by home.
func (t *table) spendAll(all []spending, now int64) bool {
	var blank view
	window := uint64(0)      // for which blank is
	locked, pass := -1, true // locked is the last set that is locked
	for i := range all {
		s := &all[i]
		home, l := &t.sets[s.home], s.l
		if s.home != locked {
			home.lock()
			locked = s.home
		}
		if l.kind == windowNarrow && l.w != window {
			blank, window = l.blank(now), l.w
		}
		s.slot = home.find(l.id, tagOf(s.hash))
		switch {
		case s.slot < 0 && !home.hasRoom(len(all)):
			pass = false
		case s.slot < 0 && l.kind == windowNarrow:
			s.view = blank
		case s.slot < 0:
			s.view = l.blank(now)
		case l.kind == windowNarrow:
			high := home.slot[s.slot][1]
			s.view = l.rollFrom(blank, high>>lowBits, home.slot[s.slot][0]&lowMask, high&lowMask)
		default:
			s.view = l.narrow(home.slot[s.slot][0]&lowMask, home.slot[s.slot][1], now)
		}
		if pass && l.kind == windowNarrow && s.prev+s.cur < l.allowed {
			continue // it surely passes
		}
		if pass = pass && l.passes(&s.view, 1); !pass {
			break
		}
	}
	if pass {
		for i := range all {
			s := &all[i]
			home, l := &t.sets[s.home], s.l
			if s.slot < 0 {
				s.slot = bits.TrailingZeros8(home.withID(atomic.LoadUint64(&home.head), 0))
				home.own(s.slot, l.id, false)
				t.noteStored(tagOf(s.hash))
				t.noteUse(l, s.home, false)
			}
			if l.kind == windowNarrow && s.cur < l.most {
				home.write(s.slot, tagOf(s.hash)|s.prev, uint64(s.num)<<lowBits|(s.cur+1))
				continue
			}
			l.spend(&s.view, 1)
			l.store(home, s.slot, tagOf(s.hash), &s.view)
		}
	}
	for unlocked, i := -1, 0; i < len(all) && all[i].home <= locked; i++ {
		if home := all[i].home; home != unlocked {
			t.sets[home].unlock()
			unlocked = home
		}
	}
	return pass
}

// hasRoom reports whether a set that has no state of a limit has so many empty slots,
// and the set behind it has none either.
func (s *set) hasRoom(n int) bool {
	head := atomic.LoadUint64(&s.head)
	return head&overflowBit == 0 && bits.OnesCount8(s.withID(head, 0)) >= n
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
