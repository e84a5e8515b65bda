package sessions_test

import (
	"fmt"
	"net/http"
	"testing"

	"fairshare/internal/sessions"
)

type nowhere struct{ header http.Header }

func (w *nowhere) Header() http.Header       { return w.header }
func (*nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (*nowhere) WriteHeader(int)             {}

// BenchmarkServe measures the time that sessions add to a request, with 10,000 shared sessions.
func BenchmarkServe(b *testing.B) {
	shared := sessions.Config{Cookies: named.Cookies, Identify: clientOf}
	person := []string{"_ga=GA1.2.1234567890.1700000000; theme=dark; lang=de; PHPSESSID=0123456789abcdefghijklmnop; consent=yes"}
	for _, test := range []struct {
		name   string
		c      sessions.Config
		agent  string
		cookie []string
		target string
	}{
		{"off", sessions.Config{}, "person", person, "/a?b=c"},
		{"person", shared, "person", nil, "/a?b=c"},
		{"person with cookies", shared, "person", person, "/a?b=c"},
		{"verified", shared, "verified", nil, "/a?b=c"},
		{"known with cookies", shared, "known", person, "/a?b=c"},
	} {
		b.Run(test.name, func(b *testing.B) {
			passed, opened := 0, 0
			h := sessions.New(test.c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if passed++; r.Header["Cookie"] == nil {
					opened++
					w.Header()["Set-Cookie"] = []string{fmt.Sprintf("PHPSESSID=session-number-%d; path=/", opened)}
				}
				w.WriteHeader(200)
			}))
			header := http.Header{"Accept": {"text/html"}, "Accept-Language": {"de"}, "Accept-Encoding": {"gzip, br"},
				"User-Agent": {"x"}, "Connection": {"keep-alive"}, "From": {"bot@example.org"}}
			r, err := http.NewRequest("GET", "http://site.example"+test.target, nil)
			if err != nil {
				b.Fatal(err)
			}
			r.RequestURI = test.target
			w := known{&nowhere{http.Header{}}, addr(here), bots["known"]}
			for i := range 10_000 {
				w.client, r.Header = addr(fmt.Sprintf("10.%d.%d.1", i>>8, i&255)), header.Clone()
				h.ServeHTTP(w, r)
			}
			w.client, w.bot = addr(here), bots[test.agent]
			passed = 0
			b.ReportAllocs()
			for b.Loop() {
				if delete(header, "Cookie"); test.cookie != nil {
					header["Cookie"] = test.cookie
				}
				delete(w.Header(), "Set-Cookie")
				r.Header = header
				h.ServeHTTP(w, r)
			}
			if passed != b.N {
				b.Fatalf("%d of %d requests passed", passed, b.N)
			}
		})
	}
}
