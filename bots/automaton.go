package bots

import (
	"errors"
	"iter"
	"strings"
)

// A pattern is a lower-case text to search for, and where it may begin and end.
//
// In a table it is written as the text itself. A prefix says where it must begin:
//
//   - "^": at the start of the user agent
//   - "<": at the start of a word, without a letter or digit before it
//   - "<<": at the start of a product, with nothing, a blank or one of ([{;,"'+ before it
//
// A suffix says where it must end:
//
//   - "$": at the end of the user agent
//   - ">": at the end of a word
//   - ">>": at the end of a product, with nothing or one of /();:, after it
//
// "@" stands for a mail address.
type pattern struct {
	text         string
	bot          int32 // index in Table.bots, or peopleSign, or harmlessSign
	rank         uint8
	weak         bool // it does not count in browsers and apps of phones
	begins, ends boundary
}

// A boundary is where a pattern may begin or end.
type boundary uint8

const (
	anywhere  boundary = iota
	atWord             // at an edge of a word
	atProduct          // at an edge of a product's name
	atText             // at an edge of the user agent
)

// Values of pattern.bot for patterns that do not name a bot.
const (
	peopleSign   = -1 // browsers, phones and their apps have this text
	harmlessSign = -2 // patterns that begin inside this text do not count
)

// Ranks: the pattern with the highest rank wins.
const (
	rankNone    uint8 = iota
	rankGeneral       // a group of bots, recognised by a word such as "crawler"
	rankMeans         // software that bots use: libraries, headless browsers, tools
	rankNamed
)

const (
	maxPattern = 64 // bytes of a pattern's text
	minPattern = 2  // a shorter text would match nearly everything
	maxStates  = 1<<16 - 1
)

// parsePattern reads a pattern in the form of a table.
func parsePattern(s string) (pattern, error) {
	p := pattern{}
	switch {
	case strings.HasPrefix(s, "^"):
		p.begins, s = atText, s[1:]
	case strings.HasPrefix(s, "<<"):
		p.begins, s = atProduct, s[2:]
	case strings.HasPrefix(s, "<"):
		p.begins, s = atWord, s[1:]
	}
	switch {
	case strings.HasSuffix(s, "$"):
		p.ends, s = atText, s[:len(s)-1]
	case strings.HasSuffix(s, ">>"):
		p.ends, s = atProduct, s[:len(s)-2]
	case strings.HasSuffix(s, ">"):
		p.ends, s = atWord, s[:len(s)-1]
	}
	switch {
	case s == "" || len(s) == 1 && isAlnum(s[0]):
		return p, errors.New("is too short")
	case len(s) > maxPattern:
		return p, errors.New("is over 64 bytes")
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return p, errors.New("contains a control character")
		}
	}
	p.text = foldASCII(s)
	return p, nil
}

// String returns p in the form of a table.
func (p pattern) String() string {
	return [...]string{"", "<", "<<", "^"}[p.begins] + p.text + [...]string{"", ">", ">>", "$"}[p.ends]
}

// matchesAt reports whether p may begin and end at text[start:end], where its
// text was found.
func (p *pattern) matchesAt(text string, start, end int) bool {
	switch p.begins {
	case atWord:
		if start > 0 && isAlnum(text[start-1]) {
			return false
		}
	case atProduct:
		if start > 0 && strings.IndexByte(" ([{;,\"'+", text[start-1]) < 0 {
			return false
		}
	case atText:
		if start > 0 {
			return false
		}
	}
	switch p.ends {
	case atWord:
		return end == len(text) || !isAlnum(text[end])
	case atProduct:
		return end == len(text) || strings.IndexByte("/();:,", text[end]) >= 0
	case atText:
		return end == len(text)
	}
	return p.text != "@" || isMail(text, start)
}

// isMail reports whether the "@" at text[i] belongs to the mail address of an
// operator: a letter or digit before it, and a domain that ends in letters after
// it. Addresses at Gmail do not count: some apps put their user's address there.
func isMail(text string, i int) bool {
	if i == 0 || !isAlnum(text[i-1]) {
		return false
	}
	if rest := text[i+1:]; strings.HasPrefix(rest, "gmail.") || strings.HasPrefix(rest, "googlemail.") {
		return false
	}
	label, labels := 0, 0
	letters := true
	for i++; i < len(text) && (isAlnum(text[i]) || text[i] == '-' || text[i] == '.'); i++ {
		if text[i] != '.' {
			label++
			letters = letters && text[i]|0x20-'a' < 26
			continue
		}
		if label == 0 {
			return false
		}
		label, labels, letters = 0, labels+1, true
	}
	if label == 0 { // the full stop of a sentence
		return labels > 1
	}
	return labels > 0 && label > 1 && letters
}

func isAlnum(c byte) bool {
	return c-'0' < 10 || c|0x20-'a' < 26
}

func foldASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c-'A' < 26 {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

// An automaton finds all patterns in one walk over a text: Aho and Corasick,
// "Efficient string matching", CACM 18(6), 1975. It is one table of transitions
// over classes of bytes; upper and lower case are one class. It is immutable.
type automaton struct {
	class    [256]uint8
	shift    uint8
	ending   uint16   // states from here on end a pattern
	naming   uint16   // states from here on end a pattern that is not a sign of people
	next     []uint16 // state<<shift | class: the next state
	from     []uint32 // state-ending: its patterns are found[from[i]:from[i+1]]
	found    []uint32 // indices of patterns, longest first
	patterns []pattern
}

var errTooManyStates = errors.New("patterns are too many or too long: over 65535 states")

func newAutomaton(patterns []pattern) (*automaton, error) {
	a := &automaton{patterns: patterns}
	classes := 1 // class 0: bytes in no pattern
	for _, p := range patterns {
		for i := range len(p.text) {
			if c := p.text[i]; a.class[c] == 0 {
				if classes == 256 {
					return nil, errTooManyStates
				}
				a.class[c] = uint8(classes)
				classes++
			}
		}
	}
	for c := 'A'; c <= 'Z'; c++ {
		a.class[c] = a.class[c|0x20]
	}
	for 1<<a.shift < classes {
		a.shift++
	}
	t, err := newTrie(patterns, &a.class)
	if err != nil {
		return nil, err
	}
	t.link()
	a.number(t)
	return a, nil
}

// A trie holds the texts of all patterns as lists of children. It takes a tenth
// of the memory of the table that is built from it.
type trie struct {
	patterns []pattern
	nodes    []node   // 0 is the root
	same     []int32  // by pattern: the next one with the same text; -1 if none
	order    []uint16 // all nodes, breadth first
}

// A node is one node of a trie. As a reference, 0 means no node, since nothing
// leads to the root.
type node struct {
	child   uint16 // the first of its children
	sibling uint16 // the next child of its parent
	suffix  uint16 // the node of the longest proper suffix of its text that is in the trie
	output  uint16 // the nearest node along the suffixes that ends a pattern
	class   uint8  // of the byte that leads to it
	first   int32  // the first pattern that ends here; -1 if none
}

func newTrie(patterns []pattern, class *[256]uint8) (*trie, error) {
	size := 1
	for i := range patterns {
		size += len(patterns[i].text)
	}
	t := &trie{patterns: patterns, nodes: make([]node, 1, min(size, maxStates)), same: make([]int32, len(patterns))}
	t.nodes[0].first = -1
	last := make([]int32, 1, cap(t.nodes)) // by node: the last pattern that ends there
	for i := range patterns {
		s := uint16(0)
		for j := range len(patterns[i].text) {
			c := class[patterns[i].text[j]]
			child := t.child(s, c)
			if child == 0 {
				if len(t.nodes) == maxStates {
					return nil, errTooManyStates
				}
				child = uint16(len(t.nodes))
				t.nodes = append(t.nodes, node{class: c, sibling: t.nodes[s].child, first: -1})
				last = append(last, -1)
				t.nodes[s].child = child
			}
			s = child
		}
		t.same[i] = -1
		if t.nodes[s].first < 0 {
			t.nodes[s].first = int32(i)
		} else {
			t.same[last[s]] = int32(i)
		}
		last[s] = int32(i)
	}
	return t, nil
}

// child returns the child of s for a class of bytes; 0 if there is none.
func (t *trie) child(s uint16, class uint8) uint16 {
	for c := t.nodes[s].child; c != 0; c = t.nodes[c].sibling {
		if t.nodes[c].class == class {
			return c
		}
	}
	return 0
}

// link fills in order, and the suffix and output of each node.
func (t *trie) link() {
	t.order = append(make([]uint16, 0, len(t.nodes)), 0)
	for head := 0; head < len(t.order); head++ {
		parent := t.order[head]
		for s := t.nodes[parent].child; s != 0; s = t.nodes[s].sibling {
			n := &t.nodes[s]
			for p := parent; p != 0 && n.suffix == 0; {
				p = t.nodes[p].suffix
				n.suffix = t.child(p, n.class)
			}
			if n.output = n.suffix; t.nodes[n.suffix].first < 0 {
				n.output = t.nodes[n.suffix].output
			}
			t.order = append(t.order, s)
		}
	}
}

// ends yields the patterns that end at a node, longest first.
func (t *trie) ends(s uint16) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for {
			for i := t.nodes[s].first; i >= 0; i = t.same[i] {
				if !yield(uint32(i)) {
					return
				}
			}
			if s = t.nodes[s].output; s == 0 {
				return
			}
		}
	}
}

// group returns 0 for a node that ends no pattern, 1 for one that ends signs
// of people only, and 2 for the others.
func (t *trie) group(s uint16) int {
	group := 0
	for i := range t.ends(s) {
		if t.patterns[i].bot != peopleSign {
			return 2
		}
		group = 1
	}
	return group
}

// number fills in the table. The states that end no pattern come first, in
// breadth-first order, so that the most frequent ones are close to each other.
// Then come the states that end signs of people only.
func (a *automaton) number(t *trie) {
	number := make([]uint16, len(t.nodes))
	n := uint16(0)
	a.from = append(a.from, 0)
	for g, first := range []*uint16{new(uint16), &a.ending, &a.naming} {
		*first = n
		for _, s := range t.order {
			if t.group(s) != g {
				continue
			}
			number[s] = n
			n++
			if g > 0 {
				for i := range t.ends(s) {
					a.found = append(a.found, i)
				}
				a.from = append(a.from, uint32(len(a.found)))
			}
		}
	}
	// A missing branch leads where the branch of the suffix leads. The row of the
	// suffix is complete, since order is breadth first.
	stride := 1 << a.shift
	a.next = make([]uint16, len(t.nodes)*stride)
	for _, s := range t.order {
		row := a.next[int(number[s])*stride:][:stride]
		if s != 0 {
			copy(row, a.next[int(number[t.nodes[s].suffix])*stride:][:stride])
		}
		for c := t.nodes[s].child; c != 0; c = t.nodes[c].sibling {
			row[t.nodes[c].class] = number[c]
		}
	}
}

// size returns the memory of the automaton in bytes.
func (a *automaton) size() int {
	return len(a.next)*2 + (len(a.from)+len(a.found))*4 + len(a.patterns)*24
}
