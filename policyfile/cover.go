package policyfile

import (
	"net/netip"
	"slices"
	"strings"

	"fairshare"

	"github.com/gaissmai/bart"
)

// A condition is a match, and whether it does a client good to fit, as it does in
// an allow: bots fit fewer of these, see [fairshare.Match].
type condition struct {
	*fairshare.Match
	favorable bool
}

func conditionOf(rule *fairshare.Rule) condition {
	return condition{&rule.Match, rule.Action == fairshare.Allow}
}

// exceptions returns the matches in not. They hold in the other direction: a not of a
// permission is a restriction.
func (t condition) exceptions() []condition {
	list := make([]condition, len(t.Not))
	for i := range t.Not {
		list[i] = condition{&t.Not[i], !t.favorable}
	}
	return list
}

// covers reports whether a surely holds for every request that b holds for.
func covers(a, b condition) bool {
	for name, texts := range a.Header {
		if !coversTexts(texts, headerTexts(b.Match, name), containsCovers) {
			return false
		}
	}
	for name, texts := range a.Query {
		if !coversTexts(texts, b.Query[name], valueCovers) {
			return false
		}
	}
	for _, not := range a.exceptions() {
		if !slices.ContainsFunc(b.exceptions(), func(t condition) bool { return covers(t, not) }) {
			return false
		}
	}
	return coversAddrs(a.Addr, b.Addr) &&
		(a.Path == nil || coversTexts(a.Path, b.Path, globCovers)) &&
		(a.Host == nil || coversTexts(a.Host, b.Host, foldedGlobCovers)) &&
		(a.Method == nil || coversTexts(a.Method, b.Method, strings.EqualFold)) &&
		(a.Cookie == nil || coversTexts(a.Cookie, b.Cookie, cookieCovers)) &&
		(a.Seen == nil || coversTexts(a.Seen, b.Seen, globCovers)) &&
		(a.UserAgent == nil || coversTexts(a.UserAgent, b.UserAgent, containsCovers)) &&
		(a.ASN == nil || coversTexts(a.ASN, b.ASN, foldedGlobCovers)) &&
		(a.Label == nil || coversTexts(a.Label, b.Label, strings.EqualFold)) &&
		(a.Hostname == nil || coversTexts(a.Hostname, b.Hostname, globCovers)) &&
		(a.Bot == nil || coversBots(a, b)) &&
		(a.Listed == nil || coversListed(a.Listed, b.Listed))
}

// coversBots compares words of bots. Where it does good to fit, each of them
// holds for some verified bots only, and forged for nobody.
func coversBots(a, b condition) bool {
	if b.Bot == nil {
		return false
	}
	covers := func(s, t string) bool {
		switch {
		case s == "known", s == "verified" && a.favorable:
			return !a.favorable || b.favorable
		case s == "verified":
			return b.favorable || t == "verified"
		case s == "forged":
			return !a.favorable && !b.favorable && t == "forged"
		}
		return s == t && (!a.favorable || b.favorable)
	}
	for _, t := range b.Bot {
		if !slices.ContainsFunc(a.Bot, func(s string) bool { return covers(s, t) }) {
			return false
		}
	}
	return true
}

// botsOverlap reports whether some bot may fit both.
func botsOverlap(a, b condition) bool {
	if a.Bot == nil || b.Bot == nil {
		return true
	}
	// A forged bot is not verified, but may claim any name.
	overlap := func(s, t string) bool {
		if s == "forged" && a.favorable || t == "forged" && b.favorable {
			return false
		}
		return (s == "forged") == (t == "forged") || s != "verified" && !a.favorable && t != "verified" && !b.favorable
	}
	return slices.ContainsFunc(a.Bot, func(s string) bool {
		return slices.ContainsFunc(b.Bot, func(t string) bool { return overlap(s, t) })
	})
}

// coversListed reports whether each condition of b is one of a, or narrower.
func coversListed(a, b []fairshare.Listing) bool {
	covers := func(s, t fairshare.Listing) bool {
		codes := s.Codes == nil || t.Codes != nil && !slices.ContainsFunc(t.Codes, func(code netip.Prefix) bool {
			return !slices.ContainsFunc(s.Codes, func(p netip.Prefix) bool {
				return p.Bits() <= code.Bits() &&
					p.Contains(code.Addr())
			})
		})
		return s.List == t.List && codes && s.Threat <= t.Threat &&
			(s.Types == 0 || t.Types != 0 && t.Types&^s.Types == 0) &&
			(s.Days == 0 || t.Days != 0 && t.Days <= s.Days)
	}
	return b != nil && !slices.ContainsFunc(b, func(t fairshare.Listing) bool {
		return !slices.ContainsFunc(a, func(s fairshare.Listing) bool { return covers(s, t) })
	})
}

// overlap reports whether some request may fit both a and b. Only that none
// can is sure.
func overlap(a, b condition) bool {
	excludes := func(t, other condition) bool {
		return slices.ContainsFunc(t.exceptions(), func(not condition) bool { return covers(not, other) })
	}
	return !excludes(a, b) && !excludes(b, a) && botsOverlap(a, b) &&
		addrsOverlap(a.Addr, b.Addr) &&
		textsOverlap(a.Path, b.Path, globsOverlap) &&
		textsOverlap(a.Host, b.Host, func(a, b string) bool {
			return globsOverlap(strings.ToLower(a),
				strings.ToLower(b))
		}) &&
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
	if !ok || !ok2 || s.hasExternal() || t.hasExternal() || s.size() > maxCompared || t.size() > maxCompared {
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
	if narrow.size() > maxCompared || slices.ContainsFunc(narrow.lists, func(list *AddrSet) bool {
		return list.external && !slices.Contains(wide.lists, list)
	}) {
		return false
	}
	tables := wide.tables()
	return !slices.ContainsFunc(narrow.Prefixes(), func(p netip.Prefix) bool {
		return !slices.ContainsFunc(tables, func(t *bart.Lite) bool { return t.LookupPrefix(p) })
	})
}
