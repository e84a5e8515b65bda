package policyfile

import (
	"net/netip"
	"slices"
	"strings"

	"fairshare"

	"github.com/gaissmai/bart"
)

// covers reports whether a surely holds for every request that b holds for.
func covers(a, b *fairshare.Match) bool {
	for name, texts := range a.Header {
		if !coversTexts(texts, headerTexts(b, name), containsCovers) {
			return false
		}
	}
	for name, texts := range a.Query {
		if !coversTexts(texts, b.Query[name], valueCovers) {
			return false
		}
	}
	for i := range a.Not {
		if !slices.ContainsFunc(b.Not, func(not fairshare.Match) bool { return covers(&not, &a.Not[i]) }) {
			return false
		}
	}
	return coversAddrs(a.Addr, b.Addr) &&
		(a.Path == nil || coversTexts(a.Path, b.Path, globCovers)) &&
		(a.Host == nil || coversTexts(a.Host, b.Host, foldedGlobCovers)) &&
		(a.Method == nil || coversTexts(a.Method, b.Method, strings.EqualFold)) &&
		(a.Cookie == nil || coversTexts(a.Cookie, b.Cookie, cookieCovers)) &&
		(a.UserAgent == nil || coversTexts(a.UserAgent, b.UserAgent, containsCovers))
}

// overlap reports whether some request may fit both a and b. Only that none
// can is sure.
func overlap(a, b *fairshare.Match) bool {
	excludes := func(m, other *fairshare.Match) bool {
		return slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return covers(&not, other) })
	}
	return !excludes(a, b) && !excludes(b, a) &&
		addrsOverlap(a.Addr, b.Addr) &&
		textsOverlap(a.Path, b.Path, globsOverlap) &&
		textsOverlap(a.Host, b.Host, func(a, b string) bool { return globsOverlap(strings.ToLower(a), strings.ToLower(b)) }) &&
		textsOverlap(a.Method, b.Method, strings.EqualFold) &&
		textsOverlap(a.Cookie, b.Cookie, func(a, b string) bool { return (a == "none") == (b == "none") }) &&
		textsOverlap(a.UserAgent, b.UserAgent, func(a, b string) bool { return (a == "") == (b == "") })
}

func textsOverlap(a, b []string, overlap func(a, b string) bool) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(s string) bool {
		return slices.ContainsFunc(b, func(t string) bool { return isRegexp(s) || isRegexp(t) || overlap(s, t) })
	})
}

func globsOverlap(a, b string) bool {
	headA, _, globA := strings.Cut(a, "*")
	headB, _, globB := strings.Cut(b, "*")
	if !globA || !globB {
		return globCovers(a, b) || globCovers(b, a)
	}
	tailA, tailB := a[strings.LastIndexByte(a, '*')+1:], b[strings.LastIndexByte(b, '*')+1:]
	return (strings.HasPrefix(headA, headB) || strings.HasPrefix(headB, headA)) &&
		(strings.HasSuffix(tailA, tailB) || strings.HasSuffix(tailB, tailA))
}

func addrsOverlap(a, b fairshare.AddrSet) bool {
	s, ok := a.(*AddrSet)
	t, ok2 := b.(*AddrSet)
	if !ok || !ok2 || s.size() > maxCompared || t.size() > maxCompared {
		return true
	}
	of := t.Prefixes()
	return slices.ContainsFunc(s.Prefixes(), func(p netip.Prefix) bool { return slices.ContainsFunc(of, p.Overlaps) })
}

func headerTexts(m *fairshare.Match, name string) []string {
	for n, texts := range m.Header {
		if strings.EqualFold(n, name) {
			return texts
		}
	}
	return nil
}

// coversTexts reports whether each text of b is covered by one of a. Where b
// has none, anything fits it.
func coversTexts(a, b []string, covers func(a, b string) bool) bool {
	if b == nil {
		return false
	}
	for _, t := range b {
		if !slices.ContainsFunc(a, func(s string) bool {
			return s == t || !isRegexp(s) && !isRegexp(t) && covers(s, t)
		}) {
			return false
		}
	}
	return true
}

func isRegexp(s string) bool { return strings.HasPrefix(s, "re:") }

// globCovers takes the "*" of b for a letter: then only a "*" of a fits it.
func globCovers(a, b string) bool {
	parts := strings.Split(a, "*")
	if len(parts) == 1 {
		return a == b
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(b) < len(first)+len(last) || !strings.HasPrefix(b, first) || !strings.HasSuffix(b, last) {
		return false
	}
	b = b[len(first) : len(b)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(b, part)
		if !found {
			return false
		}
		b = rest
	}
	return true
}

func foldedGlobCovers(a, b string) bool { return globCovers(strings.ToLower(a), strings.ToLower(b)) }

func containsCovers(a, b string) bool {
	return a != "" && strings.Contains(strings.ToLower(b), strings.ToLower(a))
}

// valueCovers is containsCovers for query, where "*" is any value.
func valueCovers(a, b string) bool { return a == "*" || containsCovers(a, b) }

func cookieCovers(a, b string) bool {
	if a == "none" || b == "none" {
		return false
	}
	return a == "any" || b != "any" && globCovers(a, b)
}

func coversAddrs(a, b fairshare.AddrSet) bool {
	if a == nil {
		return true
	}
	wide, ok := a.(*AddrSet)
	narrow, ok2 := b.(*AddrSet)
	if !ok || !ok2 {
		return false
	}
	if narrow.size() > maxCompared {
		return false
	}
	return !slices.ContainsFunc(narrow.Prefixes(), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(wide.tables, func(t *bart.Lite) bool { return t.LookupPrefix(p) })
	})
}
