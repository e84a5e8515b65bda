package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/limittest"
)

// Whatever a stranger sends, the upstream hears about it from the proxy alone,
// however it spells names.
func FuzzOnward(f *testing.F) {
	for _, s := range []string{
		"X_Forwarded-For: 1\r\nConnection: x-forwarded-for, Upgrade\r\nUpgrade: websocket\r\n",
		"Forwarded: for=1\r\nTE: trailers\r\nX.Forwarded.For: 1\r\n", "cf_connecting_ip: 1\r\nConnection: ,\r\n", "Upgrade: h2c\r\n",
		"Fairshare-Client: 1\r\nfairshare_bot: a\r\nFAIRSHARE-Bot_State: verified\r\nfairshare.session.ttl: 9\r\nConnection: Fairshare-Bot, fairshare-session-ttl\r\n",
	} {
		f.Add(s, true)
		f.Add(s, false)
	}
	bot := fairshare.Bot{Name: "some bot", State: fairshare.Forged}
	f.Fuzz(func(t *testing.T, sent string, keep bool) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: site\r\n" + sent + "\r\n")))
		if err != nil {
			return
		}
		r.RemoteAddr = "192.0.2.7:1"
		s := New(Config{Upstream: &urlOfNobody, Header: "CF-Connecting-IP", KeepUnderscores: keep}).setup.Load()
		upgrade := s.websocket(r)
		judged(t, bot, r, func(w http.ResponseWriter) { s.onward(w, r, upgrade) })
		h := r.Header
		set := map[string]string{"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "http", "X-Forwarded-Host": r.Host,
			"Fairshare-Client": "192.0.2.7", "Fairshare-Bot": "some bot", "Fairshare-Bot-State": "forged", "Fairshare-Session-Ttl": "120"}
		for name, want := range set {
			if got := h[name]; len(got) != 1 || got[0] != want {
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
			case strings.HasPrefix(folded, "x-forwarded-"), strings.HasPrefix(folded, "fairshare-"), slices.Contains([]string{"forwarded", "x-real-ip", "cf-connecting-ip", "connection", "upgrade", "te", "http2-settings", "keep-alive", "transfer-encoding", "expect", "trailer"}, folded):
				t.Errorf("%q passes", name)
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

// judged calls handle with what a guard hands on that takes everybody for bot.
func judged(t testing.TB, bot fairshare.Bot, r *http.Request, handle func(http.ResponseWriter)) {
	guard, err := fairshare.NewGuard(&fairshare.Policy{}, limittest.NewModel(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := httpguard.Options{Bot: func(netip.Addr, string) fairshare.Bot { return bot }}
	httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { handle(w) })).ServeHTTP(httptest.NewRecorder(), r)
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
		if want := fmt.Sprint("HTTP/1.1", front.Listener.Addr().String(), []string{"https"}, n, nil, strings.Repeat("x", 100_000)); string(body) != want || err != nil || resp.ProtoMajor != 2 {
			t.Errorf("%s %s %.100q %v, want %.100q", resp.Proto, resp.Status, body, err, want)
		}
	}
}
