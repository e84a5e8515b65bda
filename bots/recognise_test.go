package bots

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func TestRecognise(t *testing.T) {
	const safari = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/145.0.0.0 Safari/537.36"
	const android = "Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/145.0.0.0 Mobile Safari/537.36"
	for _, test := range []struct{ userAgent, name, main, token string }{
		{"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "googlebot", "search",
			"Googlebot"},
		{android + " (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "googlebot", "search", "Googlebot"},
		{"Googlebot-Image/1.0", "googlebot", "search", "Googlebot"},
		{"Mediapartners-Google", "mediapartners-google", "advertising", "Mediapartners-Google"},
		{"Mediapartners (Googlebot)", "mediapartners-google", "advertising", "Mediapartners (Googlebot)"},
		{"AdsBot-Google (+http://www.google.com/adsbot.html)", "adsbot-google", "advertising", "AdsBot-Google"},
		{"FeedFetcher-Google; (+http://www.google.com/feedfetcher.html)", "feedfetcher-google", "feed",
			"FeedFetcher-Google"},
		{"Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)", "bingbot", "search", "bingbot"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
			"gptbot", "ai", "GPTBot"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)",
			"claudebot", "ai", "ClaudeBot"},
		{"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ChatGPT-User/1.0; +https://openai.com/bot)",
			"chatgpt-user", "ai", "ChatGPT-User"},
		{"Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)", "ahrefsbot", "seo", "AhrefsBot"},
		{"Mozilla/5.0 (compatible; 008/0.83; http://www.80legs.com/webcrawler.html) Gecko/2008032620", "80legs",
			"other", "80legs"},
		{"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", "facebookexternalhit",
			"preview", "facebookexternalhit"},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_11_1) AppleWebKit/601.2.4 (KHTML, like Gecko) Version/9.0.1 Safari/601.2.4 facebookexternalhit/1.1 Facebot Twitterbot/1.0",
			"imessagebot", "preview", "facebookexternalhit/1.1 Facebot Twitterbot/1.0"},
		{"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)", "uptimerobot", "monitor",
			"UptimeRobot"},

		{"curl/8.5.0", "curl", "tool", "curl/"},
		{"git/2.43.0", "git", "tool", "git/"},
		{"python-requests/2.31.0", "python", "library", "python-requests"},
		{"Go-http-client/2.0", "go", "library", "Go-http-client"},
		{"okhttp/4.9.0", "java", "library", "okhttp"},
		{"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/145.0.0.0 Safari/537.36", "headless", "headless", "HeadlessChrome"},
		{"Mozilla/5.0 (Linux; Android 7.0; Moto G (4)) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/145.0.0.0 Mobile Safari/537.36 Chrome-Lighthouse", "google-pagespeed", "monitor", "Chrome-Lighthouse"},
		{"Akkoma 3.13.2; https://social.example <admin@social.example>", "fediverse", "preview", "Akkoma"},
		// The name of a bot wins over the software that it uses.
		{"python-requests/2.31.0 GPTBot/1.2", "gptbot", "ai", "GPTBot"},
		{"Mozilla/5.0 (compatible; somethingnew-crawler/0.1)", "other-bot", "other", "compatible; "},
		{safari + " http://example.org/about-us", "other-bot", "other", "http://"},

		{"", emptyName, emptyName, ""},
		{" \t ", emptyName, emptyName, ""},
		{"-", emptyName, emptyName, ""},
		{strings.Repeat("a", MaxUserAgent+1), oversizedName, oversizedName, ""},
		{safari + strings.Repeat(" Googlebot", 100), oversizedName, oversizedName, ""},
		{"x", noBrowserName, "other", "x"},
		{"Mozilla/5.0", noBrowserName, "other", "Mozilla"},
		{"\x00\xff\x80 \n", noBrowserName, "other", "\x00\xff\x80"},

		{safari, "", "", ""},
		{safari + " Viber", "", "", ""},
		{safari + " OPR/45.0.2552.812 (Edition Yx)", "", "", ""},
		{safari + " Vivaldi/6.7 Config/1.2.3", "", "", ""},
		{safari + " ", "", "", ""},
		{safari + " Wonderer 1.0", noBrowserName, "other", "Wonderer"},
		{"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Wonderer Safari/537.36", noBrowserName,
			"other", "Wonderer"},
		{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Brave Chrome/80.0.3987.132 Safari/537.36", "", "", ""},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) ", "", "", ""},
		{"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_4) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 DuckDuckGo/7", "", "", ""},
		{safari + " (Wonderer)", noBrowserName, "other", "(Wonderer)"},
		{"Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0 Wonderer", noBrowserName,
			"other", "Wonderer"},
		{"Mozilla/5.0 (X11; U; Linux i686; de; rv:1.9.1.6) Gecko/20091215 Ubuntu/9.10 (karmic) Firefox/3.5.6 GTB6",
			"", "", ""},
		{android, "", "", ""},
		{"Mozilla/5.0 (Linux; Android 8.0.0; CUBOT_P20) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/70.0.3538.110 Mobile Safari/537.36", "", "", ""},
		{"Mozilla/5.0 (Linux; U; Android 2.3.3; de-de; HUAWEI SONIC Build/HuaweiU8650) AppleWebKit/533.1 (KHTML, like Gecko) Version/4.0 Mobile Safari/533.1", "", "", ""},
		{"Dalvik/2.1.0 (Linux; U; Android 6.0.1; Sparkle V Build/MOB31E)", "", "", ""},
		{"Dalvik/2.1.0 (Linux; U; Android 6.0.1; M BOT TAB 100 Build/MOB30R)", "", "", ""},
		{"Mozilla/5.0 (Linux; U; Android 2.3.5; de-de; DROID SPYDER by crawler.example Build/GRJ90) AppleWebKit/533.1 (KHTML, like Gecko) Version/4.0 Mobile Safari/533.1", "", "", ""},
		{"Mozilla/5.0 (Linux; Android 6.0.1; Nexus 5X Build/MMB29P; Foobot/1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/145.0.0.0 Mobile Safari/537.36", "other-bot", "other", "bot/"},
		{"Dalvik/2.1.0 (Linux; U; Android 6.0; Apollo X Build/MRA58K)", "", "", ""},
		{"Dalvik/2.1.0 (Linux; U; Android 6.0; HYUNDAI_Seoul Build/MRA58K)", "", "", ""},
		{"Mozilla/5.0 (Linux; U; Android 4.4.2; zh-cn; GT-I9500 Build/KOT49H) AppleWebKit/537.36 (KHTML, like Gecko)Version/4.0 MQQBrowser/5.0 QQ-URL-Manager Mobile Safari/537.36", "", "", ""},
		{"MobileSafari/602.1 CFNetwork/811.4.18 Darwin/16.5.0", "", "", ""},
		{"Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 5.1; Trident/4.0; .NET CLR 2.0.50727)", "", "", ""},
		{"Nokia6120c/3.83; Profile/MIDP-2.0 Configuration/CLDC-1.1", "", "", ""},
		{"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 330.0.3.29.91", "", "", ""},
	} {
		for range 3 { // not in the cache, then fresh, then frequent
			b, token := BuiltIn().Recognise(test.userAgent)
			if b == nil {
				if test.name != "" {
					t.Errorf("Recognise(%q) = no bot, want %s", test.userAgent, test.name)
				}
			} else if b.Name != test.name || b.Main() != test.main || token != test.token {
				t.Errorf("Recognise(%q) = %s, %s by %q, want %s, %s by %q", test.userAgent, b.Name, b.Main(), token,
					test.name, test.main, test.token)
			}
		}
	}
}

// slowFind is find without the automaton: it tries every pattern at every position.
func slowFind(t *Table, userAgent string) finding {
	word := strings.Trim(userAgent, " \t")
	if word == "" || word == "-" {
		return newFinding(t.empty, 0, 0)
	}
	folded := foldASCII(userAgent)
	people := false
	harmless := map[int]bool{}
	for i, to := deviceName(userAgent); i < to; i++ {
		harmless[i] = true
	}
	type hit struct {
		p          *pattern
		start, end int
	}
	var hits []hit
	for i := range t.automaton.patterns {
		p := &t.automaton.patterns[i]
		for start := 0; ; start++ {
			at := strings.Index(folded[start:], p.text)
			if at < 0 {
				break
			}
			start += at
			end := start + len(p.text)
			switch {
			case !p.matchesAt(userAgent, start, end):
			case p.bot == peopleSign:
				people = true
			case p.bot == harmlessSign:
				for j := start; j < end; j++ {
					harmless[j] = true
				}
			default:
				hits = append(hits, hit{p, start, end})
			}
		}
	}
	var best hit
	for _, h := range hits {
		if harmless[h.start] || h.p.weak && isWebView(userAgent) {
			continue
		}
		if best.p == nil || h.p.rank > best.p.rank || h.p.rank == best.p.rank &&
			(len(h.p.text) > len(best.p.text) || len(h.p.text) == len(best.p.text) && h.end < best.end) {
			best = h
		}
	}
	switch {
	case best.p != nil:
		return newFinding(best.p.bot, best.start, best.end)
	case !people:
		start := strings.Index(userAgent, word)
		end := strings.IndexAny(word, " /(;\t")
		if end <= 0 {
			end = len(word)
		}
		return newFinding(t.noBrowser, start, start+end)
	}
	if start, end := unknownProduct(userAgent); start < end && !harmless[start] {
		return newFinding(t.noBrowser, start, end)
	}
	return 0
}

func TestAutomatonAgreesWithALoop(t *testing.T) {
	table := BuiltIn()
	check := func(userAgent string) {
		t.Helper()
		if got, want := table.find(userAgent), slowFind(table, userAgent); got != want {
			g, _ := table.answer(got, userAgent)
			w, token := table.answer(want, userAgent)
			t.Errorf("look(%q) = %v, the loop says %v by %q", userAgent, g, w, token)
		}
	}
	all := readLabelled(t)
	step := 4
	if testing.Short() || underRace {
		step = 30
	}
	for i := 0; i < len(all); i += step {
		if len(all[i].UA) <= MaxUserAgent {
			check(all[i].UA)
		}
	}
	// Texts of patterns, parts of patterns, and separators.
	r := rand.New(rand.NewPCG(4, 15))
	patterns := table.automaton.patterns
	glue := []string{"", "", " ", "/", "; ", "(", ")", "-", "_", "a", "Z", "9", "\xff", "\x00", "@", ".",
		"compatible; "}
	for range 4000 / step {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			text := patterns[r.IntN(len(patterns))].text
			switch r.IntN(4) {
			case 0:
				text = strings.ToUpper(text)
			case 1:
				text = text[r.IntN(len(text)):]
			}
			b.WriteString(text)
			b.WriteString(glue[r.IntN(len(glue))])
		}
		check(b.String())
	}
}

func TestRecogniseAllocatesNothing(t *testing.T) {
	table := BuiltIn()
	all := readLabelled(t)
	if n := testing.AllocsPerRun(100, func() {
		for i := 0; i < len(all); i += 100 {
			table.Recognise(all[i].UA)
		}
	}); n != 0 {
		t.Errorf("%v allocations for user agents seen before, want none", n)
	}
	if n := testing.AllocsPerRun(10, func() {
		for i := 0; i < len(all); i += 100 {
			if len(all[i].UA) <= MaxUserAgent {
				table.find(all[i].UA)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for user agents never seen, want none", n)
	}
}

// A flood of user agents that occur once does not replace those that many clients send.
func TestCacheRetainsCommonUserAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	table := freshTable(t)
	var common []string
	for _, l := range readLabelled(t) {
		if len(common) < 500 && len(l.UA) <= MaxUserAgent {
			common = append(common, l.UA)
		}
	}
	for range 2 {
		for _, ua := range common {
			table.Recognise(ua)
		}
	}
	for i := range 200_000 {
		table.Recognise(fmt.Sprintf("Mozilla/5.0 (Windows NT 10.0) flood/%d", i))
	}
	kept := 0
	for _, ua := range common {
		if _, _, known := table.cache.get(ua); known {
			kept++
		}
	}
	if kept < len(common)*95/100 {
		t.Errorf("%d of %d common user agents are in the cache after a flood of 200,000", kept, len(common))
	}
}

// After a flood of user agents that occur twice, the common ones return to the cache.
func TestCacheRecoversFromAFloodOfPairs(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	table := freshTable(t)
	common := make([]string, 500)
	for i := range common {
		common[i] = fmt.Sprintf("Mozilla/5.0 (Windows NT 10.0) common/%d", i)
	}
	for i := range 100_000 {
		ua := fmt.Sprintf("Mozilla/5.0 (Windows NT 10.0) flood/%d", i)
		table.Recognise(ua)
		table.Recognise(ua)
	}
	for range 3 {
		for _, ua := range common {
			table.Recognise(ua)
		}
	}
	kept := 0
	for _, ua := range common {
		if _, _, known := table.cache.get(ua); known {
			kept++
		}
	}
	if kept < len(common)*95/100 {
		t.Errorf("%d of %d common user agents are in the cache after their third time", kept, len(common))
	}
}

func TestRecogniseFromManyGoroutines(t *testing.T) {
	table := freshTable(t)
	all := readLabelled(t)
	want := make([]string, len(all))
	for i, l := range all {
		if b, _ := table.Recognise(l.UA); b != nil {
			want[i] = b.Name
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for range 20_000 {
				i := r.IntN(len(all))
				name := ""
				b, _ := table.Recognise(all[i].UA)
				if b != nil {
					name = b.Name
				}
				if name != want[i] {
					t.Errorf("Recognise(%q) = %q, want %q", all[i].UA, name, want[i])
					return
				}
			}
		})
	}
	wg.Wait()
}

// freshTable returns the built-in table with an empty cache.
func freshTable(tb testing.TB) *Table {
	tb.Helper()
	file, err := readTable(builtIn)
	if err != nil {
		tb.Fatal(err)
	}
	table, err := file.compile()
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func FuzzRecognise(f *testing.F) {
	all := readLabelled(f)
	for i := 0; i < len(all); i += 500 {
		f.Add(all[i].UA)
	}
	f.Add("")
	f.Add("cubot bot CUBOT_bot @a.b c@d.ee")
	table := BuiltIn()
	f.Fuzz(func(t *testing.T, userAgent string) {
		b, token := table.Recognise(userAgent)
		if !strings.Contains(userAgent, token) {
			t.Errorf("token %q is not a part of %q", token, userAgent)
		}
		if b != nil && table.Bot(b.Name) != b {
			t.Errorf("Recognise(%q) = %v, which is not in the table", userAgent, b)
		}
		again, tokenAgain := table.Recognise(userAgent)
		if again != b || tokenAgain != token {
			t.Errorf("the second time: %v by %q, the first: %v by %q", again, tokenAgain, b, token)
		}
		if len(userAgent) <= MaxUserAgent {
			if got, want := table.find(userAgent), slowFind(table, userAgent); got != want {
				t.Errorf("look(%q) = %x, the loop says %x", userAgent, got, want)
			}
		}
	})
}
