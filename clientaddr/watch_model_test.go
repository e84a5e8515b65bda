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

// A slow watch that remembers everything.
type model struct {
	peers map[netip.Addr]*seenPeer
}

type seenPeer struct {
	forwarded         int
	clients           map[netip.Addr]bool
	suspect           bool
	askedAt, headerAt time.Time
	asked, header     bool // since lines
}

func (m *model) look(r *clientaddr.Resolver, peer netip.Addr, forwarded string) bool {
	if r.Trusts(peer) {
		return false
	}
	p := m.peers[peer]
	if p == nil {
		p = &seenPeer{clients: map[netip.Addr]bool{}}
		m.peers[peer] = p
	}
	p.asked = true
	if forwarded == "" {
		return p.suspect
	}
	p.header = true
	p.forwarded++
	if a, err := netip.ParseAddr(forwarded); err == nil && !r.Trusts(a) {
		p.clients[a] = true
	}
	p.suspect = p.suspect || p.forwarded >= 100 && len(p.clients) >= 3
	return p.suspect
}

func (m *model) lines(now time.Time, r *clientaddr.Resolver) (suspects int) {
	for addr, p := range m.peers {
		if p.asked {
			p.askedAt = now
		}
		if p.header || p.headerAt.IsZero() {
			p.headerAt = now
		}
		if p.suspect && now.Sub(p.headerAt) >= time.Hour || !p.suspect && now.Sub(p.askedAt) >= time.Hour {
			delete(m.peers, addr)
		} else if p.suspect && p.asked && !r.Trusts(addr) {
			suspects++
		}
		p.asked, p.header = false, false
	}
	return suspects
}

func TestWatchAgreesWithOneThatRemembersEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		resolvers := []*clientaddr.Resolver{newResolver(t, ""), newResolver(t, "", "10.0.0.2"), newResolver(t, "", "192.0.2.0/24")}
		w, m, r, now := clientaddr.NewWatch(), model{map[netip.Addr]*seenPeer{}}, resolvers[0], noon
		peers := []string{"127.0.0.1", "10.0.0.1", "10.0.0.2"}
		values := []string{"", "192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.2", "198.51.100.3", "unknown"}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				r = rapid.SampledFrom(resolvers).Draw(rt, "trust")
			case 1, 2:
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(rt, "minutes")) * time.Minute)
				got := 0
				for _, line := range w.Lines(now, r) {
					if strings.Contains(line, "that nobody named") {
						if n, _ := fmt.Sscanf(line, "%s and %d more", new(string), &got); n < 2 {
							got = 0
						}
						got++
					}
				}
				if want := m.lines(now, r); got != want {
					rt.Fatalf("%d suspects are said, want %d", got, want)
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
					if got, want := ask(w, r, peer+":1", texts...), m.look(r, addr(peer), value); got != want {
						rt.Fatalf("%s with %q: suspect %v, want %v", peer, value, got, want)
					}
				}
			}
		}
	})
}
