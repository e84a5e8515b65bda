package fairshare

import "encoding/binary"

// A textFilter tells most texts that contain none of many patterns, without a search for each of
// them. It knows the first bytes of every pattern, as bits of a hash.
type textFilter struct {
	bits  [filterBits / 64]uint64
	bytes int    // how many first bytes count
	mask  uint32 // of these
}

const (
	filterBits = 4096
	// With fewer patterns a search for each is as fast. With more, most texts would have a hit.
	filterFewest, filterMost = 4, 200
)

// newTextFilter returns a filter for patterns, or nil if they cannot have one.
func newTextFilter(patterns []pattern) *textFilter {
	if len(patterns) < filterFewest || len(patterns) > filterMost {
		return nil
	}
	f := &textFilter{bytes: 4}
	for i := range patterns {
		p := &patterns[i]
		if p.re != nil || p.kind != contains && p.kind != anyValue || p.parts[0] == "" || p.parts[0] == "*" {
			return nil
		}
		f.bytes = min(f.bytes, len(p.parts[0]))
	}
	if f.bytes < 2 {
		return nil
	}
	f.mask = 1<<(8*f.bytes) - 1
	for i := range patterns {
		var first [4]byte
		copy(first[:], patterns[i].parts[0])
		n := f.hash(binary.LittleEndian.Uint32(first[:]))
		f.bits[n/64] |= 1 << (n % 64)
	}
	return f
}

// hash returns the bit of the first bytes in w, the first of them lowest.
func (f *textFilter) hash(w uint32) uint32 { return (w & f.mask) * 0x9E3779B1 >> 20 }

// mayMatch reports whether a text in lower case may contain one of the patterns.
func (f *textFilter) mayMatch(folded string) bool {
	i := 0
	if len(folded) >= 4 {
		w := uint32(folded[0])<<8 | uint32(folded[1])<<16 | uint32(folded[2])<<24
		mask, all := f.mask, &f.bits
		for _, c := range []byte(folded[3:]) {
			w = w>>8 | uint32(c)<<24 // the last four bytes
			if n := (w & mask) * 0x9E3779B1 >> 20; all[n/64]>>(n%64)&1 == 1 {
				return true
			}
		}
		i = len(folded) - 3
	}
	for ; i+f.bytes <= len(folded); i++ { // the last bytes, if fewer than four count
		var w uint32
		for j := len(folded) - 1; j >= i; j-- {
			w = w<<8 | uint32(folded[j])
		}
		if f.has(w) {
			return true
		}
	}
	return false
}

// has reports whether some pattern may have the first bytes in w.
func (f *textFilter) has(w uint32) bool {
	n := f.hash(w)
	return f.bits[n/64%uint32(len(f.bits))]&(1<<(n%64)) != 0
}

// matchesText is matchAny of c's patterns for a text and the same in lower case.
func (c *condition) matchesText(s, folded string) bool {
	return (c.filter == nil || c.filter.mayMatch(folded)) && matchAny(c.patterns, s, folded)
}
