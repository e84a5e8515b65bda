package fairshare

import "sync/atomic"

// A banFilter excludes most clients that have no ban, at the cost of one cache
// line. It is a table of 15-bit fingerprints, in sets of one cache line, read without a
// lock; one writer at a time changes it. A set that overflowed says "maybe"
// from then on; with a seeded hash and half of the lanes in use few do.
type banFilter struct {
	sets []banSet // a power of two
}

// A banSet holds 32 lanes of 16 bits: 0 is free, else 1<<15 and a fingerprint.
type banSet [8]atomic.Uint64

// A set that overflowed has this in its last lane, which no fingerprint is.
const (
	lanes      = 4
	laneMask   = 0xFFFF
	overflowed = uint64(0x7FFF) << 48
	lastLane   = uint64(laneMask) << 48
	low        = 0x0001_0001_0001_0001
	high       = 0x8000_8000_8000_8000
)

// newBanFilter makes one for n keys: on average at most half of a set is used.
func newBanFilter(n int) *banFilter {
	sets := 1
	for sets*lanes*4 < n {
		sets *= 2
	}
	return &banFilter{sets: make([]banSet, sets)}
}

func (f *banFilter) place(hash uint64) (*banSet, uint64) {
	return &f.sets[hash&uint64(len(f.sets)-1)], hash>>49 | 1<<15
}

// has reports whether hash may have been added.
func (f *banFilter) has(hash uint64) bool {
	set, print := f.place(hash)
	if set[7].Load()&lastLane == overflowed {
		return true
	}
	for i := range set {
		// A lane of x is zero just where the lane equals print (Hacker's
		// Delight §6–1). A false hit of the trick costs a look-up, no more.
		x := set[i].Load() ^ print*low
		if (x-low)&^x&high != 0 {
			return true
		}
	}
	return false
}

func (f *banFilter) add(hash uint64) {
	set, print := f.place(hash)
	for i := range set {
		word := set[i].Load()
		for shift := 0; shift < 64; shift += 16 {
			if i == 7 && shift == 48 { // kept for the mark
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

// remove takes one hash out that was added.
func (f *banFilter) remove(hash uint64) {
	set, print := f.place(hash)
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
