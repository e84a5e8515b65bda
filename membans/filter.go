package membans

import "sync/atomic"

// A filter excludes most clients that have no ban, at the cost of one cache
// line and without a lock. It is a table of 15-bit fingerprints, in sets of one
// cache line; one writer at a time changes it. A set that has overflowed answers
// "maybe" from then on. With a seeded hash and at most half of the lanes in use,
// that is rare.
type filter struct {
	sets []filterSet // a power of two
}

// A filterSet holds 32 lanes of 16 bits: 0 is free, otherwise 1<<15 and a
// fingerprint.
type filterSet [8]atomic.Uint64

// The last lane of a set that has overflowed holds a mark that no fingerprint
// equals.
const (
	lanes      = 4 // in a word
	laneMask   = 0xFFFF
	overflowed = uint64(0x7FFF) << 48
	lastLane   = uint64(laneMask) << 48
	low        = 0x0001_0001_0001_0001
	high       = 0x8000_8000_8000_8000
)

// newFilter returns a filter for n keys, which use half of each set on average.
func newFilter(n int) *filter {
	sets := 1
	for sets*lanes*4 < n {
		sets *= 2
	}
	return &filter{sets: make([]filterSet, sets)}
}

// find returns the set of a hash, and its fingerprint.
func (f *filter) find(hash uint64) (*filterSet, uint64) {
	return &f.sets[hash&uint64(len(f.sets)-1)], hash>>49 | 1<<15
}

// has reports whether hash may have been added.
func (f *filter) has(hash uint64) bool {
	set, print := f.find(hash)
	if set[7].Load()&lastLane == overflowed {
		return true
	}
	for i := range set {
		// A lane of x is zero only where the lane equals print (Hacker's Delight
		// §6–1). A false positive of this test costs only a lookup.
		x := set[i].Load() ^ print*low
		if (x-low)&^x&high != 0 {
			return true
		}
	}
	return false
}

// add adds a hash, once more if it was added before.
func (f *filter) add(hash uint64) {
	set, print := f.find(hash)
	for i := range set {
		word := set[i].Load()
		for shift := 0; shift < 64; shift += 16 {
			if i == 7 && shift == 48 { // reserved for the mark
				set[i].Store(word&^lastLane | overflowed)
				return
			}
			if word>>shift&laneMask == 0 {
				set[i].Store(word | print<<shift)
				return
			}
		}
	}
}

// remove removes a hash that was added.
func (f *filter) remove(hash uint64) {
	set, print := f.find(hash)
	for i := range set {
		word := set[i].Load()
		for shift := 0; shift < 64; shift += 16 {
			if word>>shift&laneMask == print {
				set[i].Store(word &^ (laneMask << shift))
				return
			}
		}
	}
}
