package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/httpfield"
	"fairshare/limittest"
)

// The upstream gets the identity of an untrusted client only from the proxy, in any
// spelling of header names. A trusted proxy chooses neither the path nor the address.
func FuzzRewriteHeader(f *testing.F) {
	for _, s := range []string{
		"X_Forwarded-For: 1\r\nConnection: x-forwarded-for, Upgrade\r\nUpgrade: websocket\r\n",
		"X-Original-URL: /a\r\nx_rewrite_url: /a\r\nX-Client-IP: 1\r\nX-Host: evil\r\nX-Forwarded-Port: 1\r\n",
		"Forwarded: for=1\r\nTE: trailers\r\nX.Forwarded.For: 1\r\n", "cf_connecting_ip: 1\r\nConnection: ,\r\n",
		"Upgrade: h2c\r\n",
		"Fairshare-Client: 1\r\nfairshare_bot: a\r\nFAIRSHARE-Bot_State: verified\r\nfairshare.session.ttl: 9\r\nConnection: Fairshare-Bot, fairshare-session-ttl\r\n",
	} {
		for i := range 4 {
			f.Add(s, i&1 != 0, i&2 != 0)
		}
	}
	bot := fairshare.Bot{Name: "some bot", State: fairshare.Forged}
	f.Fuzz(func(t *testing.T, sent string, keep, trusted bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: site\r\n" + sent +
			"\r\n")))
		if err != nil {
			return
		}
		r.RemoteAddr = "192.0.2.7:1"
		s := New(Config{Upstream: &urlOfNobody, Header: "CF-Connecting-IP", KeepUnderscores: keep,
			Trusts: func(string) bool { return trusted }, Hosts: []string{"site"}}).setup.Load()
		upgrade := s.pools[0].websocket(r)
		judged(t, bot, r, func(w http.ResponseWriter) { setFields(r.Header, s.rewriteHeader(nil, w, r, upgrade)) })
		h := r.Header
		set := map[string]string{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http",
			"X-Forwarded-Host": r.Host,
			"Fairshare-Client": "192.0.2.7", "Fairshare-Bot": "some bot", "Fairshare-Bot-State": "forged",
			"Fairshare-Session-Ttl": "120"}
		for name, want := range set {
			if got := h[name]; len(got) != 1 || got[0] != want &&
				!(trusted && name == "X-Forwarded-Proto" && validScheme(got[0])) &&
				!(name == "X-Forwarded-Host" && trusted && s.hosts.status(got[0]) == 200) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		for name := range h {
			folded := strings.ToLower(strings.Map(func(c rune) rune {
				if c == '_' {
					return '-'
				}
				return c
			}, name))
			switch {
			case set[name] != "":
			case upgrade && (name == "Connection" || name == "Upgrade"):
			case name == "Te" && len(h[name]) == 1 && h[name][0] == "trailers":
			case forbidden.MatchString(folded), !trusted && fromProxies.MatchString(folded):
				t.Errorf("%q passes", name)
			case addresses.MatchString(folded) && (!trusted || h[name][0] != "192.0.2.7"):
				t.Errorf("%q passes: %q", name, h[name])
			case strings.HasSuffix(folded, "-host") && fromProxies.MatchString(folded) &&
				s.hosts.status(h[name][0]) != 200:
				t.Errorf("%q passes: %q", name, h[name])
			case !keep && strings.Contains(name, "_"):
				t.Errorf("%q passes", name)
			}
			for _, c := range []byte(folded) {
				if !alphanumeric(c) && c != '-' {
					t.Errorf("%q passes", name)
				}
			}
		}
	})
}

// Headers that never pass, those that only trusted proxies may send, and those whose
// value becomes the judged address.
var (
	forbidden = regexp.MustCompile(
		`^(fairshare-.*|forwarded|connection|upgrade|te|http2-settings|keep-alive|transfer-encoding|expect|trailer|proxy|(.*-)?(original|rewrite)-(url|uri|path)|(.*-)?method-override|x-http-method)$`)
	fromProxies = regexp.MustCompile(`^(x-forwarded-.*|x-host|(.*-)?original-host)$`)
	addresses   = regexp.MustCompile(`^(.*-)?(client|real|connecting|remote|originating)-ip$`)
)

// docs/serve.md names every header that is not ordinary.
func TestOperatorsPageNamesHeaders(t *testing.T) {
	page, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## What the site gets")
	section, _, _ = strings.Cut(section, "\n## ")
	for name := range kinds {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("%s is not on the page", name)
		}
		if canonical := http.CanonicalHeaderKey(name); canonical != name {
			t.Errorf("%s is not canonical: %s", name, canonical)
		}
	}
}

// A full name wins over an ending, a longer ending over a shorter one, and an ending
// over a beginning.
func TestKinds(t *testing.T) {
	for name, want := range map[string]kind{
		"Accept": ordinary, "Client": ordinary, "Ip": ordinary, "X-Clientip-Country": ordinary,
		"Myclient-Ip": ordinary, "X-Forwardedfor": ordinary, "X-Url": ordinary,
		"Client-Ip": clientAddr, "X-Client-Ip": clientAddr, "A-B-C-Client-Ip": clientAddr, "X--Client-Ip": clientAddr,
		"X-Forwarded-For": written, "X-Original-Forwarded-For": never, "X-Forwarded-For-A": never,
		"X-Forwarded-Client-Ip": clientAddr,
		"X-Forwarded-Host":      written, "X-Original-Forwarded-Host": host, "X-Forwarded-User": fromProxy,
		"X-Forwarded-":   fromProxy,
		"X-Original-Url": override, "X-Invoke-Path": override, "X-Middleware-": override, "Fairshare-A": never,
		"": ordinary, "-": ordinary,
	} {
		if got := kindOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	for name, k := range kinds {
		if isUsual(name) || httpfield.IsOfConnection(name) != (k == hopByHop) {
			t.Errorf("%s: usual %t, of one connection %t, kind %d", name, isUsual(name),
				httpfield.IsOfConnection(name), k)
		}
	}
	source, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, quoted := range regexp.MustCompile(`"[A-Za-z0-9-]+"`).FindAllString(string(source), -1) {
		if name := strings.Trim(quoted, `"`); isUsual(name) && searchKind(name) != ordinary {
			t.Errorf("%s is not ordinary", name)
		}
	}
}

// judged calls handle behind a guard that identifies every client as bot.
func judged(t testing.TB, bot fairshare.Bot, r *http.Request, handle func(http.ResponseWriter)) {
	guard, err := fairshare.NewGuard(&fairshare.Policy{}, limittest.NewModel(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := httpguard.Options{Bot: func(netip.Addr, string) fairshare.Bot { return bot }}
	httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { handle(w) })).
		ServeHTTP(httptest.NewRecorder(), r)
}

// HTTP/2 with TLS, as browsers speak it.
func TestHTTP2WithTLS(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto, r.Host, r.Header["X-Forwarded-Proto"], n, err, strings.Repeat("x", 100_000))
	}))
	defer upstream.Close()
	u, err := ParseUpstream(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Upstream: u})
	defer p.Close()
	front := httptest.NewUnstartedServer(p)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for _, n := range []int{0, 10, 200_000} {
		resp, err := front.Client().Post(front.URL, "text/plain", strings.NewReader(strings.Repeat("y", n)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprint("HTTP/1.1", front.Listener.Addr().String(), []string{"https"}, n, nil,
			strings.Repeat("x", 100_000)); string(body) != want || err != nil || resp.ProtoMajor != 2 {
			t.Errorf("%s %s %.100q %v, want %.100q", resp.Proto, resp.Status, body, err, want)
		}
	}
}
