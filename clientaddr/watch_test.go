package clientaddr_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"fairshare/clientaddr"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// headers makes a header of "Name: value" texts.
func headers(texts ...string) http.Header {
	h := http.Header{}
	for _, text := range texts {
		name, value, _ := strings.Cut(text, ": ")
		h.Add(name, value)
	}
	return h
}

// namingResolver is a Resolver that takes clients provisionally.
func namingResolver(t testing.TB, header string, trusted ...string) *clientaddr.Resolver {
	t.Helper()
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: trusted, Header: header, Provisional: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send has a Watch look at a request of peer, and returns whose it is.
func send(w *clientaddr.Watch, r *clientaddr.Resolver, peer string, texts ...string) clientaddr.Result {
	h := headers(texts...)
	res := r.Resolve(peer, h)
	w.Observe(r, res, h)
	return res
}

// forward has peer ask n times for three clients in turn, whom header names.
func forward(w *clientaddr.Watch, r *clientaddr.Resolver, peer, header string, n int) {
	for i := range n {
		send(w, r, peer, fmt.Sprintf("%s: 192.0.2.%d", header, i%3))
	}
}

const xff = "X-Forwarded-For"

// From the first request on, a peer of this machine or its private network
// names its clients; no other peer does.
func TestLocalPeerNamesClientsProvisionally(t *testing.T) {
	const client = "X-Forwarded-For: 6.6.6.6, 192.0.2.7"
	tests := []struct {
		name, peer, header string // of the policy
		trusted            []string
		texts              []string
		want, via          string // "" for none
	}{
		{"nginx here", "127.0.0.1:1", "", nil, []string{client}, "192.0.2.7", "127.0.0.1"},
		{"IPv6", "[::1]:1", "", nil, []string{client}, "192.0.2.7", "::1"},
		{"private", "10.0.0.1:1", "", nil, []string{client}, "192.0.2.7", "10.0.0.1"},
		{"a container's gateway", "172.17.0.1:1", "", nil, []string{client}, "192.0.2.7", "172.17.0.1"},
		{"private IPv6", "[fd00::1]:1", "", nil, []string{client}, "192.0.2.7", "fd00::1"},
		{"link-local with a zone", "[fe80::1%eth0]:1", "", nil, []string{client}, "192.0.2.7", "fe80::1"},
		{"mapped", "[::ffff:127.0.0.1]:1", "", nil, []string{client}, "192.0.2.7", "127.0.0.1"},
		{"a Unix socket", "@", "", nil, []string{client}, "192.0.2.7", "::"},
		{"IPv6 client", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For: 2001:db8::1"}, "2001:db8::1", "127.0.0.1"},
		{"others are trusted", "127.0.0.1:1", "", []string{"10.0.0.0/8"}, []string{client}, "192.0.2.7", "127.0.0.1"},
		{"trusted proxies behind it", "127.0.0.1:1", "", []string{"cloudflare"},
			[]string{"X-Forwarded-For: 192.0.2.7, 104.16.0.1"}, "192.0.2.7", "127.0.0.1"},
		{"two header lines", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For: 192.0.2.6",
			"X-Forwarded-For: 192.0.2.7"}, "192.0.2.7", "127.0.0.1"},

		{"Forwarded", "127.0.0.1:1", "", nil, []string{`Forwarded: for="[2001:db8::1]:80"`}, "2001:db8::1",
			"127.0.0.1"},
		{"X-Real-IP", "127.0.0.1:1", "", nil, []string{"X-Real-IP: 192.0.2.8"}, "192.0.2.8", "127.0.0.1"},
		{"the list goes first", "127.0.0.1:1", "", nil, []string{"X-Real-IP: 192.0.2.8", client}, "192.0.2.7",
			"127.0.0.1"},
		{"but for the configured one", "127.0.0.1:1", "X-Real-IP", nil, []string{"X-Real-IP: 192.0.2.8", client},
			"192.0.2.8", "127.0.0.1"},
		{"a header of its own", "127.0.0.1:1", "X-Shop-Client", nil, []string{"X-Shop-Client: 192.0.2.8", client},
			"192.0.2.8", "127.0.0.1"},
		{"the configured one is absent", "127.0.0.1:1", "X-Real-IP", nil, []string{client}, "192.0.2.7", "127.0.0.1"},
		{"what cannot be read is passed over", "127.0.0.1:1", "", nil,
			[]string{"X-Forwarded-For: unknown", "X-Real-IP: 192.0.2.8"}, "192.0.2.8", "127.0.0.1"},

		{"no header", "127.0.0.1:1", "", nil, nil, "127.0.0.1", ""},
		{"no header on a socket", "@", "", nil, nil, "", ""},
		{"an unreadable one", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For: 192.0.2.7, unknown"}, "127.0.0.1", ""},
		{"an empty one", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For:  "}, "127.0.0.1", ""},
		{"another header", "127.0.0.1:1", "", nil, []string{"X-Remote-Address: 192.0.2.7"}, "127.0.0.1", ""},
		{"unspecified address", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For: 0.0.0.0"}, "127.0.0.1", ""},
		{"the peer itself", "127.0.0.1:1", "", nil, []string{"X-Forwarded-For: 127.0.0.1"}, "127.0.0.1", ""},
		{"trusted proxies alone", "127.0.0.1:1", "", []string{"10.0.0.0/8"}, []string{"X-Forwarded-For: 10.0.0.7"},
			"127.0.0.1", ""},
		{"public", "192.0.2.1:1", "", nil, []string{client}, "192.0.2.1", ""},
		{"public IPv6", "[2001:db8::1]:1", "", nil, []string{client}, "2001:db8::1", ""},
		{"a carrier's NAT", "100.64.0.1:1", "", nil, []string{client}, "100.64.0.1", ""},
		{"no address", "ohno", "", nil, []string{client}, "", ""},
		{"unspecified peer", "0.0.0.0:1", "", nil, []string{client}, "", ""},
		{"trusted", "127.0.0.1:1", "", []string{"loopback"}, []string{client}, "192.0.2.7", ""},
		{"a trusted socket", "@", "", []string{"unix"}, []string{client}, "192.0.2.7", ""},
	}
	text := func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	for _, test := range tests {
		r := namingResolver(t, test.header, test.trusted...)
		h := headers(test.texts...)
		for _, h := range []clientaddr.Header{h, values(h.Values)} {
			if got := r.Resolve(test.peer, h); text(got.Addr) != test.want || text(got.Via) != test.via {
				t.Errorf("%s: %v via %v, want %s via %s", test.name, got.Addr, got.Via, test.want, test.via)
			}
		}
		denied := newResolver(t, test.header, test.trusted...)
		if got := denied.Resolve(test.peer, h); got.Via.IsValid() || test.via != "" && got.Addr != got.Peer {
			t.Errorf("%s, denied: %+v", test.name, got)
		}
	}
}

// A log holds one header, and its value is read as that of a connection.
func TestLoggedHeaderNamesClientsProvisionally(t *testing.T) {
	r := namingResolver(t, "")
	if got := r.ResolveAddr(addr("172.17.0.1"), "6.6.6.6, 192.0.2.7"); got.Addr != addr("192.0.2.7") ||
		got.Via != addr("172.17.0.1") {
		t.Errorf("private: %+v", got)
	}
	if got := r.ResolveAddr(addr("198.51.100.1"), "192.0.2.7"); got.Addr != addr("198.51.100.1") || got.Via.IsValid() {
		t.Errorf("public: %+v", got)
	}
	if got := newResolver(t, "").ResolveAddr(addr("172.17.0.1"), "192.0.2.7"); got.Addr != addr("172.17.0.1") ||
		got.Via.IsValid() {
		t.Errorf("denied: %+v", got)
	}
}

// values is a Header that is not an http.Header.
type values func(name string) []string

func (v values) Values(name string) []string { return v(name) }

// splitReport splits a report into its sentences, the trusted proxies and header of
// the policy lines that trust the peers, and the lines that deny them.
func splitReport(t *testing.T, report string) (text string, trusted []string, header, deny string) {
	t.Helper()
	for part := range strings.SplitSeq(report, "\n\n") {
		head, lines, found := strings.Cut(part, "\n")
		text += head + " "
		if !found {
			continue
		}
		var policy struct {
			Clients struct {
				Trusted []string `yaml:"trusted_proxies"`
				Header  string   `yaml:"header"`
				Unnamed string   `yaml:"unnamed_proxies"`
			} `yaml:"clients"`
		}
		if err := yaml.UnmarshalWithOptions([]byte(lines), &policy, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", report, err)
		}
		if policy.Clients.Header == "" {
			deny = lines
			continue
		}
		if _, err := clientaddr.New(clientaddr.Config{TrustedProxies: policy.Clients.Trusted,
			Header: policy.Clients.Header}); err != nil {
			t.Errorf("%s: %v", report, err)
		}
		trusted, header = policy.Clients.Trusted, policy.Clients.Header
	}
	return text, trusted, header, deny
}

func TestPeerThatNamesClientsIsReportedWithPolicyLines(t *testing.T) {
	tests := []struct {
		name    string
		trusted []string
		header  string
		do      func(w *clientaddr.Watch, r *clientaddr.Resolver)
		text    []string // that the text holds
		want    []string
		wantBy  string
	}{
		{"nginx on this machine", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "127.0.0.1:1", xff, 340)
		}, []string{"127.0.0.1 is not a trusted proxy but names clients", "340 of 340 requests named 3 or more clients",
			"If it is a reverse proxy that sets X-Forwarded-For itself"}, []string{"127.0.0.1"}, xff},
		{"IPv6", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "[::1]:1", xff, 100)
		}, []string{"::1 is no", "100 of 100 requests"}, []string{"::1"}, xff},
		{"Unix socket", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 100 {
				send(w, r, "@", fmt.Sprintf(`Forwarded: for="[2001:db8::%d]:80"`, i))
			}
		}, []string{"the peer on the Unix socket is no"}, []string{"unix"}, "Forwarded"},
		{"its own header, clients' lists passed on", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 200 {
				h := []string{fmt.Sprintf("X-Real-IP: 192.0.2.%d", i)}
				if i%5 == 0 {
					h = append(h, "X-Forwarded-For: 6.6.6.6")
				}
				send(w, r, "10.0.0.5:1", h...)
			}
		}, []string{"10.0.0.5 is", "sets X-Real-IP itself"}, []string{"10.0.0.5"}, "X-Real-IP"},
		{"both: the list is safer", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 200 {
				send(w, r, "10.0.0.5:1", fmt.Sprintf("X-Real-IP: 192.0.2.%d", i),
					fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
			}
		}, nil, []string{"10.0.0.5"}, xff},
		{"both, but for health checks", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 100 {
				h := []string{fmt.Sprintf("X-Real-IP: 192.0.2.%d", i)}
				if i%20 != 0 {
					h = append(h, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
				}
				send(w, r, "10.0.0.5:1", h...)
			}
		}, []string{"100 of 100"}, []string{"10.0.0.5"}, xff},
		{"clients' own lists alone", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 400 {
				if send(w, r, "127.0.0.1:1"); i < 150 {
					send(w, r, "127.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
				}
			}
		}, []string{"150 of 550 requests", "clients may have sent it themselves. If it only translates addresses"},
			[]string{"127.0.0.1"}, xff},
		{"others are trusted", []string{"10.0.0.0/8", "2001:db8::/32"}, "",
			func(w *clientaddr.Watch, r *clientaddr.Resolver) {
				forward(w, r, "127.0.0.1:1", xff, 100)
			}, nil, []string{"10.0.0.0/8", "2001:db8::/32", "127.0.0.1"}, xff},
		{"others send another header", []string{"10.0.0.0/8"}, "X-Real-IP",
			func(w *clientaddr.Watch, r *clientaddr.Resolver) {
				forward(w, r, "127.0.0.1:1", xff, 100)
			}, []string{"the others must send X-Forwarded-For too"}, []string{"10.0.0.0/8", "127.0.0.1"}, xff},
		{"the policy's header where it is sent", []string{"10.0.0.0/8"}, "X-Real-IP",
			func(w *clientaddr.Watch, r *clientaddr.Resolver) {
				for i := range 100 {
					send(w, r, "127.0.0.1:1", fmt.Sprintf("Forwarded: for=192.0.2.%d", i),
						fmt.Sprintf("X-Real-IP: 192.0.2.%d", i))
				}
			}, nil, []string{"10.0.0.0/8", "127.0.0.1"}, "X-Real-IP"},
		{"several", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for _, peer := range []string{"10.0.0.9:1", "127.0.0.1:1", "10.0.0.8:1"} {
				forward(w, r, peer, xff, 100)
			}
		}, []string{"10.0.0.8 and 2 more are not trusted proxies", "If each is a reverse proxy",
			"If they only translate"}, []string{"10.0.0.8", "10.0.0.9", "127.0.0.1"}, xff},
		{"many", []string{"private"}, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 9 {
				forward(w, r, fmt.Sprintf("127.0.0.%d:1", i+1), xff, 100)
			}
		}, []string{"127.0.0.1 and 8 more are no"}, []string{"private", "loopback"}, xff},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), namingResolver(t, test.header, test.trusted...)
		test.do(w, r)
		lines := w.Reports(noon, r)
		if len(lines) == 0 {
			t.Errorf("%s: nothing is said", test.name)
			continue
		}
		text, trusted, header, deny := splitReport(t, lines[0])
		if want := "clients:\n  trusted_proxies: []"; len(test.trusted) == 0 && deny != want ||
			len(test.trusted) > 0 && deny != "clients:\n  unnamed_proxies: ignore" {
			t.Errorf("%s: to deny it: %q", test.name, deny)
		}
		for _, word := range test.text {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is not in %s", test.name, word, text)
			}
		}
		if !slices.Equal(trusted, test.want) || header != test.wantBy {
			t.Errorf("%s: %s", test.name, lines[0])
		}
		if again := w.Reports(noon.Add(time.Minute), r); len(again) != 0 {
			t.Errorf("%s: said without a request: %q", test.name, again)
		}
	}
}

// The whole text of the log, which is complete after one request.
func TestTextAboutAPeerThatNamesClients(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "")
	send(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
	want := "127.0.0.1 is not a trusted proxy but names clients: 1 of 1 requests named 1 or more clients. " +
		"Each of these clients is counted provisionally, by its address together with this peer: limits and bans apply to it, permissions do not. " +
		"If it is a reverse proxy that sets X-Forwarded-For itself (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;), add to the policy:" +
		"\nclients:\n  trusted_proxies: [127.0.0.1]\n  header: X-Forwarded-For\n\n" +
		"If it only translates addresses (NAT, a forwarded port of a container), the clients wrote the header themselves; add to the policy:" +
		"\nclients:\n  trusted_proxies: []"
	if got := w.Reports(noon, r); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
	send(w, r, "127.0.0.1:1")
	if got := w.Reports(noon.Add(time.Minute), r); len(got) != 0 {
		t.Errorf("a minute without a header: %q", got)
	}
	send(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
	if got := w.Reports(noon.Add(2*time.Minute), r); len(got) != 1 {
		t.Errorf("the next minute with one: %q", got)
	}
	send(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
	for name, settled := range map[string]*clientaddr.Resolver{"named": namingResolver(t, "", "loopback"),
		"denied": newResolver(t, "")} {
		send(w, settled, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
		if got := w.Reports(noon.Add(3*time.Minute), settled); len(got) != 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// However many peers come, the watch keeps some, and every client that a peer
// names is found all the same: that takes no memory.
func TestWatchIsBounded(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "")
	peer := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	for i := range 1000 { // sends no header: at most 128 of these are kept
		send(w, r, peer(i), "User-Agent: curl")
	}
	forward(w, r, "192.168.0.1:1", xff, 1)
	if got := w.Reports(noon, r); len(got) != 1 || !strings.HasPrefix(got[0], "192.168.0.1 is not a trusted proxy") {
		t.Errorf("silent peers keep one that names clients from being found: %q", got)
	}
	for i := range 100_000 {
		if got := send(w, r, peer(1000+i), "X-Forwarded-For: 192.0.2.1"); got.Addr != addr("192.0.2.1") ||
			!got.Via.IsValid() {
			t.Fatalf("peer %d: %+v", i, got)
		}
	}
	if got := w.Reports(noon.Add(time.Minute), r); len(got) != 1 ||
		!strings.Contains(got[0], " and 126 more are not trusted proxies") {
		t.Errorf("not 256 peers are watched, with the 128 silent and the first one: %q", got)
	}
}

func TestPeerWithManyUserAgentsIsReportedOnceAnHour(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "")
	for i := range 100 {
		send(w, r, "127.0.0.1:1", fmt.Sprintf("User-Agent: browser %d", i%9))
	}
	if got := w.Reports(noon, r); len(got) != 0 {
		t.Errorf("nine user agents: %q", got)
	}
	send(w, r, "127.0.0.1:1") // none at all is the tenth
	lines := w.Reports(noon.Add(time.Minute), r)
	if len(lines) != 1 {
		t.Fatalf("%q", lines)
	}
	text, trusted, header, _ := splitReport(t, lines[0])
	if !strings.HasPrefix(text,
		"127.0.0.1 may be a proxy: no header names a client, but there are 10 or more user agents") ||
		!strings.Contains(text, "nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;") ||
		!slices.Equal(trusted, []string{"127.0.0.1"}) || header != xff {
		t.Errorf("%s", lines[0])
	}
	for i := 2; i < 61; i++ {
		send(w, r, "127.0.0.1:1")
		if got := w.Reports(noon.Add(time.Duration(i)*time.Minute), r); len(got) != 0 {
			t.Fatalf("said again after %d minutes: %q", i-1, got)
		}
	}
	send(w, r, "127.0.0.1:1")
	if got := w.Reports(noon.Add(61*time.Minute), r); len(got) != 1 {
		t.Errorf("after an hour: %q", got)
	}
}

func TestTrustedProxyThatNamesNoClientIsReported(t *testing.T) {
	const nginx = " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"
	tests := []struct {
		name, header string
		do           func(send func(peer string, headers ...string))
		want         []string
	}{
		{"all is well", "", func(send func(string, ...string)) {
			send("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
		}, nil},
		{"no header", "", func(send func(string, ...string)) {
			for range 340 {
				send("127.0.0.1:1")
			}
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 340 of its 340 requests in the last minute: they all count as one client" + nginx}},
		{"with some", "", func(send func(string, ...string)) {
			for i := range 100 {
				if send("127.0.0.1:1"); i > 0 {
					send("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
				}
			}
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 100 of its 199 requests in the last minute: they all count as one client" + nginx}},
		{"another header", "", func(send func(string, ...string)) {
			for range 70 {
				send("@", "X-Real-IP: 192.0.2.1")
			}
		}, []string{"the trusted proxy on the Unix socket sent no X-Forwarded-For with 70 of its 70 requests in the last minute: they all count as one client" + nginx +
			"; 70 of them carried X-Real-IP: if the proxy sets that itself, write header: X-Real-IP"}},
		{"another header, now and then", "", func(send func(string, ...string)) {
			for range 70 {
				send("127.0.0.1:1")
			}
			send("127.0.0.1:1", "X-Real-IP: 192.0.2.1")
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 71 of its 71 requests in the last minute: they all count as one client" + nginx}},
		{"several", "CF-Connecting-IP", func(send func(string, ...string)) {
			for i := range 21 {
				agent := fmt.Sprint("User-Agent: ", i)
				if send("127.0.0.2:1", agent); i < 20 {
					send("127.0.0.1:1", agent)
					send("127.0.0.3:1", agent)
				}
			}
		}, []string{"the trusted proxy 127.0.0.2 sent no CF-Connecting-IP with 21 of its 21 requests in the last minute: they all count as one client; 2 more trusted proxies do the same"}},
		{"not to be read", "", func(send func(string, ...string)) {
			for range 20 {
				send("127.0.0.1:1", "X-Forwarded-For: \x1b[31munknown")
				send("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
			}
		}, []string{"the trusted proxy 127.0.0.1 sent an unreadable X-Forwarded-For with 20 of its 40 requests in the last minute: they count as the last readable address, or as the proxy"}},
		{"an untrusted peer is not reported", "", func(send func(string, ...string)) {
			send("192.0.2.1:1")
			send("192.0.2.1:1", "X-Forwarded-For: unknown")
		}, nil},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), namingResolver(t, test.header, "loopback", "unix")
		test.do(func(peer string, texts ...string) {
			if send(w, r, peer, texts...).Via.IsValid() {
				t.Errorf("%s: provisional", test.name)
			}
		})
		if got := w.Reports(noon, r); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%q, want\n%q", test.name, got, test.want)
		}
		if got := w.Reports(noon.Add(time.Minute), r); len(got) != 0 {
			t.Errorf("%s: said again without a request: %q", test.name, got)
		}
	}
}

// Each story is one of a trusted proxy, with what it sends in each minute. Some
// requests have no header: each of these is of the next of so many user agents.
func TestTrustedProxyIsReportedForMoreThanHealthChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	type minute struct {
		named, missing, malformed int
		agents                    int // of the missing ones; 0 is 1
	}
	every := func(m minute) func(int) minute { return func(int) minute { return m } }
	tests := []struct {
		name    string
		minutes int
		sends   func(i int) minute
		want    []int // minutes with a report
	}{
		{"one health check, once", 130, func(i int) minute {
			if i == 0 {
				return minute{missing: 1}
			}
			return minute{named: 3}
		}, nil},
		{"one health check and nothing else at all", 130, func(i int) minute {
			if i == 0 {
				return minute{missing: 1}
			}
			return minute{}
		}, nil},
		{"a monitor each 10 s and nothing else", 300, every(minute{missing: 6}), nil},
		{"a monitor each second and nothing else", 300, every(minute{missing: 60}), nil},
		{"two monitors and few visitors", 300, every(minute{named: 2, missing: 18, agents: 2}), nil},
		{"a monitor by day and by night", 300, func(i int) minute {
			return minute{named: max(0, i-150) * 10, missing: 6}
		}, nil},
		{"a monitor, and one header in an hour that cannot be read", 300, func(i int) minute {
			m := minute{named: 1, missing: 6}
			if i%60 == 30 {
				m.malformed = 1
			}
			return m
		}, nil},
		{"one of twenty visitors is not named", 300, every(minute{named: 950, missing: 50, agents: 50}), nil},
		{"a little more of them", 4, every(minute{named: 940, missing: 60, agents: 60}), []int{0, 1, 2, 3}},
		{"no visitor is named", 3, every(minute{missing: 400, agents: 9}), []int{0, 1, 2}},
		{"no visitor is named, and all have one user agent", 3, every(minute{missing: 61}), []int{0, 1, 2}},
		{"no visitor of a quiet site is named", 15, every(minute{missing: 4, agents: 4}), []int{4, 9, 14}},
		{"no visitor of a quiet site is named, and a monitor asks", 12, every(minute{missing: 7, agents: 3}),
			[]int{2, 5, 8, 11}},
		{"few requests", 300, func(i int) minute {
			if i%10 == 0 {
				return minute{missing: 3, agents: 3}
			}
			return minute{}
		}, nil}, // 18 in an hour
		{"the header was lost by a change", 70, func(i int) minute {
			if i < 65 {
				return minute{named: 199, missing: 1}
			}
			return minute{missing: 200, agents: 20}
		}, []int{65, 66, 67, 68, 69}},
		{"one header of twenty cannot be read", 130, every(minute{named: 95, malformed: 5}), nil},
		{"a little more of them cannot be read", 12, every(minute{named: 94, malformed: 6}), []int{3, 7, 11}},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), namingResolver(t, "", "loopback")
		var got []int
		for i := range test.minutes {
			m := test.sends(i)
			for j := range m.missing {
				send(w, r, "127.0.0.1:1", fmt.Sprint("User-Agent: ", j%max(m.agents, 1)))
			}
			for range m.malformed {
				send(w, r, "127.0.0.1:1", "X-Forwarded-For: unknown")
			}
			for range m.named {
				send(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
			}
			if len(w.Reports(noon.Add(time.Duration(i)*time.Minute), r)) > 0 {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: reported in the minutes %v, want %v", test.name, got, test.want)
		}
	}
}

// A report names the time in which the requests came.
func TestReportOfATrustedProxyNamesItsPeriod(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "", "loopback")
	for i := range 5 {
		for j := range 4 {
			send(w, r, "127.0.0.1:1", fmt.Sprint("User-Agent: ", j))
		}
		got := w.Reports(noon.Add(time.Duration(i)*time.Minute), r)
		if i < 4 && len(got) > 0 || i == 4 && (len(got) != 1 ||
			!strings.Contains(got[0], "with 20 of its 20 requests in the last 5 minutes: ")) {
			t.Errorf("minute %d: %q", i, got)
		}
	}
}

func TestTrustedProxiesAreForgottenAnHourAfterTheLastFailure(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "", "private")
	fail := func(peer string) {
		for i := range 20 {
			send(w, r, peer, fmt.Sprint("User-Agent: ", i))
		}
	}
	for i := range 300 {
		fail(fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255))
	}
	if got := w.Reports(noon, r); len(got) != 1 || !strings.Contains(got[0], "; 255 more trusted proxies do the same") {
		t.Errorf("%q", got)
	}
	fail("192.168.0.1:1")
	if got := w.Reports(noon.Add(time.Minute), r); len(got) != 0 {
		t.Errorf("more than 256 proxies are watched: %q", got)
	}
	w.Reports(noon.Add(time.Hour), r)
	fail("192.168.0.1:1")
	if got := w.Reports(noon.Add(61*time.Minute), r); len(got) != 1 ||
		!strings.HasPrefix(got[0], "the trusted proxy 192.168.0.1 sent no") {
		t.Errorf("%q", got)
	}
}

func TestWatchIsSafeForConcurrentUse(t *testing.T) {
	w, open, trusting := clientaddr.NewWatch(), namingResolver(t, ""), namingResolver(t, "", "loopback")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 2000 {
				r := open
				if i%7 == 0 {
					r = trusting
				}
				peer := fmt.Sprintf("10.0.%d.%d:1", g, i%100)
				if i%2 == 0 {
					peer = "127.0.0.1:1"
				}
				send(w, r, peer, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%5), fmt.Sprintf("User-Agent: %d", i))
				send(w, r, "10.9.9.9:1", fmt.Sprintf("User-Agent: %d", i))
				send(w, r, "127.0.0.2:1")
			}
		})
	}
	for i := range 20 {
		w.Reports(noon.Add(time.Duration(i)*time.Minute), open)
	}
	all.Wait()
	send(w, open, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
	if got := w.Reports(noon.Add(29*time.Minute), open); len(got) == 0 ||
		!strings.Contains(got[0], "named 5 or more clients") {
		t.Errorf("%q", got)
	}
}

func FuzzLook(f *testing.F) {
	for _, peer := range []string{"127.0.0.1:1", "@", "10.0.0.1:1", "192.0.2.1:1"} {
		f.Add(peer, "6.6.6.6, 192.0.2.1", `for="[2001:db8::1]"`, "192.0.2.1", "curl\n\x1b[31m")
		f.Add(peer, "", "", "", "")
	}
	resolvers := []*clientaddr.Resolver{namingResolver(f, ""),
		namingResolver(f, "", "loopback", "unix", "192.0.2.0/24"), namingResolver(f, "X-Real-IP", "private")}
	f.Fuzz(func(t *testing.T, peer, list, forwarded, single, agent string) {
		for _, r := range resolvers {
			w := clientaddr.NewWatch()
			h := http.Header{"X-Forwarded-For": {list, list}, "Forwarded": {forwarded}, "X-Real-Ip": {single},
				"Cf-Connecting-Ip": {single}, "User-Agent": {agent}}
			for i := range 120 {
				if i%3 == 0 {
					h["X-Forwarded-For"] = []string{list + fmt.Sprintf(", 198.51.100.%d", i)}
				}
				res := r.Resolve(peer, h)
				w.Observe(r, res, h)
				if res.Via.IsValid() && (res.PeerTrusted || res.Peer.IsGlobalUnicast() && !res.Peer.IsPrivate() ||
					!res.Addr.IsValid() || res.Addr == res.Peer) {
					t.Fatalf("%q names clients: %+v", peer, res)
				}
			}
			w.Observe(r, r.Resolve(peer, nil), nil)
			for _, line := range w.Reports(noon, r) {
				if strings.ContainsFunc(line, func(c rune) bool { return c != '\n' && c < ' ' || c > '~' }) {
					t.Errorf("client text in %q", line)
				}
			}
		}
	})
}

func TestPeerThatHidesItsClients(t *testing.T) {
	w, r := clientaddr.NewWatch(), namingResolver(t, "")
	for i := range 100 {
		if w.HidesClients(addr("127.0.0.1")) || w.HidesClients(addr("192.0.2.1")) {
			t.Fatalf("after %d requests", i)
		}
		send(w, r, "127.0.0.1:1", fmt.Sprint("User-Agent: ", i%10))
		send(w, r, "192.0.2.1:1", fmt.Sprint("User-Agent: ", i%10))
		send(w, r, "127.0.0.2:1", fmt.Sprint("User-Agent: ", i%9))
	}
	if !w.HidesClients(addr("127.0.0.1")) {
		t.Error("ten user agents in a hundred requests are those of several clients")
	}
	if w.HidesClients(addr("127.0.0.2")) || w.HidesClients(addr("192.0.2.1")) {
		t.Error("nine user agents, or a public address, are nothing special")
	}
}
