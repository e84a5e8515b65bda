package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func poolOf(t *testing.T, c Pool, urls ...string) Pool {
	t.Helper()
	for _, text := range urls {
		u, err := ParseUpstream(text)
		if err != nil {
			t.Fatal(err)
		}
		c.Upstreams = append(c.Upstreams, u)
	}
	return c
}

func TestLeastBusyUpstreamComesFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	config := poolOf(t, Pool{SlowStart: 10 * time.Second, Check: &Check{}}, "http://a:1", "http://b:1", "http://c:1")
	p := newPool(config, time.Minute, nil)
	a, b, c := p.ups[0], p.ups[1], p.ups[2]
	for range 30 {
		p.pick(nil, now)
	}
	if a.busy.Load() != 10 || b.busy.Load() != 10 || c.busy.Load() != 10 {
		t.Errorf("30 requests: %d, %d, %d", a.busy.Load(), b.busy.Load(), c.busy.Load())
	}
	for range 5 {
		b.release()
	}
	for range 5 {
		if up := p.pick(nil, now); up != b {
			t.Errorf("picked %s, want the least busy", up.url)
		}
	}
	if up := p.pick([]*upstream{a, b}, now); up != c {
		t.Errorf("picked %v, want the one not tried", up)
	}
	if up := p.pick([]*upstream{a, b, c}, now); up != nil {
		t.Errorf("picked %v after all were tried", up)
	}

	// A recovered upstream gets a tenth of the requests at first, and its whole share after
	// the slow start.
	for _, up := range p.ups {
		up.busy.Store(9)
	}
	c.busy.Store(0)
	c.upSince.Store(now.UnixNano())
	if up := p.pick(nil, now); up != a && up != b && up != c {
		t.Errorf("picked %v", up)
	}
	c.busy.Store(1)
	if up := p.pick(nil, now); up == c {
		t.Error("a recovered upstream gets more than its share")
	}
	if up := p.pick(nil, now.Add(10*time.Second)); up != c {
		t.Error("after the slow start the least busy one is not picked")
	}
	a.isDown.Store(true)
	b.isDown.Store(true)
	c.isDown.Store(true)
	if p.isUp() || p.pick(nil, now) != nil {
		t.Error("picked an upstream that is down")
	}
}

// Failures in a row take an upstream down, checks in a row bring it back. One success
// between failures starts the count again.
func TestFailuresAndChecksDecideWhetherAnUpstreamIsUp(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	logger := log.New(&b, "", 0)
	config := poolOf(t, Pool{Name: "shop", Check: &Check{Fails: 3, Passes: 2}}, "http://a:1", "http://b:1")
	p := newPool(config, time.Minute, nil)
	up, failure, now := p.ups[0], errors.New("refused"), time.Unix(1_800_000_000, 0)
	for i, step := range []struct {
		err  error
		down bool
	}{{failure, false}, {failure, false}, {nil, false}, {failure, false}, {failure, false}, {failure, true},
		{failure, true},
		{nil, true}, {failure, true}, {nil, true}, {nil, false}, {failure, false}} {
		up.note(p, step.err, now, logger)
		if up.isDown.Load() != step.down {
			t.Fatalf("step %d: down %v, want %v", i, up.isDown.Load(), step.down)
		}
	}
	if up.upSince.Load() != now.UnixNano() {
		t.Error("the recovery has no time")
	}
	want := "site shop: upstream a:1 is down after 3 failures: refused; 1 of 2 upstreams are left\n" +
		"site shop: upstream a:1 is up again\n"
	if b.String() != want {
		t.Errorf("log:\n%swant:\n%s", &b, want)
	}
	up.answered()
	if up.fails.Load() != 0 {
		t.Error("an answer does not reset failures")
	}
}

// A named server that says its name and the host it was asked for.
func namedServer(t *testing.T, name string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", name, r.Method, r.Host, body)
	}))
	t.Cleanup(server.Close)
	return server
}

// closedPort returns the URL of a port at which nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// Requests go to the pool of their host. Where nobody listens, another upstream of the
// same site gets the request with its whole body; another site never does.
func TestRequestsGoToTheSiteOfTheirHost(t *testing.T) {
	t.Parallel()
	one, two := namedServer(t, "one"), namedServer(t, "two")
	check := &Check{Every: time.Hour, Timeout: time.Second, Fails: 3, Passes: 2}
	var b bytes.Buffer
	p := New(Config{Log: log.New(&b, "", 0), Pools: []Pool{
		poolOf(t, Pool{Name: "one"}, one.URL),
		poolOf(t, Pool{Name: "two", Check: check}, closedPort(t), two.URL),
		poolOf(t, Pool{Name: "none", Check: check}, closedPort(t), closedPort(t)),
	}, Site: func(host string) int {
		switch host {
		case "one.example":
			return 0
		case "two.example":
			return 1
		case "none.example":
			return 2
		}
		return -1
	}})
	defer p.Close()
	front := httptest.NewServer(p)
	defer front.Close()
	ask := func(host, method string, body io.Reader) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequest(method, front.URL, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), resp.Header
	}
	long := strings.Repeat("x", 200<<10) // longer than what is read ahead
	for range 6 {                        // either upstream comes first, until one counts as down
		for _, c := range []struct{ host, method, body, want string }{
			{"one.example", "GET", "", "one GET one.example "},
			{"two.example", "GET", "", "two GET two.example "},
			{"two.example", "POST", "short", "two POST two.example short"},
			{"two.example", "POST", long, "two POST two.example " + long},
		} {
			if status, text, _ := ask(c.host, c.method, strings.NewReader(c.body)); status != 200 || text != c.want {
				t.Fatalf("%s %s: %d %.100q", c.method, c.host, status, text)
			}
		}
	}
	for host, want := range map[string]int{"other.example": 421, "": 421} {
		if status, text, _ := ask(host, "GET", nil); host != "" &&
			(status != want || !strings.Contains(text, "no such site")) {
			t.Errorf("%q: %d %s", host, status, text)
		}
	}
	for range 3 { // each request tries both
		if status, text, _ := ask("none.example", "POST", strings.NewReader("x")); status != 502 {
			t.Errorf("%d %s", status, text)
		}
	}
	status, text, header := ask("none.example", "POST", strings.NewReader("x"))
	if status != 503 || !strings.Contains(text, "All servers of this site are down") ||
		header.Get("Retry-After") != "7200" {
		t.Errorf("%d %s %v", status, text, header)
	}
	if n := strings.Count(b.String(), "is down after 3 failures"); n != 3 {
		t.Errorf("%d upstreams went down:\n%s", n, &b)
	}
	for _, pool := range p.Pools() {
		for _, up := range pool.Upstreams {
			if up.InProgress != 0 {
				t.Errorf("%s: %d requests in progress", up.URL, up.InProgress)
			}
		}
	}
	if problems := p.Unreachable(t.Context()); len(problems) != 3 ||
		!strings.HasPrefix(problems[0], "site none: upstream ") {
		t.Errorf("%q", problems)
	}
}

// A reload keeps what is known of upstreams that stay, and the requests in progress of
// those that go.
func TestReplaceKeepsUpstreamsThatStay(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	entered := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		io.WriteString(w, "slow")
	}))
	defer slow.Close()
	check := &Check{Fails: 1, Passes: 1}
	site := func(string) int { return 0 }
	gone := poolOf(t, Pool{Name: "gone"}, slow.URL)
	stays := poolOf(t, Pool{Name: "stays", Check: check}, "http://a:1", "http://b:1")
	p := New(Config{Pools: []Pool{gone, stays}, Site: site})
	defer p.Close()
	before := p.setup.Load().pools[1]
	before.ups[1].note(before, errors.New("x"), time.Now(), log.New(io.Discard, "", 0))
	front := httptest.NewServer(p)
	defer front.Close()
	answer := make(chan string)
	go func() {
		resp, err := http.Get(front.URL)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	<-entered
	later := poolOf(t, Pool{Name: "stays", Check: check}, "http://b:1", "http://c:1")
	p.Replace(Config{Pools: []Pool{later}, Site: site})
	now := p.setup.Load().pools[0]
	if now.ups[0] != before.ups[1] || !now.ups[0].isDown.Load() || now.ups[1].isDown.Load() {
		t.Error("the upstream that stays was not kept")
	}
	close(release)
	if text := <-answer; text != "slow" {
		t.Errorf("the request in progress got %q", text)
	}
	p.Replace(Config{Pools: []Pool{poolOf(t, Pool{Name: "stays"}, "http://b:1", "http://c:1")}, Site: site})
	unchecked := p.setup.Load().pools[0]
	for _, up := range unchecked.ups {
		if up.isDown.Load() {
			t.Error("an upstream without checks is down permanently")
		}
		up.isDown.Store(true) // by a check that was running at the reload
	}
	if !unchecked.isUp() || unchecked.pick(nil, time.Now()) == nil {
		t.Error("a check that was running at the reload takes an upstream without checks down")
	}
}

// Checks are made at their interval; an upstream is back after two that pass.
func TestChecksBringAnUpstreamBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := atomic.Int32{}
		status.Store(500)
		var asked atomic.Int32
		var host atomic.Value
		upstream := newPipes()
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			host.Store(r.Host + r.URL.Path)
			w.WriteHeader(int(status.Load()))
		})}
		go server.Serve(upstream)
		defer server.Close()
		c := Pool{Name: "a", Upstreams: []*url.URL{{Scheme: "http", Host: "up"}},
			Check: &Check{Host: "a.example", Path: "/health", Every: 5 * time.Second, Timeout: time.Second,
				Fails: 3, Passes: 2}}
		p := New(Config{Pools: []Pool{c}, Site: func(string) int { return 0 }})
		up := p.setup.Load().pools[0].ups[0]
		up.transport.DialContext = wrapDial(upstream.dial)
		defer p.Close()
		go p.RunChecks(t.Context())
		wait := func(d time.Duration, down bool, checks int32) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if up.isDown.Load() != down || asked.Load() != checks {
				t.Errorf("down %v after %d checks, want %v after %d", up.isDown.Load(), asked.Load(), down, checks)
			}
		}
		wait(time.Second, false, 1)
		wait(5*time.Second, false, 2)
		wait(5*time.Second, true, 3)
		status.Store(302)
		wait(5*time.Second, true, 4)
		wait(5*time.Second, false, 5)
		if got := host.Load(); got != "a.example/health" {
			t.Errorf("asked for %v", got)
		}
	})
}

// A shorter interval of the checks holds at once after a reload: an upstream that is down does not wait for a check
// that was planned before.
func TestShorterIntervalOfChecksHoldsAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	before := newPool(poolOf(t, Pool{Check: &Check{Every: time.Hour}}, "http://a:1"), time.Minute, nil)
	if !before.ups[0].isDue(before.Check, now) {
		t.Error("the first check is not due")
	}
	before.ups[0].checking = false
	p := newPool(poolOf(t, Pool{Check: &Check{Every: 5 * time.Second}}, "http://a:1"), time.Minute, before)
	if p.ups[0].isDue(p.Check, now.Add(4*time.Second)) {
		t.Error("a check is due after 4 s")
	}
	if !p.ups[0].isDue(p.Check, now.Add(5*time.Second)) {
		t.Error("no check is due after 5 s")
	}
}
