package httpguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// A rule for clients that are not likely browsers holds until the client has fetched an asset of its
// page. A refused request shows nothing.
func TestBrowserBecomesLikely(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		limit("images", requests(1, time.Hour)),
		{Name: "drafts", Match: fairshare.Match{Path: []string{"/drafts/*"}, Not: []fairshare.Match{
			{Browser: []string{"likely"}}}}, Action: fairshare.Block},
	}}
	policy.Rules[0].Match.Path = []string{"*.png"}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/a.png" {
			w.Header().Set("Content-Type", "image/png")
		}
	})
	h := httpguard.New(guard, httpguard.Options{Browser: new(browser.Watcher)}, site)
	ask := func(addr, target string) int {
		r := httptest.NewRequest("GET", target, nil)
		r.RemoteAddr = addr + ":1234"
		r.Header.Set("User-Agent", firefox)
		r.Header.Set("Referer", "http://example.com/")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i, step := range []struct {
		addr, target string
		want         int
	}{
		{"192.0.2.1", "/drafts/1", 403},
		{"192.0.2.1", "/", 200},
		{"192.0.2.1", "/drafts/1", 403},
		{"192.0.2.1", "/a.png", 200},
		{"192.0.2.1", "/drafts/1", 200},
		{"192.0.2.2", "/drafts/1", 403},
		{"192.0.2.2", "/a.png", 200}, // before any page
		{"192.0.2.2", "/", 200},
		{"192.0.2.2", "/a.png", 429}, // refused: the site has not answered it
		{"192.0.2.2", "/drafts/1", 403},
	} {
		if got := ask(step.addr, step.target); got != step.want {
			t.Errorf("step %d, %s from %s: %d, want %d", i, step.target, step.addr, got, step.want)
		}
	}
}
