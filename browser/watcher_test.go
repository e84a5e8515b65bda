package browser_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
)

const (
	chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"
	start  = 1_700_000_000 // Unix time
)

// canonical is a header with canonical names.
type canonical http.Header

func (h canonical) Values(name string) []string { return h[name] }

// request returns the request of a browser for a target of shop.example, some seconds after the start.
func request(addr, target string, seconds int, header ...string) *fairshare.Request {
	h := canonical{}
	for i := 0; i < len(header); i += 2 {
		h[http.CanonicalHeaderKey(header[i])] = []string{header[i+1]}
	}
	req := &fairshare.Request{Time: time.Unix(start+int64(seconds), 0), Addr: netip.MustParseAddr(addr), Method: "GET",
		Host: "shop.example", UserAgent: chrome, Header: h}
	req.SetTarget(target)
	return req
}

var (
	page   = browser.Answer{Status: 200, ContentType: "text/html; charset=utf-8"}
	style  = browser.Answer{Status: 200, ContentType: "text/css"}
	image  = browser.Answer{Status: 200, ContentType: "image/png"}
	cached = browser.Answer{Status: 304}
	cookie = browser.Answer{Status: 200, ContentType: "text/html", SetCookie: []string{"sid=abc; Path=/; HttpOnly"}}
)

func TestOnlyBehaviorMakesAClientLikely(t *testing.T) {
	type step struct {
		seconds int
		target  string
		header  []string
		answer  browser.Answer
	}
	referer := func(target string) []string { return []string{"Referer", "https://shop.example" + target} }
	sid := []string{"Cookie", "lang=en; sid=abc"}
	headers := []string{"Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document", "Sec-Fetch-Site", "same-origin",
		"Cookie", "sid=made-up", "If-None-Match", `"x"`, "Referer", "https://shop.example/"}
	for _, c := range []struct {
		name  string
		steps []step
		want  fairshare.Browser // of a request after these
	}{
		{"nothing so far", nil, fairshare.BrowserClaimed},
		{"headers of a browser and many pages, but no asset", []step{
			{0, "/", headers, page}, {1, "/a", headers, page}, {2, "/b", headers, page},
		}, fairshare.BrowserClaimed},
		{"an asset of a page that it names", []step{{0, "/a", nil, page}, {1, "/a.css", referer("/a"), style}},
			fairshare.BrowserLikely},
		{"an asset of the page before, as of another tab", []step{
			{0, "/a?p=1", nil, page}, {0, "/b", nil, page}, {1, "/a.css", referer("/a?p=1"), style},
		}, fairshare.BrowserLikely},
		{"an escaped path in the referer", []step{
			{0, "/gr%C3%BCn", nil, page}, {1, "/a.css", referer("/gr%c3%bcn"), style},
		}, fairshare.BrowserLikely},
		{"assets without a referer", []step{{0, "/a", nil, page}, {1, "/a.css", nil, style}}, fairshare.BrowserClaimed},
		{"assets without a referer, and a cookie that came back", []step{
			{0, "/a", nil, cookie}, {1, "/a.css", sid, style},
		}, fairshare.BrowserLikely},
		{"assets without a referer, and a cookie that nobody set", []step{
			{0, "/a", nil, page}, {1, "/a.css", sid, style},
		}, fairshare.BrowserClaimed},
		{"assets without a referer, and a copy in the cache", []step{
			{0, "/a", nil, page}, {1, "/a.css", nil, style}, {9, "/a.css", nil, cached},
		}, fairshare.BrowserLikely},
		{"a referer that names a page which the client never got", []step{
			{0, "/a", nil, page}, {1, "/a.css", referer("/b"), style},
		}, fairshare.BrowserClaimed},
		{"a referer that names another host", []step{
			{0, "/a", nil, page}, {1, "/a.css", []string{"Referer", "https://other.example/a"}, style},
		}, fairshare.BrowserClaimed},
		{"assets before any page", []step{
			{0, "/a.css", nil, style}, {1, "/b.css", nil, cached},
		}, fairshare.BrowserClaimed},
		{"assets that were not found", []step{
			{0, "/a", nil, page}, {1, "/a.css", referer("/a"), browser.Answer{Status: 404, ContentType: "text/css"}},
		}, fairshare.BrowserClaimed},
		{"pages that are called assets", []step{
			{0, "/a", nil, page}, {1, "/b", append(referer("/a"), "Sec-Fetch-Dest", "image"), page},
			{2, "/c.css", referer("/b"), page},
		}, fairshare.BrowserClaimed},
		{"an image without an extension", []step{{0, "/a", nil, page}, {1, "/image?id=1", referer("/a"), image}},
			fairshare.BrowserLikely},
		{"no assets on this host: cookie, cache and referer", []step{
			{0, "/a", nil, cookie}, {5, "/b", append(referer("/a"), sid...), page}, {9, "/a", sid, cached},
		}, fairshare.BrowserLikely},
		{"no assets on this host: cookie and referer", []step{
			{0, "/a", nil, cookie}, {5, "/b", append(referer("/a"), sid...), page},
		}, fairshare.BrowserClaimed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w browser.Watcher
			for _, s := range c.steps {
				seen := w.Look(request("192.0.2.1", s.target, s.seconds, s.header...), browser.Conn{})
				w.Answered(&seen, s.answer)
			}
			if got := w.Look(request("192.0.2.1", "/next", 60), browser.Conn{}); got.Browser != c.want {
				t.Errorf("browser %s, signs %b, want %s", got.Browser, got.Signs, c.want)
			}
			neighbor := w.Look(request("192.0.2.2", "/next", 60), browser.Conn{})
			if neighbor.Browser != fairshare.BrowserClaimed {
				t.Errorf("another address: browser %s", neighbor.Browser)
			}
			other := request("192.0.2.1", "/next", 60)
			other.UserAgent += " Edg/142.0.0.0"
			if got := w.Look(other, browser.Conn{}); got.Browser != fairshare.BrowserClaimed {
				t.Errorf("another user agent: browser %s", got.Browser)
			}
		})
	}
}

// Many logs hold no hosts. Then a referer fits by its path, except "/".
func TestRefererWithoutHost(t *testing.T) {
	for target, want := range map[string]fairshare.Browser{
		"/": fairshare.BrowserClaimed, "/a": fairshare.BrowserLikely,
	} {
		var w browser.Watcher
		for i, step := range []string{target, "/a.css", "/next"} {
			req := request("192.0.2.1", step, i, "Referer", "https://search.example"+target)
			req.Host = ""
			s := w.Look(req, browser.Conn{})
			w.Answered(&s, browser.Answer{Status: 200})
			if i == 2 && s.Browser != want {
				t.Errorf("%s: %s, want %s", target, s.Browser, want)
			}
		}
	}
}

func TestPagesWithoutAssetsEndIt(t *testing.T) {
	var w browser.Watcher
	see := func(target string, seconds int, a browser.Answer) fairshare.Browser {
		s := w.Look(request("192.0.2.1", target, seconds, "Referer", "http://shop.example/p0"), browser.Conn{})
		w.Answered(&s, a)
		return s.Browser
	}
	see("/p0", 0, page)
	see("/a.css", 1, style)
	for i := range 32 {
		if got := see(fmt.Sprint("/p", i), 2+i, page); got != fairshare.BrowserLikely {
			t.Fatalf("page %d: %s", i, got)
		}
	}
	if got := see("/next", 40, page); got != fairshare.BrowserClaimed {
		t.Errorf("after 32 pages without an asset: %s", got)
	}
	see("/b.css", 41, style)
	if got := see("/next", 42, page); got != fairshare.BrowserLikely {
		t.Errorf("after another asset: %s", got)
	}
	if got := see("/next", 50+24*3600, page); got != fairshare.BrowserClaimed {
		t.Errorf("after a day: %s", got)
	}
}

// likelyClient makes a client likely.
func likelyClient(w *browser.Watcher, addr string, seconds int) {
	s := w.Look(request(addr, "/", seconds), browser.Conn{})
	w.Answered(&s, page)
	s = w.Look(request(addr, "/a.css", seconds, "Referer", "https://shop.example/"), browser.Conn{})
	w.Answered(&s, style)
}

// New clients do not remove the signs of others, whichever network they come from: not even the first
// page of a client whose assets are still to come.
func TestFloodDoesNotRemoveSigns(t *testing.T) {
	var w browser.Watcher
	likelyClient(&w, "192.0.2.1", 0)
	s := w.Look(request("192.0.2.2", "/", 0), browser.Conn{})
	w.Answered(&s, page) // its asset comes after the flood
	for i := range 300_000 {
		addr := netip.AddrFrom4([4]byte{byte(10 + i>>16), byte(i >> 8), byte(i), 1}).String()
		if i%3 == 0 {
			addr = fmt.Sprintf("192.0.2.%d", 3+i/3%250)
		}
		req := request(addr, "/", 1)
		req.UserAgent = fmt.Sprint(chrome, i)
		s := w.Look(req, browser.Conn{})
		w.Answered(&s, page)
	}
	s = w.Look(request("192.0.2.2", "/a.css", 2, "Referer", "https://shop.example/"), browser.Conn{})
	w.Answered(&s, style)
	for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		if got := w.Look(request(addr, "/next", 3), browser.Conn{}); got.Browser != fairshare.BrowserLikely {
			t.Errorf("%s: %s", addr, got.Browser)
		}
	}
}

// Clients that are not one client have no signs: a proxy's own address, a peer that named nobody, and
// an unknown address.
func TestSharedAddressesHaveNoSigns(t *testing.T) {
	gateway := netip.MustParseAddr("172.17.0.1")
	for name, change := range map[string]func(*fairshare.Request){
		"a proxy":         func(r *fairshare.Request) { r.Proxy = true },
		"no address":      func(r *fairshare.Request) { r.Addr = netip.Addr{} },
		"unnamed":         func(r *fairshare.Request) { r.Addr, r.Via = gateway, gateway },
		"a bot":           func(r *fairshare.Request) { r.Bot.State = fairshare.Verified },
		"another visitor": func(r *fairshare.Request) { r.Visitor.ID = uint64(r.Time.Unix()) },
	} {
		var w browser.Watcher
		for i := range 6 {
			req := request("192.0.2.1", "/", i)
			answer := page
			if i%2 == 1 {
				req, answer = request("192.0.2.1", "/a.css", i, "Referer", "https://shop.example/"), style
			}
			change(req)
			s := w.Look(req, browser.Conn{})
			w.Answered(&s, answer)
			if s.Browser == fairshare.BrowserLikely {
				t.Errorf("%s: request %d is likely", name, i)
			}
		}
	}
}

// A visitor keeps its signs when its address changes.
func TestVisitorKeepsSigns(t *testing.T) {
	var w browser.Watcher
	of := func(addr, target string, seconds int) *fairshare.Request {
		req := request(addr, target, seconds)
		req.Visitor = fairshare.Visitor{ID: 7, Network: 1}
		return req
	}
	for i, target := range []string{"/", "/a.css"} {
		s := w.Look(of("192.0.2.1", target, i), browser.Conn{})
		w.Answered(&s, []browser.Answer{page, style}[i])
	}
	if got := w.Look(of("198.51.100.1", "/b", 5), browser.Conn{}); got.Browser != fairshare.BrowserLikely {
		t.Errorf("at another address: %s, signs %b", got.Browser, got.Signs)
	}
	if got := w.Look(request("192.0.2.1", "/b", 5), browser.Conn{}); got.Browser != fairshare.BrowserClaimed {
		t.Errorf("the address without the cookie: %s", got.Browser)
	}
}

// A model remembers everything of each client.
type model struct {
	got                                 []string // pages
	at                                  int      // of the last page
	assets, referer, cookie, set, cache bool
	bare                                int
}

// likely is the rule of docs/browsers.md.
func (m *model) likely(now int) bool {
	if m.got == nil || now-m.at > 24*3600 {
		return false
	}
	if m.assets {
		return (m.referer || m.cookie || m.cache) && m.bare < 32
	}
	return m.referer && m.cookie && m.cache
}

func TestWatcherAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 15))
	var w browser.Watcher
	models := map[string]*model{}
	now, likely := 0, 0
	targets := []string{"/", "/a", "/b?x=1", "/c", "/a.css", "/b.png"}
	for range 50_000 {
		if rng.IntN(4) == 0 {
			now += 4 * rng.IntN(20)
		}
		if rng.IntN(1000) == 0 {
			now += 25 * 3600
		}
		addr := fmt.Sprintf("192.0.2.%d", rng.IntN(12))
		m := models[addr]
		if m == nil {
			m = new(model)
			models[addr] = m
		}
		target := targets[rng.IntN(len(targets))]
		var header []string
		refers := ""
		if rng.IntN(6) == 0 {
			refers = targets[rng.IntN(4)]
			header = append(header, "Referer", "https://shop.example"+refers)
		}
		returns := rng.IntN(6) == 0
		if returns {
			header = append(header, "Cookie", "sid=abc")
		}
		s := w.Look(request(addr, target, now, header...), browser.Conn{})
		want := fairshare.BrowserClaimed
		if m.likely(now) {
			want = fairshare.BrowserLikely
			likely++
		}
		if s.Browser != want {
			t.Fatalf("%s %s at %d: %s, signs %b, want %s: %+v", addr, target, now, s.Browser, s.Signs, want, *m)
		}
		answer := page
		if strings.Contains(target, ".") {
			answer = style
		}
		switch rng.IntN(8) {
		case 0:
			answer.Status = 404
		case 1:
			answer = browser.Answer{Status: 304}
		case 2:
			answer.SetCookie = []string{"gone=1; Max-Age=0", "sid=abc"}
		}
		w.Answered(&s, answer)
		m.note(now, target, refers, returns, &answer)
	}
	if likely < 1000 {
		t.Errorf("only %d requests of likely browsers", likely)
	}
}

// note is what an answered request adds to the model.
func (m *model) note(now int, target, refers string, returns bool, a *browser.Answer) {
	if a.Status == 404 {
		return
	}
	isPage := !strings.Contains(target, ".")
	if m.got == nil && !isPage {
		return
	}
	if m.got != nil && now-m.at > 24*3600 {
		m.assets, m.referer, m.cookie, m.cache = false, false, false, false
	}
	fits := refers != "" && slices.Contains(m.got, refers)
	if isPage {
		if len(m.got) == 0 || m.got[len(m.got)-1] != target {
			m.got = append(m.got, target)
		}
		m.got = m.got[max(0, len(m.got)-2):]
		m.bare, m.at = m.bare+1, now
	} else if fits || now-m.at <= 60 {
		m.assets, m.bare = true, 0
	}
	m.referer = m.referer || fits
	m.cache = m.cache || a.Status == 304
	m.cookie = m.cookie || returns && m.set
	m.set = m.set || len(a.SetCookie) > 0
}

func TestLookAllocatesNothing(t *testing.T) {
	var w browser.Watcher
	req := request("192.0.2.1", "/", 0, "Referer", "https://shop.example/%67", "Cookie", "a=b; c=d", "Accept", html)
	answer := cookie
	if n := testing.AllocsPerRun(100, func() {
		s := w.Look(req, browser.Conn{Secure: true})
		w.Answered(&s, answer)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkWatcher(b *testing.B) {
	_, of := sessions(b)
	for _, name := range []string{"chromium-https", "firefox-https"} {
		b.Run(name, func(b *testing.B) {
			var w browser.Watcher
			var requests []*fairshare.Request
			var answers []browser.Answer
			for _, r := range of[name] {
				req, _ := r.request()
				requests = append(requests, req)
				answers = append(answers, browser.Answer{Status: r.Status, ContentType: r.Type})
			}
			b.ReportAllocs()
			i, likely := 0, 0
			for b.Loop() {
				s := w.Look(requests[i], browser.Conn{Secure: true})
				w.Answered(&s, answers[i])
				if s.Browser == fairshare.BrowserLikely {
					likely++
				}
				if i++; i == len(requests) {
					i = 0
				}
			}
			if likely == 0 && b.N > 100 {
				b.Error("the browser is never likely")
			}
		})
	}
}

// TestSignsEndAfterADay: the stored time begins again after 48 days, but what is weeks old never counts as new.
func TestSignsEndAfterADay(t *testing.T) {
	const day = 24 * 60 * 60
	referer := []string{"Referer", "https://shop.example/a"}
	for days := 2; days < 48; days += 5 {
		var w browser.Watcher
		visit := func(target string, seconds int, header []string, answer browser.Answer) {
			seen := w.Look(request("192.0.2.1", target, seconds, header...), browser.Conn{})
			w.Answered(&seen, answer)
		}
		visit("/a", 0, nil, page)
		visit("/a.css", 1, referer, style)
		later := days * day
		if got := w.Look(request("192.0.2.1", "/b", later), browser.Conn{}); got.Browser != fairshare.BrowserClaimed {
			t.Errorf("%d days later: browser %s, signs %b", days, got.Browser, got.Signs)
		}
		visit("/a.css", later, nil, style)
		visit("/b.css", later, nil, browser.Answer{Status: 304})
		if got := w.Look(request("192.0.2.1", "/b", later), browser.Conn{}); got.Browser != fairshare.BrowserClaimed {
			t.Errorf("%d days later, assets without a page: browser %s, signs %b", days, got.Browser, got.Signs)
		}
	}
}

// The bound of the cookies that are compared holds for a request, not for each of its Cookie lines.
func TestFewCookiesAreCompared(t *testing.T) {
	for junk, want := range map[int]browser.Signs{30: browser.Cookie, 40: 0, 1000: 0} { // in each of two lines
		var w browser.Watcher
		seen := w.Look(request("192.0.2.1", "/a", 0), browser.Conn{})
		w.Answered(&seen, cookie)
		req := request("192.0.2.1", "/b", 1)
		line := strings.Repeat("x=1; ", junk)
		req.Header.(canonical)["Cookie"] = []string{line, line + "sid=abc"}
		seen = w.Look(req, browser.Conn{})
		w.Answered(&seen, page)
		if seen = w.Look(request("192.0.2.1", "/c", 2), browser.Conn{}); seen.Signs != want {
			t.Errorf("after 2×%d other cookies: signs %b, want %b", junk, seen.Signs, want)
		}
	}
}
