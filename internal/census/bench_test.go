package census

import (
	"net/http"
	"net/netip"
	"testing"

	"fairshare"
)

// clientsOf returns the addresses that benchmarks use in turn.
func clientsOf(n int) []fairshare.Request {
	reqs := make([]fairshare.Request, n)
	for i := range reqs {
		reqs[i] = *request(i, false)
	}
	return reqs
}

func BenchmarkSaw(b *testing.B) {
	c, reqs := New(policyOf(false), start), clientsOf(1<<16)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		c.Saw(reqs[i&(1<<16-1)].Addr, netip.Addr{})
		i++
	}
	if c.state.Load().seen[0].Load() == 0 && i > 1<<16 {
		b.Error("nobody was seen")
	}
}

func BenchmarkSawParallel(b *testing.B) {
	c, reqs := New(policyOf(false), start), clientsOf(1<<16)
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			c.Saw(reqs[i&(1<<16-1)].Addr, netip.Addr{})
		}
	})
}

// The same clients are refused repeatedly, as scripts and as people.
func BenchmarkRefused(b *testing.B) {
	browser := http.Header{
		"Accept": {"*/*"}, "Accept-Encoding": {"gzip, deflate, br"}, "Accept-Language": {"en-US,en;q=0.5"},
		"Cookie": {"a=b"}, "Referer": {"https://shop.example/"},
	}
	const bot = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.3) Chrome/125.0.0.0 Safari/537.36"
	for _, bm := range []struct {
		name   string
		agent  string
		header http.Header
	}{
		{"script", "curl/8.1", http.Header{"Accept": {"*/*"}}},
		{"person", firefox, browser},
		{"bot with a browser's headers", bot, browser},
	} {
		b.Run(bm.name, func(b *testing.B) {
			p := policyOf(false)
			c, reqs, f := New(p, start), clientsOf(1<<10), finding(p, pages)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				req := &reqs[i&(1<<10-1)]
				req.UserAgent, req.Header = bm.agent, bm.header
				c.Refused(refusal(req, f, false))
				i++
			}
			if got := c.state.Load().tallies[enforced].requests.Load(); got != int64(i) {
				b.Errorf("%d requests counted of %d", got, i)
			}
		})
	}
}

// Each refused request comes from a new address.
func BenchmarkRefusedFlood(b *testing.B) {
	p := policyOf(false)
	c, f := New(p, start), finding(p, pages)
	req := request(0, false)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		req.Addr = addr(i)
		c.Refused(refusal(req, f, false))
		i++
	}
}

func BenchmarkTick(b *testing.B) {
	p := policyOf(false)
	c, f := New(p, start), finding(p, pages)
	for n := range 100_000 {
		c.Saw(addr(n), netip.Addr{})
		c.Refused(refusal(request(n, false), f, false))
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Tick(start)
	}
}
