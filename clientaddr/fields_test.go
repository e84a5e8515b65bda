package clientaddr_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"fairshare/clientaddr"
)

// A slowHeader hides that it is an http.Header, so that each name is searched.
type slowHeader struct{ header http.Header }

func (h slowHeader) Values(name string) []string { return h.header.Values(name) }

// A watch that resolves has the same results and reports as a resolver and a watch
// that search each header by its name.
func TestWatchResolvesAsAResolver(t *testing.T) {
	names := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip",
		"Fastly-Client-Ip", "X-Azure-Clientip", "X-Client-Ip", "X-Cluster-Client-Ip", "x-forwarded-for",
		"Fxrwarded", "X", "", "Cookie", "Accept", "User-Agent", "Te", "X-Other", "Sec-Fetch-Site", "Via",
		"X-Very-Long-Name-Of-A-Header-That-Nobody-Sends"}
	values := []string{"", " ", "192.0.2.1", "10.0.0.1", "for=192.0.2.2", "192.0.2.1, 10.0.0.3", "unknown", ","}
	peers := []string{"127.0.0.1:1", "10.0.0.1:2", "10.0.0.2", "[fe80::1%eth0]:1", "192.0.2.9:1", "@", "", "ohno"}
	rapid.Check(t, func(rt *rapid.T) {
		resolvers := []*clientaddr.Resolver{namingResolver(t, ""), namingResolver(t, "X-Other"),
			namingResolver(t, "Forwarded", "10.0.0.2"), namingResolver(t, "X-Real-IP", "10.0.0.0/8", "unix"),
			newResolver(t, ""), newResolver(t, "", "loopback")}
		r := rapid.SampledFrom(resolvers).Draw(rt, "resolver")
		fast, slow, now := clientaddr.NewWatch(), clientaddr.NewWatch(), noon
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			peer := rapid.SampledFrom(peers).Draw(rt, "peer")
			h := http.Header{}
			for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 14).Draw(rt, "names") {
				h[name] = rapid.SliceOfN(rapid.SampledFrom(values), 0, 2).Draw(rt, "values")
			}
			for i := range rapid.IntRange(1, 60).Draw(rt, "requests") {
				h["User-Agent"] = []string{fmt.Sprint(i % 12)}
				got, want := fast.Resolve(r, peer, h), r.Resolve(peer, slowHeader{h})
				if slow.Observe(r, want, slowHeader{h}); got != want {
					rt.Fatalf("peer %q with %v: %+v, want %+v", peer, h, got, want)
				}
				if r.TrustsPeer(peer) != got.PeerTrusted {
					rt.Fatalf("TrustsPeer(%q) is not %v", peer, got.PeerTrusted)
				}
				if fast.HidesClients(got.Peer) != slow.HidesClients(got.Peer) {
					rt.Fatalf("only one watch says that %v hides its clients", got.Peer)
				}
			}
			if got, want := fast.Reports(now, r), slow.Reports(now, r); !slices.Equal(got, want) {
				rt.Fatalf("reports %q, want %q", got, want)
			}
		}
	})
}
