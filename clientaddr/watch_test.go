package clientaddr_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"fairshare/clientaddr"
)

var minute = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// ask has a Watch look at a request of peer with headers "Name: value".
func ask(w *clientaddr.Watch, r *clientaddr.Resolver, peer string, headers ...string) bool {
	h := http.Header{}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		h.Add(name, value)
	}
	return w.Look(r, r.Resolve(peer, h), h)
}

// forward asks n times for three clients in turn.
func forward(w *clientaddr.Watch, r *clientaddr.Resolver, peer string, n int) (suspect bool) {
	for i := range n {
		suspect = ask(w, r, peer, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%3))
	}
	return suspect
}

func TestPeerIsSuspectedFromItsHundredthRequestForThreeClientsOn(t *testing.T) {
	for _, peer := range []string{"127.0.0.1:1", "[::1]:1", "10.0.0.1:1", "192.168.1.1:1", "[fd00::1]:1", "169.254.1.1:1", "[fe80::1%eth0]:1", "@", "[::ffff:127.0.0.1]:1"} {
		w, r := clientaddr.NewWatch(), newResolver(t, "")
		for i := range 99 {
			if ask(w, r, peer, fmt.Sprintf("X-Forwarded-For: 6.6.6.6, 192.0.2.%d", i%3)) {
				t.Fatalf("%s: suspected after %d requests", peer, i+1)
			}
		}
		for range 50 {
			if !forward(w, r, peer, 1) {
				t.Fatalf("%s: not suspected after 100 requests", peer)
			}
		}
		if !ask(w, r, peer) {
			t.Errorf("%s: a request without a header is another's", peer)
		}
		if got := w.Lines(minute, r); len(got) != 1 || !strings.Contains(got[0], "\nclients:\n  trusted_proxies: [") {
			t.Errorf("%s: %q", peer, got)
		}
	}
}
