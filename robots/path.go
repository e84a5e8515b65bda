package robots

import (
	"slices"
	"sort"
	"strings"
	"unsafe"
)

// A pattern is the path of one Allow or Disallow line.
type pattern struct {
	rule   Rule
	allow  bool
	octets int      // length of the path, as RFC 9309 §2.2.2 compares it
	prefix string   // up to the first star or the final "$", canonical
	parts  []string // after the first star: texts between stars, canonical; nil without a star
	end    bool     // "$": the target ends here
}

// newPattern returns the pattern of a path as written, without surrounding blanks.
func newPattern(path string, rule Rule, allow bool) *pattern {
	p := &pattern{rule: rule, allow: allow}
	if strings.HasSuffix(path, "$") {
		path, p.end, p.octets = path[:len(path)-1], true, 1
	}
	parts := strings.Split(path, "*")
	for i, part := range parts {
		parts[i] = canonical(part)
		p.octets += encodedLen(parts[i])
	}
	p.octets += len(parts) - 1
	p.prefix = parts[0]
	if len(parts) > 1 {
		p.parts = parts[1:]
	}
	return p
}

// encodedLen returns the length of a canonical text whose bytes outside ASCII are
// percent-encoded.
func encodedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if s[i] >= 0x80 {
			n += 2
		}
	}
	return n
}

// fitsRest reports whether a canonical target that begins with p.prefix fits.
func (p *pattern) fitsRest(target string) bool {
	rest := target[len(p.prefix):]
	if p.parts == nil {
		return !p.end || rest == ""
	}
	last := len(p.parts) - 1
	for _, part := range p.parts[:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	if p.end {
		return strings.HasSuffix(rest, p.parts[last])
	}
	return strings.Contains(rest, p.parts[last])
}

// beats reports whether p decides rather than q: the longest pattern does, Allow on
// a tie, then the first line.
func (p *pattern) beats(q *pattern) bool {
	if p.octets != q.octets {
		return p.octets > q.octets
	}
	if p.allow != q.allow {
		return p.allow
	}
	return p.rule.Line < q.rule.Line
}

// pathRules finds the pattern that decides about a target. The prefixes are sorted.
// Texts between a prefix of the target and the target begin with this prefix. So the
// greatest prefix that is not above the target, and its ancestors, include all that
// the target begins with.
type pathRules struct {
	prefixes []prefix
}

type prefix struct {
	text     string
	parent   int32      // the longest other prefix that this one begins with; −1: none
	patterns []*pattern // with this prefix, those that decide first
}

func newPathRules(patterns []*pattern) pathRules {
	byPrefix := map[string][]*pattern{}
	for _, p := range patterns {
		byPrefix[p.prefix] = append(byPrefix[p.prefix], p)
	}
	var r pathRules
	for text, list := range byPrefix {
		slices.SortFunc(list, func(p, q *pattern) int {
			if p.beats(q) {
				return -1
			}
			return 1
		})
		for i, p := range list { // one that always fits hides the rest
			if p.parts == nil && !p.end {
				list = list[:i+1]
				break
			}
		}
		r.prefixes = append(r.prefixes, prefix{text: text, patterns: list})
	}
	slices.SortFunc(r.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	var open []int32 // prefixes that the last one begins with
	for i := range r.prefixes {
		text := r.prefixes[i].text
		for len(open) > 0 && !strings.HasPrefix(text, r.prefixes[open[len(open)-1]].text) {
			open = open[:len(open)-1]
		}
		r.prefixes[i].parent = -1
		if len(open) > 0 {
			r.prefixes[i].parent = open[len(open)-1]
		}
		open = append(open, int32(i))
	}
	return r
}

// find returns the pattern that decides about a canonical target; nil if none fits.
func (r *pathRules) find(target string) *pattern {
	i := int32(sort.Search(len(r.prefixes), func(i int) bool { return r.prefixes[i].text > target })) - 1
	var best *pattern
	for ; i >= 0; i = r.prefixes[i].parent {
		if !strings.HasPrefix(target, r.prefixes[i].text) {
			continue
		}
		for _, p := range r.prefixes[i].patterns {
			if best != nil && best.beats(p) {
				break // the others of this prefix do not beat it either
			}
			if p.fitsRest(target) {
				best = p
				break
			}
		}
	}
	return best
}

// Match returns the line that decides about a request target as sent, and whether
// it disallows the target. nil means that no line decides: the target is allowed.
// /robots.txt is always allowed.
//
// Servers read "//a/../b" as "/b". If a target has such parts, both readings count,
// and one that is disallowed is enough.
func (g *Group) Match(target string) (rule *Rule, disallowed bool) {
	if len(g.paths.prefixes) == 0 {
		return nil, false
	}
	target = withoutAuthority(target)
	if target == "" || target[0] != '/' {
		return nil, false
	}
	var buf [512]byte
	if strings.IndexByte(target, '%') >= 0 {
		target = canonicalIn(buf[:0], target)
	}
	p := g.decide(target)
	if p == nil || p.allow {
		if q := g.decideResolved(target); q != nil && !q.allow {
			p = q
		}
	}
	if p == nil {
		return nil, false
	}
	return &p.rule, !p.allow
}

func (g *Group) decide(target string) *pattern {
	const own = "/robots.txt"
	if strings.HasPrefix(target, own) && (len(target) == len(own) || target[len(own)] == '?') {
		return nil
	}
	return g.paths.find(target)
}

// decideResolved is decide for the target as servers resolve it; nil if that is the same.
func (g *Group) decideResolved(target string) *pattern {
	end := strings.IndexByte(target, '?')
	if end < 0 {
		end = len(target)
	}
	path := target[:end]
	if !strings.Contains(path, "//") && !strings.Contains(path, "/.") {
		return nil
	}
	var buf [512]byte
	out := buf[:0]
	for rest, more := path, true; more; { // strings.SplitSeq would allocate
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		switch segment {
		case "", ".":
			continue
		case "..":
			out = out[:max(0, strings.LastIndexByte(unsafe.String(unsafe.SliceData(out), len(out)), '/'))]
			continue
		}
		out = append(append(out, '/'), segment...)
	}
	if last := path[strings.LastIndexByte(path, '/')+1:]; last == "" || last == "." || last == ".." {
		out = append(out, '/')
	}
	out = append(out, target[end:]...)
	return g.decide(unsafe.String(unsafe.SliceData(out), len(out)))
}

// withoutAuthority returns a target in absolute form as path and query.
func withoutAuthority(target string) string {
	if target == "" || target[0] == '/' {
		return target
	}
	i := strings.Index(target, "://")
	if i < 0 {
		return ""
	}
	if slash := strings.IndexByte(target[i+3:], '/'); slash >= 0 {
		return target[i+3+slash:]
	}
	return "/"
}

// canonical returns a text in which equal octets have one form (RFC 9309 §2.2.2): percent
// escapes of unreserved characters and of octets outside ASCII are decoded, and all
// others have upper-case digits.
func canonical(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	return canonicalIn(nil, s)
}

// canonicalIn is canonical with memory for the result, which must not be changed later.
func canonicalIn(buf []byte, s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' || i+2 >= len(s) {
			buf = append(buf, s[i])
			continue
		}
		high, low := unhex(s[i+1]), unhex(s[i+2])
		if high > 15 || low > 15 {
			buf = append(buf, '%')
			continue
		}
		if c := high<<4 | low; c >= 0x80 || isUnreserved(c) {
			buf = append(buf, c)
		} else {
			buf = append(buf, '%', hexDigits[high], hexDigits[low])
		}
		i += 2
	}
	return unsafe.String(unsafe.SliceData(buf), len(buf))
}

const hexDigits = "0123456789ABCDEF"

// unhex returns the value of a hexadecimal digit; 255 if c is none.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

func isUnreserved(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '-' || c == '.' || c == '_' || c == '~'
}
