package clientaddr_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairshare/clientaddr"
)

func newResolver(t testing.TB, header string, trusted ...string) *clientaddr.Resolver {
	t.Helper()
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: trusted, Header: header})
	if err != nil {
		t.Fatalf("New(%q, %q): %v", header, trusted, err)
	}
	return r
}

// addr reads an address; "" is the invalid one.
func addr(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

const peer = "10.0.0.1:4711" // a trusted proxy in the tables

// What Resolve returns for a request that peer sent, and why.
const (
	good      = 1 << iota // the header was read as far as trust goes
	proxy                 // Addr is a trusted proxy's own
	malformed             // the walk met unreadable text
	missing               // the header was not there
)

func TestResolveStopsAtTheFirstUntrustedAddressFromTheRight(t *testing.T) {
	many := strings.Repeat("10.0.0.2, ", 31)
	tests := []struct {
		name   string
		values []string // of X-Forwarded-For
		want   string
		how    int
	}{
		{"one", []string{"192.0.2.1"}, "192.0.2.1", good},
		{"the client's own text is on the left", []string{"6.6.6.6, 192.0.2.1"}, "192.0.2.1", good},
		{"trusted ones are passed", []string{"6.6.6.6, 192.0.2.1, 10.0.0.3, 10.9.9.9"}, "192.0.2.1", good},
		{"all lines count, in order", []string{"6.6.6.6", "192.0.2.1, 10.0.0.3", "10.0.0.4"}, "192.0.2.1", good},
		{"the first line alone would be the client's", []string{"6.6.6.6", "192.0.2.1"}, "192.0.2.1", good},
		{"no blanks, many blanks", []string{"6.6.6.6,\t 192.0.2.1 \t,10.0.0.3  "}, "192.0.2.1", good},
		{"port", []string{"192.0.2.1:80"}, "192.0.2.1", good},
		{"IPv6", []string{"2001:db8::1"}, "2001:db8::1", good},
		{"IPv6 in brackets", []string{"[2001:db8::1]"}, "2001:db8::1", good},
		{"IPv6 with port", []string{"[2001:db8::1]:443"}, "2001:db8::1", good},
		{"a zone is dropped", []string{"fe80::1%eth0"}, "fe80::1", good},
		{"zone and port", []string{"[fe80::1%eth0]:443"}, "fe80::1", good},
		{"IPv4-mapped", []string{"::ffff:192.0.2.1"}, "192.0.2.1", good},
		{"IPv4-mapped in hex, with port", []string{"[::ffff:c000:201]:80"}, "192.0.2.1", good},
		{"IPv4-mapped and trusted", []string{"192.0.2.1, ::ffff:10.0.0.2"}, "192.0.2.1", good},
		{"trusted with a zone", []string{"192.0.2.1, fd00::1%eth0"}, "192.0.2.1", good},
		{"NAT64", []string{"64:ff9b::192.0.2.1"}, "192.0.2.1", good},
		{"NAT64 of a public proxy", []string{"192.0.2.1, 64:ff9b::198.51.100.7"}, "192.0.2.1", good},
		{"NAT64 of a private address is not that address", []string{"192.0.2.1, 64:ff9b::10.0.0.2"}, "64:ff9b::a00:2",
			good},

		{"absent", nil, "10.0.0.1", proxy | missing},
		{"empty", []string{""}, "10.0.0.1", proxy | missing},
		{"blank", []string{" \t"}, "10.0.0.1", proxy | missing},
		{"all trusted: the leftmost", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3", proxy | good},
		{"unreadable: the peer", []string{"unknown"}, "10.0.0.1", proxy | malformed},
		{"unreadable behind a trusted one: the last good one", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2",
			proxy | malformed},
		{"unreadable is never skipped", []string{"192.0.2.1, unknown"}, "10.0.0.1", proxy | malformed},
		{"an empty element is never skipped", []string{"192.0.2.1, ,10.0.0.2"}, "10.0.0.2", proxy | malformed},
		{"an empty last line is never skipped", []string{"192.0.2.1", ""}, "10.0.0.1", proxy | malformed},
		{"unreadable left of the client does not matter", []string{"<script>, 192.0.2.1"}, "192.0.2.1", good},
		{"unspecified address", []string{"192.0.2.1, 0.0.0.0"}, "10.0.0.1", proxy | malformed},
		{"unspecified IPv6 address", []string{"192.0.2.1, ::"}, "10.0.0.1", proxy | malformed},
		{"unspecified mapped address", []string{"192.0.2.1, ::ffff:0.0.0.0"}, "10.0.0.1", proxy | malformed},
		{"a Unix socket in the list", []string{"192.0.2.1, unix:"}, "10.0.0.1", proxy | malformed},
		{"blanks do not separate", []string{"6.6.6.6 192.0.2.1"}, "10.0.0.1", proxy | malformed},
		{"leading zeros", []string{"192.0.2.010"}, "10.0.0.1", proxy | malformed},
		{"short forms", []string{"127.1"}, "10.0.0.1", proxy | malformed},
		{"a number", []string{"3221225985"}, "10.0.0.1", proxy | malformed},
		{"hex", []string{"0xc0000201"}, "10.0.0.1", proxy | malformed},
		{"a prefix", []string{"192.0.2.0/24"}, "10.0.0.1", proxy | malformed},
		{"a name", []string{"localhost"}, "10.0.0.1", proxy | malformed},
		{"port is not a number", []string{"192.0.2.1:http"}, "10.0.0.1", proxy | malformed},
		{"port is empty", []string{"192.0.2.1:"}, "10.0.0.1", proxy | malformed},
		{"port is too large", []string{"192.0.2.1:65536"}, "10.0.0.1", proxy | malformed},
		{"port is far too large", []string{"192.0.2.1:18446744073709551697"}, "10.0.0.1", proxy | malformed},
		{"obfuscated ports are Forwarded's", []string{"192.0.2.1:_x"}, "10.0.0.1", proxy | malformed},
		{"text behind the bracket", []string{"[2001:db8::1]443"}, "10.0.0.1", proxy | malformed},
		{"bracket left open", []string{"[2001:db8::1"}, "10.0.0.1", proxy | malformed},
		{"IPv4 in brackets", []string{"[192.0.2.1]"}, "10.0.0.1", proxy | malformed},
		{"a zone with a blank", []string{"fe80::1%a b"}, "10.0.0.1", proxy | malformed},
		{"a zone with a slash", []string{"fe80::1%a/b"}, "10.0.0.1", proxy | malformed},
		{"a zone with a bracket", []string{"[fe80::1%a[]"}, "10.0.0.1", proxy | malformed},
		{"a zone with a colon", []string{"fe80::1%a:1"}, "10.0.0.1", proxy | malformed},
		{"a zone without a name", []string{"fe80::1%"}, "10.0.0.1", proxy | malformed},
		{"a zone on IPv4", []string{"192.0.2.1%eth0"}, "10.0.0.1", proxy | malformed},
		{"an endless zone", []string{"fe80::1%" + strings.Repeat("z", 1000)}, "10.0.0.1", proxy | malformed},
		{"quotes are Forwarded's", []string{`"192.0.2.1"`}, "10.0.0.1", proxy | malformed},

		{"many blanks", []string{"192.0.2.1," + strings.Repeat(" ", 16000) + "10.0.0.2"}, "192.0.2.1", good},
		{"too many blanks", []string{"192.0.2.1," + strings.Repeat(" ", 20000) + "10.0.0.2"}, "10.0.0.1",
			proxy | malformed},
		{"nothing but too many blanks", []string{strings.Repeat(" ", 20000)}, "10.0.0.1", proxy | malformed},
		{"32 elements are read", []string{"192.0.2.1, " + many[:len(many)-2]}, "192.0.2.1", good},
		{"33 elements are not", []string{"192.0.2.1, " + many + "10.0.0.3"}, "10.0.0.2", proxy | malformed},
	}
	r := newResolver(t, "", "10.0.0.0/8", "fd00::/8", "198.51.100.7")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := r.Resolve(peer, http.Header{"X-Forwarded-For": test.values})
			check(t, got, test.want, test.how)
			if got := r.ResolveAddr(addr("10.0.0.1"), test.values...); got.Addr != addr(test.want) {
				t.Errorf("ResolveAddr: %v, want %v", got.Addr, test.want)
			}
		})
	}
}

// check compares a result for a request that a trusted peer sent.
func check(t *testing.T, got clientaddr.Result, want string, how int) {
	t.Helper()
	if got.Addr != addr(want) {
		t.Errorf("Addr = %v, want %q", got.Addr, want)
	}
	if !got.PeerTrusted {
		t.Error("the peer is not trusted")
	}
	if got.Proxy != (how&proxy != 0) {
		t.Errorf("Proxy = %v", got.Proxy)
	}
	if got.Malformed != (how&malformed != 0) {
		t.Errorf("Malformed = %v", got.Malformed)
	}
	if got.Missing != (how&missing != 0) {
		t.Errorf("Missing = %v", got.Missing)
	}
}

func TestResolveReadsForwarded(t *testing.T) {
	tests := []struct {
		name   string
		values []string
		want   string
		how    int
	}{
		{"one", []string{"for=192.0.2.1"}, "192.0.2.1", good},
		{"names in any case", []string{"FoR=192.0.2.1"}, "192.0.2.1", good},
		{"RFC 7239 §4", []string{`for=192.0.2.60;proto=http;by=203.0.113.43, for="[2001:db8::17]:4711"`},
			"2001:db8::17", good},
		{"for need not stand first", []string{"by=203.0.113.43;proto=http;for=192.0.2.1"}, "192.0.2.1", good},
		{"blanks around semicolons", []string{"by=203.0.113.43 ; for=192.0.2.1 ; proto=http"}, "192.0.2.1", good},
		{"a semicolon at the end", []string{"for=192.0.2.1;"}, "192.0.2.1", good},
		{"trusted ones are passed", []string{"for=6.6.6.6, for=192.0.2.1;by=10.0.0.3",
			`for="10.0.0.3:80";proto=http`}, "192.0.2.1", good},
		{"port", []string{`for="192.0.2.1:80"`}, "192.0.2.1", good},
		{"obfuscated port", []string{`for="192.0.2.1:_gaz-0.nk"`}, "192.0.2.1", good},
		{"escaped characters", []string{`for="\[2001\:db8::1]"`}, "2001:db8::1", good},
		{"a comma in quotes", []string{`for=192.0.2.1;host="a, for=6.6.6.6"`}, "192.0.2.1", good},
		{"a semicolon in quotes", []string{`for=192.0.2.1;host="a;for=6.6.6.6"`}, "192.0.2.1", good},
		{"quotes in quotes", []string{`for=192.0.2.1;host="a\",for=6.6.6.6;x=\"b"`}, "192.0.2.1", good},
		{"a backslash before the last quote", []string{`for=192.0.2.1;host="a\\"`}, "192.0.2.1", good},
		{"an IPv6 address without quotes", []string{"for=[2001:db8::1]:443"}, "2001:db8::1", good},
		{"without brackets", []string{`for="2001:db8::1"`}, "2001:db8::1", good},
		{"other parameters need not be valid", []string{"for=192.0.2.1;@!=ä;;x"}, "192.0.2.1", good},

		{"a quote that the client left open", []string{`for="6.6.6.6, for=192.0.2.1`}, "192.0.2.1", good},
		{"the same before quotes of the proxy", []string{`for="6.6.6.6, for="[2001:db8::1]:80"`}, "2001:db8::1", good},
		{"a backslash left behind by the client", []string{`for="\, for="[2001:db8::1]"`}, "2001:db8::1", good},
		{"a quote left open on a line before", []string{`for="6.6.6.6`, "for=192.0.2.1"}, "192.0.2.1", good},

		{"a long parameter", []string{"for=6.6.6.6, for=192.0.2.1;x=" + strings.Repeat("y", 16000)}, "192.0.2.1", good},
		{"a client's endless text on the left", []string{strings.Repeat(`";`, 20000) + ", for=192.0.2.1"},
			"192.0.2.1", good},

		{"too long a parameter", []string{"for=6.6.6.6, for=192.0.2.1;x=" + strings.Repeat("y", 20000)}, "10.0.0.1",
			proxy | malformed},
		{"too long a text in quotes", []string{`for=192.0.2.1;x="` + strings.Repeat("y", 20000) + `"`}, "10.0.0.1",
			proxy | malformed},
		{"unknown stops", []string{"for=192.0.2.1, for=unknown"}, "10.0.0.1", proxy | malformed},
		{"obfuscated stops", []string{"for=192.0.2.1, for=_hidden, for=10.0.0.2"}, "10.0.0.2", proxy | malformed},
		{"no for stops", []string{"for=192.0.2.1, proto=https"}, "10.0.0.1", proxy | malformed},
		{"an empty element stops", []string{"for=192.0.2.1,"}, "10.0.0.1", proxy | malformed},
		{"two of them stop", []string{"for=192.0.2.1;for=192.0.2.2"}, "10.0.0.1", proxy | malformed},
		{"two of them stop, though one is trusted", []string{"for=6.6.6.6, for=10.0.0.2;for=unknown"}, "10.0.0.1",
			proxy | malformed},
		{"blanks around =", []string{"for = 192.0.2.1"}, "10.0.0.1", proxy | malformed},
		{"empty", []string{"for="}, "10.0.0.1", proxy | malformed},
		{"empty quotes", []string{`for=""`}, "10.0.0.1", proxy | malformed},
		{"a quote not closed", []string{`for="192.0.2.1`}, "10.0.0.1", proxy | malformed},
		{"a quote not opened", []string{`for=192.0.2.1"`}, "10.0.0.1", proxy | malformed},
		{"a quote in the middle", []string{`for="[2001:db8::1"]`}, "10.0.0.1", proxy | malformed},
		{"an escape without quotes", []string{`for=192.0.2.\1`}, "10.0.0.1", proxy | malformed},
		{"a port only", []string{"for=:80"}, "10.0.0.1", proxy | malformed},
		{"an empty obfuscated port", []string{`for="192.0.2.1:_"`}, "10.0.0.1", proxy | malformed},
		{"X-Forwarded-For's form", []string{"192.0.2.1"}, "10.0.0.1", proxy | malformed},
		{"absent", nil, "10.0.0.1", proxy | missing},
		{"all trusted", []string{"for=10.0.0.3, for=10.0.0.2"}, "10.0.0.3", proxy | good},
	}
	r := newResolver(t, "forwarded", "10.0.0.0/8")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check(t, r.Resolve(peer, http.Header{"Forwarded": test.values}), test.want, test.how)
		})
	}
}

func TestResolveReadsSingleValueHeaders(t *testing.T) {
	tests := []struct {
		name   string
		values []string
		want   string
		how    int
	}{
		{"one", []string{"192.0.2.1"}, "192.0.2.1", good},
		{"blanks", []string{" 192.0.2.1 "}, "192.0.2.1", good},
		{"port", []string{"[2001:db8::1]:443"}, "2001:db8::1", good},
		{"twice: the last", []string{"6.6.6.6", "192.0.2.1"}, "192.0.2.1", good},
		{"a trusted one", []string{"10.0.0.7"}, "10.0.0.7", proxy | good},
		{"a list is not one", []string{"6.6.6.6, 192.0.2.1"}, "10.0.0.1", proxy | malformed},
		{"a list, empty on the left", []string{", 192.0.2.1"}, "10.0.0.1", proxy | malformed},
		{"the last unreadable", []string{"6.6.6.6", "unknown"}, "10.0.0.1", proxy | malformed},
		{"unspecified", []string{"0.0.0.0"}, "10.0.0.1", proxy | malformed},
		{"absent", nil, "10.0.0.1", proxy | missing},
	}
	for _, name := range []string{"X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "Fastly-Client-IP",
		"X-Azure-ClientIP", "x-our-own"} {
		r := newResolver(t, name, "10.0.0.0/8")
		for _, test := range tests {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				header := http.Header{"X-Forwarded-For": {"6.6.6.6"}}
				for _, value := range test.values {
					header.Add(name, value)
				}
				check(t, r.Resolve(peer, header), test.want, test.how)
			})
		}
	}
}

// unreadHeader fails the test when a header is read.
type unreadHeader struct{ t *testing.T }

func (a unreadHeader) Values(name string) []string {
	a.t.Errorf("the header %s was read", name)
	return []string{"6.6.6.6"}
}

func TestResolveNeverReadsAnUntrustedPeersHeaders(t *testing.T) {
	for _, header := range []string{"", "Forwarded", "X-Real-IP"} {
		r := newResolver(t, header, "10.0.0.0/8", "loopback")
		for _, peer := range []string{"192.0.2.1:1", "[2001:db8::1]:1", "ohno", "0.0.0.0:1", "[::]:1", "", "@",
			"/run/x.sock",
			"[64:ff9b::10.0.0.1]:1", "[64:ff9b::127.0.0.1]:1"} {
			if got := r.Resolve(peer, unreadHeader{t}); got.PeerTrusted || got.Proxy || got.Missing || got.Malformed {
				t.Errorf("Resolve(%q) = %+v", peer, got)
			}
		}
	}
	got := newResolver(t, "").Resolve("127.0.0.1:1", unreadHeader{t})
	if got.Addr != addr("127.0.0.1") || got.PeerTrusted {
		t.Errorf("without trusted proxies: %+v", got)
	}
}

func TestResolveReadsThePeer(t *testing.T) {
	tests := []struct{ peer, want string }{
		{"192.0.2.1:4711", "192.0.2.1"},
		{"192.0.2.1", "192.0.2.1"},
		{"[2001:db8::1]:4711", "2001:db8::1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[fe80::1%eth0]:4711", "fe80::1"},
		{"[::ffff:192.0.2.1]:4711", "192.0.2.1"},
		{"[64:ff9b::192.0.2.1]:4711", "192.0.2.1"},
		{"[64:ff9b::10.0.0.1]:4711", "64:ff9b::a00:1"},
		{"[64:ff9b:1::192.0.2.1]:4711", "64:ff9b:1::c000:201"}, // RFC 8215: another prefix
		{"[2002:c000:201::1]:4711", "2002:c000:201::1"},        // 6to4 is not translated
		{"0.0.0.0:4711", ""},
		{"[::]:4711", ""},
		{"", ""},
		{"@", ""},
		{"ohno", ""},
		{"192.0.2.1:port", ""},
	}
	r := newResolver(t, "")
	for _, test := range tests {
		if got := r.Resolve(test.peer, nil); got.Addr != addr(test.want) || got.Peer != got.Addr {
			t.Errorf("Resolve(%q) = %v, peer %v, want %q", test.peer, got.Addr, got.Peer, test.want)
		}
	}
}

func TestUnixPeersAreTrustedOnlyIfConfigured(t *testing.T) {
	header := http.Header{"X-Forwarded-For": {"192.0.2.1"}}
	without, with := newResolver(t, "", "loopback"), newResolver(t, "", "unix")
	for _, peer := range []string{"", "@", "@name", "/run/fairshare.sock", "unix:", "unix:/run/x.sock"} {
		if got := without.Resolve(peer, header); got != (clientaddr.Result{}) {
			t.Errorf("without unix: Resolve(%q) = %+v", peer, got)
		}
		if got := with.Resolve(peer, header); got.Addr != addr("192.0.2.1") || !got.PeerTrusted || got.Proxy {
			t.Errorf("with unix: Resolve(%q) = %+v", peer, got)
		}
		want := clientaddr.Result{PeerTrusted: true, Proxy: true, Missing: true}
		if got := with.Resolve(peer, http.Header{}); got != want {
			t.Errorf("with unix, no header: Resolve(%q) = %+v", peer, got)
		}
		if without.TrustsPeer(peer) || !with.TrustsPeer(peer) {
			t.Errorf("TrustsPeer(%q)", peer)
		}
	}
	for _, peer := range []string{"ohno", "127.0.0.1:1", "0.0.0.0"} {
		if with.Resolve(peer, header).PeerTrusted {
			t.Errorf("unix trusts %q", peer)
		}
	}
	if got := with.ResolveAddr(netip.Addr{}, "192.0.2.1"); got != (clientaddr.Result{}) {
		t.Errorf("ResolveAddr of no address = %+v", got)
	}
}

func TestResolveAddrTakesAnyForm(t *testing.T) {
	r := newResolver(t, "", "10.0.0.0/8", "fe80::/10", "64:ff9b::c633:640a")
	for _, peer := range []string{"10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "64:ff9b::198.51.100.10"} {
		if got := r.ResolveAddr(addr(peer), "192.0.2.1"); got.Addr != addr("192.0.2.1") {
			t.Errorf("ResolveAddr(%s) = %+v", peer, got)
		}
		if !r.Trusts(addr(peer)) {
			t.Errorf("Trusts(%s) = false", peer)
		}
	}
	if got := r.ResolveAddr(addr("10.0.0.1")); got.Addr != addr("10.0.0.1") || !got.Missing {
		t.Errorf("no header: %+v", got)
	}
	if got := r.ResolveAddr(addr("192.0.2.9"), "192.0.2.1"); got.Addr != addr("192.0.2.9") {
		t.Errorf("untrusted: %+v", got)
	}
}

func TestCanonical(t *testing.T) {
	tests := []struct{ in, want string }{
		{"192.0.2.1", "192.0.2.1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"::ffff:192.0.2.1%eth0", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"},
		{"64:ff9b::192.0.2.1", "192.0.2.1"},
		{"64:ff9b::192.0.2.1%eth0", "192.0.2.1"},
		{"64:ff9b::127.0.0.1", "64:ff9b::7f00:1"},
		{"64:ff9b::192.168.0.1", "64:ff9b::c0a8:1"},
		{"64:ff9b::169.254.169.254", "64:ff9b::a9fe:a9fe"},
		{"64:ff9b::100.64.0.1", "64:ff9b::6440:1"},
		{"64:ff9b::224.0.0.1", "64:ff9b::e000:1"},
		{"64:ff9b::", "64:ff9b::"},
		{"64:ff9b:0:0:1::1", "64:ff9b:0:0:1::1"},
		{"0.0.0.0", ""},
		{"::", ""},
		{"::%eth0", ""},
		{"::ffff:0.0.0.0", ""},
		{"", ""},
	}
	for _, test := range tests {
		got := clientaddr.Canonical(addr(test.in))
		if got != addr(test.want) {
			t.Errorf("Canonical(%s) = %v, want %q", test.in, got, test.want)
		}
		if again := clientaddr.Canonical(got); again != got {
			t.Errorf("Canonical(%v) = %v, not itself", got, again)
		}
	}
}

func TestTrustsEverybody(t *testing.T) {
	tests := []struct {
		trusted []string
		want    bool
	}{
		{nil, false},
		{[]string{"unix", "loopback", "private"}, false},
		{[]string{"0.0.0.0/0"}, true},
		{[]string{"::/0"}, true},
		{[]string{"::ffff:0.0.0.0/96"}, true},
		{[]string{"2000::/3"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/1"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/2"}, true},
		{[]string{"2000::/4", "3000::/4"}, true},
		{[]string{"0.0.0.0/1"}, false},
		{[]string{"2000::/4"}, false},
		{[]string{"cloudflare", "fastly"}, false},
	}
	for _, test := range tests {
		if got := newResolver(t, "", test.trusted...).TrustsEverybody(); got != test.want {
			t.Errorf("trusting %q: %v, want %v", test.trusted, got, test.want)
		}
	}
}

func TestNewReportsEveryFault(t *testing.T) {
	_, err := clientaddr.New(clientaddr.Config{
		TrustedProxies: []string{"loopback", "10.0.0.0/33", "private", "cloudflair"},
		Header:         "X Forwarded",
	})
	var faults clientaddr.ConfigErrors
	if !errors.As(err, &faults) {
		t.Fatalf("New: %v", err)
	}
	var got []string
	for _, fault := range faults {
		got = append(got, fault.Error())
	}
	want := []string{
		`trusted proxy "10.0.0.0/33": /33 is not a valid prefix length`,
		`trusted proxy "cloudflair": not a prefix, an address or a known name`,
		`header "X Forwarded": " " is not allowed in a header name`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if faults[0].Index != 1 || faults[1].Index != 3 || faults[2].Index != -1 {
		t.Errorf("places: %d, %d, %d", faults[0].Index, faults[1].Index, faults[2].Index)
	}
	if got, want := err.Error(), want[0]+" (and 2 more)"; got != want {
		t.Errorf("as one text: %s", got)
	}
	var one *clientaddr.ConfigError
	if !errors.As(err, &one) || one.Text != "10.0.0.0/33" {
		t.Errorf("errors.As finds %+v", one)
	}
}

func TestHeaderIsTheOneThatIsRead(t *testing.T) {
	tests := []struct {
		header  string
		trusted []string
		want    string
	}{
		{"", nil, ""},
		{"X-Real-IP", nil, ""},
		{"", []string{"unix"}, "X-Forwarded-For"},
		{"x-forwarded-for", []string{"loopback"}, "X-Forwarded-For"},
		{"FORWARDED", []string{"loopback"}, "Forwarded"},
		{"CF-Connecting-IP", []string{"loopback"}, "Cf-Connecting-Ip"},
	}
	for _, test := range tests {
		if got := newResolver(t, test.header, test.trusted...).Header(); got != test.want {
			t.Errorf("Header of %q trusting %q = %q, want %q", test.header, test.trusted, got, test.want)
		}
	}
}

// The host and proto of a request are those of the element that names the
// client: what stands before it was written by the client.
func TestForwardedHostAndProto(t *testing.T) {
	r := newResolver(t, "Forwarded", "10.0.0.0/8")
	for _, test := range []struct {
		values      []string
		host, proto string
	}{
		{nil, "", ""},
		{[]string{""}, "", ""},
		{[]string{"for=192.0.2.1"}, "", ""},
		{[]string{"for=192.0.2.1;host=a.example;proto=https"}, "a.example", "https"},
		{[]string{`HOST = x ; Proto=http;host="a.example:80" ;for="[2001:db8::1]:1"`}, "a.example:80", "http"},
		{[]string{"for=6.6.6.6;host=evil;proto=evil, for=192.0.2.1;host=a.example"}, "a.example", ""},
		{[]string{"for=6.6.6.6;host=evil;proto=evil", "for=192.0.2.1;proto=https"}, "", "https"},
		{[]string{"for=192.0.2.1;host=a.example;proto=https, for=10.0.0.1;host=inner;proto=http"}, "a.example",
			"https"},
		{[]string{`for=6.6.6.6;host="evil, for=192.0.2.1;host=a.example;proto=https`}, "a.example", "https"},
		{[]string{"for=192.0.2.1;host=a.example, for=unknown;host=evil"}, "", ""},
		{[]string{"for=unknown;host=evil, for=10.0.0.1;host=inner"}, "inner", ""},
		{[]string{"for=192.0.2.1;host=a;host=b"}, "", ""},
		{[]string{`for=192.0.2.1;host="a\"b"`}, "", ""},
		{[]string{`for=192.0.2.1;host="a,b;c"`}, "a,b;c", ""},
		{[]string{"for=192.0.2.1;host;proto="}, "", ""},
		{[]string{"for=6.6.6.6;host=evil" + strings.Repeat(", for=10.0.0.1;host=inner", 32)}, "inner", ""},
	} {
		if host, proto := r.Forwarded(test.values); host != test.host || proto != test.proto {
			t.Errorf("%q: %q, %q, want %q, %q", test.values, host, proto, test.host, test.proto)
		}
	}
}
