package httpguard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/httpguard"
	"fairshare/logins"
	"fairshare/memlimit"
	"fairshare/visitor"
)

// newLoginSite returns WordPress behind rules for attempts.
func newLoginSite(t *testing.T, opts httpguard.Options) http.Handler {
	t.Helper()
	guesses := fairshare.Match{Attempt: []string{"login", "credentials"},
		Not: []fairshare.Match{{Attempt: []string{"known"}}}}
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "guessing", Match: guesses, Limit: &fairshare.Limit{Resource: fairshare.Failures, N: 5,
			Window: 10 * time.Minute}},
		{Name: "many", Match: fairshare.Match{Attempt: []string{"excess"}}, Limit: &fairshare.Limit{
			Resource: fairshare.Requests, N: 0, Window: 10 * time.Minute}},
	}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	opts.Logins, opts.Browser = logins.New(logins.Options{}), new(browser.Watcher)
	if opts.Visitors, err = visitor.New(visitor.Options{}); err != nil {
		t.Fatal(err)
	}
	return httpguard.New(guard, opts, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/private" && r.Header.Get("Authorization") != "Basic cmlnaHQ=":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == "POST" && r.Header.Get("X-Password") == "right":
			w.Header().Set("Set-Cookie", "wordpress_logged_in_1=anna; path=/")
			http.Redirect(w, r, "/wp-admin/", http.StatusFound)
		default:
			w.Write([]byte(strings.Repeat("x", 5000)))
		}
	}))
}

type loginRequest struct {
	addr, method, path, password, authorization, cookie string
}

func sendLogin(h http.Handler, q loginRequest) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), q.method, q.path, nil)
	r.RemoteAddr = q.addr + ":4000"
	for name, value := range map[string]string{"X-Password": q.password, "Authorization": q.authorization,
		"Cookie": q.cookie} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestGuessesAreRefusedAndEditorsAreNot(t *testing.T) {
	now := noon
	h := newLoginSite(t, httpguard.Options{Now: func() time.Time { return now }})
	login := loginRequest{addr: "203.0.113.1", method: "POST", path: "/wp-login.php", password: "right"}
	first := sendLogin(h, login)
	cookies := first.Result().Cookies()
	if first.Code != http.StatusFound || len(cookies) != 2 || cookies[1].Name != visitor.Name {
		t.Fatalf("a login: %d, cookies %v", first.Code, cookies)
	}
	now = now.Add(time.Hour)
	guess := func(addr string) int {
		return sendLogin(h, loginRequest{addr: addr, method: "POST", path: "/wp-login.php"}).Code
	}
	passed := 0
	for i := range 100 {
		if guess(fmt.Sprintf("192.0.2.%d", i)) == http.StatusOK {
			passed++
		}
	}
	if passed > 3 {
		t.Errorf("%d of 100 guesses pass", passed)
	}
	if got := sendLogin(h, login).Code; got != http.StatusFound {
		t.Errorf("the editor at a known address: %d", got)
	}
	login.addr, login.cookie = "198.51.100.9", visitor.Name+"="+cookies[1].Value
	if got := sendLogin(h, login).Code; got != http.StatusFound {
		t.Errorf("the editor with a visitor's cookie at another address: %d", got)
	}
	login.addr = "192.0.2.7" // that a guesser had
	if got := sendLogin(h, login).Code; got != http.StatusFound {
		t.Errorf("the editor with a visitor's cookie at a guesser's address: %d", got)
	}
	login.addr, login.cookie = "198.51.100.10", visitor.Name+"=made-up"
	if got := sendLogin(h, login).Code; got != http.StatusTooManyRequests {
		t.Errorf("an unknown client with a cookie that it made up: %d", got)
	}
}

func TestWrongCredentialsAreRefused(t *testing.T) {
	h := newLoginSite(t, httpguard.Options{Now: func() time.Time { return noon }})
	passed := 0
	for i := range 330 {
		if sendLogin(h, loginRequest{addr: "192.0.2.1", method: "GET", path: "/private",
			authorization: fmt.Sprintf("Basic %06d", i)}).Code == http.StatusUnauthorized {
			passed++
		}
	}
	if passed != 5 {
		t.Errorf("%d of 330 pass, want 5", passed)
	}
	for range 50 { // an old password in a program
		if got := sendLogin(h, loginRequest{addr: "192.0.2.2", method: "GET", path: "/private",
			authorization: "Basic b2xk"}).Code; got != http.StatusUnauthorized {
			t.Fatalf("a repeated password: %d", got)
		}
	}
	for range 50 {
		if got := sendLogin(h, loginRequest{addr: "192.0.2.3", method: "GET", path: "/private",
			authorization: "Basic cmlnaHQ="}).Code; got != http.StatusOK {
			t.Fatalf("the right password: %d", got)
		}
	}
}

// slowLists answers about every address after a delay.
type slowLists struct {
	delay   time.Duration
	listed  func(netip.Addr) bool
	waiting atomic.Int32
	peak    atomic.Int32
	mu      sync.Mutex
	known   map[netip.Addr]time.Time
}

func (l *slowLists) Hostnames(netip.Addr) []string { return nil }

func (l *slowLists) at(addr netip.Addr) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[netip.Addr]time.Time{}
	}
	if _, found := l.known[addr]; !found {
		l.known[addr] = time.Now().Add(l.delay)
	}
	return l.known[addr]
}

func (l *slowLists) Listed(_ string, addr netip.Addr) []netip.Addr {
	if time.Now().Before(l.at(addr)) || !l.listed(addr) {
		return nil
	}
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 3})}
}

func (l *slowLists) KnowsListed(_ string, addr netip.Addr) bool {
	return !time.Now().Before(l.at(addr))
}

func (l *slowLists) WaitListed(ctx context.Context, list string, addr netip.Addr) ([]netip.Addr, bool) {
	l.peak.Store(max(l.peak.Load(), l.waiting.Add(1)))
	defer l.waiting.Add(-1)
	select {
	case <-time.After(time.Until(l.at(addr))):
		return l.Listed(list, addr), true
	case <-ctx.Done():
		return nil, false
	}
}

func TestAPostWaitsForDNSLists(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		delay  time.Duration // of the DNS
		addrs  []string      // one after another
		want   []int
		waits  []time.Duration
	}{
		{"a spammer that posts once", "POST", 80 * time.Millisecond, []string{"192.0.2.1"}, []int{403},
			[]time.Duration{80 * time.Millisecond}},
		{"a person", "POST", 80 * time.Millisecond, []string{"192.0.2.2"}, []int{200},
			[]time.Duration{80 * time.Millisecond}},
		{"slow DNS", "POST", 2 * time.Second, []string{"192.0.2.1"}, []int{200},
			[]time.Duration{300 * time.Millisecond}},
		{"GET", "GET", 80 * time.Millisecond, []string{"192.0.2.1"}, []int{200}, []time.Duration{0}},
		{"HEAD", "HEAD", 80 * time.Millisecond, []string{"192.0.2.1"}, []int{200}, []time.Duration{0}},
		{"one network", "POST", 2 * time.Second, []string{"192.0.2.1", "192.0.2.3", "192.0.2.5", "198.51.100.1"},
			[]int{200, 200, 200, 200}, []time.Duration{300 * time.Millisecond, 0, 0, 300 * time.Millisecond}},
		{"a known answer", "POST", 80 * time.Millisecond, []string{"192.0.2.1", "192.0.2.1"}, []int{403, 403},
			[]time.Duration{80 * time.Millisecond, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newListSite(t, c.delay)
				for i, addr := range c.addrs {
					began := time.Now()
					got := sendLogin(h, loginRequest{addr: addr, method: c.method, path: "/form"}).Code
					if took := time.Since(began); got != c.want[i] || took != c.waits[i] {
						t.Errorf("%s: %d after %v, want %d after %v", addr, got, took, c.want[i], c.waits[i])
					}
				}
			})
		})
	}
}

// newListSite returns a site whose rule waits for a list that has the odd addresses.
func newListSite(t *testing.T, delay time.Duration) (http.Handler, *slowLists) {
	t.Helper()
	lists := &slowLists{delay: delay, listed: func(a netip.Addr) bool { b := a.As4(); return b[3]&1 == 1 }}
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "spam", Match: fairshare.Match{Listed: []fairshare.Listing{{List: "x", Wait: 300 * time.Millisecond}}},
			Action: fairshare.Block},
		{Name: "one", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Hour}},
	}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return httpguard.New(guard, httpguard.Options{Lookups: lists, Now: time.Now},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), lists
}

// A fleet of many networks does not keep the requests of others from waiting for DNS lists.
func TestManyNetworksDoNotEndTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newListSite(t, 100*time.Millisecond)
		post := func(addr string) (int, time.Duration) {
			began := time.Now()
			return sendLogin(h, loginRequest{addr: addr, method: "POST", path: "/form"}).Code, time.Since(began)
		}
		for i := range 10_000 {
			if _, took := post(fmt.Sprintf("10.%d.%d.2", i/200, i%200)); took == 0 {
				t.Fatalf("network %d does not wait", i)
			}
		}
		if code, took := post("192.0.2.1"); code != 403 || took == 0 {
			t.Errorf("a spammer after the fleet: %d after %v", code, took)
		}
		if _, took := post("192.0.2.2"); took != 0 {
			t.Errorf("its network waits again, for %v", took)
		}
	})
}

// Few requests wait at the same time, and a request that waited is counted once.
func TestFewRequestsWaitForDNSLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, lists := newListSite(t, time.Second)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				addr := fmt.Sprintf("10.%d.%d.2", i/200, i%200)
				for n := range 3 {
					want := []int{200, 200, 429}[n]
					if got := sendLogin(h, loginRequest{addr: addr, method: "POST", path: "/form"}).Code; got != want {
						t.Errorf("request %d of %s: %d, want %d", n, addr, got, want)
					}
				}
			})
		}
		all.Wait()
		if peak := lists.peak.Load(); peak > 64 || peak < 60 {
			t.Errorf("%d wait at once", peak)
		}
	})
}
