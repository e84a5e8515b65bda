package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/proxy"
	"fairshare/limittest"
)

// bots are the clients of the tests, by user agent.
var bots = map[string]fairshare.Bot{
	"known":    {Name: "some tool", State: fairshare.Claimed},
	"pending":  {Name: "crawler", State: fairshare.Pending},
	"verified": {Name: "crawler", State: fairshare.Verified},
	"forged":   {Name: "crawler", State: fairshare.Forged},
}

// judged puts a proxy for upstream behind a guard that recognizes bots by the user
// agent, and takes the client's address from X-Client.
func judged(t testing.TB, upstream string, c proxy.Config) http.Handler {
	t.Helper()
	var err error
	if c.Upstream, err = proxy.ParseUpstream(upstream); err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(&fairshare.Policy{}, limittest.NewModel(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(c)
	t.Cleanup(p.Close)
	return httpguard.New(guard, httpguard.Options{
		Client: func(r *http.Request) httpguard.Client {
			addr, _ := netip.ParseAddr(r.Header.Get("X-Client"))
			return httpguard.Client{Addr: addr}
		},
		Bot: func(_ netip.Addr, userAgent string) fairshare.Bot { return bots[userAgent] },
	}, p)
}

// identityLines returns the header lines by which the upstream learns the client.
func identityLines(t *testing.T, site http.Handler, header http.Header) []string {
	t.Helper()
	srv := httptest.NewServer(site)
	defer srv.Close()
	r, err := http.NewRequest("GET", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.Status, err)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(body)), "\r\n") {
		folded := strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == ':' {
				return c
			}
			return '-'
		}, strings.ToLower(line))
		if strings.HasPrefix(folded, "fairshare") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// The upstream learns the client as the guard judged it, and from nobody else.
func TestIdentityHeaders(t *testing.T) {
	upstream := mirror(t)
	all := func(string) bool { return true }
	forged := http.Header{}
	for _, name := range []string{"Client", "Bot", "Bot-State", "Session-Ttl", "Other"} {
		for _, spelled := range []string{"Fairshare-" + name, "FAIRSHARE-" + strings.ToUpper(name),
			"fairshare-" + strings.ToLower(name),
			"Fairshare_" + name, "fairshare_" + strings.ReplaceAll(name, "-", "_"), "FAIRSHARE_" + name,
			"Fairshare-" + strings.ReplaceAll(name, "-", "_"),
			"fairshare." + name, "Fairshare~" + name, "fairshare-" + strings.ReplaceAll(name, "-", "."),
			"Fairshare-" + name + "_"} {
			forged[spelled] = []string{"verified"}
			forged["Connection"] = append(forged["Connection"], spelled)
		}
	}
	for _, test := range []struct {
		name, agent, client string
		config              proxy.Config
		want                []string
	}{
		{"a person", "Mozilla/5.0", "192.0.2.1", proxy.Config{},
			[]string{"Fairshare-Client: 192.0.2.1", "Fairshare-Session-Ttl: 1800"}},
		{"an unknown address", "Mozilla/5.0", "", proxy.Config{}, []string{"Fairshare-Session-Ttl: 1800"}},
		{"a bot that cannot be verified", "known", "2001:db8::1", proxy.Config{},
			[]string{"Fairshare-Bot-State: known", "Fairshare-Bot: some tool", "Fairshare-Client: 2001:db8::1",
				"Fairshare-Session-Ttl: 120"}},
		{"a bot that is not verified yet", "pending", "192.0.2.1", proxy.Config{},
			[]string{"Fairshare-Bot-State: pending", "Fairshare-Bot: crawler", "Fairshare-Client: 192.0.2.1",
				"Fairshare-Session-Ttl: 120"}},
		{"a verified bot", "verified", "192.0.2.1", proxy.Config{},
			[]string{"Fairshare-Bot-State: verified", "Fairshare-Bot: crawler", "Fairshare-Client: 192.0.2.1",
				"Fairshare-Session-Ttl: 120"}},
		{"a forged bot", "forged", "192.0.2.1", proxy.Config{},
			[]string{"Fairshare-Bot-State: forged", "Fairshare-Bot: crawler", "Fairshare-Client: 192.0.2.1",
				"Fairshare-Session-Ttl: 120"}},
		{"configured times for a bot", "forged", "127.0.0.1",
			proxy.Config{Session: time.Hour, BotSession: 90 * time.Second},
			[]string{"Fairshare-Bot-State: forged", "Fairshare-Bot: crawler", "Fairshare-Client: 127.0.0.1",
				"Fairshare-Session-Ttl: 90"}},
		{"configured times for a person", "", "127.0.0.1",
			proxy.Config{Session: time.Hour, BotSession: 90 * time.Second},
			[]string{"Fairshare-Client: 127.0.0.1", "Fairshare-Session-Ttl: 3600"}},
		{"a header of a trusted proxy", "", "127.0.0.1", proxy.Config{Header: "Fairshare-Client"},
			[]string{"Fairshare-Client: 127.0.0.1", "Fairshare-Session-Ttl: 1800"}},
	} {
		for _, trusts := range []func(string) bool{nil, all} {
			for _, keep := range []bool{false, true} {
				test.config.Trusts, test.config.KeepUnderscores, test.config.Fields = trusts, keep, 1000
				for _, extra := range []http.Header{{}, forged} {
					h := http.Header{"User-Agent": {test.agent}, "X-Client": {test.client}}
					for name, values := range extra {
						h[name] = values
					}
					if got := identityLines(t, judged(t, upstream, test.config), h); !slices.Equal(got, test.want) {
						t.Errorf("%s, trusted %v, underscores %v, %d forged: the upstream gets %q, want %q",
							test.name, trusts != nil, keep, len(extra), got, test.want)
					}
				}
			}
		}
	}
}

// Without a guard the proxy sets no identity headers, and still removes those of the
// client.
func TestNoIdentityHeadersWithoutAGuard(t *testing.T) {
	u, err := proxy.ParseUpstream(mirror(t))
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: u, Trusts: func(string) bool { return true }})
	defer p.Close()
	if got := identityLines(t, p, http.Header{"Fairshare-Client": {"192.0.2.1"}, "Fairshare-Bot": {"crawler"},
		"fairshare_bot_state": {"verified"}}); got != nil {
		t.Errorf("the upstream gets %q", got)
	}
}

// HTTP/2 sends header names in lower case.
func TestIdentityHeadersCannotBeForgedByHTTP2(t *testing.T) {
	front := httptest.NewUnstartedServer(judged(t, mirror(t), proxy.Config{KeepUnderscores: true}))
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	r, err := http.NewRequest("GET", front.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"User-Agent": {"pending"}, "X-Client": {"192.0.2.1"}, "Fairshare-Bot-State": {"verified"},
		"fairshare_bot_state": {"verified"}, "fairshare-client": {"192.0.2.2"}}
	resp, err := front.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	head, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 || !strings.Contains(string(head), "Fairshare-Bot-State: pending\r\n") ||
		strings.Contains(string(head), "verified") || strings.Contains(string(head), "192.0.2.2") {
		t.Errorf("%s: the upstream gets %q, %v", resp.Proto, head, err)
	}
}

// Some upstreams read trailers like headers.
func TestIdentityHeadersCannotBeForgedInTrailers(t *testing.T) {
	got := make(chan http.Header, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}))
	defer upstream.Close()
	addr := serve(t, upstream.URL, proxy.Config{Trusts: func(string) bool { return true }, KeepUnderscores: true})
	resp, _ := exchange(t, addr,
		"POST / HTTP/1.1\nHost: a\nTrailer: Fairshare-Bot, X-Sum\nTransfer-Encoding: chunked\n\n1\nx\n0\nFairshare-Bot: crawler\nfairshare_client: 192.0.2.1\nX-Sum: 1\n\n")
	if trailer := <-got; len(trailer) > 0 || resp.StatusCode != 200 {
		t.Errorf("%d, and the upstream gets the trailer %v", resp.StatusCode, trailer)
	}
}

// Fairshare-Client uses the text of X-Forwarded-For if both are the same address.
func TestIdentityBehindATrustedProxy(t *testing.T) {
	site := judged(t, mirror(t), proxy.Config{Trusts: func(string) bool { return true }})
	for _, list := range [][]string{{"192.0.2.9"}, {"198.51.100.1, 192.0.2.9"},
		{"198.51.100.1", "198.51.100.2,\t192.0.2.9"}, {"192.0.2.9, 10.0.0.1"}, {""}, {","}} {
		got := identityLines(t, site, http.Header{"User-Agent": {"person"}, "X-Client": {"192.0.2.9"},
			"X-Forwarded-For": list})
		if want := []string{"Fairshare-Client: 192.0.2.9", "Fairshare-Session-Ttl: 1800"}; !slices.Equal(got, want) {
			t.Errorf("%q: the upstream gets %q, want %q", list, got, want)
		}
	}
}

// BenchmarkPassWithGuard is BenchmarkPass behind a guard that identifies the client.
func BenchmarkPassWithGuard(b *testing.B) {
	for _, agent := range []string{"person", "verified"} {
		b.Run(agent, func(b *testing.B) { benchmarkPass(b, agent) })
	}
}

func benchmarkPass(b *testing.B, agent string) {
	site := judged(b, quick(b), proxy.Config{})
	b.ReportAllocs()
	for b.Loop() {
		r, done := visit()
		r.Header["User-Agent"], r.Header["X-Client"] = []string{agent}, []string{"192.0.2.1"}
		w := &discard{header: make(http.Header)}
		site.ServeHTTP(w, r)
		done()
		if w.status != 200 {
			b.Fatalf("status %d", w.status)
		}
	}
}
