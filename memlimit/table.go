package memlimit

import (
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"fairshare"
)

// The table is an array of sets. A set is two neighbouring cache lines: a
// header and seven slots of 16 bytes. A state takes one slot or, if its
// figures are large, an even slot and the one after it.
//
// A key has one home set. When no slot there is fresh, its state goes to the set
// after the home, and the home is marked as overflowed. Only then does a look-up
// read two sets. The last set is not a home.
//
// A set is guarded by a lock bit in its header. The lock is held for some tens of
// nanoseconds and never over a call that can block. A goroutine that needs
// several sets locks them in ascending order.
type table struct {
	sets   []set
	limits atomic.Pointer[[]*limit] // by id, as last configured; id 0 is nobody's
	secret secret                   // made from seed
	seed   seed

	// used has the sets that have had states since the start, and their homes. Bits are set, and removed
	// by Reset, while the home is locked.
	used    marks
	answers [2]answerMarks // of limits with short windows, and of others

	mapped []byte       // the memory of sets; nil if it is on the heap
	stored atomic.Int64 // new states since the start, of every sampledStates-th key

	lost    [64]atomic.Int64 // live states overwritten, by the bit length of the ns that they had left
	hasLost atomic.Bool      // one of lost is not zero

	mu    sync.Mutex        // guards what follows, and is not taken on a request
	names map[string]uint16 // ids of all limits there ever were
	need  demand
}

const (
	setBytes   = 128
	setSlots   = 7
	slotBytes  = 16
	tagBits    = 36 // with the 14 slots that a look-up may see: chance below 2^-32 of meeting another's tag
	lowBits    = 64 - tagBits
	lowMask    = 1<<lowBits - 1
	idBits     = 12
	idMask     = 1<<idBits - 1
	secondHalf = idMask // id of the second slot of a wide state
	maxLimits  = secondHalf - 1
)

// A set's head holds, from the lowest bit:
//   - the lock;
//   - the overflow mark;
//   - seven bits, set for slots whose state has its home in the set before;
//   - a version of 19 bits, which each unlocking increments;
//   - the limit ids of slots 0 to 2.
//
// ids holds the limit ids of slots 3 to 6. Id 0 means empty.
//
// All words are read and written atomically where the lock is not held. A reader
// that finds head unlocked, and later unchanged, has read one state of the set in
// between.
type set struct {
	head uint64
	ids  uint64
	slot [setSlots][2]uint64
}

const (
	lockBit     = 1
	overflowBit = 2
	guestBit    = 4 // of slot 0
	versionOne  = guestBit << setSlots
	versionBits = headIDs - versionOne
	headIDs     = 1 << headShift
	headShift   = 64 - 3*idBits
)

// tryLock locks s if nobody holds it.
func (s *set) tryLock() bool {
	h := atomic.LoadUint64(&s.head)
	return h&lockBit == 0 && atomic.CompareAndSwapUint64(&s.head, h, h|lockBit)
}

// lock waits for the lock of s. Holders are gone after some tens of
// nanoseconds, unless the scheduler took their processor away.
func (s *set) lock() {
	if s.tryLock() {
		return
	}
	for spins := 1; ; spins++ {
		if s.tryLock() {
			return
		}
		if spins%64 == 0 {
			runtime.Gosched()
		}
	}
}

// lockSoon locks s unless somebody holds it for longer than usual. Several sets can be locked by it in any order.
func (s *set) lockSoon() bool {
	if s.tryLock() {
		return true
	}
	for range 32 {
		if s.tryLock() {
			return true
		}
	}
	return false
}

func (s *set) unlock() { s.unlockAs(atomic.LoadUint64(&s.head)) }

// unlockAs unlocks s with that head in the next version.
func (s *set) unlockAs(head uint64) {
	storeWord(&s.head, head&^(versionBits|lockBit)|(head+versionOne)&versionBits)
}

// id returns the limit id of slot i.
func (s *set) id(i int) uint16 { return s.idAt(atomic.LoadUint64(&s.head), i) }

func (s *set) idAt(head uint64, i int) uint16 {
	if i < 3 {
		return uint16(head>>(headShift+idBits*i)) & idMask
	}
	return uint16(atomic.LoadUint64(&s.ids)>>(idBits*(i-3))) & idMask
}

// own gives slot i to the limit id, whose state is at home in the set before
// if guest is set.
func (s *set) own(i int, id uint16, guest bool) {
	h := atomic.LoadUint64(&s.head) &^ (guestBit << i)
	if guest {
		h |= guestBit << i
	}
	if i < 3 {
		shift := headShift + idBits*i
		h = h&^(idMask<<shift) | uint64(id)<<shift
	} else {
		shift := idBits * (i - 3)
		storeWord(&s.ids, s.ids&^(idMask<<shift)|uint64(id)<<shift)
	}
	storeWord(&s.head, h)
}

// write sets the words of slot i.
func (s *set) write(i int, low, high uint64) {
	if s.slot[i][0] != low {
		storeWord(&s.slot[i][0], low)
	}
	if s.slot[i][1] != high {
		storeWord(&s.slot[i][1], high)
	}
}

func (s *set) guest(i int) bool { return atomic.LoadUint64(&s.head)&(guestBit<<i) != 0 }

// mark sets or clears the overflow mark.
func (s *set) mark(overflow bool) {
	h := atomic.LoadUint64(&s.head) &^ overflowBit
	if overflow {
		h |= overflowBit
	}
	storeWord(&s.head, h)
}

func (s *set) overflowed() bool { return atomic.LoadUint64(&s.head)&overflowBit != 0 }

// find returns the slot of the state with that id and tag, or -1.
func (s *set) find(id uint16, tag uint64) int {
	first := s.firstFieldsOf(atomic.LoadUint64(&s.head), id)
	for ; first != 0; first &= first - 1 {
		if i := uint(bits.TrailingZeros64(first)) / idBits; s.slot[i%4][0]^tag <= lowMask {
			return int(i)
		}
	}
	for last := s.lastFieldsOf(id); last != 0; last &= last - 1 {
		if i := 3 + uint(bits.TrailingZeros64(last))/idBits; s.slot[i%setSlots][0]^tag <= lowMask {
			return int(i)
		}
	}
	return -1
}

// Ids of a set are compared all at once.
const (
	eachID  = 1<<(3*idBits) | 1<<(2*idBits) | 1<<idBits | 1
	lowIDs  = eachID * (idMask >> 1)
	topOfID = eachID << (idBits - 1)
)

// firstFieldsOf returns the highest bits of the fields in head that have a limit's id. In head^id, a field
// of 12 bits is zero if its id is equal. Adding 0x7FF to the lower 11 bits sets the highest
// bit of all other fields.
func (s *set) firstFieldsOf(head uint64, id uint16) uint64 {
	first := head>>headShift ^ uint64(id)*(eachID>>idBits)
	return ^(first&lowIDs + lowIDs | first) & (topOfID >> idBits)
}

// lastFieldsOf is firstFieldsOf for the fields in ids.
func (s *set) lastFieldsOf(id uint16) uint64 {
	last := atomic.LoadUint64(&s.ids) ^ uint64(id)*eachID
	return ^(last&lowIDs + lowIDs | last) & topOfID
}

// withID returns the slots with a limit's id, one bit each.
func (s *set) withID(head uint64, id uint16) (slots uint8) {
	first, last := s.firstFieldsOf(head, id), s.lastFieldsOf(id)
	if first|last == 0 {
		return 0
	}
	const top = idBits - 1
	return uint8(first>>top&1 | first>>(top+idBits-1)&2 | first>>(top+2*idBits-2)&4 |
		last>>(top-3)&8 | last>>(top+idBits-4)&16 | last>>(top+2*idBits-5)&32 | last>>(top+3*idBits-6)&64)
}

func newTable() *table {
	t := &table{names: map[string]uint16{}}
	t.limits.Store(&[]*limit{nil})
	t.plant(newSeed())
	return t
}

// plant has all hashes depend on s, before the first request.
func (t *table) plant(s seed) {
	t.seed, t.secret = s, s.secret()
	for _, l := range *t.limits.Load() {
		if l != nil {
			l.salt = s.salt(l.identity)
		}
	}
}

// fill takes the memory, before the first request. It is returned when the
// table is garbage. So a method of Limiter that looks at sets ends with
// runtime.KeepAlive: a pointer to a set does not keep the table.
func (t *table) fill(memory int64) (err error) {
	n := int(max(2, memory/setBytes))
	t.used = newMarks(n)
	longest := uint64(0) // window of a limit that counts answers
	for _, l := range *t.limits.Load() {
		if l != nil && l.countsAnswers() {
			longest = max(longest, l.w)
		}
	}
	t.answers[0].make(n, shortEpoch)
	t.answers[1].make(n, uint8(max(longEpoch, bits.Len64(2*longest))))
	if t.sets, t.mapped, err = takeMemory(n); err == nil && t.mapped != nil {
		runtime.AddCleanup(t, returnMemory, t.mapped)
	}
	return err
}

// Small pages cost little memory while there are few states. When there have
// been as many as there are pages, nearly every page is in use, and large pages
// take the same memory.
const (
	sampledStates = 64
	smallPage     = 4096
)

// noteStored notes a new state and asks for large pages when it is time. It
// does not block.
func (t *table) noteStored(tag uint64) {
	if tag>>lowBits%sampledStates != 0 || t.mapped == nil {
		return
	}
	if t.stored.Add(1) == max(1, int64(len(t.mapped)/smallPage/sampledStates)) && len(t.mapped) >= 1<<20 {
		go func() {
			useLargePages(t.mapped)
			runtime.KeepAlive(t)
		}()
	}
}

// home returns the place of the home set of hash: its upper bits, scaled. The
// tag is its lower bits.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(len(t.sets)-1))
	return int(hi)
}

// tagOf returns the tag as a slot holds it, above the low bits.
func tagOf(hash uint64) uint64 { return hash << lowBits }

// A unit is the smallest thing that can be overwritten: one slot, or the two
// of a wide state.
type unit struct {
	first, slots int
	l            *limit // nil: empty
	view         view
}

// unit returns what slot i belongs to, as of time now. The set is locked.
func (t *table) unit(s *set, i int, now int64) unit {
	id := s.id(i)
	if id == secondHalf {
		i--
		id = s.id(i)
	}
	u := unit{first: i, slots: 1}
	if id == 0 {
		return u
	}
	u.l = (*t.limits.Load())[id]
	if u.l.wide {
		u.slots = 2
	}
	u.view = u.l.load(s, i, now)
	return u
}

// fresh reports whether u may be overwritten without loss.
func (u *unit) fresh() bool { return u.l == nil || u.l.fresh(&u.view) }

// deeper reports whether u is further from fresh than v. Debts of different limits
// are compared as parts of what each allows. If they were measured in time, one
// request under a daily limit would outweigh a whole burst under a limit of ten
// seconds, and displace the state of an offender.
func (u *unit) deeper(v *unit) bool {
	a, b := u.debt(), v.debt()
	if a != b {
		return a > b
	}
	return u.stamp() > v.stamp() // the older goes first
}

func (u *unit) debt() float64 {
	if u.l == nil {
		return 0
	}
	return u.l.debt(&u.view)
}

func (u *unit) stamp() int64 {
	if u.l == nil {
		return math.MinInt64
	}
	return u.l.stamp(&u.view)
}

// A spot is where a state is, or is to be.
type spot struct {
	in   *set
	slot int // -1: there is none yet
}

// covers reports whether the spot of a state of l has slot i of s in it.
func (p spot) covers(l *limit, s *set, i int) bool {
	return p.in == s && (p.slot == i || l.wide && p.slot >= 0 && p.slot+1 == i)
}

// choose finds a place for a new state of l in its home set or in next, the
// set after it, which may be nil if the caller knows that there is room at
// home. Both are locked. It takes the first place that is fresh, else the one
// nearest to fresh. pinned spots stay. It returns a slot of -1 if all are.
func (t *table) choose(home, next *set, l *limit, now int64, pinned []work) spot {
	var victim unit
	best := spot{slot: -1}
	step := 1
	if l.wide {
		step = 2
	}
	for _, s := range [2]*set{home, next} {
		if s == nil {
			break
		}
	slots:
		for i := 0; i+step <= setSlots; i += step {
			u := t.unit(s, i, now)
			if l.wide {
				if second := t.unit(s, i+1, now); second.first != u.first && second.deeper(&u) {
					u = second
				}
			}
			for p := range pinned {
				pin := &pinned[p]
				if pin.covers(pin.l, s, i) || pin.covers(pin.l, s, u.first) || l.wide && pin.covers(pin.l, s, i+1) {
					continue slots
				}
			}
			if u.fresh() {
				return spot{s, i}
			}
			if best.slot < 0 || victim.deeper(&u) {
				victim, best = u, spot{s, i}
			}
		}
	}
	return best
}

// evict empties the places that a state of l at p needs, and gives them to l.
func (t *table) evict(p spot, l *limit, now int64, guest bool) {
	slots := 1
	if l.wide {
		slots = 2
	}
	for i := p.slot; i < p.slot+slots; i++ {
		u := t.unit(p.in, i, now)
		if !u.fresh() {
			t.noteLost(u.l, &u.view)
		}
		for j := u.first; j < u.first+u.slots; j++ {
			p.in.own(j, 0, false)
		}
	}
	p.in.own(p.slot, l.id, guest)
	if l.wide {
		p.in.own(p.slot+1, secondHalf, guest)
	}
}

func (t *table) noteLost(l *limit, v *view) {
	t.lost[bits.Len64(uint64(l.timeLeft(v)))&63].Add(1)
	t.hasLost.Store(true)
}

// tidy forgets fresh guests of next that are not pinned, and clears the mark
// of home if no guest is left. Both are locked.
func (t *table) tidy(home, next *set, now int64, pinned []work) {
	guests := false
slots:
	for i := range next.slot {
		if !next.guest(i) {
			continue
		}
		u := t.unit(next, i, now)
		for p := range pinned {
			if pinned[p].covers(pinned[p].l, next, u.first) {
				guests = true
				continue slots
			}
		}
		if !u.fresh() {
			guests = true
			continue
		}
		for j := u.first; j < u.first+u.slots; j++ {
			next.own(j, 0, false)
		}
	}
	if !guests {
		home.mark(false)
	}
}

// roomFor reports whether s has room for a state of l whatever n-1 others
// put there.
func (t *table) roomFor(l *limit, n int, s *set, now int64) bool {
	step := 1
	if l.wide {
		step = 2
	} else if n > 1 {
		n *= 2 // the others may be wide
	}
	for i := 0; i+step <= setSlots; i += step {
		u := t.unit(s, i, now)
		if !u.fresh() {
			continue
		}
		if u.slots < step {
			if v := t.unit(s, i+1, now); !v.fresh() {
				continue
			}
		}
		if n--; n <= 0 {
			return true
		}
	}
	return false
}

// noteUse notes that a state has got a slot in the set n, its home, or in the next one
// if it is a guest there.
func (t *table) noteUse(n int, guest bool) {
	t.used.add(n)
	if guest {
		t.used.add(n + 1)
	}
}

// put stores v where its state is or, if it has none yet, at a place chosen
// for it. Its home is the set n. If second is set, the set after it is locked, too. Then it is
// chosen from as well. put gives the state up if all places are pinned.
func (t *table) put(p *spot, n int, second bool, l *limit, hash uint64, v *view, now int64, pinned []work) {
	tag := tagOf(hash)
	if p.slot < 0 {
		home, next := &t.sets[n], (*set)(nil)
		if second {
			next = &t.sets[n+1]
		}
		*p = t.choose(home, next, l, now, pinned)
		if p.slot < 0 {
			t.noteLost(l, v)
			return
		}
		t.evict(*p, l, now, p.in == next)
		t.noteStored(tag)
		t.noteUse(n, p.in == next)
		if p.in == next {
			home.mark(true)
		}
	}
	t.noteAnswers(l, hash, v, now) // after noteUse, see Reset
	l.store(p.in, p.slot, tag, v)
}

// A location is where one state is, its sets locked.
type location struct {
	spot
	home, next *set // next is nil if it is not locked
}

// reach locks the home of a state, and the set after it if the state may be
// there, and finds the state.
func (t *table) reach(l *limit, hash uint64, now int64) location {
	n := t.home(hash)
	p := location{home: &t.sets[n]}
	p.home.lock()
	p.in, p.slot = p.home, p.home.find(l.id, tagOf(hash))
	if p.slot < 0 && p.home.overflowed() {
		p.next = &t.sets[n+1]
		p.next.lock()
		p.in, p.slot = p.next, p.next.find(l.id, tagOf(hash))
		t.tidy(p.home, p.next, now, nil)
		if p.slot >= 0 && p.next.id(p.slot) == 0 {
			p.slot = -1 // it was fresh
		}
	}
	return p
}

// storeAt stores v at p.
func (t *table) storeAt(p *location, l *limit, hash uint64, v *view, now int64) {
	n := t.home(hash)
	if p.slot < 0 && p.next == nil && !t.roomFor(l, 1, p.home, now) {
		p.next = &t.sets[n+1]
		p.next.lock()
	}
	t.put(&p.spot, n, p.next != nil, l, hash, v, now, nil)
}

func (p *location) release() {
	p.home.unlock()
	if p.next != nil {
		p.next.unlock()
	}
}

// takeOne takes one limit that is not concurrent.
func (t *table) takeOne(l *limit, hash uint64, now int64, cost uint64, tally *fairshare.Tally) {
	p := t.reach(l, hash, now)
	var v view
	if p.slot >= 0 {
		v = l.load(p.in, p.slot, now)
	} else {
		v = l.blank(now)
	}
	pass := l.passes(&v, cost)
	switch {
	case pass && !l.settled:
		l.spend(&v, cost)
		t.storeAt(&p, l, hash, &v, now)
	case !pass && l.kind == quiet && v.cur > 0:
		v.noteRequest()
		l.store(p.in, p.slot, tagOf(hash), &v)
	default:
		l.storeRewound(p.spot, tagOf(hash), &v)
	}
	p.release()
	if !pass {
		*tally = l.tally(&v, cost, true, now)
	}
}

// change settles one state that is not of a concurrent limit. A cost above zero is
// charged. A cost below zero is the refund of what was taken at time at. With cost
// zero, the time of the request is noted for a quiet limit.
func (t *table) change(l *limit, hash uint64, now, cost, at int64) {
	if cost <= 0 && !t.used.has(t.home(hash)) {
		return
	}
	p := t.reach(l, hash, now)
	if cost <= 0 && p.slot < 0 {
		p.release()
		return
	}
	var v view
	if p.slot >= 0 {
		v = l.load(p.in, p.slot, now)
	} else {
		v = l.blank(now)
	}
	switch {
	case cost <= 0 && l.fresh(&v): // nothing to take back, nothing to prolong
		p.release()
		return
	case cost > 0:
		l.settle(&v, uint64(cost))
	case cost < 0:
		l.refund(&v, -uint64(cost), at)
	case l.kind == quiet:
		v.noteRequest()
	}
	t.storeAt(&p, l, hash, &v, now)
	p.release()
}
