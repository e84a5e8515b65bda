package bots

import (
	"regexp"
	"strings"
	"testing"
)

// typical returns user agents of 110 to 200 bytes, of bots and people. Each is used in
// turn, so that little of the table stays in the processor's caches.
func typical(tb testing.TB) []string {
	var some []string
	for i, l := range readLabelled(tb) {
		if n := len(l.UA); 110 <= n && n <= 200 && i%7 == 0 {
			some = append(some, l.UA)
		}
	}
	if len(some) < 500 {
		tb.Fatalf("only %d typical user agents", len(some))
	}
	return some
}

func BenchmarkRecognise(b *testing.B) {
	table := freshTable(b)
	agents := typical(b)
	want := make([]finding, len(agents))
	for i, ua := range agents {
		want[i] = slowFind(table, ua)
	}
	run := func(name string, agents []string, recognise func(ua string) finding) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := len(agents)
			for i := 0; b.Loop(); i = (i + 1) % n {
				if got := recognise(agents[i]); got != want[i] {
					b.Fatalf("%q: got %x, want %x", agents[i], got, want[i])
				}
			}
		})
	}
	run("never seen", agents, table.find)
	for range 3 {
		for _, ua := range agents[:200] {
			table.Recognise(ua)
		}
	}
	run("cached", agents[:200], func(ua string) finding {
		_, found, known := table.cache.get(ua)
		if !known {
			panic(ua + " is not in the cache")
		}
		return found
	})
	run("loop over patterns", agents, func(ua string) finding { return slowFind(table, ua) })
}

// BenchmarkAnyBot compares the automaton with one regexp of all patterns. Both report
// whether the user agent has a pattern of a bot.
func BenchmarkAnyBot(b *testing.B) {
	table := freshTable(b)
	combined := combinedRegexp(table)
	agents := typical(b)
	want := make([]bool, len(agents))
	for i, ua := range agents {
		table.each(ua, func(p *pattern, _, _ int) { want[i] = want[i] || p.bot >= 0 && p.text != "@" })
	}
	for _, way := range []struct {
		name string
		any  func(ua string) bool
	}{
		{"automaton", func(ua string) (found bool) {
			table.each(ua, func(p *pattern, _, _ int) { found = found || p.bot >= 0 && p.text != "@" })
			return found
		}},
		{"one regexp", combined.MatchString},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % len(agents) {
				if got := way.any(agents[i]); got != want[i] {
					b.Fatalf("%q: got %v, want %v", agents[i], got, want[i])
				}
			}
		})
	}
}

func combinedRegexp(t *Table) *regexp.Regexp {
	var parts []string
	for _, p := range t.automaton.patterns {
		if p.bot < 0 || p.text == "@" {
			continue
		}
		parts = append(parts,
			[]string{``, `(?:^|[^0-9A-Za-z])`, `(?:^|[ (\[{;,"'+])`, `^`}[p.begins]+
				regexp.QuoteMeta(p.text)+
				[]string{``, `(?:$|[^0-9A-Za-z])`, `(?:$|[/();:,])`, `$`}[p.ends])
	}
	return regexp.MustCompile(`(?is)` + strings.Join(parts, "|"))
}

func BenchmarkMakeTable(b *testing.B) {
	for b.Loop() {
		if _, err := parseTable(builtIn); err != nil {
			b.Fatal(err)
		}
	}
}
