package policyfile

import (
	"fmt"
	"strings"
	"testing"
)

// Files that are made to be slow or large are read or rejected in a short time.
// Without the bounds of the parser, this test would not end.
func TestLargeFilesAreRead(t *testing.T) {
	inOneGoroutine(t)
	rule := "  - {name: r%d, match: {addr: big, path: \"/%d/*\"}, limit: {requests: 600, per: 1m}}\n"
	rules := func(n int) string {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&b, rule, i, i)
		}
		return b.String()
	}
	prefixes := func(n int) string {
		var b strings.Builder
		b.WriteString("lists:\n  big:\n")
		for i := range n {
			fmt.Fprintf(&b, "    - 10.%d.%d.0/24\n", i>>8&255, i&255)
		}
		return b.String()
	}
	for _, c := range []struct {
		name, text string
		faults     int // at least; 0 when it is a policy
	}{
		{"a large list in many rules", prefixes(20_000) + rules(1_000), 0},
		{"many faults", "rules: [" + strings.Repeat("{nmae: a, b: c}, ", 10_000) + "]", maxFaults},
		{"many unknown keys", strings.Repeat("unknwon: 1\n", 3_000), maxFaults},
		{"too many keys", strings.Repeat("unknwon: 1\n", 30_000), 1},
		{"one name many times in a set", "lists: {big: [192.0.2.1]}\nrules: [{name: a, match: {addr: [" +
			strings.Repeat("big, ", 20_000) + "]}, block: true}]", 0},
		{"too large", strings.Repeat("#\n", maxSize/2+1), 1},
		{"flow", "rules: " + strings.Repeat("[", 100_000), 1},
		{"dashes", "rules: " + strings.Repeat("- ", 100_000), 1},
		{"questions", strings.Repeat("? ", 100_000), 1},
		{"anchors", "rules: " + strings.Repeat("&a ", 100_000), 1},
		{"merges", "a: &a {" + many("a%d: 1, ", 9_000) + "}\nb: {<<: *a, " + many("b%d: 1, ", 9_000) + "}\nrules: []",
			2},
		{"keys", "rules: [{name: a, limit: {requests: 600, per: 1m, by: [" + many("header:x%d, ", 10_000) + "]}}]", 1},
		{"nots", "rules: [{name: a, block: true, match: " + strings.Repeat("{not: ", 25) + "{path: /a}" +
			strings.Repeat("}", 25) + "}]", 0},
		{"built-in rules", "rules: [" + strings.Repeat("{use: default}, ", 10_000) + "]", maxFaults},
		{"colons", "rules: [{" + strings.Repeat("a:", 500_000) + "}]", 1},
		{"quotes", strings.Repeat("'\n", 100_000), 1},
		{"a long regexp", "rules: [{name: a, match: {path: 're:" + strings.Repeat("(a|b)*", 100_000) +
			"'}, block: true}]", 1},
		{"many texts", "rules: [{name: a, match: {user_agent: [" + many("bot%d, ", 20_000) +
			"]}, block: true}, {name: b, match: {user_agent: [" + many("bat%d, ", 20_000) + "]}, block: true}]", 0},
		{"many hosts", "hosts: [" + many("h%d.example, ", 10_000) + "]\nrules: [" +
			many("{name: r%d, match: {host: ["+strings.Repeat("a.example, ", 100)+"]}, block: true}, ", 150) + "]", 0},
		{"too many hosts", "hosts: [" + many("h%d.example, ", 10_001) + "]\nrules: []", 1},
		{"a large list many times", prefixes(20_000) + "clients: {trusted_proxies: [" +
			strings.Repeat("big, ", 20_000) + "]}\nrules: []", 0},
		{"many regexps", "rules: [{name: a, match: {user_agent: [" + many("'re:b[o%d]t', ", 1000) +
			"]}, block: true}]", 0},
		{"many names of bots", "rules: [{name: a, match: {bot: [" + many("googelbot%d, ", 900) + "]}, block: true}]",
			maxFaults},
		{"too many names of bots", "rules: [{name: a, match: {bot: [" + strings.Repeat("googlebot, ", 10_000) +
			"]}, block: true}]", 1},
		{"many rules for many bots", "rules: [" + many("{name: r%d, match: {bot: ["+
			strings.Repeat("googlebot, ", 1000)+"]}, limit: {requests: 600, per: 1m, by: bot}}, ", 150) + "]", 0},
		{"many nots of bots", "rules: [{name: a, block: true, match: " + strings.Repeat("{bot: ai, not: ", 25) +
			"{bot: ai}" + strings.Repeat("}", 25) + "}]", 0},
		{"many conditions on a list",
			"dns: {lists: {a: {zone: dnsbl.example.org}}}\nrules: [{name: a, match: {method: POST, listed: [" +
				strings.Repeat("a, ", 10_000) + "]}, block: true}]", 1},
		{"many codes",
			"dns: {lists: {a: {zone: dnsbl.example.org}}}\nrules: [{name: a, match: {method: POST, listed: {a: {codes: [" + strings.Repeat("3, ", 10_000) + "]}}}, block: true}]", 1},
		{"many lists that are none",
			"dns: {lists: {a: {zone: dnsbl.example.org}}}\nrules: [{name: a, match: {listed: [" +
				many("b%d, ", 10_000) + "]}, block: true}]", maxFaults},
		{"many DNS lists", "dns: {lists: {" + many("l%d: {zone: dnsbl.example.org}, ", 1000) + "}}\nrules: []", 1},
		{"many lists from elsewhere", "lists: {" + many("l%d: {url: https://example.org/}, ", 1000) + "}\nrules: []",
			1},
		{"many lists that nobody has", "lists: {" + many("l%d: [192.0.2.1], ", 5000) +
			"}\nrules: [{name: a, match: {addr: [" + many("m%d, ", 10_000) + "]}, block: true}]", maxFaults},
		{"many weights", "share: {capacity: auto, weights: {labels: {" + many("l%d: 2, ", 1000) + "}, bots: {" +
			many("examplebot-%d: 2, ", 1000) + "}}}\nrules: []", 0},
		{"too many weights", "share: {capacity: auto, weights: {labels: {" + many("l%d: 2, ", 9000) +
			"}}}\nrules: []", 1},
		{"many weights of bots that nobody knows", "share: {capacity: auto, weights: {bots: {" +
			many("googelbot%d: 2, ", 900) + "}}}\nrules: []", maxFaults},
		{"many parts of a share", "share: {capacity: auto, by: [" + many("header:x%d, ", 10_000) + "]}\nrules: []", 1},
		{"many shares of CPU", "rules: [" + many("{name: r%d, limit: {cpu: 33.333333333%%, per: 31d}}, ", 2000) + "]",
			0},
		{"a long share of CPU", "rules: [{name: a, limit: {cpu: " + strings.Repeat("9", 100_000) + "%, per: 1m}}]", 1},
		{"a long time", "rules: [{name: a, limit: {time: " + strings.Repeat("0.0000000000000001s", 50_000) +
			", per: 1m}}]", 1},
		{"a long number of cores", "upstream: {cpu: {cores: 0." + strings.Repeat("9", 100_000) +
			"}}\nrules: [{name: a, limit: {cpu: 7%, per: 1m}}]", 0},
		{"many cookies", "sessions: {bots: share, cookies: [" + many("c%d, ", 10_000) + "]}\nrules: []", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Options{Bots: manyBots}.Parse("site.yaml", []byte(c.text))
			if faults := len(Faults(err)); faults < c.faults || (f == nil) != (c.faults > 0) {
				t.Errorf("%d faults, policy %v, error %.200v; want at least %d faults", faults, f != nil, err, c.faults)
			}
		})
	}
}

// manyBots is a table of the largest size, with the usual names.
func manyBots(table string) ([]BotName, error) {
	list, err := someBots(table)
	for i := range 2000 {
		list = append(list, BotName{Name: fmt.Sprintf("examplebot-%d", i), Categories: []string{"other"}})
	}
	return list, err
}

func many(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
