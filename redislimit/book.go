package redislimit

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"fairshare/memlimit"
)

// The book holds what is known of each state in the store: how far the view in
// the local table is equal to it, and what this member has not reported yet. Its
// size is fixed. When it is full, entries go that have nothing to report; their
// limits are asked again before they have credit.
type book [bookShards]bookShard

const (
	bookShards = 64
	entryBytes = 200 // with its share of the index
)

type bookShard struct {
	mu      sync.Mutex
	index   index
	entries []entry
	most    int
	full    int   // with so many entries, the next one takes the place of another
	hand    int   // of the clock that finds the next one to go
	evicted int64 // ns since the Unix epoch; when an entry went last
	_       [8]byte
}

// A bookKey names a state: a key under a limit.
type bookKey struct {
	name
	id uint16
}

// shard returns the number of the shard of a name. All limits of a key are in one.
func (n *name) shard() int { return int(n.a >> 58) }

// An entry is what is known of one state.
type entry struct {
	key bookKey
	tag uint64

	base    [tokenBytes]byte // token of the state in the store that the view is based on
	offset  uint16           // of its record in the value in the store, see swap; 0: not known
	views   uint32           // how often the view was replaced
	ends    uint32           // when the key ends at the earliest: seconds of the Unix epoch
	batch   int32            // its place in the batch that is on its way, and 1; 0: none
	readers int32            // questions that wait for the state

	tracked bool // see spec.tracked
	known   bool // the view was merged with the store
	floor   bool // what the store has may be less than was reported
	used    bool // recently, for the clock
	noted   bool // the time of a refused request is not reported yet
	lost    bool // the view lacks counts of the store, which are read with the next batch
	queued  queue
	records uint8 // that the value in the store has, see swap; 0: not known

	seen  int64         // monotonic ns; when the view was merged last
	at    int64         // ns since the Unix epoch; of the last operation
	every time.Duration // of the last take of a limit with paces of their own

	stored      memlimit.State // in the store, with the batch on its way; of a window or gcra limit that of base
	pend        delta
	unacked     int64 // charged on credit and not acknowledged, in units
	provisional int64 // charged for questions on their way, in the unit of deltas

	// Of a tracked limit.
	own    int64 // of requests in progress here: slots or what is held; with asked
	acked  int64 // of own, what the store knows
	others int64 // the same of other members; the view contains it
}

// A queue says whether an entry waits to be reported.
type queue uint8

const (
	unqueued queue = iota
	lazily
	urgently
)

// A ref is the place of an entry that does not go meanwhile.
type ref int64

func (r ref) shard() int { return int(r >> 32) }

func (b *book) init(memory int64) {
	for i := range b {
		sh := &b[i]
		sh.index.init()
		sh.most = int(max(64, memory/entryBytes/bookShards))
		sh.full = sh.most
	}
}

// at returns an entry. Its shard is locked.
func (b *book) at(r ref) *entry { return &b[r.shard()].entries[int32(r)] }

// pinned reports whether an entry is needed.
func (e *entry) pinned() bool {
	return e.queued != unqueued || e.batch != 0 || e.provisional != 0 || e.own != 0 || e.readers != 0
}

// reports reports whether there is something to tell the store.
func (e *entry) reports() bool {
	return e.pend.any || e.noted || e.floor || e.tracked && e.own-e.provisional != e.acked
}

// find returns the entry of a key, or false. The shard is locked.
func (b *book) find(k *bookKey) (ref, bool) {
	shard := k.shard()
	sh, hash := &b[shard], k.hash()
	for at := sh.index.home(hash); ; at = sh.index.next(at) {
		i, ok := sh.index.get(at, hash)
		if i < 0 {
			return 0, false
		}
		if ok && sh.entries[i].key == *k {
			return ref(shard)<<32 | ref(i), true
		}
	}
}

// next returns the entry after another one if it is that of a key, or none: often, a request has made both. The
// shard of the key is locked.
func (b *book) next(last ref, k *bookKey) ref {
	if sh := &b[k.shard()]; last != none && last.shard() == k.shard() && int(int32(last)) < len(sh.entries)-1 {
		if e := &sh.entries[int32(last)+1]; e.key == *k {
			e.used = true
			return last + 1
		}
	}
	return none
}

// add makes an entry for a key that has none. drop has the view forget what it has of
// others for an entry that goes, which is none of keep. The shard is locked.
func (b *book) add(k *bookKey, tag uint64, tracked bool, now int64, drop func(*entry), keep []ref) ref {
	shard := k.shard()
	sh := &b[shard]
	var i int32
	force := len(sh.entries) >= 2*sh.most
	if len(sh.entries) < sh.full || !sh.evict(&i, now, drop, force, shard, keep) {
		if i = int32(len(sh.entries)); len(sh.entries) >= sh.full { // looking at all for each new one would take long
			sh.full = len(sh.entries) + max(8, sh.most/8)
			if !force {
				sh.full = min(sh.full, 2*sh.most)
			}
		}
		sh.entries = append(sh.entries, entry{})
	}
	sh.entries[i] = entry{key: *k, tag: tag, used: true, tracked: tracked, at: now}
	sh.index.add(k.hash(), i)
	return ref(shard)<<32 | ref(i)
}

// evict makes room by a clock: the first entry that is not needed and was not
// used since the hand came by. It reports false if all are needed. With force,
// reports that wait are given up. The view still has their amounts.
func (sh *bookShard) evict(i *int32, now int64, drop func(*entry), force bool, shard int, keep []ref) bool {
	for range 2 * len(sh.entries) {
		sh.hand = (sh.hand + 1) % len(sh.entries)
		e := &sh.entries[sh.hand]
		if e.pinned() && (!force || e.batch != 0 || e.provisional != 0 || e.own != 0 || e.readers != 0) {
			continue
		}
		if e.used {
			e.used = false
			continue
		}
		if slices.Contains(keep, ref(shard)<<32|ref(sh.hand)) {
			continue
		}
		drop(e)
		sh.evicted = now
		sh.index.remove(e.key.hash(), int32(sh.hand))
		*i = int32(sh.hand)
		return true
	}
	return false
}

// lock locks the shards of a set, one bit each, in ascending order.
func (b *book) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		b[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (b *book) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		b[bits.TrailingZeros64(set)].mu.Unlock()
	}
}
