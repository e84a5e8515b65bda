package main

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// A merger collects bots: first our own, then those of the lists that no bot of
// ours covers, one for each name.
type merger struct {
	add      additions
	bots     []bot
	own      int            // the number of our bots, which come first in bots
	byName   map[string]int // index in bots plus one
	owner    map[string]int // pattern: index in bots
	replaced map[string]bool
	renamed  map[string]bool
}

func newMerger(add additions) *merger {
	m := &merger{add: add, byName: map[string]int{}, owner: map[string]int{}, replaced: map[string]bool{},
		renamed: map[string]bool{}}
	for _, b := range add.Bots {
		if !b.AfterLists {
			m.addOwn(b.bot)
		}
	}
	m.own = len(m.bots)
	return m
}

func (m *merger) addOwn(b bot) {
	m.bots = append(m.bots, b)
	m.byName[b.Name] = len(m.bots)
	for _, p := range b.Patterns {
		m.owner[p] = len(m.bots) - 1
	}
}

// addGroups adds our bots that come after the lists, without the patterns that
// the lists have.
func (m *merger) addGroups() {
	for _, b := range m.add.Bots {
		if b.AfterLists {
			b.Patterns = slices.DeleteFunc(b.Patterns, func(p string) bool { return covered(p, m.bots) })
			m.addOwn(b.bot)
		}
	}
}

// addFacts sets the operators and purposes that the additions give to bots of the lists.
func (m *merger) addFacts() {
	for i := range m.bots {
		b := &m.bots[i]
		if operator, ours := m.add.Operators[b.Name]; ours {
			b.Operator = operator
		}
		if purpose, ours := m.add.Purposes[b.Name]; ours {
			b.Purpose = purpose
		}
	}
}

func (m *merger) merge(e entry) error {
	var patterns []string
	for _, expr := range e.patterns {
		if ours, found := m.add.Replace[expr]; found {
			m.replaced[expr] = true
			patterns = append(patterns, ours...)
			continue
		}
		texts, err := literals(expr)
		if err != nil {
			return fmt.Errorf("pattern %q: %w: give one in \"replace\"", expr, err)
		}
		patterns = append(patterns, texts...)
	}
	patterns = slices.DeleteFunc(patterns, func(p string) bool { return covered(p, m.bots[:m.own]) })
	if len(patterns) == 0 {
		return nil
	}
	if i, found := m.variant(patterns[0]); found {
		m.join(i, e, slices.DeleteFunc(patterns, func(p string) bool { _, found := m.variant(p); return found }))
		return nil
	}
	name := e.name
	if name == "" {
		name = nameOf(patterns[0])
	}
	if ours, found := m.add.Names[name]; found {
		m.renamed[name] = true
		name = ours
	}
	if i, found := m.byName[name]; found {
		m.join(i-1, e, patterns)
		return nil
	}
	b := bot{Name: name, Categories: e.categories, Operator: e.operator, URL: e.url, Domains: e.domains}
	if ours, found := m.add.Categories[name]; found {
		b.Categories = ours
	}
	b.UserTriggered = isUserTriggered(b.Categories)
	m.bots = append(m.bots, b)
	m.byName[name] = len(m.bots)
	m.join(len(m.bots)-1, e, patterns)
	return nil
}

// covered reports whether every text with p also has a pattern of one of the bots, apart
// from general ones.
func covered(p string, bots []bot) bool {
	text := strings.TrimRight(strings.TrimLeft(p, "^<"), "$>")
	for _, b := range bots {
		if b.General {
			continue
		}
		for _, ours := range b.Patterns {
			t := strings.TrimRight(strings.TrimLeft(ours, "^<"), "$>")
			i := strings.Index(text, t)
			if i < 0 {
				continue
			}
			begins := ours[0] != '^' && (ours[0] != '<' || i > 0 && !isAlnum(text[i-1])) ||
				i == 0 && (p[0] == ours[0] || p[0] == '^')
			last := ours[len(ours)-1]
			ends := last != '$' && last != '>' || i+len(t) < len(text) && last == '>' && !isAlnum(text[i+len(t)]) ||
				i+len(t) == len(text) && p[len(p)-1] == last
			if begins && ends {
				return true
			}
		}
	}
	return false
}

// variant finds the bot that the pattern p is a version or variant of: one of the
// bot's patterns is p, or a whole word at the start of p.
func (m *merger) variant(p string) (i int, found bool) {
	if i, found := m.owner[p]; found {
		return i, true
	}
	for end := len(p) - 1; end > 5; end-- {
		if isAlnum(p[end]) {
			continue
		}
		for _, q := range []string{p[:end], p[:end] + "/"} {
			if i, found := m.owner[q]; found && !m.bots[i].General && strings.HasPrefix(p, q) {
				return i, true
			}
		}
	}
	return 0, false
}

// join adds patterns to bot i, and the facts that it lacks.
func (m *merger) join(i int, e entry, patterns []string) {
	b := &m.bots[i]
	for _, p := range patterns {
		if _, taken := m.owner[p]; !taken {
			m.owner[p] = i
			b.Patterns = append(b.Patterns, p)
		}
	}
	if i < m.own {
		return // our own bots are complete
	}
	if b.URL == "" {
		b.URL = e.url
	}
	if b.Operator == "" {
		b.Operator = e.operator
	}
	if len(b.Domains) == 0 {
		b.Domains = e.domains
	}
	if _, ours := m.add.Categories[b.Name]; ours {
		return
	}
	if b.Categories[0] == "other" && e.categories[0] != "other" {
		b.Categories = e.categories
		b.UserTriggered = isUserTriggered(b.Categories)
	}
	for _, c := range e.categories {
		if c != "other" && !slices.Contains(b.Categories, c) {
			b.Categories = append(slices.Clip(b.Categories), c)
		}
	}
	b.UserTriggered = isUserTriggered(b.Categories)
}

// nameOf derives a name from a pattern.
func nameOf(p string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.TrimRight(strings.TrimLeft(p, "^<"), "$>/ ") {
		if r > unicode.MaxASCII || !isAlnum(byte(r)) && r != '.' && r != '_' {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('-')
			gap = false
		}
		b.WriteRune(r)
	}
	name := strings.Trim(b.String(), "-._")
	return strings.TrimRight(name[:min(len(name), 40)], "-._")
}

func isAlnum(c byte) bool { return c-'0' < 10 || c|0x20-'a' < 26 }

// literals turns a regexp of a list into patterns of the table, one for each text that
// it matches. They are in lower case. A pattern that begins with a letter or digit must
// be at the beginning of a word.
func literals(expr string) ([]string, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	texts, err := expand(re.Simplify())
	if err != nil {
		return nil, err
	}
	var patterns []string
	for _, t := range texts {
		t = strings.ToLower(t)
		t = strings.ReplaceAll(t, "$^", "")
		if isAlnum(t[0]) {
			t = "<" + t
		}
		if plainWord(t) {
			if word := t[1:]; !strings.HasSuffix(t, "/") {
				t += ">>"
				patterns = append(patterns, "^"+word, "compatible; "+word)
			}
			t = "<" + t
		}
		if strings.Trim(t, "^<>") == "" || slices.Contains(patterns, t) {
			continue
		}
		patterns = append(patterns, t)
	}
	return patterns, nil
}

// plainWord reports whether t is a word that phones and apps may have in
// their names, too.
func plainWord(t string) bool {
	t, word := strings.CutPrefix(t, "<")
	t, _ = strings.CutSuffix(t, "/")
	return word && len(t) <= 12 && !strings.ContainsFunc(t, func(r rune) bool { return r < 'a' || r > 'z' }) &&
		!slices.ContainsFunc(botWordParts, func(part string) bool { return strings.Contains(t, part) })
}

// botWordParts are parts of words that are not in names of phones.
var botWordParts = []string{
	"bot", "crawl", "spider", "spyder", "feed", "rss", "check", "monitor", "http", "link", "scan", "uptime", "seo",
	"proxy",
	"preview", "archiv", "index", "search", "synthetic",
}

const maxExpansion = 64

// expand lists the texts that re matches, with "^" and "$" for its edges.
func expand(re *syntax.Regexp) ([]string, error) {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{string(re.Rune)}, nil
	case syntax.OpEmptyMatch:
		return []string{""}, nil
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []string{"^"}, nil
	case syntax.OpEndText, syntax.OpEndLine:
		return []string{"$"}, nil
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpQuest:
		texts, err := expand(re.Sub[0])
		return append([]string{""}, texts...), err
	case syntax.OpCharClass:
		var texts []string
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] > 8 {
				// a class for the end of a word
				return []string{""}, nil
			}
			for r := max(re.Rune[i], ' '); r <= re.Rune[i+1]; r++ {
				texts = append(texts, string(unicode.ToLower(r)))
			}
		}
		slices.Sort(texts)
		return slices.Compact(texts), nil
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			texts, err := expand(sub)
			if err != nil {
				return nil, err
			}
			all = append(all, texts...)
		}
		return all, nil
	case syntax.OpConcat:
		all := []string{""}
		for _, sub := range re.Sub {
			texts, err := expand(sub)
			if err != nil {
				return nil, err
			}
			var longer []string
			for _, a := range all {
				for _, t := range texts {
					longer = append(longer, a+t)
				}
			}
			if all = longer; len(all) > maxExpansion {
				return nil, fmt.Errorf("stands for over %d texts", maxExpansion)
			}
		}
		return all, nil
	}
	return nil, fmt.Errorf("%v has no finite list of texts", re)
}

// isUserTriggered reports whether anybody can make a bot of these categories fetch a page.
func isUserTriggered(categories []string) bool {
	return slices.Contains(categories, "preview") || slices.Contains(categories, "fetcher")
}
