package browser_test

import (
	"strings"
	"testing"

	"fairshare"
	"fairshare/browser"
)

const (
	iPhone = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/17.5 Mobile/15E148 Safari/604.1"
	webView = "Mozilla/5.0 (Linux; Android 14; Pixel 8 Build/AP1A; wv) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Version/4.0 Chrome/130.0.6723.86 Mobile Safari/537.36"
	oldChrome = "Mozilla/5.0 (Windows NT 6.1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/49.0.2623.112 Safari/537.36"
	html      = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
)

func TestContradictions(t *testing.T) {
	https, http := browser.Conn{Secure: true}, browser.Conn{}
	http10 := browser.Conn{Secure: true, HTTP10: true}
	for _, c := range []struct {
		name         string
		agent        string
		conn         browser.Conn
		contradicted bool
		header       []string
	}{
		{"a page that is an image", chrome, http, true, []string{"Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "image"}},
		{"a page in a frame", chrome, http, false, []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"a page that is fetched ahead", chrome, http, false, []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"empty", "Sec-Purpose", "prefetch"}},
		{"an iPhone with a computer's hints", iPhone, http, true, []string{"Sec-Ch-Ua-Mobile", "?0"}},
		{"an iPhone", iPhone, https, false, []string{"Accept", html}},
		{"an Android tablet", webView, https, false, []string{"Sec-Ch-Ua-Mobile", "?0"}},
		{"a program that copies a user agent", chrome, https, true, []string{"Accept", html,
			"Accept-Encoding", "gzip"}},
		{"without Accept-Language", chrome, https, true, []string{"Accept", html, "Accept-Encoding", "gzip, br"}},
		{"with all that is easy to copy", chrome, https, false, []string{"Accept", html, "Accept-Encoding", "gzip, br",
			"Accept-Language", "en"}},
		{"by http", chrome, http, false, []string{"Accept", html}},
		{"an image, as of a download program", chrome, https, false, []string{"Accept", "*/*"}},
		{"a web view", webView, https, false, []string{"Accept", html}},
		{"an old browser", oldChrome, https, false, []string{"Accept", html, "Accept-Encoding", "gzip"}},
		{"HTTP/1.0", chrome, http10, true, nil},
		{"HTTP/1.0 behind a proxy", chrome, http10, false, []string{"Via", "1.0 proxy"}},
		{"HTTP/1.0 by an old browser", oldChrome, http10, false, nil},
		{"HTTP/1.0 by Lynx", "Lynx/2.9.0 libwww-FM/2.14", http10, false, nil},
	} {
		req := request("192.0.2.1", "/", 0, c.header...)
		req.UserAgent = c.agent
		if why := browser.Contradiction(req, browser.ClaimOf(c.agent), c.conn); (why != "") != c.contradicted {
			t.Errorf("%s: %q, want a contradiction: %v", c.name, why, c.contradicted)
		}
	}
}

func TestClaims(t *testing.T) {
	for agent, want := range map[string]browser.Claim{
		"":                                {},
		"curl/8.5.0":                      {},
		"python-requests/2.31":            {},
		"Lynx/2.9.0dev.12 libwww-FM/2.14": {Family: browser.Text},
		"w3m/0.5.3+git20230121":           {Family: browser.Text},
		"Links (2.29; Linux 6.1 x86_64)":  {Family: browser.Text},
		chrome:                            {Family: browser.Chromium, Major: 142},
		chrome + " Edg/142.0.0.0":         {Family: browser.Chromium, Major: 142},
		chrome + " OPR/120":               {Family: browser.Chromium, Major: 142},
		iPhone:                            {Family: browser.Safari, Major: 17, Apple: true},
		webView:                           {Family: browser.Chromium, Major: 130, App: true},
		"Mozilla/5.0 (compatible; MSIE 9.0; Windows NT 6.1; Trident/5.0)":      {Family: browser.Other, Major: 5},
		"Mozilla/5.0 (Windows NT 10.0; rv:140.0) Gecko/20100101 Firefox/140.0": {Family: browser.Firefox, Major: 140},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148": {
			Family: browser.Safari, App: true, Apple: true},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/126.0 " +
			"Mobile/15E148 Safari/604.1": {Family: browser.Safari, Apple: true},
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15": {
			Family: browser.Safari, Major: 17},
		"Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/64.0 Safari/537.36 Edge/17.17134": {
			Family: browser.Other, Major: 17},
		"Opera/9.80 (J2ME/MIDP; Opera Mini/7.1) Presto/2.8.119": {
			Family: browser.Other, Major: 9},
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)":                               {},
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.1) Chrome/99999999999999999999": {},
		"Mozilla/5.0 (X11) AppleWebKit/537.36 Chrome/99999999999999999999":                                       {Family: browser.Chromium, Major: 999},
		"Mozilla/5.0 (Linux; Android 13; CUBOT NOTE) Chrome/130.0.0.0":                                           {Family: browser.Chromium, Major: 130},
		"Mozilla/5.0": {Family: browser.Other},
	} {
		if got := browser.ClaimOf(agent); got != want {
			t.Errorf("%q: %+v, want %+v", agent, got, want)
		}
	}
}

func FuzzClaimOf(f *testing.F) {
	for _, agent := range []string{chrome, iPhone, webView, "Mozilla/5.0 (X) Firefox/", "Opera/", "Lynx/"} {
		f.Add(agent, "https://shop.example/%67?x")
	}
	f.Fuzz(func(t *testing.T, agent, referer string) {
		c := browser.ClaimOf(agent)
		if c.Major < 0 || c.Major > 999 || c.String() == "" {
			t.Errorf("%+v", c)
		}
		if len(agent) > 1<<10 || len(referer) > 1<<10 {
			return
		}
		req := request("192.0.2.1", "/", 0, "Referer", referer, "Cookie", referer)
		req.UserAgent = agent
		w := &fuzzed
		s := w.Look(req, browser.Conn{Secure: true})
		w.Answered(&s, browser.Answer{Status: 200, ContentType: referer, SetCookie: []string{referer}})
		if again := w.Look(req, browser.Conn{Secure: true}); again.Browser == fairshare.BrowserLikely && s.Signs == 0 {
			t.Errorf("likely after one request")
		}
	})
}

var fuzzed browser.Watcher

func TestLongUserAgentsAreCut(t *testing.T) {
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0 "
	if got := browser.ClaimOf(firefox + strings.Repeat("x", 1<<20) + " Googlebot"); got != browser.ClaimOf(firefox) {
		t.Errorf("a user agent of a megabyte claims to be %v", got)
	}
}
