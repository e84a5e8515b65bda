package clientaddr_test

import (
	"fmt"
	"net/http"
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

// ask has a Watch look at a request of peer.
func ask(w *clientaddr.Watch, r *clientaddr.Resolver, peer string, texts ...string) (suspect bool) {
	h := headers(texts...)
	return w.Look(r, r.Resolve(peer, h), h)
}

// forward has peer ask n times for three clients in turn, whom header names.
func forward(w *clientaddr.Watch, r *clientaddr.Resolver, peer, header string, n int) (suspect bool) {
	for i := range n {
		suspect = ask(w, r, peer, fmt.Sprintf("%s: 192.0.2.%d", header, i%3))
	}
	return suspect
}

const xff = "X-Forwarded-For"

func TestPeerIsSuspectedFromItsHundredthRequestForThreeClientsOn(t *testing.T) {
	for _, peer := range []string{"127.0.0.1:1", "[::1]:1", "10.0.0.1:1", "172.31.0.1:1", "192.168.1.1:1", "[fd00::1]:1",
		"169.254.1.1:1", "[fe80::1%eth0]:1", "[::ffff:127.0.0.1]:1", "@", "/run/x.sock"} {
		w, r := clientaddr.NewWatch(), newResolver(t, "")
		for i := range 99 {
			if ask(w, r, peer, fmt.Sprintf("X-Forwarded-For: 6.6.6.6, 192.0.2.%d", i%3)) {
				t.Fatalf("%s: suspected after %d requests", peer, i+1)
			}
		}
		for i := range 50 {
			if !ask(w, r, peer, "X-Forwarded-For: 192.0.2.1") {
				t.Fatalf("%s: not suspected after %d requests", peer, 100+i)
			}
		}
		if !ask(w, r, peer) {
			t.Errorf("%s: a request without a header passes for another's", peer)
		}
		if !w.Suspects(r.Resolve(peer, nil).Peer) || w.Suspects(addr("10.99.0.1")) || w.Suspects(addr("192.0.2.1")) {
			t.Errorf("%s: Suspects says otherwise", peer)
		}
	}
}

// values is a Header that is no http.Header.
type values func(name string) []string

func (v values) Values(name string) []string { return v(name) }

func TestLookReadsAnyHeader(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	suspect := false
	for i := range 100 {
		h := values(func(name string) []string {
			if name == "X-Real-Ip" {
				return []string{fmt.Sprintf("192.0.2.%d", i)}
			}
			return nil
		})
		suspect = w.Look(r, r.Resolve("127.0.0.1:1", h), h)
	}
	if !suspect {
		t.Error("not suspected")
	}
}

func TestWhoIsNotSuspected(t *testing.T) {
	third := func(i int) string { return fmt.Sprintf("192.0.2.%d", i%3) }
	tests := []struct {
		name, peer string
		trusted    []string
		header     func(i int) string
	}{
		{"public", "192.0.2.1:1", nil, func(i int) string { return "X-Forwarded-For: " + third(i) }},
		{"public IPv6", "[2001:db8::1]:1", nil, func(i int) string { return "X-Forwarded-For: " + third(i) }},
		{"carrier's NAT", "100.64.0.1:1", nil, func(i int) string { return "X-Forwarded-For: " + third(i) }},
		{"no address", "ohno", []string{"unix"}, func(i int) string { return "X-Forwarded-For: " }},
		{"trusted", "127.0.0.1:1", []string{"loopback"}, func(i int) string { return "X-Forwarded-For: " + third(i) }},
		{"trusted socket", "@", []string{"unix"}, func(i int) string { return "X-Forwarded-For: " + third(i) }},
		{"no header", "127.0.0.1:1", nil, func(int) string { return "Accept: */*" }},
		{"another header", "127.0.0.1:1", nil, func(i int) string { return "X-Remote-Address: " + third(i) }},
		{"empty headers", "127.0.0.1:1", nil, func(int) string { return "X-Forwarded-For:  " }},
		{"two clients", "127.0.0.1:1", nil, func(i int) string { return fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%2) }},
		{"forged on the left", "127.0.0.1:1", nil, func(i int) string { return fmt.Sprintf("X-Forwarded-For: 192.0.2.%d, 198.51.100.1", i) }},
		{"one client in many forms", "127.0.0.1:1", nil, func(i int) string {
			return "X-Forwarded-For: " + []string{"192.0.2.1", "192.0.2.1:80", "::ffff:192.0.2.1", "[64:ff9b::192.0.2.1]:1"}[i%4]
		}},
		{"not to be read", "127.0.0.1:1", nil, func(i int) string { return fmt.Sprintf("X-Forwarded-For: %d", i) }},
		{"trusted proxies forwarded", "127.0.0.1:1", []string{"10.0.0.0/8"}, func(i int) string { return fmt.Sprintf("X-Forwarded-For: 10.0.0.%d", i) }},
		{"two clients behind trusted proxies", "127.0.0.1:1", []string{"10.0.0.0/8"}, func(i int) string {
			return fmt.Sprintf("X-Forwarded-For: 192.0.2.%d, 10.0.0.%d", i%2, i)
		}},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), newResolver(t, "", test.trusted...)
		for i := range 250 {
			if ask(w, r, test.peer, test.header(i)) {
				t.Errorf("%s: suspected after %d", test.name, i+1)
				break
			}
		}
		for _, line := range w.Lines(noon, r) {
			if strings.Contains(line, "that nobody named") {
				t.Errorf("%s: %s", test.name, line)
			}
		}
	}
}

// A CDN is trusted, but our own nginx between it and us is not.
func TestClientsBehindTrustedProxiesCount(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "", "cloudflare")
	suspect := false
	for i := range 100 {
		suspect = ask(w, r, "127.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d, 104.16.0.1", i))
	}
	if !suspect {
		t.Error("nginx behind Cloudflare is not suspected")
	}
	got := w.Lines(noon, r)
	if len(got) != 1 || !strings.HasSuffix(got[0], "\n  trusted_proxies: [cloudflare, 127.0.0.1]\n  header: X-Forwarded-For") {
		t.Errorf("%q", got)
	}
}

// said takes a text apart: its words, and the lines for the policy file.
func said(t *testing.T, text string) (words string, trusted []string, header string) {
	t.Helper()
	words, lines, _ := strings.Cut(text, "\n")
	var policy struct {
		Clients struct {
			Trusted []string `yaml:"trusted_proxies"`
			Header  string   `yaml:"header"`
		} `yaml:"clients"`
	}
	if err := yaml.UnmarshalWithOptions([]byte(lines), &policy, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if _, err := clientaddr.New(clientaddr.Config{TrustedProxies: policy.Clients.Trusted, Header: policy.Clients.Header}); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return words, policy.Clients.Trusted, policy.Clients.Header
}

func TestSuspectedProxyIsSaidWithTheLinesToAdd(t *testing.T) {
	tests := []struct {
		name    string
		trusted []string
		header  string
		do      func(w *clientaddr.Watch, r *clientaddr.Resolver)
		words   []string // that the text holds
		want    []string
		wantBy  string
	}{
		{"nginx on this machine", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "127.0.0.1:1", xff, 340)
		}, []string{"127.0.0.1 looks like a proxy", "X-Forwarded-For in ", "If it is yours and sets the header itself"}, []string{"127.0.0.1"}, xff},
		{"IPv6", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "[::1]:1", xff, 100)
		}, []string{"::1 looks", "in 100 of 100 requests"}, []string{"::1"}, xff},
		{"Unix socket", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 100 {
				ask(w, r, "@", fmt.Sprintf(`Forwarded: for="[2001:db8::%d]:80"`, i))
			}
		}, []string{"who asks on the Unix socket looks like"}, []string{"unix"}, "Forwarded"},
		{"its own header, clients' lists passed on", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 200 {
				h := []string{fmt.Sprintf("X-Real-IP: 192.0.2.%d", i)}
				if i%5 == 0 {
					h = append(h, "X-Forwarded-For: 6.6.6.6")
				}
				ask(w, r, "10.0.0.5:1", h...)
			}
		}, []string{"10.0.0.5 looks", "X-Real-IP in "}, []string{"10.0.0.5"}, "X-Real-IP"},
		{"both: the list is safer", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 200 {
				ask(w, r, "10.0.0.5:1", fmt.Sprintf("X-Real-IP: 192.0.2.%d", i), fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
			}
		}, nil, []string{"10.0.0.5"}, xff},
		{"both, but for health checks", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 100 {
				h := []string{fmt.Sprintf("X-Real-IP: 192.0.2.%d", i)}
				if i%20 != 0 {
					h = append(h, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
				}
				ask(w, r, "10.0.0.5:1", h...)
			}
		}, []string{"in 95 of 100"}, []string{"10.0.0.5"}, xff},
		{"clients' own lists alone", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 400 {
				if ask(w, r, "127.0.0.1:1"); i < 150 {
					ask(w, r, "127.0.0.1:1", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
				}
			}
		}, []string{"clients may have sent it", "have the proxy set it always (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"}, []string{"127.0.0.1"}, xff},
		{"others are trusted", []string{"10.0.0.0/8", "2001:db8::/32"}, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "127.0.0.1:1", xff, 100)
		}, nil, []string{"10.0.0.0/8", "2001:db8::/32", "127.0.0.1"}, xff},
		{"others send another header", []string{"10.0.0.0/8"}, "X-Real-IP", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			forward(w, r, "127.0.0.1:1", xff, 100)
		}, []string{"the others have to send X-Forwarded-For too"}, []string{"10.0.0.0/8", "127.0.0.1"}, xff},
		{"the policy's header where it is sent", []string{"10.0.0.0/8"}, "X-Real-IP", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 100 {
				ask(w, r, "127.0.0.1:1", fmt.Sprintf("Forwarded: for=192.0.2.%d", i), fmt.Sprintf("X-Real-IP: 192.0.2.%d", i))
			}
		}, nil, []string{"10.0.0.0/8", "127.0.0.1"}, "X-Real-IP"},
		{"several", nil, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for _, peer := range []string{"10.0.0.9:1", "127.0.0.1:1", "10.0.0.8:1"} {
				forward(w, r, peer, xff, 100)
			}
		}, []string{"10.0.0.8 and 2 more look like proxies", "they are never banned", "If they are yours and set"}, []string{"10.0.0.8", "10.0.0.9", "127.0.0.1"}, xff},
		{"many", []string{"private"}, "", func(w *clientaddr.Watch, r *clientaddr.Resolver) {
			for i := range 9 {
				forward(w, r, fmt.Sprintf("127.0.0.%d:1", i+1), xff, 100)
			}
		}, []string{"127.0.0.1 and 8 more look like proxies"}, []string{"private", "loopback"}, xff},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), newResolver(t, test.header, test.trusted...)
		test.do(w, r)
		lines := w.Lines(noon, r)
		if len(lines) == 0 {
			t.Errorf("%s: nothing is said", test.name)
			continue
		}
		words, trusted, header := said(t, lines[0])
		for _, word := range test.words {
			if !strings.Contains(words, word) {
				t.Errorf("%s: %q is not in %s", test.name, word, words)
			}
		}
		if !slices.Equal(trusted, test.want) || header != test.wantBy {
			t.Errorf("%s: %s", test.name, lines[0])
		}
		if again := w.Lines(noon.Add(time.Minute), r); len(again) != 0 {
			t.Errorf("%s: said without a request: %q", test.name, again)
		}
	}
}

// The whole text, once, as it stands in the log.
func TestSuspectedProxyText(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	forward(w, r, "127.0.0.1:1", xff, 100)
	want := "127.0.0.1 looks like a proxy that nobody named: X-Forwarded-For in 100 of 100 requests looked at, of 100 in all, for 3 or more clients, who all count as one. " +
		"Unless suspected_proxies is enforce, it is never banned and limits that count by client only report for it. " +
		"If it is yours and sets the header itself (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;), add to the policy:\nclients:\n  trusted_proxies: [127.0.0.1]\n  header: X-Forwarded-For"
	if got := w.Lines(noon, r); !slices.Equal(got, []string{want}) {
		t.Errorf("%q", got)
	}
	ask(w, r, "127.0.0.1:1")
	if got := w.Lines(noon.Add(time.Minute), r); len(got) != 1 {
		t.Errorf("the next minute: %q", got)
	}
}

func TestTrustEndsSuspicion(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	if !forward(w, r, "127.0.0.1:1", xff, 100) {
		t.Fatal("not suspected")
	}
	w.Lines(noon, r)
	r = newResolver(t, "", "loopback")
	if forward(w, r, "127.0.0.1:1", xff, 10) {
		t.Error("a trusted proxy is suspected")
	}
	if got := w.Lines(noon.Add(time.Minute), r); len(got) != 0 {
		t.Errorf("%q", got)
	}
	ask(w, newResolver(t, ""), "127.0.0.1:1") // in progress while trust came
	if got := w.Lines(noon.Add(2*time.Minute), r); len(got) != 0 {
		t.Errorf("trusted, and said: %q", got)
	}
	if r = newResolver(t, ""); !ask(w, r, "127.0.0.1:1") {
		t.Error("trusted no more within the hour: not suspected")
	}
}

func TestSuspicionEndsAnHourAfterTheLastHeader(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	forward(w, r, "127.0.0.1:1", xff, 100)
	now := noon
	for ; now.Before(noon.Add(30 * time.Minute)); now = now.Add(time.Minute) {
		ask(w, r, "127.0.0.1:1")
		w.Lines(now, r)
	}
	ask(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1") // one is enough
	w.Lines(now, r)
	for i := range 60 {
		if !ask(w, r, "127.0.0.1:1") {
			t.Fatalf("not suspected %d minutes after a header", i)
		}
		now = now.Add(time.Minute)
		w.Lines(now, r)
	}
	if ask(w, r, "127.0.0.1:1") {
		t.Error("suspected an hour after the last header")
	}
	if !forward(w, r, "127.0.0.1:1", xff, 100) {
		t.Error("not suspected anew")
	}
}

func TestWatchIsBounded(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	peer := func(i int) string { return fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255) }
	for i := range 1000 { // sends no header: at most 128 of these are kept
		ask(w, r, peer(i), "User-Agent: curl")
	}
	if !forward(w, r, "192.168.0.1:1", xff, 100) {
		t.Error("silent peers keep a proxy from being found")
	}
	for i := range 1000 {
		ask(w, r, peer(1000+i), "X-Forwarded-For: 192.0.2.1")
	}
	if forward(w, r, "192.168.0.2:1", xff, 200) {
		t.Error("more than 256 peers are watched")
	}
	if !forward(w, r, "192.168.0.1:1", xff, 1) {
		t.Error("a flood of peers frees a suspected one")
	}
	w.Lines(noon, r)
	w.Lines(noon.Add(time.Minute), r) // those who ask no more make room
	if !ask(w, r, "192.168.0.1:1") {
		t.Error("a suspected peer is forgotten after a minute")
	}
	if !forward(w, r, "192.168.0.2:1", xff, 100) {
		t.Error("idle peers are not forgotten")
	}
}

func TestSilentPeerWithManyUserAgentsIsSaidOnceAnHour(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	for i := range 100 {
		if ask(w, r, "127.0.0.1:1", fmt.Sprintf("User-Agent: browser %d", i%9)) {
			t.Fatal("suspected without a header")
		}
	}
	if got := w.Lines(noon, r); len(got) != 0 {
		t.Errorf("nine user agents: %q", got)
	}
	if ask(w, r, "127.0.0.1:1") { // none at all is the tenth
		t.Fatal("suspected without a header")
	}
	lines := w.Lines(noon.Add(time.Minute), r)
	if len(lines) != 1 {
		t.Fatalf("%q", lines)
	}
	words, trusted, header := said(t, lines[0])
	if !strings.HasPrefix(words, "127.0.0.1 may be a proxy: no header names a client, and there are 10 or more user agents") ||
		!strings.Contains(words, "nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;") ||
		!slices.Equal(trusted, []string{"127.0.0.1"}) || header != xff {
		t.Errorf("%s", lines[0])
	}
	for i := 2; i < 61; i++ {
		ask(w, r, "127.0.0.1:1")
		if got := w.Lines(noon.Add(time.Duration(i)*time.Minute), r); len(got) != 0 {
			t.Fatalf("said again after %d minutes: %q", i-1, got)
		}
	}
	ask(w, r, "127.0.0.1:1")
	if got := w.Lines(noon.Add(61*time.Minute), r); len(got) != 1 {
		t.Errorf("after an hour: %q", got)
	}
}

func TestTrustedProxyThatNamesNoClientIsSaid(t *testing.T) {
	const nginx = " (nginx: proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)"
	tests := []struct {
		name, header string
		do           func(ask func(peer string, headers ...string))
		want         []string
	}{
		{"all is well", "", func(ask func(string, ...string)) {
			ask("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
		}, nil},
		{"no header", "", func(ask func(string, ...string)) {
			for range 340 {
				ask("127.0.0.1:1")
			}
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 340 of its 340 requests in the last minute: they all count as one client" + nginx}},
		{"with some", "", func(ask func(string, ...string)) {
			for i := range 100 {
				if ask("127.0.0.1:1"); i > 0 {
					ask("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
				}
			}
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 100 of its 199 requests in the last minute: they all count as one client" + nginx}},
		{"another header", "", func(ask func(string, ...string)) {
			for range 70 {
				ask("@", "X-Real-IP: 192.0.2.1")
			}
		}, []string{"the trusted proxy on the Unix socket sent no X-Forwarded-For with 70 of its 70 requests in the last minute: they all count as one client" + nginx +
			"; 70 of them carried X-Real-IP: if the proxy sets that itself, say header: X-Real-IP"}},
		{"another header, now and then", "", func(ask func(string, ...string)) {
			for range 70 {
				ask("127.0.0.1:1")
			}
			ask("127.0.0.1:1", "X-Real-IP: 192.0.2.1")
		}, []string{"the trusted proxy 127.0.0.1 sent no X-Forwarded-For with 71 of its 71 requests in the last minute: they all count as one client" + nginx}},
		{"several", "CF-Connecting-IP", func(ask func(string, ...string)) {
			for range 2 {
				ask("127.0.0.2:1")
			}
			ask("127.0.0.1:1")
			ask("127.0.0.3:1")
		}, []string{"the trusted proxy 127.0.0.2 sent no CF-Connecting-IP with 2 of its 2 requests in the last minute: they all count as one client; 2 more trusted proxies do so too"}},
		{"not to be read", "", func(ask func(string, ...string)) {
			ask("127.0.0.1:1", "X-Forwarded-For: \x1b[31munknown")
			ask("127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
		}, []string{"the trusted proxy 127.0.0.1 sent X-Forwarded-For that cannot be read to its end with 1 of its 2 requests in the last minute: they count as the last address that could be read, or as the proxy"}},
		{"who is not trusted may do as it likes", "", func(ask func(string, ...string)) {
			ask("192.0.2.1:1")
			ask("192.0.2.1:1", "X-Forwarded-For: unknown")
		}, nil},
	}
	for _, test := range tests {
		w, r := clientaddr.NewWatch(), newResolver(t, test.header, "loopback", "unix")
		test.do(func(peer string, texts ...string) {
			if ask(w, r, peer, texts...) {
				t.Errorf("%s: suspected", test.name)
			}
		})
		if got := w.Lines(noon, r); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%q, want\n%q", test.name, got, test.want)
		}
		if got := w.Lines(noon.Add(time.Minute), r); len(got) != 0 {
			t.Errorf("%s: said again without a request: %q", test.name, got)
		}
	}
}

// A proxy's own health checks carry no header.
func TestHealthChecksAreSaidOnceAnHour(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "", "loopback")
	var saidAt []int
	for i := range 130 {
		for range 12 {
			ask(w, r, "127.0.0.1:1", "User-Agent: ELB-HealthChecker/2.0")
		}
		if len(w.Lines(noon.Add(time.Duration(i)*time.Minute), r)) > 0 {
			saidAt = append(saidAt, i)
		}
	}
	if want := []int{0, 60, 120}; !slices.Equal(saidAt, want) {
		t.Errorf("said in the minutes %v, want %v", saidAt, want)
	}
	ask(w, r, "127.0.0.1:1", "User-Agent: Firefox")
	if got := w.Lines(noon.Add(130*time.Minute), r); len(got) != 1 {
		t.Errorf("with another client: %q", got)
	}
}

// What the proxy names a client in nine of ten requests is no trouble.
func TestFewMissingHeadersAreSaidOnceAnHour(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "", "loopback")
	for i := range 60 {
		for j := range 1000 {
			if j < 70 {
				ask(w, r, "127.0.0.1:1", fmt.Sprintf("User-Agent: %d", j))
			} else {
				ask(w, r, "127.0.0.1:1", "X-Forwarded-For: 192.0.2.1")
			}
		}
		if got := w.Lines(noon.Add(time.Duration(i)*time.Minute), r); len(got) != 0 != (i == 0) {
			t.Fatalf("minute %d: %q", i, got)
		}
	}
}

func TestTrustedProxiesAreForgottenAnHourAfterTheLastFailure(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "", "private")
	for i := range 300 {
		ask(w, r, fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255))
	}
	if got := w.Lines(noon, r); len(got) != 1 || !strings.Contains(got[0], "; 255 more trusted proxies do so too") {
		t.Errorf("%q", got)
	}
	w.Lines(noon.Add(time.Hour), r)
	ask(w, r, "192.168.0.1:1")
	if got := w.Lines(noon.Add(61*time.Minute), r); len(got) != 1 || !strings.HasPrefix(got[0], "the trusted proxy 192.168.0.1 sent no") {
		t.Errorf("%q", got)
	}
}

func TestWatchIsSafeForConcurrentUse(t *testing.T) {
	w, open, trusting := clientaddr.NewWatch(), newResolver(t, ""), newResolver(t, "", "loopback")
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
				ask(w, r, peer, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i%5), fmt.Sprintf("User-Agent: %d", i))
				ask(w, r, "10.9.9.9:1", fmt.Sprintf("User-Agent: %d", i))
				ask(w, r, "127.0.0.2:1")
			}
		})
	}
	for i := range 20 {
		w.Lines(noon.Add(time.Duration(i)*time.Minute), open)
	}
	all.Wait()
	if !ask(w, open, "127.0.0.1:1") {
		t.Error("not suspected after 2000 requests for five clients")
	}
	if got := w.Lines(noon.Add(30*time.Minute), trusting); len(got) == 0 {
		t.Error("nothing is said")
	}
}

func FuzzLook(f *testing.F) {
	for _, peer := range []string{"127.0.0.1:1", "@", "10.0.0.1:1", "192.0.2.1:1"} {
		f.Add(peer, "6.6.6.6, 192.0.2.1", `for="[2001:db8::1]"`, "192.0.2.1", "curl\n\x1b[31m")
		f.Add(peer, "", "", "", "")
	}
	resolvers := []*clientaddr.Resolver{newResolver(f, ""), newResolver(f, "", "loopback", "unix", "192.0.2.0/24"), newResolver(f, "X-Real-IP", "private")}
	f.Fuzz(func(t *testing.T, peer, list, forwarded, single, agent string) {
		for _, r := range resolvers {
			w := clientaddr.NewWatch()
			h := http.Header{"X-Forwarded-For": {list, list}, "Forwarded": {forwarded}, "X-Real-Ip": {single}, "Cf-Connecting-Ip": {single}, "User-Agent": {agent}}
			for i := range 120 {
				if i%3 == 0 {
					h["X-Forwarded-For"] = []string{list + fmt.Sprintf(", 198.51.100.%d", i)}
				}
				res := r.Resolve(peer, h)
				suspect := w.Look(r, res, h)
				if suspect && (res.PeerTrusted || res.Peer.IsGlobalUnicast() && !res.Peer.IsPrivate()) {
					t.Fatalf("%q is suspected: %+v", peer, res)
				}
			}
			w.Look(r, r.Resolve(peer, nil), nil)
			for _, line := range w.Lines(noon, r) {
				words, _, _ := strings.Cut(line, "\n")
				if strings.ContainsFunc(words, func(c rune) bool { return c < ' ' || c > '~' }) {
					t.Errorf("client text in %q", line)
				}
			}
		}
	})
}

func TestPeerThatHidesItsClients(t *testing.T) {
	w, r := clientaddr.NewWatch(), newResolver(t, "")
	for i := range 100 {
		if w.Hides(addr("127.0.0.1")) || w.Hides(addr("192.0.2.1")) {
			t.Fatalf("after %d requests", i)
		}
		ask(w, r, "127.0.0.1:1", fmt.Sprint("User-Agent: ", i%10))
		ask(w, r, "192.0.2.1:1", fmt.Sprint("User-Agent: ", i%10))
		ask(w, r, "127.0.0.2:1", fmt.Sprint("User-Agent: ", i%9))
	}
	if !w.Hides(addr("127.0.0.1")) {
		t.Error("ten user agents in a hundred requests are those of several clients")
	}
	if w.Hides(addr("127.0.0.2")) || w.Hides(addr("192.0.2.1")) {
		t.Error("nine user agents, or a public address, are nothing special")
	}
}
