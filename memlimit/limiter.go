// Package memlimit counts in memory. Start with [New].
//
// All limits share one table whose size is fixed at the start. On Unix its
// memory is not part of the garbage-collected heap. The system provides it page
// by page as states are stored, and gets it back after the last [Limiter] that
// uses the table is garbage. The table holds no pointers, needs no sweeping, and
// allocates nothing on a request. When it is full, a new state replaces the state
// nearest to fresh, see [Stats]. [Limiter.SaveFile] and [Limiter.LoadFile] keep
// the counters over a restart.
package memlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"fairshare"
)

// DefaultMemory is what a zero Options.Memory means.
const DefaultMemory = 64 << 20

// Options of a Limiter.
type Options struct {
	// Memory is the size of the table in bytes, for all limits together;
	// 0 means DefaultMemory. The system provides a page of it when a state is
	// first stored there. A client takes 16 bytes under each limit. It takes 32
	// if the window is below 6 ms. Under a limit of bytes, cost, CPU or time
	// it takes 32 if the window is below 2 s, or if large amounts are allowed.
	// Large are more than about 2^32 (4 GiB, or 71 minutes) a minute, 2^35 an
	// hour or 2^38 a day. The table
	// should have room for twice as many states as are live at once.
	//
	// Three other things take memory in addition. Requests in progress take below
	// 100 bytes for each request and limit. The recent costs of keys take 1/32
	// of Memory, at most 2 MiB, and those of pages half as much. Marks of what is
	// in use take 3/1024.
	Memory int64
}

// A Limiter is a [fairshare.Limiter] in memory. It is safe for concurrent use.
//
// Counters saturate well above what is allowed: at 2^28, and for bytes, cost, CPU
// and time at least at 4 times N, or at twice N after N has grown. Of several
// clients whose states are equally near to fresh, the one that was not seen for
// the longest time is forgotten first.
//
// The mean costs of a key and of a page move an eighth of the way with each
// request. A page that is not remembered is expected to cost as much as its
// folder. Only pages that cost more than the floor are remembered, and pages of
// their folders. When there are too many keys or pages, those are forgotten first
// that take the least part of what is allowed. A forgotten key is treated as new:
// few of its requests may be in progress at once.
type Limiter struct {
	table  *table
	slots  *slots
	pages  *pages
	given  []fairshare.Limit // what it was made for
	limits []limit
	fresh  []string
	paced  atomic.Pointer[[]pacedLimit] // nil until a take has Every
}

var _ fairshare.Limiter = (*Limiter)(nil)

// New returns a Limiter for limits in which nothing is spent. Each limit must
// be in bounds and different from the others.
func New(limits []fairshare.Limit, opts Options) (*Limiter, error) {
	if opts.Memory < 0 {
		return nil, fmt.Errorf("memory of %d bytes", opts.Memory)
	}
	if opts.Memory == 0 {
		opts.Memory = DefaultMemory
	}
	// The limits are checked before the memory is allocated.
	t := newTable()
	l, err := (&Limiter{table: t, slots: newSlots(), pages: &pages{}}).With(limits)
	if err != nil {
		return nil, err
	}
	if err := l.table.fill(opts.Memory); err != nil {
		return nil, err
	}
	l.slots.means = meansFor(opts.Memory)
	l.pages.means = pagesFor(opts.Memory)
	return l, nil
}

// With returns a Limiter for another policy's limits that shares the memory of l.
// A limit that is in both keeps its counters, whatever its N. l stays usable, so
// that requests in progress can settle through it.
//
// A limit of bytes or with GCRA starts from zero if its N grows so much that its
// counters need more room.
func (l *Limiter) With(limits []fairshare.Limit) (*Limiter, error) {
	next := &Limiter{table: l.table, slots: l.slots, pages: l.pages, limits: make([]limit, 0, len(limits))}
	var errs []error
	next.given = slices.Clone(limits)
	for i := range limits {
		c, err := newLimit(&limits[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		next.limits = append(next.limits, *c)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	known, err := l.table.register(next.limits)
	if err != nil {
		return nil, err
	}
	for i := range known {
		if lim := &next.limits[i]; !known[i] && !lim.silent {
			next.fresh = append(next.fresh, lim.name)
		}
	}
	return next, nil
}

// Fresh returns the names of the limits that started from zero with this Limiter:
// after New all of them, after Load those that the snapshot does not contain. A
// rule's count of refusals and its ceiling are not named.
func (l *Limiter) Fresh() []string { return l.fresh }

// FreshOf returns the names of the limits that would start from zero with [Limiter.With], which has errors for
// wrong limits. Nothing changes.
func (l *Limiter) FreshOf(limits []fairshare.Limit) (names []string) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	known := *l.table.limits.Load()
	for i := range limits {
		made, err := newLimit(&limits[i])
		if err != nil || made.silent {
			continue
		}
		if id, found := l.table.names[made.identity]; !found || !made.keepLayout(known[id].layout) {
			names = append(names, made.name)
		}
	}
	return names
}

// register gives each limit its id. It keeps the layout of a limit that is
// known and fits, and reports which ones do.
func (t *table) register(made []limit) (knew []bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[string]bool{}
	for i := range made {
		m := &made[i]
		if seen[m.identity] {
			return nil, fmt.Errorf("limit %q of %s occurs twice", m.name, m.resource)
		}
		seen[m.identity] = true
	}
	known := append([]*limit(nil), *t.limits.Load()...)
	fresh := map[string]uint16{} // named only when all of them fit
	for i := range made {
		id, found := t.names[made[i].identity]
		if found && !made[i].keepLayout(known[id].layout) {
			found = false
		}
		if !found {
			if len(known) > maxLimits {
				return nil, errors.New("more than 4094 different limits since the start")
			}
			id = uint16(len(known))
			known = append(known, nil)
			fresh[made[i].identity] = id
		}
		knew = append(knew, found)
		made[i].id, made[i].salt = id, t.seed.salt(made[i].identity)
		known[id] = &made[i]
	}
	t.limits.Store(&known)
	maps.Copy(t.names, fresh)
	return knew, nil
}

// identity says what makes a limit the limit it is. It outlives a restart, so
// it holds names and no numbers.
func identity(l *fairshare.Limit) string {
	by := l.By
	if len(by) == 0 {
		by = []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	}
	distinct := ""
	if l.Distinct != fairshare.EveryRequest {
		distinct = " distinct " + l.Distinct.String()
	}
	return fmt.Sprintf("%q %q %s %d %s%s", l.Name, by, l.Resource, l.Window, l.Algorithm, distinct)
}

// keepLayout gives l the layout of old, under which its states are stored,
// and reports whether l fits into it.
func (l *limit) keepLayout(old layout) bool {
	switch {
	case l.layout == old:
		return true
	case old.kind == gcraNarrow || old.kind <= windowPacked && 2*l.allowed > old.most:
		return false
	}
	l.layout = old
	return true
}

// Take implements [fairshare.Limiter]. A request may name a limit and key
// only once. It allocates nothing for up to 64 takes.
func (l *Limiter) Take(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if len(takes) != len(tallies) {
		return fmt.Errorf("%d takes and %d tallies", len(takes), len(tallies))
	}
	l.take(now.UnixNano(), takes, tallies)
	runtime.KeepAlive(l.table)
	return nil
}

func (l *Limiter) take(at int64, takes []fairshare.Take, tallies []fairshare.Tally) {
	if len(takes) == 1 {
		tallies[0] = fairshare.Tally{}
		lim := l.limit(takes[0].Limit, takes[0].Every)
		if !lim.tracked {
			hash := l.table.secret.hash(takes[0].Key) ^ lim.salt
			cost := uint64(max(0, takes[0].Cost))
			if !lim.fast || !l.table.takeFast(lim, hash, at, cost, &tallies[0]) {
				l.table.takeOne(lim, hash, at, cost, &tallies[0])
			}
			return
		}
	}
	clear(tallies)
	l.takeBoth(at, takes, tallies, nil)
}

// takeBoth takes both groups. used may be nil, see TakeRoom.
func (l *Limiter) takeBoth(at int64, takes []fairshare.Take, tallies []fairshare.Tally, used []int64) {
	pass, others := l.takeGroup(at, takes, tallies, used, false)
	if others {
		if pass {
			l.takeGroup(at, takes, tallies, used, true)
		} else {
			l.note(at, takes)
		}
	}
}

// Settle implements [fairshare.Limiter].
func (l *Limiter) Settle(_ context.Context, now time.Time, charges []fairshare.Charge) error {
	at := now.UnixNano()
	var keys keyHashes
	shards := uint64(0) // that are needed, one bit each
	for i := range charges {
		if c := &charges[i]; l.limits[c.Limit].tracked {
			shards |= 1 << shardOf(keys.of(l, c.Key).first)
		}
	}
	l.slots.lock(shards)
	for i := range charges {
		c := &charges[i]
		lim, key := l.limit(c.Limit, c.Every), keys.of(l, c.Key)
		if c.Cost != 0 && lim.kind != concurrent {
			l.table.change(lim, key.first^lim.salt, at, c.Cost, c.At.UnixNano())
		}
		switch {
		case lim.held:
			l.settleHeld(lim, key.name(l), at, c)
		case lim.tracked && c.Cost < 0:
			l.slots.shards[shardOf(key.first)].taken.giveBack(key.name(l), lim.id, 1)
		}
	}
	l.slots.unlock(shards)
	runtime.KeepAlive(l.table)
	return nil
}

// settleHeld gives back what was held for a cost, which is charged already, and learns
// it. The shard has been locked since before the charge, so that nobody finds both or
// neither.
func (l *Limiter) settleHeld(lim *limit, k *holder, at int64, c *fairshare.Charge) {
	sh := &l.slots.shards[shardOf(k.first)]
	sh.taken.giveBack(k, lim.id, c.Held)
	if c.Ends && lim.costly {
		total := min(float64(max(0, c.Total)), float64(lim.allowed))
		sh.means = sh.means.made(l.slots.means)
		sh.means.learn(lim, l.table, k.first^lim.salt, total, at)
		l.pages.learn(lim, l.table, c.Page, total, at)
	}
}

// keyHashes hashes each of the first keys of a request once. Keys are the same if they
// are the same memory.
type keyHashes struct {
	known [4]keyHash
	n     int     // of known
	other keyHash // the last key that is not among them
}

// A keyHash is the hash of one key. It has no salt.
type keyHash struct {
	key    []byte
	holder      // second is filled in by name
	named  bool // it is filled in
}

// of returns the hash of a key. That of a fifth key is good until the next call.
func (k *keyHashes) of(l *Limiter, key []byte) *keyHash { return k.at(k.find(l, key)) }

// find returns the index of a key in known; −1 if it is the other one.
func (k *keyHashes) find(l *Limiter, key []byte) int {
	for i := 0; i < k.n; i++ {
		if k.known[i%len(k.known)].is(key) {
			return i
		}
	}
	return k.hash(l, key)
}

// at returns a key by its index.
func (k *keyHashes) at(i int) *keyHash {
	if i < 0 {
		return &k.other
	}
	return &k.known[i%len(k.known)]
}

// hash is find for a key that is not known.
func (k *keyHashes) hash(l *Limiter, key []byte) int {
	i := -1
	if k.n < len(k.known) {
		i = k.n
		k.n++
	}
	h := k.at(i)
	h.key, h.named, h.first, h.cellIndex = key, false, l.table.secret.hash(key), -1
	return i
}

// is reports whether key is the same memory.
func (h *keyHash) is(key []byte) bool {
	return unsafe.SliceData(h.key) == unsafe.SliceData(key) && len(h.key) == len(key)
}

// name returns the whole name of the key.
func (h *keyHash) name(l *Limiter) *holder {
	if !h.named {
		h.second, h.named = l.slots.second.hash(h.key), true
	}
	return &h.holder
}

// Stats says how full the table is and what was lost.
type Stats struct {
	Memory int64 // bytes of the table
	Live   int64 // states in it that are not fresh, estimated from a sample
	Lost   int64 // live states given up for new ones since the start
	// Needed is the size in bytes of a table that would lose almost no state, estimated from recent
	// losses; 0 if there were none.
	Needed     int64
	InProgress int64 // slots of concurrent limits that are taken
}

// demand follows how many lost states would still be live.
type demand struct {
	at   int64 // ns since the Unix epoch; of the last look
	seen [64]int64
	felt [64]float64
}

// Stats returns the statistics of the table at time now.
func (l *Limiter) Stats(now time.Time) Stats {
	t, at := l.table, now.UnixNano()
	s := Stats{Memory: int64(len(t.sets)) * setBytes, InProgress: l.inProgress()}
	var share float64
	s.Live, share = t.live(at)
	runtime.KeepAlive(t)

	t.mu.Lock()
	defer t.mu.Unlock()
	passed := float64(max(0, at-t.need.at))
	t.need.at = at
	var felt float64
	for class := range t.lost {
		total := t.lost[class].Load()
		fresh := total - t.need.seen[class]
		t.need.seen[class] = total
		s.Lost += total
		// States of a class had 2^(class-1) to 2^class ns left.
		t.need.felt[class] = t.need.felt[class]*math.Exp(-passed/math.Ldexp(1, class)) + float64(fresh)
		felt += t.need.felt[class]
	}
	if felt >= 1 {
		// As many bytes a state as now, at a load of one half.
		states := float64(s.Live) + felt
		each := float64(slotBytes)
		if s.Live > 0 {
			each = share * float64(s.Memory) * 7 / 8 / float64(s.Live)
		}
		s.Needed = max(s.Memory, int64(states*each*8/7*2))
	}
	return s
}

// live estimates from at most 4096 sets how many states are live, and what
// share of the slots they take.
func (t *table) live(now int64) (states int64, share float64) {
	sample := min(len(t.sets), 4096)
	var live, taken int
	for n := range sample {
		n = int(uint64(n) * uint64(len(t.sets)) / uint64(sample))
		if !t.used.has(n) {
			continue
		}
		s := &t.sets[n]
		s.lock()
		for i := 0; i < setSlots; {
			u := t.unit(s, i, now)
			if !u.fresh() {
				live++
				taken += u.slots
			}
			i = u.first + u.slots
		}
		s.unlock()
	}
	return int64(float64(live) / float64(sample) * float64(len(t.sets))), float64(taken) / float64(sample*setSlots)
}

// Reset forgets everything, as if the limiter were new. Requests in progress
// must not be settled afterwards.
func (l *Limiter) Reset() {
	t := l.table
	for i := range t.answers { // before the sets: a state that is stored in one afterwards keeps its mark
		t.answers[i].clear()
	}
	for n := range t.used.all() {
		s := &t.sets[n]
		s.lock()
		for j := range s.slot {
			s.write(j, 0, 0)
		}
		storeWord(&s.ids, 0)
		t.used.remove(n)
		s.unlockAs(atomic.LoadUint64(&s.head) & versionBits)
	}
	l.slots.forget()
	l.pages.forget()
	runtime.KeepAlive(t)
}
