package census

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// A sample counts different clients, and those of them that look like people: exactly
// up to mostSampled, beyond that by adaptive sampling (Flajolet 1990). It stores the
// clients whose hash begins with depth zeros. When there are too many, depth grows by
// one; each stored client counts 2^depth. The standard error is about 2 %. A sample
// takes at most 64 KiB. The zero sample is empty. It is safe for concurrent use; a
// client that is already stored or not to be stored needs no lock.
type sample struct {
	depth atomic.Uint32
	slots atomic.Pointer[[]atomic.Uint64] // open addressing, at most half full; a power of two

	mu sync.Mutex // held to change slots and depth
	n  int        // slots taken
}

const (
	mostSampled = 4096
	leastSlots  = 16
)

// A slot holds a hash, with flags in its two lowest bits.
const (
	personBit = 1 << 0
	takenBit  = 1 << 1
	flagBits  = personBit | takenBit
)

// knows reports whether adding the client would change nothing.
func (s *sample) knows(hash uint64, person bool) bool {
	if uint32(bits.LeadingZeros64(hash)) < s.depth.Load() {
		return true
	}
	slots := s.slots.Load()
	if slots == nil {
		return false
	}
	found := find(*slots, hash).Load()
	return found != 0 && (!person || found&personBit != 0)
}

// add adds a client by its hash.
func (s *sample) add(hash uint64, person bool) {
	if s.knows(hash, person) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if uint32(bits.LeadingZeros64(hash)) < s.depth.Load() {
		return
	}
	if s.slots.Load() == nil {
		slots := make([]atomic.Uint64, leastSlots)
		s.slots.Store(&slots)
	}
	slot := find(*s.slots.Load(), hash)
	if slot.Load() == 0 {
		s.n++
	}
	slot.Or(entry(hash, person))
	if s.n > mostSampled {
		s.deepen(s.depth.Load() + 1)
	} else if 2*s.n > len(*s.slots.Load()) {
		s.rebuild(2 * len(*s.slots.Load()))
	}
}

// deepen sets depth, and increases it further while there are too many clients.
func (s *sample) deepen(depth uint32) {
	for s.depth.Store(depth); ; s.depth.Add(1) {
		s.rebuild(len(*s.slots.Load()))
		if s.n <= mostSampled {
			return
		}
	}
}

// rebuild moves the clients with enough zeros to that many new slots.
func (s *sample) rebuild(size int) {
	old, slots := *s.slots.Load(), make([]atomic.Uint64, size)
	s.n = 0
	for i := range old {
		e := old[i].Load()
		if e == 0 || uint32(bits.LeadingZeros64(e)) < s.depth.Load() {
			continue
		}
		find(slots, e).Store(e)
		s.n++
	}
	s.slots.Store(&slots)
}

// join adds the clients of another.
func (s *sample) join(other *sample) {
	other.mu.Lock()
	depth, slots := other.depth.Load(), other.slots.Load()
	other.mu.Unlock()
	if slots == nil {
		return
	}
	s.mu.Lock()
	if depth > s.depth.Load() {
		if s.slots.Load() != nil {
			s.deepen(depth)
		} else {
			s.depth.Store(depth)
		}
	}
	s.mu.Unlock()
	for i := range *slots {
		if e := (*slots)[i].Load(); e != 0 {
			s.add(e, e&personBit != 0)
		}
	}
}

// An amount is a number of different clients.
type amount struct {
	clients, people int64
	about           bool // the numbers are estimates
}

func (s *sample) amount() amount {
	s.mu.Lock()
	depth, slots := s.depth.Load(), s.slots.Load()
	s.mu.Unlock()
	a := amount{about: depth > 0}
	if slots == nil {
		return a
	}
	for i := range *slots {
		if e := (*slots)[i].Load(); e != 0 {
			a.clients += 1 << depth
			if e&personBit != 0 {
				a.people += 1 << depth
			}
		}
	}
	return a
}

// find returns the slot that holds a hash, or the free slot for it.
func find(slots []atomic.Uint64, hash uint64) *atomic.Uint64 {
	mask := uint64(len(slots) - 1)
	for i := hash >> 2 & mask; ; i = (i + 1) & mask {
		if e := slots[i].Load(); e == 0 || (e^hash)&^flagBits == 0 {
			return &slots[i]
		}
	}
}

// entry returns the value of a slot for a client.
func entry(hash uint64, person bool) uint64 {
	e := hash&^flagBits | takenBit
	if person {
		e |= personBit
	}
	return e
}
