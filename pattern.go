package fairshare

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// regexpMark begins a pattern that is an RE2 regexp: unanchored,
// case-sensitive.
const regexpMark = "re:"

// CheckPattern returns the fault of a pattern as a policy writes it, or nil:
// only one that begins with "re:" can have one.
func CheckPattern(s string) error {
	expr, ok := strings.CutPrefix(s, regexpMark)
	if !ok {
		return nil
	}
	if _, err := syntax.Parse(expr, syntax.Perl); err != nil { // all that regexp.Compile can find
		return regexpError(expr, err)
	}
	return nil
}

func checkPatterns(texts []string) error {
	for _, s := range texts {
		if err := CheckPattern(s); err != nil {
			return err
		}
	}
	return nil
}

func regexpError(expr string, err error) error { return fmt.Errorf("regexp %q: %w", expr, err) }

// A patternKind says how a pattern without "re:" is compared.
type patternKind uint8

const (
	glob      patternKind = iota // as a whole, "*" for any run of characters
	globFold                     // the same, any case
	equalFold                    // equal, any case
	contains                     // anywhere in the text, any case; "" means absent or empty
	anyValue                     // as contains, and "*" for any value
)

// A pattern is one compiled text of a match.
type pattern struct {
	kind  patternKind
	parts []string       // what stands between the "*" of a glob; of contains: the one text, lower case
	re    *regexp.Regexp // nil unless "re:"
}

func newPattern(s string, kind patternKind) (pattern, error) {
	if expr, ok := strings.CutPrefix(s, regexpMark); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return pattern{}, regexpError(expr, err)
		}
		return pattern{kind: kind, re: re}, nil
	}
	switch {
	case kind == equalFold:
		return pattern{kind: kind, parts: []string{s}}, nil
	case kind == glob:
		return pattern{kind: kind, parts: strings.Split(s, "*")}, nil
	case !ascii(s):
		// Folding case is easy for ASCII only; regexp knows the rest.
		expr := "(?i)" + regexp.QuoteMeta(s)
		if kind == globFold {
			expr = "(?is)^" + strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") + "$"
		}
		return pattern{kind: kind, re: regexp.MustCompile(expr)}, nil
	case kind == globFold:
		return pattern{kind: kind, parts: strings.Split(lower(s), "*")}, nil
	default:
		return pattern{kind: kind, parts: []string{lower(s)}}, nil
	}
}

func newPatterns(texts []string, kind patternKind) ([]pattern, error) {
	patterns := make([]pattern, len(texts))
	for i, s := range texts {
		var err error
		if patterns[i], err = newPattern(s, kind); err != nil {
			return nil, err
		}
	}
	return patterns, nil
}

// match reports whether s fits. folded is s in lower case; kinds glob and
// equalFold do not look at it.
func (p *pattern) match(s, folded string) bool {
	if p.re != nil {
		return p.re.MatchString(s)
	}
	switch p.kind {
	case glob:
		return p.fits(s)
	case globFold:
		return p.fits(folded)
	case equalFold:
		return s == p.parts[0] || !differ(s, p.parts[0]) && strings.EqualFold(s, p.parts[0])
	case anyValue:
		if p.parts[0] == "*" {
			return true
		}
	}
	if p.parts[0] == "" {
		return s == ""
	}
	return strings.Contains(folded, p.parts[0])
}

// differ reports whether the first letters of two texts are ASCII and differ in
// any case. That is enough to distinguish most methods and names.
func differ(s, t string) bool {
	return s != "" && t != "" && s[0] < 0x80 && t[0] < 0x80 && s[0]|0x20 != t[0]|0x20
}

// fits matches a glob. Taking the first place for each part is enough, since
// parts hold no wildcard of their own.
func (p *pattern) fits(s string) bool {
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(p.parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

func matchAny(patterns []pattern, s, folded string) bool {
	for i := range patterns {
		if patterns[i].match(s, folded) {
			return true
		}
	}
	return false
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// lower returns s with A to Z in lower case; s itself when there are none.
func lower(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 'A' && s[i] <= 'Z' {
			return string(appendLower(nil, s))
		}
	}
	return s
}

// appendLower appends s with A to Z in lower case, eight bytes at a time: in
// each byte, bit 7 of heptets+(0x80−'A') is set from 'A' on, that of
// heptets+(0x7F−'Z') behind 'Z'.
func appendLower(b []byte, s string) []byte {
	const each, tops = 0x0101010101010101, 0x8080808080808080
	begin := len(b)
	b = append(b, s...)
	out := b[begin:]
	for ; len(out) >= 8; out = out[8:] {
		w := binary.LittleEndian.Uint64(out)
		heptets := w &^ tops
		upper := ^w & (heptets + (0x80-'A')*each) & ^(heptets + (0x7F-'Z')*each) & tops
		binary.LittleEndian.PutUint64(out, w|upper>>2)
	}
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c | 0x20
		}
	}
	return b
}
