package httpguard_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/robots"
)

// A robotRules site enforces its robots.txt for a crawler called CrawlBot.
type robotRules struct {
	*httpguard.Handler
	now      time.Time
	reports  []string
	requests []string // at the site
	answer   http.HandlerFunc
}

func newRobotRules(t *testing.T) *robotRules {
	s := &robotRules{now: noon}
	guard := newGuard(t,
		fairshare.Rule{Name: "robots.txt", Action: fairshare.Block,
			Match: fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}}},
		fairshare.Rule{Name: "crawl delay", Limit: &fairshare.Limit{CrawlDelay: true, Resource: fairshare.Requests,
			N: 1, Window: fairshare.MaxCrawlDelay, Algorithm: fairshare.GCRA, Burst: 2,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}}})
	s.Handler = httpguard.New(guard, httpguard.Options{
		Now:    func() time.Time { return s.now },
		Robots: robots.NewSites(nil, nil),
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

const robotsText = "User-agent: *\nDisallow: /private\nCrawl-delay: 10\n"

func TestRobotsIsLearnedFromAnswersAndKept(t *testing.T) {
	s := newRobotRules(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, robotsText) }
	if w := s.get("CrawlBot/1.0", "http://a.example/private"); w.Code != 200 {
		t.Fatalf("before robots.txt is known: %d", w.Code)
	}
	s.get("Firefox", "http://a.example/robots.txt")
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
