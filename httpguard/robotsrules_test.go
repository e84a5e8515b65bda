package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/proxy"
	"fairshare/robots"
)

// A robotRules site enforces its robots.txt for a crawler called CrawlBot.
type robotRules struct {
	*httpguard.Handler
	sites    *robots.Sites
	now      time.Time
	reports  []string
	requests []string // at the site
	answer   http.HandlerFunc
}

func newRobotRules(t *testing.T) *robotRules {
	s := &robotRules{now: noon, sites: robots.NewSites(nil, nil)}
	guard := newGuard(t,
		fairshare.Rule{Name: "robots.txt", Action: fairshare.Block,
			Match: fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}}},
		fairshare.Rule{Name: "crawl delay", Limit: &fairshare.Limit{CrawlDelay: true, Resource: fairshare.Requests,
			N: 1, Window: fairshare.MaxCrawlDelay, Algorithm: fairshare.GCRA, Burst: 2,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}}})
	s.Handler = httpguard.New(guard, httpguard.Options{
		Now:    func() time.Time { return s.now },
		Robots: s.sites,
		Bot: func(_ netip.Addr, userAgent string) fairshare.Bot {
			if !strings.Contains(userAgent, "CrawlBot") {
				return fairshare.Bot{}
			}
			return fairshare.Bot{Name: "crawlbot", Categories: []string{"search"}, State: fairshare.Claimed}
		},
		Refused: func(r *httpguard.Report) {
			s.reports = append(s.reports, r.Finding.Rule.Name+": "+r.Request.Robots.Reason(r.Finding.Rule))
		},
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests = append(s.requests, r.Host+r.URL.Path)
		if s.answer != nil {
			s.answer(w, r)
		}
	}))
	return s
}

func (s *robotRules) get(userAgent, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("User-Agent", userAgent)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// askWanted asks for the files that are wanted, and returns their hosts.
func (s *robotRules) askWanted() []string {
	wanted := s.sites.Wanted(s.now)
	for _, host := range wanted {
		s.AskRobots(context.Background(), host, "")
	}
	return wanted
}

const robotsText = "User-agent: *\nDisallow: /private\nCrawl-delay: 10\n"

func TestRobotsIsLearnedFromAnswersAndKept(t *testing.T) {
	s := newRobotRules(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, robotsText) }
	if w := s.get("CrawlBot/1.0", "http://a.example/private"); w.Code != 200 {
		t.Fatalf("before robots.txt is known: %d", w.Code)
	}
	s.get("Firefox", "http://a.example/robots.txt")
	if got := s.askWanted(); !slices.Equal(got, []string{"a.example"}) {
		t.Fatalf("asked for %v", got)
	}
	for _, c := range []struct {
		agent, target string
		status        int
		body          string
	}{
		{"CrawlBot/1.0", "http://a.example/private/x", 403,
			"Line 2 of this site's robots.txt does not allow your program to fetch this."},
		{"Firefox", "http://a.example/private/x", 200, ""},
		{"CrawlBot/1.0", "http://b.example/private/x", 200, ""},
		{"CrawlBot/1.0", "http://a.example/robots.txt", 200, "Crawl-delay"},
		{"CrawlBot/1.0", "http://a.example/1", 200, ""},
		{"CrawlBot/1.0", "http://a.example/2", 429,
			"This site's robots.txt, line 3, asks your program to wait 10 seconds between two requests. Please wait"},
		{"CrawlBot/1.0", "http://a.example/robots.txt", 200, "Crawl-delay"}, // the last good copy
		{"Firefox", "http://a.example/2", 200, ""},
		{"CrawlBot/1.0", "http://b.example/2", 200, ""}, // which sets no delay
	} {
		w := s.get(c.agent, c.target)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s: %d %q, want %d %q", c.agent, c.target, w.Code, w.Body, c.status, c.body)
		}
		if c.status == 429 && w.Header().Get("Retry-After") != "10" {
			t.Errorf("Retry-After %q, want 10", w.Header().Get("Retry-After"))
		}
	}
	want := "[robots.txt: line 2, Disallow: /private crawl delay: line 3, a delay of 10s crawl delay: line 3, a delay of 10s]"
	if got := fmt.Sprint(s.reports); got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
	s.now = s.now.Add(10 * time.Second)
	if w := s.get("CrawlBot/1.0", "http://a.example/2"); w.Code != 200 {
		t.Errorf("after the delay: %d", w.Code)
	}
}

func TestAskingForRobots(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		status int    // of a disallowed page afterwards
		asked  string // of the site
	}{
		{"a file", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, robotsText) }, 403,
			"[a.example/robots.txt]"},
		{"to another host of the site", func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "a.example" {
				http.Redirect(w, r, "https://www.a.example/robots.txt", http.StatusMovedPermanently)
				return
			}
			if r.TLS != nil {
				io.WriteString(w, robotsText)
			}
		}, 403, "[a.example/robots.txt www.a.example/robots.txt]"},
		{"without an end", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/robots.txt", http.StatusFound)
		}, 200, "[a.example/robots.txt a.example/robots.txt a.example/robots.txt a.example/robots.txt " +
			"a.example/robots.txt a.example/robots.txt]"},
		{"not found", http.NotFound, 200, "[a.example/robots.txt]"},
		{"broken", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, 200,
			"[a.example/robots.txt]"},
		{"enormous", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, robotsText)
			for range 10_000 {
				w.Write(make([]byte, 0))
				io.WriteString(w, strings.Repeat("# filler\n", 100))
			}
		}, 403, "[a.example/robots.txt]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRobotRules(t)
			s.answer = c.answer
			s.AskRobots(context.Background(), "a.example", "")
			if got := fmt.Sprint(s.requests); got != c.asked {
				t.Errorf("asked %s, want %s", got, c.asked)
			}
			s.answer = nil
			if w := s.get("CrawlBot/1.0", "http://a.example/private"); w.Code != c.status {
				t.Errorf("%d, want %d", w.Code, c.status)
			}
		})
	}
}

// The site gives a client with another user agent another file. That client neither
// chooses the rules for others nor the copy that they get when they are refused.
func TestClientsCannotChooseTheRulesOfRobots(t *testing.T) {
	for _, known := range []bool{true, false} {
		s := newRobotRules(t)
		s.answer = func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.UserAgent(), "Evil") {
				io.WriteString(w, "User-agent: *\nDisallow: /\n")
				return
			}
			io.WriteString(w, robotsText)
		}
		if known {
			s.AskRobots(context.Background(), "a.example", "")
			s.now = s.now.Add(2 * time.Minute)
		}
		for range 2 {
			if w := s.get("Evil", "http://a.example/robots.txt"); w.Code != 200 {
				t.Fatal(w.Code)
			}
			if w := s.get("CrawlBot/1.0", "http://a.example/page"); w.Code != 200 {
				t.Errorf("known %v: %d %s", known, w.Code, w.Body)
			}
			if got := s.askWanted(); !slices.Equal(got, []string{"a.example"}) {
				t.Errorf("known %v: asked for %v", known, got)
			}
			if w := s.get("CrawlBot/1.0", "http://a.example/private"); w.Code != 403 {
				t.Errorf("known %v: %d", known, w.Code)
			}
			s.get("Evil", "http://a.example/robots.txt")
			if got := s.askWanted(); len(got) > 0 {
				t.Errorf("known %v: asked for %v at once", known, got)
			}
			s.now = s.now.Add(2 * time.Minute)
		}
		s.get("Evil", "http://a.example/robots.txt")
		for range 3 { // then it is refused
			s.get("CrawlBot/1.0", "http://a.example/page")
		}
		s.answer = nil
		if w := s.get("CrawlBot/1.0", "http://a.example/robots.txt"); w.Body.String() != robotsText {
			t.Errorf("known %v: the copy is %q", known, w.Body)
		}
	}
}

// An upstream that does not decode paths has no "/%72obots.txt".
func TestRobotsInOtherSpellings(t *testing.T) {
	for target, compared := range map[string]bool{
		"/robots.txt": true, "/robots.txt?": true, "http://a.example/robots.txt": true, "": true,
		"/%72obots.txt": false, "/robots%2Etxt": false, "http://a.example/%72obots.txt": false,
		"/sub/robots.txt": false, "/robots.txt?x": false,
	} {
		s := newRobotRules(t)
		s.answer = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, robotsText) }
		s.AskRobots(context.Background(), "a.example", "")
		s.now = s.now.Add(2 * time.Minute)
		s.answer = http.NotFound
		r := httptest.NewRequest("GET", "http://a.example/robots.txt", nil)
		r.RequestURI = target
		if u, err := url.ParseRequestURI(target); err == nil && u.Path != "/sub/robots.txt" {
			r.URL = u // a middleware strips /sub
		}
		s.ServeHTTP(httptest.NewRecorder(), r)
		if got := s.askWanted(); (len(got) > 0) != compared {
			t.Errorf("%q: asked for %v", target, got)
		}
	}
}

// A signalWriter closes a channel when something was written.
type signalWriter struct {
	http.ResponseWriter
	written chan struct{}
	once    sync.Once
}

func (w *signalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *signalWriter) Write(p []byte) (int, error) {
	defer w.once.Do(func() { close(w.written) })
	return w.ResponseWriter.Write(p)
}

// An upstream may send its robots.txt in pieces, without a length.
func TestAskingForRobotsThroughTheProxy(t *testing.T) {
	written := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, robotsText[:20])
		w.(http.Flusher).Flush()
		select {
		case <-written:
		case <-r.Context().Done():
		}
		io.WriteString(w, robotsText[20:])
	}))
	t.Cleanup(upstream.Close)
	at, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := newRobotRules(t)
	site := proxy.New(proxy.Config{Upstream: at})
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		site.ServeHTTP(&signalWriter{ResponseWriter: w, written: written}, r)
	}
	s.AskRobots(context.Background(), "a.example", "")
	s.answer = nil
	if w := s.get("CrawlBot/1.0", "http://a.example/private"); w.Code != 403 {
		t.Errorf("%d %s, want 403", w.Code, w.Body)
	}
}

// The amounts of a limit by crawl delay are nominal: no header states them. A refusal has Retry-After.
func TestCrawlDelayHasNoRateLimitHeaders(t *testing.T) {
	s := newRobotRules(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, robotsText) }
	s.get("Firefox", "http://a.example/robots.txt")
	s.askWanted()
	refused := false
	for range 4 {
		w := s.get("CrawlBot/1.0", "http://a.example/")
		if w.Header().Get("RateLimit") != "" || w.Header().Get("RateLimit-Policy") != "" {
			t.Errorf("status %d with %v", w.Code, w.Header())
		}
		if w.Code == http.StatusTooManyRequests {
			refused = true
			if w.Header().Get("Retry-After") == "" {
				t.Error("a refusal has no Retry-After")
			}
		}
	}
	if !refused {
		t.Error("nothing is refused")
	}
}
