package clientaddr_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

func FuzzResolve(f *testing.F) {
	for _, peer := range []string{"10.0.0.1:1", "192.0.2.1:1", "[fe80::1%eth0]:1", "@", "", "ohno",
		"64:ff9b::10.0.0.1"} {
		f.Add(peer, "6.6.6.6, 192.0.2.1", "10.0.0.3")
		f.Add(peer, `for="6.6.6.6, for="[::ffff:192.0.2.1]:_a";by=unknown`, `for=10.0.0.1;host="a\",b"`)
		f.Add(peer, "unknown, [::1%25a]:80, 64:ff9b::c000:201", "")
	}
	var resolvers []*clientaddr.Resolver
	for _, header := range []string{"", "Forwarded", "X-Real-IP"} {
		resolvers = append(resolvers, newResolver(f, header), newResolver(f, header, "10.0.0.0/8", "unix", "fe80::/10"))
	}
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		for _, r := range resolvers {
			bare := r.Resolve(peer, nil)
			header := http.Header{"X-Forwarded-For": {first, second}, "Forwarded": {first, second},
				"X-Real-Ip": {first, second}}
			got := r.Resolve(peer, header)
			if !got.PeerTrusted && got != bare {
				t.Errorf("untrusted peer %q: %+v with headers, %+v without", peer, got, bare)
			}
			if got.PeerTrusted != r.TrustsPeer(peer) || got.Peer != bare.Peer {
				t.Errorf("peer %q: %+v", peer, got)
			}
			if got.Addr != clientaddr.Canonical(got.Addr) || got.Peer != clientaddr.Canonical(got.Peer) {
				t.Errorf("not canonical: %+v", got)
			}
			if got.PeerTrusted && got.Addr.IsValid() && got.Proxy != r.Trusts(got.Addr) {
				t.Errorf("Proxy: %+v", got)
			}
			if r.Header() != "X-Forwarded-For" {
				continue
			}
			// What a proxy appends decides, whatever stands before it; and lines or commas are one.
			if got.PeerTrusted {
				header.Add("X-Forwarded-For", "192.0.2.77, 10.0.0.9")
				if got := r.Resolve(peer, header); got.Addr != addr("192.0.2.77") || got.Malformed {
					t.Errorf("appended: %+v", got)
				}
			}
			if joined := r.Resolve(peer, http.Header{"X-Forwarded-For": {first + ", " + second}}); joined != got {
				t.Errorf("in lines %+v, joined %+v", got, joined)
			}
		}
	})
}

func FuzzForwarded(f *testing.F) {
	f.Add("for=192.0.2.60;proto=http;by=203.0.113.43", uint16(0))
	f.Add(`for="[2001:db8:cafe::17]:4711"`, uint16(80))
	f.Add(`for="\[2001\:db8::1]:_x";host="a,b;c\\"`, uint16(443))
	f.Add(`for="`, uint16(1))
	f.Add(`for=unknown, for="_obf", x="\`, uint16(65535))
	one, chain := newResolver(f, "Forwarded", "203.0.113.77"),
		newResolver(f, "Forwarded", "203.0.113.77", "203.0.113.78")
	f.Fuzz(func(t *testing.T, value string, port uint16) {
		got := one.Resolve("203.0.113.77", http.Header{"Forwarded": {value}})
		if got.Proxy {
			got.Addr = addr("192.0.2.1")
		}
		// What was read prints and reads again.
		printed := printForwarded(got.Addr, port)
		again := one.Resolve("203.0.113.77", http.Header{"Forwarded": {printed}})
		if again.Addr != got.Addr || again.Proxy || again.Malformed {
			t.Errorf("%q: %v, printed %s: %+v", value, got.Addr, printed, again)
		}
		// And does so behind anything a client can send, on its line or before it.
		elements := printed + `;by="[2001:db8::5]";secret="a, \"b\";\\", for="203.0.113.78:_p"`
		for _, values := range [][]string{{value + ", " + elements}, {value, elements}} {
			if again := chain.Resolve("203.0.113.77", http.Header{"Forwarded": values}); again.Addr != got.Addr ||
				again.Malformed {
				t.Errorf("%q: %+v, want %v", values, again, got.Addr)
			}
			if host, proto := chain.Forwarded(values); !again.Proxy && (host != "site.example:80" || proto != "https") {
				t.Errorf("%q: host %q, proto %q", values, host, proto)
			}
		}
	})
}

// printForwarded writes an element as RFC 7239 §6 wants it; port 0 is none.
func printForwarded(addr netip.Addr, port uint16) string {
	node := addr.String()
	if addr.Is6() {
		node = "[" + node + "]"
	}
	if port > 0 {
		node = fmt.Sprintf("%s:%d", node, port)
	}
	if strings.Contains(node, ":") {
		node = `"` + node + `"`
	}
	return "proto=https;For=" + node + `;Host="site.example:80"`
}

func FuzzParseProxies(f *testing.F) {
	for _, word := range append(clientaddr.ProxyNames(), "10.0.0.0/8", "::ffff:10.0.0.0/104", "fe80::1%a", "::/0",
		"1.2.3.4/+8") {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		proxies, err := clientaddr.ParseProxies(word)
		if err != nil {
			return
		}
		for _, prefix := range proxies.Prefixes {
			again, err := clientaddr.ParseProxies(prefix.String())
			if err != nil || len(again.Prefixes) != 1 || again.Prefixes[0] != prefix {
				t.Errorf("%q: %v prints and reads as %v, %v", word, prefix, again, err)
			}
		}
	})
}
