package census

import (
	"net/http"
	"strings"
	"testing"

	"fairshare"
)

const (
	chrome   = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"
	safari   = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1"
	headless = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/126.0.0.0 Safari/537.36"
	gptbot   = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"
)

func TestPersonNeedsABrowsersHeaders(t *testing.T) {
	for _, c := range []struct {
		name   string
		agent  string
		header string // "Name: value" lines
		want   bool
	}{
		{"Chrome, first page by HTTPS", chrome,
			"Accept-Language: en-GB,en;q=0.9\nSec-Fetch-Site: none\nSec-Fetch-Mode: navigate\nUpgrade-Insecure-Requests: 1\nSec-Ch-Ua: \"Chromium\";v=\"126\", \"Google Chrome\";v=\"126\"", true},
		{"Firefox, first page by HTTP", firefox,
			"Accept-Language: de,en-US;q=0.7,en;q=0.3\nUpgrade-Insecure-Requests: 1", true},
		{"Safari, a picture by HTTP", safari, "Accept-Language: fr-FR,fr;q=0.9\nReferer: http://shop.example/", true},
		{"Safari, a request of a script by HTTPS", safari, "Accept-Language: fr\nSec-Fetch-Site: same-origin", true},
		{"Firefox without referers, a cookie", firefox, "Accept-Language: zh-Hans\nCookie: session=1", true},
		{"a picture of another site", chrome, "Accept-Language: en\nSec-Fetch-Site: cross-site", true},
		{"a client of three letters' language", firefox, "Accept-Language: haw;q=1\nSec-Fetch-Site: none", true},

		{"Firefox, a first picture by HTTP", firefox, "Accept-Language: de", false}, // looks like a script
		{"no header at all", chrome, "", false},
		{"curl", "curl/8.5.0", "Accept: */*", false},
		{"curl -A, and nothing else", chrome, "Accept: */*", false},
		{"python-requests with a browser's name", chrome,
			"Accept: */*\nAccept-Encoding: gzip, deflate\nConnection: keep-alive", false},
		{"the same with a session", chrome, "Accept: */*\nCookie: session=1\nReferer: https://shop.example/", false},
		{"fetch of Node with a browser's name", chrome, "Accept: */*\nAccept-Language: *\nSec-Fetch-Mode: cors", false},
		{"a language that is none", chrome, "Accept-Language: ;q=0.1\nCookie: a=b", false},
		{"a language too long", chrome, "Accept-Language: english\nCookie: a=b", false},
		{"Sec-Fetch-Site that no browser sends", chrome, "Accept-Language: en\nSec-Fetch-Site: yes", false},
		{"a cookie that is none", chrome, "Accept-Language: en\nCookie: nonsense", false},
		{"a bot that sends all", gptbot, "Accept-Language: en\nSec-Fetch-Site: none\nCookie: a=b", false},
		{"a browser without a window", headless, "Accept-Language: en-US\nSec-Fetch-Site: none", false},
		{"the same with a changed name", chrome,
			"Accept-Language: en-US\nSec-Fetch-Site: none\nSec-Ch-Ua: \"HeadlessChrome\";v=\"126\"", false},
		{"no user agent", "", "Accept-Language: en\nCookie: a=b", false},
		{"a user agent without end", chrome + strings.Repeat(" x", 300), "Accept-Language: en\nCookie: a=b", false},
	} {
		header := http.Header{}
		for line := range strings.Lines(c.header) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			header.Set(name, value)
		}
		if got := Person(&fairshare.Request{UserAgent: c.agent, Header: header}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if Person(&fairshare.Request{UserAgent: chrome}) {
		t.Error("a request without a header looks like a person's")
	}
}

func TestBrowserUserAgents(t *testing.T) {
	for agent, want := range map[string]bool{
		firefox: true,
		chrome:  true,
		safari:  true,
		"Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; Trident/4.0)":          true,
		"Opera/9.80 (Windows NT 6.1) Presto/2.12 Version/12.16":                    true,
		"Mozilla/5.0 (Linux; Android 9; é) Chrome/99":                              true,
		"Mozilla/5.0 (Linux; Android 9; é) Chrome/99 BOT":                          false, // not ASCII
		"Mozilla/5.0 (" + strings.Repeat("x", 300) + ") Crawler":                   false,
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)": false,
		headless:   false,
		gptbot:     false,
		"curl/8.1": false,
		"":         false,
	} {
		if got := Browser(agent); got != want {
			t.Errorf("Browser(%q) = %v, want %v", agent, got, want)
		}
	}
}

// Any request is judged. One without the user agent of a browser never looks like a
// person's.
func FuzzPerson(f *testing.F) {
	f.Add(firefox, "de-DE,de;q=0.8", "none", "a=b", "https://shop.example/", `"Chromium";v="126"`)
	f.Add("curl/8.1", "*", "", "", "", "")
	f.Add("Mozilla/5.0 (\xff\xfeK", "en", "\x00", "=", "x", "headless")
	f.Fuzz(func(t *testing.T, agent, language, site, cookie, referer, brand string) {
		got := Person(&fairshare.Request{UserAgent: agent, Header: http.Header{
			"Accept-Language": {language}, "Sec-Fetch-Site": {site}, "Cookie": {cookie}, "Referer": {referer},
			"Sec-Ch-Ua": {brand},
		}})
		if got && (!Browser(agent) || strings.Contains(language, "*") && language[0] == '*' ||
			brand == "HeadlessChrome") {
			t.Errorf("%q, %q, %q look like a person", agent, language, brand)
		}
		folded := strings.ToLower(agent)
		for _, word := range []string{"bot", "crawl", "@", "checker"} {
			if strings.Contains(folded, word) && Browser(agent) {
				t.Errorf("%q is a browser, with %q in it", agent, word)
			}
		}
	})
}
