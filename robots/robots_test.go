package robots_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/robots"
)

func parse(t testing.TB, text string) *robots.File {
	t.Helper()
	f, err := robots.Parse([]byte(text), nameOf)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// nameOf returns the bot of the built-in table that a product token names.
func nameOf(token string) string {
	if b, text := bots.BuiltIn().Recognise(token + "/1.0"); b != nil && text != "" && b.Name != "no-browser" {
		return b.Name
	}
	return ""
}

// look returns the bot of a user agent, whose claim is not checked.
func look(userAgent string) fairshare.Bot {
	b, _ := bots.BuiltIn().Recognise(userAgent)
	if b == nil {
		return fairshare.Bot{}
	}
	return fairshare.Bot{Name: b.Name, Categories: b.Categories, UserTriggered: b.UserTriggered,
		State: fairshare.Claimed}
}

func TestCasesOfGoogle(t *testing.T) {
	// Google's parser compares addresses as they are written, but RFC 9309 §2.2.2 compares octets: %62
	// and "b" are the same, and so are an octet outside ASCII and its escape.
	differs := map[string]bool{
		"/foo/bar/%62%61%7A http://foo.bar/foo/bar/baz":           true,
		"/foo/bar/ツ http://foo.bar/foo/bar/ツ":                     true,
		"/foo/bar/%E3%83%84 http://foo.bar/foo/bar/ツ":             true,
		"/allowed-slash/index.html http://foo.com/allowed-slash/": true, // GoogleOnly: a folder is its index.html
	}
	in, err := os.Open("testdata/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines, n := bufio.NewScanner(in), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c struct {
			Test    string
			Robots  string `json:"robots_txt"`
			Agent   string `json:"user_agent"`
			URL     string
			Allowed bool
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		n++
		if c.Agent == "Foo Bar" { // GoogleOnly
			continue
		}
		if !strings.Contains(c.URL, "://") {
			c.URL = "/" + c.URL
		}
		allowed := true
		if f, err := robots.Parse([]byte(c.Robots), nil); err == nil {
			bot := fairshare.Bot{Name: strings.ToLower(c.Agent), Categories: []string{"search"},
				State: fairshare.Claimed}
			var rule robots.Rule
			allowed, rule = f.Allows(&bot, c.Agent, c.URL)
			_, path, _ := strings.Cut(rule.Text, ": ")
			if differs[path+" "+c.URL] || strings.HasPrefix(c.Test, "GoogleOnly_Index") {
				continue
			}
		}
		if allowed != c.Allowed {
			t.Errorf("%s: %q, %s, %s: %v, want %v", c.Test, c.Robots, c.Agent, c.URL, allowed, c.Allowed)
		}
	}
	if n != 140 {
		t.Errorf("%d cases, want 140", n)
	}
}

const agents = `
User-agent: GPTBot
Disallow: /gpt

User-agent: Googlebot
Disallow: /google

User-agent: googlebot-image
Disallow: /image

User-agent: Yandex
Disallow: /yandex

User-agent: ChatGPT-User
Disallow: /chat

User-agent: MJ12bot/1.4.8
Disallow: /mj

User-agent: Mozilla
User-agent: Chrome
Disallow: /

User-agent: SomeUnknownCrawler
Disallow: /unknown

User-agent: Google-Extended
Disallow: /

User-agent: *
Disallow: /all
`

func TestGroupsOfBots(t *testing.T) {
	f := parse(t, agents)
	for userAgent, want := range map[string]string{
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)": "GPTBot",
		"gptbot/1.0": "GPTBot",
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": "Googlebot",
		"Googlebot-Image/1.0": "googlebot-image",
		"Googlebot-News":      "Googlebot",
		"Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)":                                          "Yandex",
		"Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)":                                             "MJ12bot",
		"Mozilla/5.0 (compatible; SomeUnknownCrawler/0.1; +http://example.org/)":                                    "SomeUnknownCrawler",
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; +https://openai.com/bot": "ChatGPT-User",
		// Nobody names it: it obeys the group of Googlebot.
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)": "Googlebot",
		"Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)":                                                                                                   "*",
		"CCBot/2.0 (https://commoncrawl.org/faq/)": "*",
		// The group * is for crawlers.
		"Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)": "",
		"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)": "",
		"curl/8.5.0":             "",
		"python-requests/2.31.0": "",
		"Mozilla/5.0 (compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)":                                "",
		"Mozilla/5.0 (compatible; AdsBot-Google; +http://www.google.com/adsbot.html)":                           "",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36": "",
		"": "",
	} {
		bot := look(userAgent)
		for range 2 { // the second time from the cache
			got := ""
			if g, named := f.Group(&bot, userAgent); g != nil {
				if got = g.Token; named == (got == "*") {
					t.Errorf("%s: group %s, named %v", userAgent, got, named)
				}
			}
			if got != want {
				t.Errorf("%s (%s): group %q, want %q", userAgent, bot.Name, got, want)
			}
		}
	}
	if len(f.Faults) != 2 || len(f.Statements) != 1 {
		t.Errorf("faults %v, statements %v", f.Faults, f.Statements)
	}
}

// Two bots may send the same user agent: one has it in a list of the table, another
// signs its requests.
func TestGroupsOfBotsWithOneUserAgent(t *testing.T) {
	f := parse(t, "User-agent: alpha\nDisallow: /a\n\nUser-agent: beta\nDisallow: /b\n")
	for range 2 {
		for name, want := range map[string]string{"alpha": "alpha", "beta": "beta", "gamma": ""} {
			for _, agent := range []string{"Agent/1.0", "", "gamma"} {
				bot := fairshare.Bot{Name: name, Categories: []string{"tool"}, State: fairshare.Claimed}
				if got := f.Judge(&bot, agent, "/a").Group; got != want {
					t.Errorf("%s with user agent %q: group %q, want %q", name, agent, got, want)
				}
			}
		}
	}
}

// Each rule counts for each group of the list above it, so a short file could need much
// memory.
func TestRulesAreBounded(t *testing.T) {
	for _, line := range []string{"allow:/\n", "disallow:/\n", "crawldelay:1\n"} {
		var text strings.Builder
		for i := range 15_000 {
			fmt.Fprintf(&text, "useragent:%x\n", i)
		}
		text.WriteString(strings.Repeat(line, 20_000))
		f := parse(t, text.String())
		rules := 0
		for _, g := range f.Groups() {
			rules += g.Rules()
		}
		if rules > 100_000 || len(f.Groups()) != 15_000 {
			t.Errorf("%q: %d groups, %d rules", line, len(f.Groups()), rules)
		}
		if len(f.Faults) != 1 || f.Faults[0].Line != 15_007 ||
			!strings.Contains(f.Faults[0].Text, "more than 100000 rules") {
			t.Errorf("%q: faults %v", line, f.Faults)
		}
	}
}

func TestPathsAndLines(t *testing.T) {
	f := parse(t, "\uFEFFUser-agent: GPTBot # a comment\r\nDisallow: /private\rAllow: /private/open\nDisallow: /*.pdf$\n"+
		"Disallow: /*?sort=\nDisallow: /caf%C3%A9/\nDisallow: /a%2fb\nAllow: /%7euser\nDisallow: /~\n\nUser-Agent: gptbot\nDisallow: /more\n")
	bot := look("GPTBot/1.0")
	for target, line := range map[string]int{
		"/":                        0,
		"/private":                 2,
		"/privately":               2,
		"/private/open/x":          -3,
		"/x.pdf":                   4,
		"/x.pdf?y":                 0,
		"/list?sort=up":            5,
		"/caf%c3%a9/menu":          6,
		"/café/menu":               6,
		"/a%2Fb":                   7,
		"/a/b":                     0,
		"/~user/x":                 -8,
		"/%7Euser/x":               -8,
		"/%7Eother":                9,
		"/more":                    12, // groups of one token are merged
		"/%70rivate":               2,
		"//private":                2,
		"/x/../private":            2,
		"/x/./../private/open":     0,
		"http://a.example/private": 2,
		"*":                        0,
		"/robots.txt":              0,
		"/PRIVATE":                 0,
	} {
		r := f.Judge(&bot, "GPTBot/1.0", target)
		got := r.Line
		if !r.Disallowed {
			got = -got
		}
		if got != line {
			t.Errorf("%s: line %d, want %d", target, got, line)
		}
	}
}

func TestDelays(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"Crawl-delay: 10":               10 * time.Second,
		"crawl-delay:0.5":               500 * time.Millisecond,
		"Crawl-delay: 1,5":              1500 * time.Millisecond,
		"Crawl-delay: 0":                0,
		"Crawl-delay: 9999999999999999": robots.MaxDelay,
		"Crawl-delay: -1":               0,
		"Crawl-delay: ten":              0,
		"Crawl-delay: NaN":              0,
		"Crawl-delay:":                  0,
		"Request-rate: 1/10":            10 * time.Second,
		"Request-rate: 1/5s":            5 * time.Second,
		"Request-rate: 30/1m":           2 * time.Second,
		"Request-rate: 100/1h":          36 * time.Second,
		"Request-rate: 1/s":             time.Second,
		"Request-rate: 0/10":            0,
		"Request-rate: 1/10m 1300-1659": 0,
	} {
		f := parse(t, "User-agent: *\n"+line+"\nDisallow:")
		bot := look("CCBot/2.0")
		if got := f.Judge(&bot, "CCBot/2.0", "/").Delay; got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
		if faulty := want == 0 && line != "Crawl-delay: 0" || want == robots.MaxDelay; faulty != (len(f.Faults) > 0) {
			t.Errorf("%s: faults %v", line, f.Faults)
		}
	}
	// A delay ends the user agents above it, as the site means it.
	f := parse(t, "User-agent: bingbot\nCrawl-delay: 5\n\nUser-agent: *\nDisallow: /admin\n")
	for agent, want := range map[string]time.Duration{"bingbot/2.0": 5 * time.Second, "CCBot/2.0": 0} {
		bot := look(agent)
		if r := f.Judge(&bot, agent, "/admin"); r.Delay != want || r.Disallowed != (want == 0) {
			t.Errorf("%s: %+v", agent, r)
		}
	}
}

func TestOtherFilesAreErrors(t *testing.T) {
	for text, want := range map[string]error{
		"":          robots.ErrEmpty,
		" \r\n\t\n": robots.ErrEmpty,
		"\n<!doctype html><title>Not found</title>": robots.ErrHTML,
		"<?xml version=\"1.0\"?>":                   robots.ErrHTML,
		"User-agent: *\nDisallow: /\x00":            robots.ErrBinary,
		"\x89PNG\r\n\x1a\n\x01\x02\x03\x04":         robots.ErrBinary,
		"\xFF\xFEU\x00s\x00":                        robots.ErrUTF16,
		"This page does not exist.\n":               robots.ErrOther,
		`{"error": "not found"}`:                    robots.ErrOther,
		"# nothing is disallowed\n":                 nil,
		"User-agent: *\nDisallow:\n":                nil,
		"Sitemap: https://a.example/map.xml":        nil,
	} {
		if _, err := robots.Parse([]byte(text), nil); err != want {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
	long := "User-agent: *\nDisallow: /a\n" + strings.Repeat("# filler\n", 60_000) + "Disallow: /b\n"
	f := parse(t, long)
	bot := look("CCBot/2.0")
	if a, b := f.Judge(&bot, "CCBot/2.0", "/a"), f.Judge(&bot, "CCBot/2.0", "/b"); !f.Truncated() || !a.Disallowed ||
		b.Disallowed || len(f.Faults) != 1 {
		t.Errorf("over 500 KiB: %v, %+v, %+v, %v", f.Truncated(), a, b, f.Faults)
	}
}

func TestStatementsAndFaults(t *testing.T) {
	f := parse(t, `License: https://a.example/license.xml
Disallow: /early
User-agent: *
Content-Signal: search=yes, ai-train=no
Content-Usage: train-ai=n
Disallow: private
Disallow: https://a.example/x
Noindex: /y
Foo: bar
Sitemap: https://a.example/map.xml`)
	var got []string
	for _, n := range append(f.Statements, f.Faults...) {
		got = append(got, fmt.Sprintf("%d %s", n.Line, n.Text))
	}
	want := `1 License: https://a.example/license.xml
4 Content-Signal: search=yes, ai-train=no (for *)
5 Content-Usage: train-ai=n (for *)
2 "Disallow: /early" stands above the first User-agent line: it has no effect
6 "Disallow: private" matches nothing: a path begins with /
7 "Disallow: https://a.example/x" matches nothing: it needs the path, not the whole address
9 "Foo" is not a key that crawlers know: the line has no effect`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if len(f.Sitemaps) != 1 {
		t.Errorf("sitemaps %v", f.Sitemaps)
	}
}

// slowMatch reports whether a pattern fits, by trying everything (RFC 9309 §2.2.3).
func slowMatch(pattern, target string) bool {
	switch {
	case pattern == "":
		return true
	case pattern == "$":
		return target == ""
	case pattern[0] == '*':
		return slowMatch(pattern[1:], target) || target != "" && slowMatch(pattern, target[1:])
	}
	return target != "" && pattern[0] == target[0] && slowMatch(pattern[1:], target[1:])
}

func TestPathsAreAsInTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(letters string, most int) string {
		b := []byte{'/'}
		for range r.IntN(most) {
			b = append(b, letters[r.IntN(len(letters))])
		}
		return string(b)
	}
	bot := look("CCBot/2.0")
	for range 3000 {
		var text strings.Builder
		text.WriteString("User-agent: *\n")
		type rule struct {
			path  string
			allow bool
		}
		var rules []rule
		for range r.IntN(12) {
			p := rule{random("aab/*", 7), r.IntN(2) == 0}
			if r.IntN(5) == 0 {
				p.path += "$"
			}
			if r.IntN(9) == 0 {
				p.path = "*" + p.path
			}
			rules = append(rules, p)
			key := "Disallow: "
			if p.allow {
				key = "Allow: "
			}
			text.WriteString(key + p.path + "\n")
		}
		f := parse(t, text.String())
		for range 20 {
			target := strings.ReplaceAll(random("aab/", 9), "/", "/a")
			longest, disallowed := -1, false
			for _, p := range rules {
				if len(p.path) < longest || !slowMatch(p.path, target) {
					continue
				}
				disallowed = !p.allow && (len(p.path) > longest || disallowed)
				longest = len(p.path)
			}
			got := f.Judge(&bot, "CCBot/2.0", target)
			if got.Disallowed != disallowed || (got.Line > 0) != (longest >= 0) {
				t.Fatalf("%s\n%s: %+v, want %v", text.String(), target, got, disallowed)
			}
		}
	}
}

func TestJudgingAllocatesNothing(t *testing.T) {
	f := parse(t, agents)
	agent := "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	bot := look(agent)
	for _, target := range []string{"/google/x", "/caf%C3%A9?x=%20y", "//a/../google"} {
		if n := testing.AllocsPerRun(100, func() { f.Judge(&bot, agent, target) }); n > 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(agents), "GPTBot/1.0", "/gpt")
	f.Add([]byte("user-agent:*\ndisallow:/*a*$\nallow:*\nrequest-rate:1/1h"), "CCBot", "/%zz%41%c3//../?%")
	f.Fuzz(func(t *testing.T, text []byte, agent, target string) {
		file, err := robots.Parse(text, nameOf)
		if err != nil {
			return
		}
		bot := fairshare.Bot{Name: "ccbot", Categories: []string{"ai"}, State: fairshare.Claimed}
		r := file.Judge(&bot, agent, target)
		if again := file.Judge(&bot, agent, target); again != r {
			t.Errorf("%+v, then %+v", r, again)
		}
		if r.Disallowed && r.Line == 0 || r.Delay < 0 || r.Delay > robots.MaxDelay {
			t.Errorf("%+v", r)
		}
		file.Summary()
	})
}

func BenchmarkJudge(b *testing.B) {
	var text strings.Builder
	text.WriteString(agents)
	for i := range 1000 {
		fmt.Fprintf(&text, "Disallow: /section%d/\nDisallow: /shop/%d/*?sort=\n", i, i)
	}
	f := parse(b, text.String())
	agent := "CCBot/2.0 (https://commoncrawl.org/faq/)"
	bot := look(agent)
	for b.Loop() {
		f.Judge(&bot, agent, "/shop/77/shoes?sort=price")
	}
}

// A huge number in a Request-rate is a long delay, not none.
func TestHugeRequestRates(t *testing.T) {
	for _, rate := range []string{"1/2600000h", "1/2147483647h", "1/2147483647m", "1/5124096h", "2/9999999h"} {
		f, err := robots.Parse([]byte("User-agent: *\nRequest-rate: "+rate+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Groups()[0].Delay; got != robots.MaxDelay {
			t.Errorf("Request-rate: %s: delay %v, want %v", rate, got, robots.MaxDelay)
		}
	}
}
