package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// A visitor keeps its limit when its address changes, and over a reload and a
// restart. Copies of its cookie have no other limit. The site never sees the cookie.
func TestVisitorsKeepTheirLimitsOverARestart(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private")
		if r.URL.Path == "/login" {
			w.Header().Set("Fairshare-Visitor", "member")
		}
		w.Write([]byte("cookies: " + r.Header.Get("Cookie")))
	}))
	t.Cleanup(site.Close)
	const policy = behindLoopback + "visitors: always\nrules:\n" +
		"  - {name: own, limit: {requests: 4, per: 1h, by: visitor}}\n"
	state := filepath.Join(t.TempDir(), "state")
	p := startProcess(t, policy, "--state", state, "--upstream", site.URL)
	page := func(client, cookie string) (status int, set, body string) {
		t.Helper()
		resp, body := requestAs(t, "GET", "http://"+p.addr+"/page", client, "Mozilla/5.0", "Accept", "text/html,*/*",
			"Cookie", cookie, "X-Forwarded-Proto", "https")
		if lines := resp.Header["Set-Cookie"]; len(lines) > 0 {
			if !strings.HasSuffix(lines[0], "; HttpOnly; SameSite=Lax; Secure") {
				t.Errorf("the cookie is %q", lines[0])
			}
			set, _, _ = strings.Cut(lines[0], ";")
		}
		return resp.StatusCode, set, body
	}
	_, own, _ := page("203.0.113.1", "")
	if !strings.HasPrefix(own, "fs1=") {
		t.Fatalf("the cookie is %q", own)
	}
	for i, client := range []string{"203.0.113.1", "198.51.100.9"} {
		if status, set, body := page(client, "a=b; "+own); status != 200 || set != "" || body != "cookies: a=b" {
			t.Errorf("request %d: %d, cookie %q, %q", i, status, set, body)
		}
	}
	p.terminate(t)
	p = startProcess(t, policy, "--state", state, "--upstream", site.URL)
	for i, want := range []int{200, 200, 429} { // two before the restart; the first request had no cookie
		if status, _, _ := page("192.0.2.77", own); status != want {
			t.Errorf("request %d after a restart: %d, want %d", i, status, want)
		}
	}
	if status, set, _ := page("192.0.2.77", ""); status != 200 || set == own {
		t.Errorf("another client of that address: %d, %q", status, set)
	}
	resp, _ := requestAs(t, "POST", "http://"+p.addr+"/login", "192.0.2.78", "Mozilla/5.0")
	if len(resp.Header["Set-Cookie"]) != 1 || resp.Header.Get("Fairshare-Visitor") != "" {
		t.Errorf("after a login: %q", resp.Header)
	}
}
