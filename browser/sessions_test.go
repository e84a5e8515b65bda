package browser_test

import (
	"bufio"
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
)

// A recorded is one request of a session in testdata/sessions.jsonl, in which real browsers loaded a
// page with a style, a script, images, a font, a frame and data, followed a link and reloaded.
//
// The browsers are Chromium 156, Firefox 153, WebKitGTK's MiniBrowser, w3m, Lynx, Links and ELinks, as
// in Debian. Their sessions are:
//
//   - https: HTTP/2 and TLS, where the browser has it
//   - http: without TLS, on localhost, which browsers treat like https
//   - plain: without TLS, on another host
//   - private-https: with resistFingerprinting, without referer, cookies, cache and languages
type recorded struct {
	Session, Proto, Method, Host, Target, Type string
	TLS                                        bool
	Header                                     map[string]string
	Status                                     int
	SetCookie                                  string `json:"set_cookie"`
}

func sessions(t testing.TB) (names []string, of map[string][]recorded) {
	t.Helper()
	file, err := os.Open("testdata/sessions.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	of = map[string][]recorded{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r recorded
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if of[r.Session] == nil {
			names = append(names, r.Session)
		}
		of[r.Session] = append(of[r.Session], r)
	}
	return names, of
}

func (r *recorded) request() (*fairshare.Request, browser.Conn) {
	h := canonical{}
	for name, value := range r.Header {
		h[name] = []string{value}
	}
	req := &fairshare.Request{Time: time.Unix(start, 0), Addr: netip.MustParseAddr("192.0.2.1"), Method: r.Method,
		Host: r.Host, UserAgent: r.Header["User-Agent"], Header: h}
	req.SetTarget(r.Target)
	return req, browser.Conn{Secure: r.TLS, HTTP10: r.TLS && r.Proto == "HTTP/1.0"}
}

func TestRealBrowsers(t *testing.T) {
	names, of := sessions(t)
	if len(names) < 17 {
		t.Fatalf("only %d sessions", len(names))
	}
	for _, name := range names {
		var w browser.Watcher
		first := -1 // request that comes from a likely browser
		for i, r := range of[name] {
			req, conn := r.request()
			s := w.Look(req, conn)
			answer := browser.Answer{Status: r.Status, ContentType: r.Type}
			if r.SetCookie != "" {
				answer.SetCookie = []string{r.SetCookie}
			}
			w.Answered(&s, answer)
			switch s.Browser {
			case fairshare.BrowserLikely:
				if first < 0 {
					first = i
				}
			case fairshare.BrowserClaimed:
				if first >= 0 {
					t.Errorf("%s: request %d is of a browser that is no longer likely", name, i)
				}
			default:
				t.Errorf("%s: request %d: %s", name, i, s.Browser)
			}
		}
		family, setting, _ := strings.Cut(name, "-")
		likely := (family == "chromium" || family == "firefox" || family == "webkitgtk") && setting != "private-https"
		if likely && (first < 1 || first > 3) || !likely && first >= 0 {
			t.Errorf("%s: request %d is the first of a likely browser; likely: %v", name, first, likely)
		}
	}
}

// What real browsers ask for has the kind that it has for the site.
func TestKindsOfRealRequests(t *testing.T) {
	names, of := sessions(t)
	for _, name := range names {
		for _, r := range of[name] {
			req, _ := r.request()
			want := fairshare.KindAsset
			switch {
			case r.Target == "/data.json":
				want = fairshare.KindFetch
			case r.Target == "/" || r.Target == "/two":
				want = fairshare.KindPage
			}
			got := req.Kind()
			if r.Target == "/frame" && strings.HasSuffix(name, "-plain") {
				want = fairshare.KindPage // nothing distinguishes it
			}
			if strings.HasPrefix(name, "links") || strings.HasPrefix(name, "elinks") { // they accept anything
				want = fairshare.KindUnknown
			}
			if got != want {
				t.Errorf("%s: %s is %s, want %s", name, r.Target, got, want)
			}
		}
	}
}

// Old browsers, web views, forks and settings leave out headers. No single header that is missing
// from a request of a real browser contradicts it, and neither does plain http.
func TestMissingHeadersAreNoContradiction(t *testing.T) {
	_, of := sessions(t)
	for name, requests := range of {
		for _, r := range requests {
			for without := range r.Header {
				if without == "User-Agent" {
					continue
				}
				req, conn := r.request()
				for header := range r.Header { // Sec-Fetch and client hints are left out together
					if header == without || len(without) > 6 && strings.HasPrefix(header, without[:6]) {
						delete(req.Header.(canonical), header)
					}
				}
				for _, conn.Secure = range []bool{false, !strings.HasSuffix(name, "-plain")} {
					if why := browser.Contradiction(req, browser.ClaimOf(req.UserAgent), conn); why != "" {
						t.Errorf("%s: %s without %s: %s", name, r.Target, without, why)
					}
				}
			}
		}
	}
}

// A real browser with the user agent of another one is not contradicted: some browsers do that by
// themselves, and extensions do it. The exception is an iPhone with the client hints of a computer.
func TestAnotherUserAgentIsNoContradiction(t *testing.T) {
	_, of := sessions(t)
	agents := map[string]bool{}
	for _, requests := range of {
		agents[requests[0].Header["User-Agent"]] = true
	}
	for name, requests := range of {
		if strings.Contains(name, "links") || strings.HasPrefix(name, "lynx") || strings.HasPrefix(name, "w3m") {
			continue
		}
		for agent := range agents {
			for _, r := range requests {
				req, conn := r.request()
				if why := browser.Contradiction(req, browser.ClaimOf(agent), conn); why != "" {
					t.Errorf("%s as %q: %s", name, agent, why)
				}
			}
		}
	}
}
