package fairshare

import "strings"

// A pathIndex finds which of several path sets a path fits, all at once. A set
// of path sets is 64 bits.
type pathIndex struct {
	fold       bool // as in pathSet
	exact      map[string]uint64
	extensions map[string]uint64
	ends       map[string][]indexedEnd
	prefixed   [256][]indexedPattern // globs by their second byte; they begin with "/" and that byte
	others     []indexedPattern
	names      nameFilter  // of exact and ends
	filter     *textFilter // of a part of each of others; nil: it has none
}

// An indexedEnd is an element of pathSet.ends.
type indexedEnd struct {
	text string
	sets uint64
}

type indexedPattern struct {
	pattern pattern
	sets    uint64
}

const (
	maxPathSets   = 64
	maxOtherGlobs = 4 // of a path set; more would be evaluated for requests that they do not concern
)

// indexable reports whether evaluating a path set for every request is cheap.
func (set *pathSet) indexable() bool {
	others := 0
	for i := range set.rest {
		p := &set.rest[i]
		if p.re != nil {
			return false
		}
		if !hasPrefixByte(p) {
			others++
		}
	}
	return others <= maxOtherGlobs
}

// hasPrefixByte reports whether all paths that fit begin with the same two
// bytes, "/" and another.
func hasPrefixByte(p *pattern) bool { return len(p.parts[0]) >= 2 && p.parts[0][0] == '/' }

// add adds a path set under a bit.
func (x *pathIndex) add(set *pathSet, bit uint64) {
	if x.exact == nil {
		x.exact, x.extensions, x.ends = map[string]uint64{}, map[string]uint64{}, map[string][]indexedEnd{}
	}
	for path := range set.exact {
		x.exact[path] |= bit
		x.names.add(path)
	}
	for extension := range set.extensions {
		x.extensions[extension] |= bit
	}
	for name, ends := range set.ends {
		x.names.add(name)
		for _, end := range ends {
			x.ends[name] = addEnd(x.ends[name], end, bit)
		}
	}
	for _, p := range set.rest {
		if hasPrefixByte(&p) {
			second := p.parts[0][1]
			x.prefixed[second] = append(x.prefixed[second], indexedPattern{p, bit})
		} else {
			x.others = append(x.others, indexedPattern{p, bit})
		}
	}
}

// addFilter makes the filter when all path sets are added.
func (x *pathIndex) addFilter() {
	var parts []pattern
	for i := range x.others {
		longest := ""
		for _, part := range x.others[i].pattern.parts {
			if len(part) > len(longest) {
				longest = part
			}
		}
		parts = append(parts, pattern{kind: contains, parts: []string{longest}})
	}
	x.filter = newTextFilter(parts)
}

func addEnd(ends []indexedEnd, text string, bit uint64) []indexedEnd {
	for i := range ends {
		if ends[i].text == text {
			ends[i].sets |= bit
			return ends
		}
	}
	return append(ends, indexedEnd{text, bit})
}

// A nameFilter tells most texts that are not in a set, without a look-up in a map.
type nameFilter [filterBits / 64]uint64

func (f *nameFilter) add(s string) {
	n := nameBit(s)
	f[n/64] |= 1 << (n % 64)
}

// mayHave reports whether s may be in the set.
func (f *nameFilter) mayHave(s string) bool {
	n := nameBit(s)
	return f[n/64]>>(n%64)&1 == 1
}

// nameBit returns the bit of a text, from its length and three bytes.
func nameBit(s string) uint32 {
	n := len(s)
	if n == 0 {
		return 0
	}
	w := uint32(n)<<24 | uint32(s[n-1])<<16 | uint32(s[n/2])<<8 | uint32(s[n/4])
	return w * 0x9E3779B1 >> 20 % filterBits
}

// match returns the path sets that a path fits: those for which pathSet.match
// holds.
func (x *pathIndex) match(d *decision, path string) (sets uint64) {
	if x.fold {
		path = d.foldPath(path)
	}
	if dot := lastDot(path); dot >= 0 {
		sets |= x.extensions[path[dot+1:]]
	}
	if last := path[strings.LastIndexByte(path, '/')+1:]; x.names.mayHave(last) {
		for _, end := range x.ends[last] {
			if sets|end.sets != sets && strings.HasSuffix(path, end.text) {
				sets |= end.sets
			}
		}
	}
	if x.names.mayHave(path) {
		sets |= x.exact[path]
	}
	if len(path) >= 2 && path[0] == '/' {
		sets = matchIndexed(x.prefixed[path[1]], path, sets)
	}
	if x.filter != nil && !x.filter.mayMatch(path) {
		return sets
	}
	return matchIndexed(x.others, path, sets)
}

func matchIndexed(patterns []indexedPattern, path string, sets uint64) uint64 {
	for i := range patterns {
		if p := &patterns[i]; sets|p.sets != sets && p.pattern.fits(path) {
			sets |= p.sets
		}
	}
	return sets
}
