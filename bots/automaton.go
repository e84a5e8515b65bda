package bots

import (
	"errors"
	"slices"
	"strings"
)

// A pattern is a text to look for, lower case, and where it may stand.
//
// In a table it is written as the text itself, with "^" before it when it must
// begin the user agent, "<" when it must begin a word (no letter or digit
// before it), "<<" when it must begin a product (nothing, a blank or one of
// ([{;,"'+ before it); with ">" behind it when it must end a word, ">>" when it must end
// a product (one of /();:, or nothing behind it) and "$" when it must end the
// user agent. "@" stands for a mail address.
type pattern struct {
	text         string
	bot          int32 // index in Table.bots, or peopleSign, or innocentSign
	rank         uint8
	begins, ends place
}

type place uint8

const (
	anywhere  place = iota
	atWord          // at an edge of a word
	atProduct       // at an edge of a product's name
	atText          // at an edge of the user agent
)

// What a pattern tells that names no bot.
const (
	peopleSign   = -1 // browsers, phones and their apps say this
	innocentSign = -2 // nothing that begins inside this text tells a bot
)

// Ranks: a higher one wins whatever else stands in a user agent.
const (
	rankNone    uint8 = iota
	rankGeneral       // a kind of bots, told by a word such as "crawler"
	rankMeans         // what a bot is made with: libraries, headless browsers, tools
	rankNamed
)

const (
	maxPattern = 64 // bytes of a pattern's text
	minPattern = 2  // a shorter text tells nothing
	maxStates  = 1<<16 - 1
)

// parsePattern reads a pattern as it is written in a table.
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
		return p, errors.New("is too short to tell anything")
	case len(s) > maxPattern:
		return p, errors.New("is over 64 bytes")
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return p, errors.New("holds a control character")
		}
	}
	p.text = foldASCII(s)
	return p, nil
}

// String writes p as a table does.
func (p pattern) String() string {
	return [...]string{"", "<", "<<", "^"}[p.begins] + p.text + [...]string{"", ">", ">>", "$"}[p.ends]
}

// stands reports whether p may stand at text[start:end], where its text was
// found.
func (p *pattern) stands(text string, start, end int) bool {
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

// isMail reports whether the "@" at text[i] is that of the mail address of an
// operator: a letter or digit before it, a domain that ends in letters behind
// it. Addresses at Gmail are those of people, whose apps give them away.
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
// "Efficient string matching", CACM 18(6), 1975, as one table of transitions
// over classes of bytes, upper and lower case being one class. It is never
// changed once built.
type automaton struct {
	class    [256]uint8
	shift    uint8
	ending   uint16   // states from here on end a pattern
	telling  uint16   // states from here on end one that is no sign of people
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
	stride := 1 << a.shift

	// A trie of all texts; 0: no such branch, since none leads to the root.
	row := make([]int32, stride)
	trie := slices.Clone(row)
	ends := [][]uint32{nil}
	for i, p := range patterns {
		s := 0
		for j := range len(p.text) {
			at := s*stride + int(a.class[p.text[j]])
			if trie[at] == 0 {
				if len(ends) == maxStates {
					return nil, errTooManyStates
				}
				trie[at] = int32(len(ends))
				ends = append(ends, nil)
				trie = append(trie, row...)
			}
			s = int(trie[at])
		}
		ends[s] = append(ends[s], uint32(i))
	}

	// Breadth first: a missing branch goes where the longest proper suffix goes,
	// and a state ends what its suffix ends, too.
	states := len(ends)
	suffix := make([]int32, states)
	queue := make([]int32, 0, states)
	queue = append(queue, 0)
	for head := 0; head < len(queue); head++ {
		s := int(queue[head])
		for c := range stride {
			at := s*stride + c
			fallback := int32(0)
			if s != 0 {
				fallback = trie[int(suffix[s])*stride+c]
			}
			if child := trie[at]; child == 0 {
				trie[at] = fallback
			} else {
				suffix[child] = fallback
				ends[child] = append(ends[child], ends[fallback]...)
				queue = append(queue, child)
			}
		}
	}

	// Numbers: first the states that end nothing, in breadth-first order, so
	// that the busy ones lie together; then those that end signs of people only.
	group := func(s int32) int {
		switch {
		case ends[s] == nil:
			return 0
		case slices.ContainsFunc(ends[s], func(i uint32) bool { return patterns[i].bot != peopleSign }):
			return 2
		}
		return 1
	}
	number := make([]uint16, states)
	n := uint16(0)
	a.from = append(a.from, 0)
	for g, first := range []*uint16{new(uint16), &a.ending, &a.telling} {
		*first = n
		for _, s := range queue {
			if group(s) != g {
				continue
			}
			number[s] = n
			n++
			if g > 0 {
				a.found = append(a.found, ends[s]...)
				a.from = append(a.from, uint32(len(a.found)))
			}
		}
	}
	a.next = make([]uint16, states*stride)
	for s := range states {
		for c := range stride {
			a.next[int(number[s])*stride+c] = number[trie[s*stride+c]]
		}
	}
	return a, nil
}

// size is the memory of the automaton in bytes.
func (a *automaton) size() int {
	return len(a.next)*2 + (len(a.from)+len(a.found))*4 + len(a.patterns)*24
}
