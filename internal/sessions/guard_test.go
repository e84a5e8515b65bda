package sessions_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/proxy"
	"fairshare/internal/sessions"
	"fairshare/limittest"
)

// guarded puts sessions between a guard, which recognizes bots by their user agent, and next.
func guarded(t *testing.T, next http.Handler, rules ...fairshare.Rule) *httptest.Server {
	t.Helper()
	policy := &fairshare.Policy{Rules: rules}
	guard, err := fairshare.NewGuard(policy, limittest.NewModel(policy.Limits()), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := sessions.New(sessions.Config{Cookies: []string{"sid"},
		Identify: func(w http.ResponseWriter) (netip.Addr, fairshare.Bot, bool) {
			asker, ok := httpguard.ClientOf(w)
			return asker.Addr, asker.Bot, ok
		}}, next)
	srv := httptest.NewServer(httpguard.New(guard, httpguard.Options{Bot: func(_ netip.Addr,
		userAgent string) fairshare.Bot {
		return bots[userAgent]
	}}, h))
	t.Cleanup(srv.Close)
	return srv
}

func get(t *testing.T, url, agent string) string {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", agent)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp.Status, err)
	}
	return string(body)
}

// A handler behind sessions still reaches the guard in front of them.
func TestGuardWorksBehindSessions(t *testing.T) {
	one := fairshare.Rule{Name: "one at once", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 1}}
	var site *httptest.Server
	site = guarded(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asker, ok := httpguard.ClientOf(w)
		fmt.Fprint(w, ok, asker.Addr, asker.Bot.Name)
		if r.URL.Path == "/outer" {
			httpguard.UpstreamDone(w) // otherwise there is no slot for the inner request
			fmt.Fprint(w, " ", get(t, site.URL+"/inner", "verified"))
		}
	}), one)
	if got := get(t, site.URL+"/outer", "verified"); got != "true 127.0.0.1crawler true 127.0.0.1crawler" {
		t.Errorf("the handler finds %q", got)
	}
}

// Between a guard and a proxy, the upstream gets the session and the client's headers, and
// websockets are not changed.
func TestBetweenGuardAndProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(rw,
				"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nCookie-Was: %s\r\n\r\n", r.Header.Get("Cookie"))
			rw.Flush()
			io.Copy(conn, rw)
			return
		}
		if r.Header.Get("Cookie") == "" {
			w.Header().Set("Set-Cookie", "sid=of-the-crawler; Path=/")
		}
		fmt.Fprint(w, r.Header.Get("Fairshare-Bot-State"), " ", r.Header.Get("Cookie"))
	}))
	defer upstream.Close()
	u, err := proxy.ParseUpstream(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: u})
	defer p.Close()
	site := guarded(t, p)
	for i, want := range []string{"verified ", "verified sid=of-the-crawler", "verified sid=of-the-crawler"} {
		if got := get(t, site.URL, "verified"); got != want {
			t.Errorf("request %d: the upstream gets %q, want %q", i, got, want)
		}
	}
	if got := get(t, site.URL, "person"); got != " " {
		t.Errorf("of a person the upstream gets %q", got)
	}

	conn, err := net.Dial("tcp", site.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn,
		"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: verified\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Cookie-Was") != "" {
		t.Fatalf("a websocket: %v %v", resp, err)
	}
	io.WriteString(conn, "echo\n")
	if line, err := r.ReadString('\n'); strings.TrimSpace(line) != "echo" {
		t.Errorf("over the websocket comes %q, %v", line, err)
	}
}
