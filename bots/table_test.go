package bots

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table has the names that policies use, and the facts that the verifier needs.
func TestBuiltInTable(t *testing.T) {
	table := BuiltIn()
	names := table.Names()
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("Names() is not sorted, or names one twice")
	}
	for _, name := range []string{
		"googlebot", "bingbot", "applebot", "duckduckbot", "yandexbot", "baiduspider", "gptbot", "oai-searchbot",
		"chatgpt-user",
		"claudebot", "perplexitybot", "ccbot", "bytespider", "amazonbot", "meta-externalagent", "facebookexternalhit",
		"ahrefsbot", "semrushbot", "mj12bot", "uptimerobot", "pingdom", "curl", "wget", "python", "scrapy",
	} {
		if _, found := slices.BinarySearch(names, name); !found || table.Bot(name) == nil {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, c := range Categories() {
		if _, found := slices.BinarySearch(names, c.Name); !found {
			t.Errorf("category %s is not among the names", c.Name)
		}
	}
	validName := regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)
	used := map[string]bool{}
	count := 0
	for b := range table.Bots {
		count++
		if !validName.MatchString(b.Name) {
			t.Errorf("%q is not a name for a policy", b.Name)
		}
		for _, c := range b.Categories {
			used[c] = true
			if !isCategory(c) {
				t.Errorf("%s: %s is not a category", b.Name, c)
			}
		}
		for _, d := range b.Domains {
			if slices.Contains([]string{"google.com", "googleusercontent.com", "1e100.net", "amazonaws.com",
				"microsoft.com"}, d) {
				t.Errorf("%s: %s is wider than its crawler", b.Name, d)
			}
		}
	}
	if count < 1000 {
		t.Errorf("%d bots, want over 1000", count)
	}
	for _, c := range categories {
		if !used[c.Name] {
			t.Errorf("no bot is in category %s", c.Name)
		}
	}
	if table.Bot("GoogleBot") != table.Bot("googlebot") {
		t.Error("Bot() distinguishes upper and lower case")
	}
	if table.Bot("nobody-in-particular") != nil {
		t.Error("Bot() finds a bot that does not exist")
	}
	if len(table.Sources) < 3 || table.Version == "" {
		t.Errorf("version %q, sources %v: where does the table come from?", table.Version, table.Sources)
	}
	for _, s := range table.Sources {
		if s.Licence == "" || s.URL == "" {
			t.Errorf("source %s without a licence or URL", s.Name)
		}
	}
}

// Bots that anybody can make fetch a page are marked; crawlers are not.
func TestUserTriggeredBots(t *testing.T) {
	for name, userTriggered := range map[string]bool{
		"googlebot": false, "bingbot": false, "applebot": false, "gptbot": false, "claudebot": false, "ccbot": false,
		"adsbot-google": false, "ahrefsbot": false, "uptimerobot": false, "meta-externalagent": false,
		"feedfetcher-google": true, "google-read-aloud": true, "google-translate": true, "googleimageproxy": true,
		"bingpreview":  true,
		"chatgpt-user": true, "claude-user": true, "perplexity-user": true, "facebookexternalhit": true,
		"twitterbot": true,
		"slackbot":   true, "telegrambot": true, "google-site-verification": true, "yandex-translate": true,
	} {
		b := BuiltIn().Bot(name)
		if b == nil || b.UserTriggered != userTriggered {
			t.Errorf("%s: %+v, want UserTriggered %v", name, b, userTriggered)
		}
	}
	for b := range BuiltIn().Bots {
		if (slices.Contains(b.Categories, "preview") || slices.Contains(b.Categories, "fetcher")) &&
			!b.UserTriggered &&
			len(b.Ranges)+len(b.Domains) > 0 && !slices.Contains([]string{"apis-google", "stripe"}, b.Name) {
			t.Errorf("%s fetches for others, can be verified, and is not marked as user-triggered", b.Name)
		}
	}
}

// Attack tools have the category exploit, so that policies can block them. Scanners that
// only count hosts have another one.
func TestExploitIsACategory(t *testing.T) {
	for userAgent, want := range map[string]bool{
		"Mozilla/5.00 (Nikto/2.1.6)": true, "sqlmap/1.7": true, "WPScan v3.8": true, "Mozilla/5.0 zgrab/0.x": true,
		"Hello, World": true,
		"gobuster/3.1": true, "Mozilla/5.0 (compatible; Nmap Scripting Engine; https://nmap.org/book/nse.html)": true,
		"() { :;}; /bin/sh": true, "${jndi:ldap://x}": true,
		"Mozilla/5.0 (compatible; CensysInspect/1.1; +https://about.censys.io/)": false, "SSL Labs": false,
		"curl/8.5.0": false,
	} {
		b, _ := BuiltIn().Recognise(userAgent)
		if b == nil || slices.Contains(b.Categories, "exploit") != want {
			t.Errorf("Recognise(%q) = %+v, want exploit %v", userAgent, b, want)
		}
	}
}

func TestTableIsSmall(t *testing.T) {
	if size := BuiltIn().automaton.size(); size > 4<<20 {
		t.Errorf("the automaton takes %d bytes, want at most 4 MiB", size)
	}
	if len(builtIn) > 400<<10 {
		t.Errorf("table.json has %d bytes, want at most 400 KiB", len(builtIn))
	}
}

func writeTable(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bots.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A table in a file can add a bot to the built-in ones.
func TestEditedTableAddsABot(t *testing.T) {
	const ours = `{"name":"shopwatch","categories":["monitor"],"operator":"Example","patterns":["<shopwatch/"],"domains":["probe.example.net"]},`
	table, err := LoadTable(writeTable(t, strings.Replace(string(builtIn), `"bots": [`, "\"bots\": [\n"+ours, 1)))
	if err != nil {
		t.Fatal(err)
	}
	const userAgent = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/145.0.0.0 Safari/537.36 ShopWatch/2.0"
	b, token := table.Recognise(userAgent)
	if b == nil || b.Name != "shopwatch" || token != "ShopWatch/" || b.Domains[0] != "probe.example.net" {
		t.Errorf("Recognise = %+v by %q, want shopwatch", b, token)
	}
	if b, _ := BuiltIn().Recognise(userAgent); b != nil {
		t.Errorf("the built-in table has %s", b.Name)
	}
	if len(table.Names()) != len(BuiltIn().Names())+1 {
		t.Errorf("%d names, want one more than %d", len(table.Names()), len(BuiltIn().Names()))
	}
}

func TestTableExtendsTheBuiltIn(t *testing.T) {
	table, err := LoadTable(writeTable(t, `{
  "version": "ours",
  "extends": "built-in",
  "bots": [
    {"name": "shopwatch", "categories": ["monitor"], "patterns": ["<shopwatch/"]},
    {"name": "gptbot", "categories": ["other"], "patterns": ["<gptbot"]},
    {"name": "both-claudes", "categories": ["ai"], "patterns": ["<ClaudeBot", "<claude-user"]}
  ],
  "people": ["applewebkit"],
  "innocent": ["my own crawler"]
}`))
	if err != nil {
		t.Fatal(err)
	}
	const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	for _, test := range []struct{ userAgent, name, main string }{
		{"ShopWatch/2.0", "shopwatch", "monitor"},
		{"GPTBot/1.2", "gptbot", "other"},                                 // the bot of the file, not the built-in one
		{"Mozilla/5.0 (compatible; ClaudeBot/1.0)", "both-claudes", "ai"}, // the bot of the file gets the pattern
		{"Mozilla/5.0 (compatible; Googlebot/2.1)", "googlebot", "search"},
		{browser + " a crawler", "other-bot", "other"},
		{browser + " my own crawler", "", ""},
	} {
		b, _ := table.Recognise(test.userAgent)
		if b == nil {
			b = &Bot{Categories: []string{""}}
		}
		if b.Name != test.name || b.Main() != test.main {
			t.Errorf("Recognise(%q) = %s, %s, want %s, %s", test.userAgent, b.Name, b.Main(), test.name, test.main)
		}
	}
}

func TestEveryErrorOfATableHasItsLine(t *testing.T) {
	bot := `{"name": "a", "categories": ["seo"], "patterns": ["abc"]}`
	for _, test := range []struct{ text, want string }{
		{"", "bots.json:1: ends too early"},
		{"[]", `bots.json:1: expected "{"`},
		{"{\n\"bots\": [\n" + bot, "bots.json:3: ends too early"},
		{"{\n\"bots\": [\n{\"name\": 7}]}", `bots.json:3: "name" cannot be a number`},
		{"{\n\"bots\": [\n{\"nam\": \"a\"}]}", `bots.json:3: unknown field "nam"`},
		{"{\n\n\"bot\": []}", `bots.json:3: unknown key "bot"`},
		{"{\"bots\": [],\n\"bots\": []}", `bots.json:2: duplicate key "bots"`},
		{"{\"bots\": []}\n{}", "bots.json:2: unexpected text after the table"},
		{"{\n\"extends\": \"theirs\"}", `bots.json:2: extends "theirs": only "built-in" can be extended`},
		{"{\"bots\": [\n" + bot + ",\n" + bot + "]}", `bots.json:3: duplicate bot "a"`},
		{"{\"bots\": [\n" + bot + ",\n" + strings.Replace(bot, `"a"`, `"b"`, 1) + "]}",
			`bots.json:3: bot "b": pattern "abc" already belongs to bot "a"`},
		{`{"bots": [{"name": "A", "categories": ["seo"]}]}`, `bots.json:1: bot "A": a name has 1 to 40 characters of`},
		{`{"bots": [{"name": "verified", "categories": ["seo"]}]}`,
			`bots.json:1: bot "verified": policies reserve this name`},
		{`{"bots": [{"name": "seo", "categories": ["ai"]}]}`,
			`bots.json:1: bot "seo": has the name of a category that it does not belong to`},
		{`{"bots": [{"name": "a"}]}`, `bots.json:1: bot "a": has no categories`},
		{`{"bots": [{"name": "a", "categories": ["spam"]}]}`, `bots.json:1: bot "a": "spam" is not a category`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "patterns": [""]}]}`,
			`bots.json:1: bot "a": pattern "" is too short`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "patterns": ["<x>"]}]}`, `pattern "<x>" is too short`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "patterns": ["a\u0007b"]}]}`, `contains a control character`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "patterns": ["` + strings.Repeat("x", 65) + `"]}]}`,
			`is over 64 bytes`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "domains": ["amazonaws.com"]}]}`,
			`domain "amazonaws.com" proves nothing`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "domains": ["x.googleusercontent.com"]}]}`, `proves nothing`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "domains": ["com"]}]}`, `"com" is not a domain`},
		{`{"bots": [{"name": "a", "categories": ["ai"], "ranges": ["A B"]}]}`, `"A B" is not the name of an address set`},
		{"{\"bots\": [],\n\"people\": [\"\"]}", `bots.json:2: people: pattern "" is too short`},
		// and line 2, too
		{"{\"bots\": [\n{\"name\": \"a\"},\n{\"name\": \"b\"}]}", "bots.json:3: bot \"b\": has no categories"},
	} {
		_, err := LoadTable(writeTable(t, test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\ngot  %v\nwant %s", test.text, err, test.want)
		}
	}
	if _, err := LoadTable(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a file that is not there is loaded")
	}
}

func TestTableIsBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"bots": [`)
	for i := range 1500 {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `{"name": "b%d", "categories": ["ai"], "patterns": ["%d%s"]}`, i, i, strings.Repeat("x", 60))
	}
	b.WriteString("]}")
	if _, err := LoadTable(writeTable(t, b.String())); err == nil ||
		!strings.Contains(err.Error(), "over 65535 states") {
		t.Errorf("patterns of 90,000 states: %v", err)
	}
	if _, err := LoadTable(writeTable(t, strings.Repeat(" ", maxTableBytes+1))); err == nil ||
		!strings.Contains(err.Error(), "is over 8 MiB") {
		t.Errorf("a file of over 8 MiB: %v", err)
	}
}

func FuzzLoadTable(f *testing.F) {
	f.Add([]byte(
		`{"version": "1", "extends": "built-in", "bots": [{"name": "a", "categories": ["seo"], "patterns": ["<abc>"], "domains": ["a.b"]}]}`))
	f.Add([]byte(
		`{"bots": [{"name": "a", "categories": ["seo"], "patterns": ["^a$", "b>>", "<<c"]}], "people": ["x y"], "innocent": ["@"]}`))
	f.Add([]byte(`{"bots": [null, {}], "sources": [{"name": "x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := readTable(data)
		if err != nil {
			return
		}
		table, err := file.compile()
		if err != nil {
			return
		}
		for _, userAgent := range []string{"", "abc", "Mozilla/5.0 (compatible; Googlebot/2.1)",
			string(data[:min(len(data), 200)])} {
			b, token := table.Recognise(userAgent)
			if b != nil && table.Bot(b.Name) != b || !strings.Contains(userAgent, token) {
				t.Errorf("Recognise(%q) = %v by %q", userAgent, b, token)
			}
			if got, want := table.find(userAgent), slowFind(table, userAgent); got != want {
				t.Errorf("look(%q) = %x, the loop says %x", userAgent, got, want)
			}
		}
	})
}
