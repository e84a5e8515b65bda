package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"fairshare/httpguard"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
)

// watched returns a function that sends one of 10,000 clients' requests through the middleware. With on,
// all that serves operators counts it: metrics by site, totals, rules and the lists of heavy hitters.
func watched(t testing.TB, on bool) func(i int) {
	const policy = "sites: {www: {hosts: [www.example.org], upstream: http://127.0.0.1:9}}\n" +
		"rules: [{name: many, limit: {requests: 1000000, per: 1s, by: addr}}]\n"
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("site.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	p, err := livepolicy.New(t.Context(), file, livepolicy.Options{Clock: httpguard.NewClock(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	rt := p.Current()
	if on {
		upstream, sites, err := new(Flags).parseUpstreams(file)
		if err != nil {
			t.Fatal(err)
		}
		m := newMetrics(func() figures { return figures{} })
		m.use(newRuntime(rt, upstream, sites, nil))
		p.Record(m)
		console.New(console.Options{Policy: p, Traffic: traffic.New(p.Now())})
	}
	site := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := httpguard.New(rt.Guard, p.GuardOptions(rt, httpguard.Options{}), site)
	requests := make([]*http.Request, 10_000)
	for i := range requests {
		requests[i] = httptest.NewRequest("GET", fmt.Sprintf("http://www.example.org/page/%d", i%500), nil)
		requests[i].RemoteAddr = fmt.Sprintf("203.%d.%d.9:1234", i/250, i%250)
		requests[i].Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0")
	}
	w := discard{http.Header{}}
	return func(i int) { h.ServeHTTP(w, requests[i%len(requests)]) }
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// A passed request through the middleware, with and without all that counts for operators.
func BenchmarkWatchedRequest(b *testing.B) {
	for name, on := range map[string]bool{"off": false, "on": true} {
		b.Run(name, func(b *testing.B) {
			send := watched(b, on)
			for i := range 20_000 {
				send(i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				send(i)
				i++
			}
		})
	}
}
