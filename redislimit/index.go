package redislimit

// An index finds entries by hashes, with linear probing. A slot has a hash of 32 bits and
// the place of the entry and 1; 0 is an empty slot. The hashes contain a secret, so nobody
// can choose keys that collide.
type index struct {
	slots []uint64 // a power of two, at most 3/4 of them full
	count int
}

func (x *index) init() { x.slots = make([]uint64, 64) }

// hash returns a hash for the index.
func (k *bookKey) hash() uint32 { return uint32(k.b>>32) + uint32(k.id)*0x9e3779b9 }

// home returns the slot where the search for a hash begins, next the one after a slot.
func (x *index) home(hash uint32) int { return int(hash) & (len(x.slots) - 1) }
func (x *index) next(at int) int      { return (at + 1) & (len(x.slots) - 1) }

// get returns the place of the entry in a slot, and whether it has the hash. The place is
// below 0 if the slot is empty.
func (x *index) get(at int, hash uint32) (place int32, ok bool) {
	s := x.slots[at]
	return int32(uint32(s)) - 1, uint32(s>>32) == hash
}

// add adds an entry that the index does not have.
func (x *index) add(hash uint32, place int32) {
	if 4*(x.count+1) > 3*len(x.slots) {
		old := x.slots
		x.slots = make([]uint64, 2*len(old))
		for _, s := range old {
			if s != 0 {
				x.put(s)
			}
		}
	}
	x.count++
	x.put(uint64(hash)<<32 | uint64(place+1))
}

func (x *index) put(s uint64) {
	at := x.home(uint32(s >> 32))
	for x.slots[at] != 0 {
		at = x.next(at)
	}
	x.slots[at] = s
}

// remove removes an entry, which the index has.
func (x *index) remove(hash uint32, place int32) {
	at, gone := x.home(hash), uint64(hash)<<32|uint64(place+1)
	for x.slots[at] != gone {
		at = x.next(at)
	}
	x.count--
	// Those after it that could be nearer to their homes move up.
	for hole := at; ; {
		at = x.next(at)
		s := x.slots[at]
		if s == 0 {
			x.slots[hole] = 0
			return
		}
		home := x.home(uint32(s >> 32))
		if mask := len(x.slots) - 1; (at-home)&mask >= (at-hole)&mask {
			x.slots[hole], hole = s, at
		}
	}
}
