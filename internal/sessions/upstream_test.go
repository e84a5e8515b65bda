package sessions_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"fairshare"
	"fairshare/internal/proxy"
	"fairshare/internal/sessions"
)

// An upstream opens sessions as applications do: for each request without a session or with an
// unknown one. POST /login gives the session a name.
type upstream struct {
	open func(id string) (setCookies []string) // returns the cookies of a new session
	read func(r *http.Request) (id string)

	mu       sync.Mutex
	sessions map[string]*session
	opened   int
}

// A session is a session of an upstream.
type session struct {
	name   string // user that logged in
	visits int
}

// newUpstream returns an upstream like "java", "php" or "coldfusion".
func newUpstream(kind string) *upstream {
	u := &upstream{sessions: make(map[string]*session)}
	one := func(name string) func(*http.Request) string {
		return func(r *http.Request) string {
			c, err := r.Cookie(name)
			if err != nil {
				return ""
			}
			return c.Value
		}
	}
	switch kind {
	case "java":
		u.read = one("JSESSIONID")
		u.open = func(id string) []string { return []string{"JSESSIONID=" + id + "; Path=/; HttpOnly"} }
	case "php":
		u.read = one("PHPSESSID")
		u.open = func(id string) []string {
			return []string{"theme=dark", "PHPSESSID=" + strings.ToLower(id) + "; path=/; secure; SameSite=Lax"}
		}
	case "coldfusion": // two cookies, the first a number that is easy to guess
		u.read = func(r *http.Request) string {
			id, err1 := r.Cookie("CFID")
			token, err2 := r.Cookie("CFTOKEN")
			if err1 != nil || err2 != nil {
				return ""
			}
			return id.Value + "-" + token.Value
		}
		u.open = func(id string) []string {
			first, second, _ := strings.Cut(id, "-")
			return []string{"CFID=" + first + ";expires=Sun, 12-Nov-2056 04:47:20 GMT;path=/;",
				"CFTOKEN=" + second + ";expires=Sun, 12-Nov-2056 04:47:20 GMT;path=/;"}
		}
	default:
		panic(kind)
	}
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := u.read(r)
	s := u.sessions[id]
	if s == nil {
		u.opened++
		s = &session{}
		cookies := u.open(fmt.Sprintf("%d-%s", u.opened, rand.Text()))
		again := &http.Request{Header: http.Header{}}
		for _, line := range cookies {
			w.Header().Add("Set-Cookie", line)
			pair, _, _ := strings.Cut(line, ";")
			again.Header.Add("Cookie", pair)
		}
		id = u.read(again)
		u.sessions[id] = s
	}
	s.visits++
	if r.Method == "POST" && r.URL.Path == "/login" {
		s.name = r.FormValue("name")
	}
	fmt.Fprintf(w, "id=%s name=%s", id, s.name)
}

func (u *upstream) count() (opened int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.opened
}

// forget forgets all sessions, as a restart does.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.sessions)
}

// A known is a ResponseWriter with a known client.
type known struct {
	http.ResponseWriter
	client netip.Addr
	bot    fairshare.Bot
}

func (k known) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// A hijackKnown can be hijacked.
type hijackKnown struct{ known }

func (hijackKnown) Flush() {}

func (hijackKnown) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func clientOf(w http.ResponseWriter) (netip.Addr, fairshare.Bot, bool) {
	if h, ok := w.(hijackKnown); ok {
		w = h.known
	}
	k, ok := w.(known)
	return k.client, k.bot, ok
}

var bots = map[string]fairshare.Bot{
	"verified": {Name: "crawler", State: fairshare.Verified},
	"pending":  {Name: "crawler", State: fairshare.Pending},
	"forged":   {Name: "crawler", State: fairshare.Forged},
	"known":    {Name: "tool", State: fairshare.Claimed},
	"steered":  {Name: "preview", State: fairshare.Verified, UserTriggered: true},
	"feigned":  {Name: "preview", State: fairshare.Forged, UserTriggered: true},
}

// A site is a Handler in front of a proxy in front of an upstream, on sockets. The header X-Client
// holds the client's address, the user agent the kind of bot.
type site struct {
	*upstream
	url      string
	sessions *sessions.Handler
	client   *http.Client
}

func newSite(t testing.TB, u *upstream, c sessions.Config) *site {
	t.Helper()
	far := httptest.NewServer(u)
	t.Cleanup(far.Close)
	to, err := url.Parse(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: to})
	t.Cleanup(p.Close)
	if c.Identify == nil {
		c.Identify = clientOf
	}
	h := sessions.New(c, p)
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _ := netip.ParseAddr(r.Header.Get("X-Client"))
		h.ServeHTTP(known{w, client, bots[r.UserAgent()]}, r)
	}))
	t.Cleanup(near.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: (&net.Dialer{}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &site{u, near.URL, h, &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// A testRequest is a request of a test.
type testRequest struct {
	agent, client string
	method, path  string // "" means GET and /
	host          string
	cookies       []string // pairs
	header        map[string]string
	body          string
}

// send sends a request, and returns the text of the answer and the cookies that it sets, as pairs.
func (s *site) send(t testing.TB, a testRequest) (said string, set []string) {
	t.Helper()
	if a.method == "" {
		a.method = "GET"
	}
	if a.path == "" {
		a.path = "/"
	}
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequest(a.method, s.url+a.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if a.host != "" {
		r.Host = a.host
	}
	r.Header.Set("User-Agent", a.agent)
	r.Header.Set("X-Client", a.client)
	for name, value := range a.header {
		r.Header.Set(name, value)
	}
	for _, pair := range a.cookies {
		r.Header.Add("Cookie", pair)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range resp.Header["Set-Cookie"] {
		pair, _, _ := strings.Cut(line, ";")
		set = append(set, pair)
	}
	return string(b), set
}

var named = sessions.Config{Cookies: []string{"JSESSIONID", "CFID", "CFTOKEN", "PHPSESSID"}}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

type moveKey struct{}

func withMove(ctx context.Context, q *move) context.Context {
	return context.WithValue(ctx, moveKey{}, q)
}
