package httpguard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/httpguard"
	"fairshare/memlimit"
	"fairshare/share"
	"fairshare/visitor"
	"fairshare/waitingroom"
)

// A sink is a ResponseWriter that costs almost nothing: a benchmark then shows the
// cost of the code above it.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { s.bytes += len(p); return len(p), nil }
func (s *sink) Flush()                      {}

func (s *sink) reset() {
	clear(s.header)
	s.status, s.bytes = 200, 0
}

func benchGuard(b *testing.B, n int64) *fairshare.Guard {
	b.Helper()
	policy := &fairshare.Policy{Rules: []fairshare.Rule{limit("ceiling", requests(n, time.Hour))}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	g, err := fairshare.NewGuard(policy, limiter, nil)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func benchHandler(b *testing.B, h http.Handler, header http.Header, want int) {
	r := httptest.NewRequest("GET", "/some/page?id=1", nil)
	r.Header = header
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		h.ServeHTTP(w, r)
		if w.status != want {
			b.Fatalf("status %d, want %d", w.status, want)
		}
	}
}

func BenchmarkPass(b *testing.B) {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("welcome")) })
	header := http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept": {"*/*"}}
	b.Run("bare", func(b *testing.B) { benchHandler(b, site, header, 200) })
	b.Run("guarded", func(b *testing.B) {
		benchHandler(b, httpguard.Middleware(benchGuard(b, fairshare.MaxN), httpguard.Options{})(site), header, 200)
	})
	b.Run("shared", func(b *testing.B) {
		opts := httpguard.Options{Share: share.New(share.Options{Ages: true})}
		benchHandler(b, httpguard.Middleware(benchGuard(b, fairshare.MaxN), opts)(site), header, 200)
	})
}

// BenchmarkSigns shows what the signs of a browser cost: the header is that of Chromium 156, which
// asks for a style.
func BenchmarkSigns(b *testing.B) {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("welcome")) })
	header := http.Header{"Accept": {"text/css,*/*;q=0.1"}, "Accept-Encoding": {"gzip, deflate, br, zstd"},
		"Accept-Language": {"en-US,en;q=0.9"}, "Cookie": {"sid=abc123; theme=dark"}, "Priority": {"u=0"},
		"Referer": {"http://example.com/some/page?id=1"}, "Sec-Fetch-Dest": {"style"}, "Sec-Fetch-Mode": {"no-cors"},
		"Sec-Fetch-Site": {"same-origin"}, "Sec-Ch-Ua-Mobile": {"?0"},
		"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"}}
	for name, pages := range map[string]bool{"requests": false, "pages": true} {
		for _, watcher := range []*browser.Watcher{nil, new(browser.Watcher)} {
			b.Run(fmt.Sprintf("count %s, signs %v", name, watcher != nil), func(b *testing.B) {
				l := requests(fairshare.MaxN, time.Hour)
				if pages {
					l.Count = fairshare.Pages
				}
				guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{limit("ceiling", l)}},
					memlimit.Options{Memory: 1 << 20})
				if err != nil {
					b.Fatal(err)
				}
				benchHandler(b, httpguard.Middleware(guard, httpguard.Options{Browser: watcher})(site), header, 200)
			})
		}
	}
}

// BenchmarkRefuse compares a refusal, including decision and reference, with a
// handler that writes an answer of the same size and headers.
func BenchmarkRefuse(b *testing.B) {
	for _, accept := range []string{"*/*", "text/html,*/*", "application/json"} {
		header := http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept": {accept}}
		guarded := httpguard.Middleware(benchGuard(b, 1),
			httpguard.Options{Contact: "shop@example.org"})(http.NotFoundHandler())
		var seen *httptest.ResponseRecorder
		for range 2 {
			r := httptest.NewRequest("GET", "/some/page?id=1", nil)
			r.Header = header
			seen = httptest.NewRecorder()
			guarded.ServeHTTP(seen, r)
		}
		body := seen.Body.Bytes()
		plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Cache-Control", "no-store")
			h.Set("Content-Type", seen.Header().Get("Content-Type"))
			h.Set("Retry-After", "3600")
			h.Set("RateLimit-Policy", seen.Header().Get("RateLimit-Policy"))
			h.Set("RateLimit", seen.Header().Get("RateLimit"))
			w.WriteHeader(429)
			w.Write(body)
		})
		b.Run(accept+"/plain", func(b *testing.B) { benchHandler(b, plain, header, 429) })
		b.Run(accept+"/guarded", func(b *testing.B) { benchHandler(b, guarded, header, 429) })
	}
}

// BenchmarkWaitingRoom compares a page of the waiting room with the refusal that a browser
// gets at a busy site without one, and with a refusal by a limit.
func BenchmarkWaitingRoom(b *testing.B) {
	header := http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept-Language": {"de-AT,de;q=0.8,en;q=0.5"},
		"Accept":         {"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
		"Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}
	cookies, err := visitor.New(visitor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	room := func(opts waitingroom.Options) *waitingroom.Room { return newRoom(b, opts) }
	for _, test := range []struct {
		name   string
		status int
		opts   httpguard.Options
		waits  bool
	}{
		{name: "limit", status: 429},
		{name: "busy", status: 503, waits: true},
		{name: "room", status: 503, waits: true, opts: httpguard.Options{WaitingRoom: room(waitingroom.Options{})}},
		{name: "room, cookie", status: 503, waits: true,
			opts: httpguard.Options{WaitingRoom: room(waitingroom.Options{}), Visitors: cookies}},
		{name: "room, cookie, button", status: 503, waits: true,
			opts: httpguard.Options{Visitors: cookies,
				WaitingRoom: room(waitingroom.Options{Step: waitingroom.Button})}},
	} {
		b.Run(test.name, func(b *testing.B) {
			test.opts.Contact = "shop@example.org"
			guard := benchGuard(b, 1)
			if test.waits {
				guard = benchGuard(b, fairshare.MaxN)
				test.opts.Share = share.New(share.Options{Capacity: 1, Wait: -1, Key: guard.AppendKey})
				taken := fairshare.Request{Time: time.Now()}
				claim := test.opts.Share.Claim(&taken)
				if _, err := test.opts.Share.Wait(b.Context(), &claim); err != nil {
					b.Fatal(err)
				}
			}
			h := httpguard.Middleware(guard, test.opts)(http.NotFoundHandler())
			if !test.waits {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
			header := header.Clone()
			if test.opts.Visitors != nil { // it comes back
				r := httptest.NewRequest("GET", "/", nil)
				r.Header = header
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				c := w.Result().Cookies()[0]
				header["Cookie"] = []string{c.Name + "=" + c.Value}
			}
			cookie := header["Cookie"]
			r := httptest.NewRequest("GET", "/some/page?id=1", nil)
			r.Header = header
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				w.reset()
				if cookie != nil { // the guard removes it
					header["Cookie"] = cookie
				}
				h.ServeHTTP(w, r)
				if w.status != test.status {
					b.Fatalf("status %d, want %d", w.status, test.status)
				}
			}
			b.ReportMetric(float64(w.bytes), "bytes")
		})
	}
}
