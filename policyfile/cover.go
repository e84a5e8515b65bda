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
