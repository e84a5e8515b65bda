package clientaddr_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fairshare/clientaddr"
)

// A model is a slow watch that remembers every request since the last report.
type model struct {
	naming map[netip.Addr]bool // those that named a client
}

// observe is a second, slow way to find the client of a local peer. The peer is not
// trusted, and forwarded is one address or unreadable.
func (m *model) observe(r *clientaddr.Resolver, peer netip.Addr, forwarded string) (client, via netip.Addr) {
	a, err := netip.ParseAddr(forwarded)
	switch {
	case r.Trusts(peer) && err == nil:
		return a, netip.Addr{}
	case r.Trusts(peer) || err != nil || r.Trusts(a) || a == peer:
		return peer, netip.Addr{}
	}
	m.naming[peer] = true
	return a, peer
}

// reports returns how many peers have to be reported.
func (m *model) reports(r *clientaddr.Resolver) (named int) {
	for peer := range m.naming {
		if !r.Trusts(peer) {
			named++
		}
	}
	clear(m.naming)
	return named
}

func TestWatchAgreesWithOneThatRemembersEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		resolvers := []*clientaddr.Resolver{namingResolver(t, ""), namingResolver(t, "", "10.0.0.2"),
			namingResolver(t, "", "192.0.2.0/24")}
		w, m, r, now := clientaddr.NewWatch(), model{map[netip.Addr]bool{}}, resolvers[0], noon
		peers := []string{"127.0.0.1", "10.0.0.1", "10.0.0.2"}
		values := []string{"", "192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "10.0.0.2", "unknown"}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				r = rapid.SampledFrom(resolvers).Draw(rt, "trust")
			case 1, 2:
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "minutes")) * time.Minute)
				got := 0
				for _, line := range w.Reports(now, r) {
					if strings.Contains(line, "trusted proxy but names") ||
						strings.Contains(line, "trusted proxies but name") {
						if n, _ := fmt.Sscanf(line, "%s and %d more", new(string), &got); n < 2 {
							got = 0
						}
						got++
					}
				}
				if want := m.reports(r); got != want {
					rt.Fatalf("%d peers are reported, want %d", got, want)
				}
			default:
				peer := rapid.SampledFrom(peers).Draw(rt, "peer")
				some := rapid.SliceOfN(rapid.SampledFrom(values), 1, 4).Draw(rt, "forwarded")
				for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
					value := some[i%len(some)]
					texts := []string{"User-Agent: one"}
					if value != "" {
						texts = append(texts, "X-Forwarded-For: "+value)
					}
					got := send(w, r, peer+":1", texts...)
					client, via := m.observe(r, addr(peer), value)
					if got.Addr != client || got.Via != via {
						rt.Fatalf("%s with %q: %v via %v, want %v via %v", peer, value, got.Addr, got.Via, client, via)
					}
				}
			}
		}
	})
}
