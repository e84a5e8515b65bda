package policyfile

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"fairshare"

	"github.com/gaissmai/bart"
)

// The comparison of conditions in this file serves four warnings:
//
//   - warnUnreachable: a rule that no request reaches, such as a block below an
//     allow that includes it, or a limit below such a block.
//   - warnAllow: an allow above which no limit counts the same requests.
//   - warnLimit: a limit that clients evade, because no other limit counts the same
//     requests.
//   - warnHosts: a rule for hosts that the site does not have.
//
// It may err on one side only: covers and overlap=false are certain. So a rule that
// is reported as unreachable never matches.

// A condition is a match, with its direction: the match of an allow favors the
// client. A favorable match holds for fewer bots: see [fairshare.Match].
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

// covers reports whether a certainly matches every request that b matches. If a is favorable and b is
// not, that does not hold for requests that can be read in several ways: those with an odd path, or with
// a parameter that is sent twice.
// Answers of DNS lists are compared only for equality: rules rarely differ in them alone.
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
	for name, texts := range a.Form {
		if !coversTexts(texts, b.Form[name], valueCovers) {
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
		(a.Referer == nil || coversTexts(a.Referer, b.Referer, strings.EqualFold)) &&
		(a.ASN == nil || coversTexts(a.ASN, b.ASN, foldedGlobCovers)) &&
		(a.Browser == nil || coversBrowsers(a, b)) &&
		(a.Robots == nil || coversRobots(a, b)) &&
		(a.Attempt == nil || coversTexts(a.Attempt, b.Attempt, strings.EqualFold)) &&
		(a.Label == nil || coversTexts(a.Label, b.Label, strings.EqualFold)) &&
		(a.Hostname == nil || coversTexts(a.Hostname, b.Hostname, globCovers)) &&
		(!a.TestsBots() || coversBots(a, b)) &&
		(a.Listed == nil || reflect.DeepEqual(a.Listed, b.Listed))
}

// coversBrowsers compares browser conditions. In a favorable match only likely holds, in others
// claimed includes contradicted.
func coversBrowsers(a, b condition) bool {
	if b.Browser == nil {
		return false
	}
	holds := func(c condition, word string) bool {
		return slices.Contains(c.Browser, word) && (!c.favorable || word == "likely") ||
			word == "contradicted" && !c.favorable && slices.Contains(c.Browser, "claimed")
	}
	for _, word := range browserWords {
		if holds(b, word) && !holds(a, word) {
			return false
		}
	}
	return true
}

// botStates returns the states of the bots that a condition may hold for.
func (t condition) botStates() []string {
	states := stateWords
	if t.favorable {
		states = states[:1] // verified
	}
	if t.State != nil {
		states = slices.DeleteFunc(slices.Clone(states), func(s string) bool { return !slices.Contains(t.State, s) })
	}
	if t.Bot != nil && !slices.ContainsFunc(t.Bot, func(s string) bool { return s != "verified" && s != "forged" }) {
		states = slices.DeleteFunc(slices.Clone(states), func(s string) bool { return !slices.Contains(t.Bot, s) })
	}
	return states
}

// coversBots compares bot conditions. In a favorable match, each word holds only for
// verified bots, and forged holds for no bot.
func coversBots(a, b condition) bool {
	outside := func(s string) bool { return !slices.Contains(a.State, s) }
	if !b.TestsBots() || a.favorable && !b.favorable ||
		a.State != nil && slices.ContainsFunc(b.botStates(), outside) ||
		a.Operator != nil && !coversTexts(a.Operator, b.Operator, strings.EqualFold) {
		return false
	}
	if a.Bot == nil {
		return true
	}
	if b.Bot == nil {
		return slices.Contains(a.Bot, "known")
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

// overlap reports whether some request may match both a and b. Only false is
// certain. Addresses and bots are not compared: warnLimit trusts an allow by them
// anyway.
func overlap(a, b condition) bool {
	excludes := func(t, other condition) bool {
		return slices.ContainsFunc(t.exceptions(), func(not condition) bool {
			return (not.favorable == other.favorable || !testsQuery(not.Match)) && covers(not, other)
		})
	}
	return !excludes(a, b) && !excludes(b, a) &&
		textsOverlap(a.Path, b.Path, globsOverlap) &&
		textsOverlap(a.Host, b.Host, func(a, b string) bool {
			return globsOverlap(strings.ToLower(a), strings.ToLower(b))
		}) &&
		textsOverlap(a.Method, b.Method, strings.EqualFold) &&
		textsOverlap(a.Cookie, b.Cookie, func(a, b string) bool { return (a == "none") == (b == "none") }) &&
		textsOverlap(a.UserAgent, b.UserAgent, func(a, b string) bool { return (a == "") == (b == "") })
}

// testsQuery reports whether a match depends on parameters or fields. If one is sent twice, both have to match in
// a permission, and one in a restriction.
func testsQuery(m *fairshare.Match) bool {
	return m.Query != nil || m.Form != nil ||
		slices.ContainsFunc(m.Not, func(not fairshare.Match) bool { return testsQuery(&not) })
}

// textsOverlap reports whether some text may match a value of a and a value of b. A
// regexp may match any text.
func textsOverlap(a, b []string, overlap func(a, b string) bool) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(s string) bool {
		return slices.ContainsFunc(b, func(t string) bool { return isRegexp(s) || isRegexp(t) || overlap(s, t) })
	})
}

// globsOverlap reports whether some text may match both patterns, by their begins and
// ends.
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

// headerTexts returns the values of a header, whose name is not case-sensitive.
func headerTexts(m *fairshare.Match, name string) []string {
	for n, texts := range m.Header {
		if strings.EqualFold(n, name) {
			return texts
		}
	}
	return nil
}

// coversTexts reports whether each value of b is covered by a value of a. If b has no
// values, it matches any text.
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

// globCovers treats the "*" of b as an ordinary character, which only a "*" of a
// matches.
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

// valueCovers is containsCovers for query, where "*" means any value.
func valueCovers(a, b string) bool { return a == "*" || containsCovers(a, b) }

// cookieCovers compares names of cookies: "any" covers every name.
func cookieCovers(a, b string) bool {
	if a == "none" || b == "none" {
		return false
	}
	return a == "any" || b != "any" && globCovers(a, b)
}

// coversAddrs reports whether all prefixes of b are in a, also after external lists of b
// have changed.
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
