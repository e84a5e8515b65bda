package lookup

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// ways is the number of entries in a set of the table. A new entry may use any of them.
const ways = 8

// A table stores results for addresses, in a fixed number of slots. Readers need no lock; only one
// writer at a time may change it.
type table[T any] struct {
	seed  maphash.Seed
	slots []slot[T] // sets of ways; the number of sets is a power of two
}

// A slot may for a moment have an entry that does not belong to its hash. So readers compare the
// address in the entry.
type slot[T any] struct {
	hash  atomic.Uint64
	entry atomic.Pointer[entry[T]]
}

// An entry is the result for one address. It is immutable once it is in the table. Times are
// nanoseconds since the line began.
type entry[T any] struct {
	addr     netip.Addr
	values   []T
	known    bool  // the values are complete
	rank     rank  // while it is valid
	failures uint8 // look-ups that failed in a row
	since    int64 // time of the look-up
	until    int64 // end of its validity
	askAt    int64 // a request starts a new look-up from this time on
}

// A rank decides which entries may be replaced: a lower rank never replaces a higher one.
type rank uint8

const (
	unconfirmed rank = iota
	confirmed        // it has values
	preferred        // has values for which the site looks
)

// newTable returns a table for n entries, a power of two.
func newTable[T any](n int) *table[T] {
	return &table[T]{seed: maphash.MakeSeed(), slots: make([]slot[T], n)}
}

func (t *table[T]) set(addr netip.Addr) (hash uint64, set []slot[T]) {
	b := addr.As16()
	hash = maphash.Bytes(t.seed, b[:])
	first := int(hash) & (len(t.slots)/ways - 1) * ways
	return hash, t.slots[first : first+ways]
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

// put stores an entry. It replaces the older entry of its address, else uses a free slot, else
// replaces the entry with the lowest rank, and among these the one that ends first. If all entries
// of the set have a higher rank, the new entry is not stored.
func (t *table[T]) put(now int64, e *entry[T]) {
	hash, set := t.set(e.addr)
	var victim *slot[T]
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
			ends = -1 // a free slot, unless the address already has one
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
