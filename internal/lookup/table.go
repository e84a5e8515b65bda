package lookup

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// ways is how many entries of a table compete for room: those of one set.
const ways = 8

// A table remembers what was found out about addresses, in a fixed number of
// places. It is read without a lock; one writer at a time changes it.
type table[T any] struct {
	seed   maphash.Seed
	places []place[T] // sets of ways; the number of sets is a power of two
}

// A place may show another entry than its hash for a moment: the entry knows
// its own address.
type place[T any] struct {
	hash  atomic.Uint64
	entry atomic.Pointer[entry[T]]
}

// An entry is what is known of one address. It is never changed once it is in
// the table. Times are nanoseconds since the line began.
type entry[T any] struct {
	addr     netip.Addr
	values   []T
	known    bool  // they are all there are; without values: there are none
	rank     rank  // while it holds
	failures uint8 // look-ups that failed in a row
	since    int64 // when the values were found
	until    int64 // it holds before
	askAt    int64 // a request looks it up anew from then on
}

// A rank says which entry gives way to another: never the higher to the lower.
type rank uint8

const (
	unconfirmed rank = iota
	confirmed        // it has values
	preferred        // of the kind that the site looks for
)

// newTable has room for n entries, a power of two.
func newTable[T any](n int) *table[T] {
	return &table[T]{seed: maphash.MakeSeed(), places: make([]place[T], n)}
}

func (t *table[T]) set(addr netip.Addr) (hash uint64, set []place[T]) {
	b := addr.As16()
	hash = maphash.Bytes(t.seed, b[:])
	first := int(hash) & (len(t.places)/ways - 1) * ways
	return hash, t.places[first : first+ways]
}

// find returns the entry of an address, or nil.
func (t *table[T]) find(addr netip.Addr) *entry[T] {
	hash, set := t.set(addr)
	for i := range set {
		if p := &set[i]; p.hash.Load() == hash {
			if e := p.entry.Load(); e != nil && e.addr == addr {
				return e
			}
		}
	}
	return nil
}

// put remembers an entry in place of the older one of its address, a free
// place, or the lowest in rank, of these the one that ends first. All of the
// set being higher in rank, it is forgotten.
func (t *table[T]) put(now int64, e *entry[T]) {
	hash, set := t.set(e.addr)
	var victim *place[T]
	var lowest rank
	var ends int64
	for i := range set {
		p := &set[i]
		old := p.entry.Load()
		if old == nil || old.addr == e.addr {
			victim, lowest = p, unconfirmed
			if old != nil {
				break
			}
			ends = -1 // a free place, but for one that is its own already
			continue
		}
		r, until := old.rank, old.until
		if until <= now {
			r, until = unconfirmed, 0
		}
		if victim == nil || r < lowest || r == lowest && until < ends {
			victim, lowest, ends = p, r, until
		}
	}
	if lowest > e.rank {
		return
	}
	victim.hash.Store(hash)
	victim.entry.Store(e)
}
