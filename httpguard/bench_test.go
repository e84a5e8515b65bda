package httpguard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
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
