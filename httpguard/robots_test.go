package httpguard_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// A robotSite answers /robots.txt by its fields. A limit allows each client n
// requests until it pauses for two days.
type robotSite struct {
	http.Handler
	now      time.Time
	answer   http.HandlerFunc
	requests int
}

func newRobotSite(t *testing.T, n int64, rules ...fairshare.Rule) *robotSite {
	s := &robotSite{now: noon}
	s.answer = func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "Disallow: /%d\n", s.requests) }
	rules = append(rules, limit("day", fairshare.Limit{Resource: fairshare.Requests, N: n, Window: 48 * time.Hour,
		Algorithm: fairshare.Quiet}))
	s.Handler = httpguard.Middleware(newGuard(t, rules...), httpguard.Options{Now: func() time.Time { return s.now }})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.requests++
			s.answer(w, r)
		}))
	return s
}

func (s *robotSite) get(client, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr = client + ":1"
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestRefusedRobotsGetsTheLastGoodCopy(t *testing.T) {
	s := newRobotSite(t, 1)
	if w := s.get("192.0.2.9", "http://a.example/robots.txt"); w.Code != 200 {
		t.Fatal(w.Code)
	}
	s.answer = func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", 500) }
	s.now = s.now.Add(2 * time.Minute)
	s.get("192.0.2.8", "http://a.example/robots.txt") // a bad answer does not replace a good one
	s.get("192.0.2.1", "/")
	for _, test := range []struct {
		target string
		status int
		body   string
	}{
		{"http://a.example/robots.txt", 200, "Disallow: /1\n"},
		{"http://A.example:80//robots.txt", 200, "Disallow: /1\n"},
		{"http://a.example./%72obots.txt?x", 200, "Disallow: /1\n"},
		{"http://b.example/robots.txt", 503, ""},
		{"http://a.example/robots.txt/", 429, ""},
	} {
		w := s.get("192.0.2.1", test.target)
		if w.Code != test.status || test.body != "" && w.Body.String() != test.body ||
			w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Retry-After") == "" && w.Code != 200 {
			t.Errorf("%s: %d %v %q, want %d %q", test.target, w.Code, w.Header(), w.Body, test.status, test.body)
		}
	}
	s.now = s.now.Add(24 * time.Hour)
	if w := s.get("192.0.2.1", "http://a.example/robots.txt"); w.Code != 503 {
		t.Errorf("a day later: %d, want 503", w.Code)
	}
}

func TestBlockedAndBannedRobots(t *testing.T) {
	banned := limit("ban", fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour,
		Algorithm: fairshare.Quiet})
	banned.Ban = &fairshare.BanTerms{After: 1, For: time.Hour}
	banned.Answer = &fairshare.Answer{Status: 403, Body: "go away", Redirect: "/elsewhere"}
	for _, rule := range []fairshare.Rule{block("block", "/*"), banned} {
		s := newRobotSite(t, 100, rule)
		s.answer = http.NotFound // no copy is available
		s.get("192.0.2.1", "/")
		s.get("192.0.2.1", "/")
		w := s.get("192.0.2.1", "/robots.txt?")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || w.Header().Get("Location") != "" ||
			strings.Contains(w.Body.String(), "go away") {
			t.Errorf("%s: %d %v %s", rule.Name, w.Code, w.Header(), w.Body)
		}
	}
}

func TestOnlyGoodCopiesOfRobotsAreKept(t *testing.T) {
	long := strings.Repeat("x", 500<<10)
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		kept   bool
	}{
		{"plain", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }, true},
		{"in pieces", func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				w.Write([]byte("ok"))
				w.(http.Flusher).Flush()
			}
		}, true},
		{"as long as may be", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, long) }, true},
		{"longer", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, long+"x") }, false},
		{"not found", http.NotFound, false},
		{"compressed whatever was asked for", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write([]byte("ok"))
			z.Close()
		}, false},
		{"compressed when asked for", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") != "" {
				w.Header().Set("Content-Encoding", "gzip")
			}
			io.WriteString(w, "ok")
		}, true},
		{"cut off", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "ok")
		}, false},
		{"aborted", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "ok")
			panic(http.ErrAbortHandler)
		}, false},
		{"of the gateway itself", func(w http.ResponseWriter, r *http.Request) {
			httpguard.NoUpstreamAnswer(w)
			io.WriteString(w, "ok")
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newRobotSite(t, 1)
			s.answer = test.answer
			func() {
				defer func() { recover() }()
				s.get("192.0.2.1", "/robots.txt", "Accept-Encoding", "gzip")
			}()
			want := 503
			if test.kept {
				want = 200
			}
			if w := s.get("192.0.2.1", "/robots.txt"); w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
		})
	}
}

// Only the copies of the latest hosts are kept.
func TestCopiesOfRobotsAreBounded(t *testing.T) {
	s := newRobotSite(t, 1000)
	const hosts = 200
	for i := range hosts {
		s.get("192.0.2.1", fmt.Sprintf("http://h%d.example/robots.txt", i))
		s.now = s.now.Add(time.Second)
	}
	for range 1000 - hosts {
		s.get("192.0.2.1", "/")
	}
	kept := 0
	for i := range hosts {
		if w := s.get("192.0.2.1", fmt.Sprintf("http://h%d.example/robots.txt", i)); w.Code == 200 {
			kept++
			if i < hosts-64 {
				t.Errorf("host %d is kept", i)
			}
		}
	}
	if kept != 64 {
		t.Errorf("%d hosts are kept, want 64", kept)
	}
}

// Refused crawlers get neither the copy of an invented host nor an answer that was
// for one client only.
func TestClientsCannotChooseTheCopyOfRobots(t *testing.T) {
	s := newRobotSite(t, 1000)
	for range 2 { // asked for again: the site's own
		s.get("192.0.2.9", "http://a.example/robots.txt")
		s.now = s.now.Add(2 * time.Minute)
	}
	want := fmt.Sprintf("Disallow: /%d\n", s.requests)
	for i := range 200 {
		s.get("192.0.2.66", fmt.Sprintf("http://%d.example/robots.txt", i))
	}
	s.get("192.0.2.66", "http://a.example:666/robots.txt")
	s.get("192.0.2.66", "http://a.example/robots.txt", "Cookie", "evil=1")
	s.get("192.0.2.66", "http://a.example/robots.txt", "Authorization", "Basic evil")
	for range 1001 {
		s.get("192.0.2.1", "/")
	}
	if w := s.get("192.0.2.1", "http://a.example/robots.txt"); w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %q, want 200 %q", w.Code, w.Body, want)
	}
}
