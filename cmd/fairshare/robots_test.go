//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

const (
	gptbot = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"
	ccbot  = "CCBot/2.0 (https://commoncrawl.org/faq/)"
	feedly = "Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)"
)

// serve asks the upstream for robots.txt at its start, and the built-in policy
// enforces it for bots, and for nobody else. A faulty file changes nothing.
func TestServeKeepsRobots(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	var text atomic.Value
	text.Store("User-agent: GPTBot\nDisallow: /\n\nUser-agent: *\nDisallow: /private\nCrawl-delay: 60\n")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			asked.Add(1)
			io.WriteString(w, text.Load().(string))
		}
	}))
	t.Cleanup(site.Close)
	s := startServe(t, fmt.Sprintf("upstream: %s\n%srules: [{use: default}]\n", site.URL, behindLoopback))
	home := "http://" + s.addr
	status := func(client, path, userAgent string) int {
		resp, _ := requestAs(t, "GET", home+path, client, userAgent)
		return resp.StatusCode
	}
	eventually(t, 403, func() int { return status("198.51.100.1", "/page", gptbot) })
	if asked.Load() == 0 {
		t.Error("the upstream was not asked")
	}
	for _, c := range []struct {
		client, path, userAgent string
		want                    int
	}{
		{"198.51.100.2", "/private", ccbot, 403},
		{"198.51.100.3", "/private", firefox, 200},
		{"198.51.100.4", "/private", feedly, 200},
		{"198.51.100.5", "/private", "curl/8.5.0", 200},
		{"198.51.100.1", "/robots.txt", gptbot, 200},
		{"66.249.66.1", "/private", googlebot, 403}, // verified
	} {
		if got := status(c.client, c.path, c.userAgent); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.userAgent, c.path, got, c.want)
		}
	}
	for n := range 8 { // five at once, then one a minute
		want := 200
		if n >= 5 {
			want = 429
		}
		if got := status("198.51.100.6", fmt.Sprint("/", n), ccbot); got != want {
			t.Errorf("page %d: %d, want %d", n, got, want)
		}
		if got := status("66.249.66.1", fmt.Sprint("/", n), googlebot); got != 200 {
			t.Errorf("a verified search engine, which chooses its own rate: %d", got)
		}
	}
	text.Store("<!doctype html><title>Oops</title>")
	status("198.51.100.3", "/robots.txt", firefox)
	if got := status("198.51.100.1", "/page", gptbot); got != 403 {
		t.Errorf("after a faulty robots.txt: %d", got)
	}
}
