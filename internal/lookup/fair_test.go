package lookup

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// Thousands of addresses claim to be a crawler, each with a request every second, while the real
// crawler waits for its first look-up. Its wait is bounded, however the DNS of the others behaves.
func TestForgedClaimsDoNotDelayACrawler(t *testing.T) {
	crawler := netip.MustParseAddr("66.249.66.1")
	sibling := netip.MustParseAddr("66.249.66.2")
	fast := behaviour{latency: 50 * time.Millisecond}
	slow := behaviour{latency: 1900 * time.Millisecond}
	hangs := behaviour{hangs: true}
	fails := behaviour{latency: 300 * time.Millisecond, fails: true}
	own := behaviour{latency: 50 * time.Millisecond, name: true} // their own names, not those of a crawler
	for _, c := range []struct {
		name   string
		forged func(n int) netip.Addr
		n      int
		others behaviour
		real   time.Duration // latency of each answer about the crawler
		first  time.Duration // the crawler is confirmed within
		later  time.Duration // time limit for another address of its network after that
	}{
		{"few networks, fast", func(n int) netip.Addr { return v4(n, 2, 10) }, 5000, fast, 100 * time.Millisecond,
			time.Second, time.Second},
		{"few networks, hanging", func(n int) netip.Addr { return v4(n, 2, 10) }, 5000, hangs, 100 * time.Millisecond,
			time.Second, time.Second},
		{"few wide prefixes, hanging", func(n int) netip.Addr { return v4(n, 20, 250) }, 5000, hangs,
			100 * time.Millisecond, 2 * time.Second, time.Second},
		{"many networks, fast", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000, fast, 100 * time.Millisecond,
			3 * time.Second, time.Second},
		{"many networks, failing", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000, fails,
			100 * time.Millisecond, 10 * time.Second, time.Second},
		{"many networks, slow", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000, slow, 100 * time.Millisecond,
			15 * time.Second, time.Second},
		{"many networks, hanging", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000, hangs,
			100 * time.Millisecond, 15 * time.Second, time.Second},
		{"many networks, hanging, and a crawler with slow DNS", func(n int) netip.Addr { return v4(n, 1250, 2) },
			5000, hangs, 700 * time.Millisecond, 2 * time.Minute, 2 * time.Second},
		{"DNS that is slow for all", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000,
			behaviour{latency: 600 * time.Millisecond}, 600 * time.Millisecond, time.Minute, 2 * time.Second},
		{"many networks with names of their own", func(n int) netip.Addr { return v4(n, 1250, 2) }, 5000, own,
			100 * time.Millisecond, 4 * time.Second, time.Second},
		{"one IPv6 /32, hanging", func(n int) netip.Addr { return v6(n, 1, 5000) }, 5000, hangs,
			100 * time.Millisecond, time.Second, time.Second},
		{"many IPv6 networks, hanging", func(n int) netip.Addr { return v6(n, 1000, 5) }, 5000, hangs,
			100 * time.Millisecond, 15 * time.Second, time.Second},
		{"more than can wait", func(n int) netip.Addr { return v4(n, 200, 50) }, 10000, hangs, 100 * time.Millisecond,
			10 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, func(addr netip.Addr) behaviour {
					if addr == crawler || addr == sibling {
						return behaviour{latency: c.real, name: true}
					}
					return c.others
				})
				r := open(t, Options{query: m.query, Prefer: func(host string) bool {
					return host == modelName(crawler) || host == modelName(sibling)
				}})
				start, next := time.Now(), 0
				claim := func() { // the claims of a second, in every tenth of a second
					for range c.n / 10 {
						r.Confirmed(c.forged(next % c.n))
						next++
					}
				}
				verify := func(addr netip.Addr, within time.Duration) time.Duration {
					asked := time.Now()
					for {
						if names, known := r.Confirmed(addr); known && len(names) == 1 {
							return time.Since(asked)
						}
						if time.Since(asked) > within {
							t.Fatalf("%v is not confirmed within %v: %+v", addr, within, r.Stats())
						}
						claim()
						time.Sleep(100 * time.Millisecond)
					}
				}
				for time.Since(start) < 2*time.Second { // the forged claims come first
					claim()
					time.Sleep(100 * time.Millisecond)
				}
				first := verify(crawler, c.first)
				later := verify(sibling, c.later)
				s := r.Stats()
				r.Close()
				t.Logf("confirmed after %v, the next after %v; %d at once; %+v", first, later, m.peak(), s)
				if m.peak() > 96 {
					t.Errorf("%d look-ups at once", m.peak())
				}
				if s.Waiting > maxWaiting {
					t.Errorf("%d wait", s.Waiting)
				}
				if n := len(r.names.queue.networks); n > maxNetworks {
					t.Errorf("%d networks are remembered", n)
				}
			})
		})
	}
}
