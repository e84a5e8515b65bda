package httpguard_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/limittest"
	"fairshare/membans"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newGuard returns a guard for rules. Its counters are those of limittest.Model.
func newGuard(t testing.TB, rules ...fairshare.Rule) *fairshare.Guard {
	t.Helper()
	return guardFor(t, &fairshare.Policy{Rules: rules}, nil)
}

func guardFor(t testing.TB, p *fairshare.Policy, wrap func(fairshare.Limiter) fairshare.Limiter) *fairshare.Guard {
	t.Helper()
	var limiter fairshare.Limiter = limittest.NewModel(p.Limits())
	if wrap != nil {
		limiter = wrap(limiter)
	}
	g, err := fairshare.NewGuard(p, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func limit(name string, l fairshare.Limit) fairshare.Rule {
	return fairshare.Rule{Name: name, Limit: &l}
}

func requests(n int64, per time.Duration) fairshare.Limit {
	return fairshare.Limit{Resource: fairshare.Requests, N: n, Window: per}
}

func block(name, path string) fairshare.Rule {
	return fairshare.Rule{Name: name, Action: fairshare.Block, Match: fairshare.Match{Path: []string{path}}}
}

// atNoon returns options with a clock that stands still, and collects reports.
func atNoon(reports *[]httpguard.Report) httpguard.Options {
	opts := httpguard.Options{Now: func() time.Time { return noon }}
	if reports != nil {
		var mu sync.Mutex
		opts.Refused = func(r *httpguard.Report) {
			mu.Lock()
			defer mu.Unlock()
			kept := *r
			request := *r.Request
			kept.Request = &request
			*reports = append(*reports, kept)
		}
	}
	return opts
}

func request(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var welcome = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "welcome") })

func TestClientsAreCountedSeparately(t *testing.T) {
	var reports []httpguard.Report
	h := httpguard.Middleware(newGuard(t, limit("two", requests(2, time.Minute))), atNoon(&reports))(welcome)
	for i, step := range []struct {
		addr string
		want int
	}{
		{"192.0.2.1:1000", 200},
		{"192.0.2.1:2000", 200}, // another port is the same client
		{"192.0.2.1:1000", 429},
		{"[::ffff:192.0.2.1]:1000", 429}, // and so is the mapped address
		{"192.0.2.2:1000", 200},
	} {
		r := httptest.NewRequest("GET", "/a?secret=1", nil)
		r.RemoteAddr = step.addr
		r.Header.Set("X-Forwarded-For", "203.0.113."+string(rune('1'+i))) // nobody named this header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != step.want {
			t.Errorf("request %d of %s: %d, want %d", i, step.addr, w.Code, step.want)
		}
	}
	if len(reports) != 2 {
		t.Fatalf("%d reports, want 2", len(reports))
	}
	got := reports[0]
	if got.Status != 429 || got.RetryAfter != 90 || got.DryRun || got.Finding.Rule.Name != "two" ||
		got.Finding.Tally.Used != 2 ||
		got.Request.Path != "/a" || got.Request.Addr != netip.MustParseAddr("192.0.2.1") || len(got.ID) != 10 {
		t.Errorf("report %+v of %+v", got, got.Request)
	}
	if reports[0].ID != reports[1].ID { // one recorded refusal leads to all of them
		t.Errorf("the refusals have the references %s and %s", got.ID, reports[1].ID)
	}
}

func TestDryRunLetsThroughAndReports(t *testing.T) {
	dryRule := limit("dry rule", requests(1, time.Minute))
	dryRule.DryRun = true
	for _, test := range []struct {
		name   string
		policy fairshare.Policy
	}{
		{"whole policy", fairshare.Policy{DryRun: true, Rules: []fairshare.Rule{limit("a", requests(1, time.Minute))}}},
		{"one rule", fairshare.Policy{Rules: []fairshare.Rule{dryRule}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var reports []httpguard.Report
			h := httpguard.Middleware(guardFor(t, &test.policy, nil), atNoon(&reports))(welcome)
			for i := range 3 {
				if w := request(h, "GET", "/"); w.Code != 200 || w.Body.String() != "welcome" || len(w.Header()) != 1 {
					t.Errorf("request %d: %d %q %v", i, w.Code, w.Body, w.Header())
				}
			}
			if len(reports) != 2 {
				t.Fatalf("%d reports, want 2", len(reports))
			}
			if r := reports[1]; !r.DryRun || r.Status != 429 || r.RetryAfter < 60 || len(r.ID) != 10 {
				t.Errorf("report %+v", r)
			}
		})
	}
}

// A faulty limiter fails from the given call on.
type faulty struct {
	fairshare.Limiter
	take, settle bool
}

var errCounters = errors.New("counters out of reach")

func (f *faulty) Take(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	if f.take {
		return errCounters
	}
	return f.Limiter.Take(ctx, now, takes, tallies)
}

func (f *faulty) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	if f.settle {
		return errCounters
	}
	return f.Limiter.Settle(ctx, now, charges)
}

func TestLimiterErrorAnswers503UnlessFailOpen(t *testing.T) {
	for _, test := range []struct {
		failOpen, dry bool
		want          int
	}{{false, false, 503}, {true, false, 200}, {false, true, 200}, {true, true, 200}} {
		policy := &fairshare.Policy{DryRun: test.dry, Rules: []fairshare.Rule{limit("a", requests(1, time.Minute))}}
		g := guardFor(t, policy, func(l fairshare.Limiter) fairshare.Limiter { return &faulty{Limiter: l, take: true} })
		var reports []httpguard.Report
		opts := atNoon(&reports)
		opts.FailOpen = test.failOpen
		var failed error
		var unjudged []bool
		r := httptest.NewRequest("GET", "/", nil)
		opts.Failed = func(of *http.Request, err error) {
			if failed = err; of != r {
				t.Errorf("%+v: Failed got another request", test)
			}
		}
		opts.Unjudged = func(of *http.Request, passed bool) {
			if unjudged = append(unjudged, passed); of != r {
				t.Errorf("%+v: Unjudged got another request", test)
			}
		}
		w := httptest.NewRecorder()
		httpguard.Middleware(g, opts)(welcome).ServeHTTP(w, r)
		if w.Code != test.want || !errors.Is(failed, errCounters) {
			t.Errorf("%+v: %d and %v", test, w.Code, failed)
		}
		if want := []bool{test.want == 200}; !slices.Equal(unjudged, want) || len(reports) > 0 {
			t.Errorf("%+v: unjudged %v, want %v; reports %v, want none", test, unjudged, want, reports)
		}
		if w.Code == 503 && (w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Retry-After") == "") {
			t.Errorf("headers %v", w.Header())
		}
	}
}

func TestFailedGetsTheRequestThatCannotBeSettled(t *testing.T) {
	g := guardFor(t, &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 9, Window: time.Minute}},
	}}, func(l fairshare.Limiter) fairshare.Limiter { return &faulty{Limiter: l, settle: true} })
	r := httptest.NewRequest("GET", "/", nil)
	calls := 0
	h := httpguard.Middleware(g, httpguard.Options{Failed: func(of *http.Request, err error) {
		if calls++; of != r || !errors.Is(err, errCounters) {
			t.Errorf("Failed got the request %v and the error %v", of, err)
		}
	}})(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), r)
	if calls == 0 {
		t.Error("Failed was not called")
	}
}

// oneAtOnce lets one request at a time reach next.
func oneAtOnce(t *testing.T, next http.HandlerFunc) http.Handler {
	return httpguard.Middleware(newGuard(t, limit("one at once",
		fairshare.Limit{Resource: fairshare.Concurrent, N: 1})), httpguard.Options{})(next)
}

func TestPanicSettles(t *testing.T) {
	for _, fault := range []any{"fault", http.ErrAbortHandler} {
		h := oneAtOnce(t, func(w http.ResponseWriter, r *http.Request) { panic(fault) })
		for range 3 { // a slot that stayed taken would refuse the second
			func() {
				defer func() {
					if got := recover(); got != fault {
						t.Errorf("recovered %v, want %v", got, fault)
					}
				}()
				w := request(h, "GET", "/")
				t.Errorf("the handler returned with %d", w.Code)
			}()
		}
	}
}

func TestHandlerHoldsItsSlotUntilItReturns(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	h := oneAtOnce(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- true
		<-leave
	})
	ctx, hangUp := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	})
	<-inside
	hangUp() // that the client left gives nothing back
	w := request(h, "GET", "/")
	if w.Code != 429 || w.Header().Get("RateLimit") != `"one at once";r=0` ||
		w.Header().Get("RateLimit-Policy") != `"one at once";q=1;qu="concurrent-requests"` {
		t.Errorf("second request: %d %v", w.Code, w.Header())
	}
	leave <- true
	done.Wait()
	done.Go(func() { request(h, "GET", "/") })
	<-inside // the slot was free again
	leave <- true
	done.Wait()
}

// The upstream is done long before a slow client has the answer.
func TestSlotEndsWithTheUpstream(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	h := oneAtOnce(t, func(w http.ResponseWriter, r *http.Request) {
		httpguard.UpstreamDone(http.ResponseWriter(wrapped{w}))
		httpguard.UpstreamDone(w) // gives nothing more
		inside <- true
		<-leave
	})
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() { request(h, "GET", "/") })
		<-inside
	}
	leave <- true
	leave <- true
	done.Wait()
	httpguard.UpstreamDone(httptest.NewRecorder()) // no guard stands before it

	held := oneAtOnce(t, func(w http.ResponseWriter, r *http.Request) {
		inside <- true
		<-leave
	})
	done.Go(func() { request(held, "GET", "/") })
	<-inside
	if w := request(held, "GET", "/"); w.Code != 429 {
		t.Errorf("while a slot is taken: %d", w.Code)
	}
	leave <- true
	done.Wait()
}

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// After a reload the old guard settles its requests in progress, and the new one
// judges new requests. The copies of /robots.txt stay.
func TestReplace(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	h := httpguard.New(newGuard(t, limit("slot", fairshare.Limit{Resource: fairshare.Concurrent, N: 1})),
		httpguard.Options{},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				inside <- true
				<-leave
			}
			fmt.Fprint(w, "Disallow: /slow")
		}))
	request(h, "GET", "/robots.txt")
	var done sync.WaitGroup
	done.Go(func() { request(h, "GET", "/slow") })
	<-inside
	old := newGuard(t, block("no", "/a"), block("robots", "/robots.txt"))
	h.Replace(old, httpguard.Options{Contact: "new@example.org"})
	if w := request(h, "GET", "/a"); w.Code != 403 || !strings.Contains(w.Body.String(), "new@example.org") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := request(h, "GET", "/robots.txt"); w.Code != 200 || w.Body.String() != "Disallow: /slow" {
		t.Errorf("robots.txt: %d %s", w.Code, w.Body)
	}
	leave <- true
	done.Wait()
}

func TestOutcomeIsWhatWasWritten(t *testing.T) {
	for _, test := range []struct {
		name, method string
		next         http.HandlerFunc
		status       int
		bytes        int64
	}{
		{"nothing", "GET", func(w http.ResponseWriter, r *http.Request) {}, 200, 0},
		{"body", "GET", welcome, 200, 7},
		{"head", "HEAD", welcome, 200, 0},
		{"not found", "GET", http.NotFound, 404, 19},
		{"early hints", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(500)
			w.WriteHeader(200) // comes too late
		}, 500, 0},
		{"file", "GET", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(strings.Repeat("x", 100_000)))
		}, 200, 100_000},
		{"range", "GET", func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=10-19")
			http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(strings.Repeat("x", 100)))
		}, 206, 10},
		{"not modified", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(304)
			w.Write([]byte("not allowed"))
		}, 304, 0},
		{"own answer", "GET", func(w http.ResponseWriter, r *http.Request) {
			httpguard.NoUpstreamAnswer(w)
			http.Error(w, "", http.StatusBadGateway)
		}, 0, 1},
		{"abort", "GET", func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, 0, 0},
		{"hijack", "GET", func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}, 101, 0},
	} {
		for _, http2 := range []bool{false, true} {
			if http2 && test.name == "hijack" {
				continue
			}
			name := test.name
			if http2 {
				name += " over HTTP/2"
			}
			t.Run(name, func(t *testing.T) {
				noted := make(chan fairshare.Charge, 10)
				policy := &fairshare.Policy{Rules: []fairshare.Rule{
					limit("bytes", fairshare.Limit{Resource: fairshare.Bytes, N: 1 << 30, Window: time.Minute}),
					limit("statuses", fairshare.Limit{Resource: fairshare.Errors, N: 100, Window: time.Minute,
						Statuses: only(test.status)}),
				}}
				g := guardFor(t, policy, func(l fairshare.Limiter) fairshare.Limiter { return &noting{l, noted} })
				guarded := httpguard.Middleware(g, httpguard.Options{})(test.next)
				var done sync.WaitGroup
				done.Add(1)
				srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer done.Done()
					guarded.ServeHTTP(w, r)
				}))
				srv.EnableHTTP2 = http2
				srv.Config.ErrorLog = log.New(io.Discard, "", 0)
				if http2 {
					srv.StartTLS()
				} else {
					srv.Start()
				}
				req, _ := http.NewRequest(test.method, srv.URL, nil)
				if resp, err := srv.Client().Do(req); err == nil {
					if http2 != (resp.ProtoMajor == 2) {
						t.Errorf("the protocol is %s", resp.Proto)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				done.Wait()
				srv.Close()
				close(noted)
				got := map[int]int64{}
				for c := range noted {
					got[c.Limit] += c.Cost
				}
				wantStatus := int64(1)
				if test.status == 0 {
					wantStatus = 0
				}
				if got[0] != test.bytes || got[1] != wantStatus {
					t.Errorf("%d bytes and %d answers with status %d; want %d and %d", got[0], got[1], test.status,
						test.bytes, wantStatus)
				}
			})
		}
	}
}

func only(status int) (s fairshare.StatusSet) {
	if status == 0 {
		s.Add(100, 599) // none of them is to be seen
	} else {
		s.Add(status, status)
	}
	return s
}

// A noting limiter records charges and passes them on.
type noting struct {
	fairshare.Limiter
	to chan fairshare.Charge
}

func (n *noting) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	for _, c := range charges {
		n.to <- c
	}
	return n.Limiter.Settle(ctx, now, charges)
}

// The writer that a handler gets has the optional methods of the server's own, and no others.
func TestWriterKeepsItsFeatures(t *testing.T) {
	type features struct{ flush, hijack, read, push bool }
	look := func(w http.ResponseWriter) (f features) {
		_, f.flush = w.(http.Flusher)
		_, f.hijack = w.(http.Hijacker)
		_, f.read = w.(io.ReaderFrom)
		_, f.push = w.(http.Pusher)
		return f
	}
	for _, http2 := range []bool{false, true} {
		var below, above features
		guarded := httpguard.Middleware(newGuard(t), httpguard.Options{})(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				above = look(w)
				rc := http.NewResponseController(w)
				if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
				if err := rc.Flush(); err != nil {
					t.Error(err)
				}
			}))
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			below = look(w)
			guarded.ServeHTTP(w, r)
		}))
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body) // until the handler returned
		resp.Body.Close()
		srv.Close()
		if below != above || !above.flush {
			t.Errorf("HTTP/2 %v: the server's writer has %+v, the handler's %+v", http2, below, above)
		}
	}
}

func TestHijackedConnectionSettlesWhenTheHandlerReturns(t *testing.T) {
	entered, leave := make(chan bool, 1), make(chan bool)
	srv := httptest.NewServer(oneAtOnce(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		rw.Flush()
		entered <- true
		<-leave
	}))
	defer srv.Close()
	open := func() (net.Conn, int) {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return conn, resp.StatusCode
	}
	first, status := open()
	defer first.Close()
	if <-entered; status != 101 {
		t.Fatalf("first: %d", status)
	}
	second, status := open()
	if second.Close(); status != 429 {
		t.Errorf("second, while the first goes on: %d, want 429", status)
	}
	leave <- true
	io.ReadAll(first) // until the handler closed it; it settles just after
	for status = 429; status == 429; {
		var third net.Conn
		third, status = open()
		third.Close()
	}
	if status != 101 {
		t.Errorf("after the first: %d, want 101", status)
	}
	close(leave)
}

func TestUsualClock(t *testing.T) {
	h := httpguard.Middleware(newGuard(t, limit("quiet",
		fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour, Algorithm: fairshare.Quiet})),
		httpguard.Options{})(welcome)
	if first, second := request(h, "GET", "/"), request(h, "GET", "/"); first.Code != 200 || second.Code != 429 ||
		second.Header().Get("Retry-After") != "3600" {
		t.Errorf("%d, %d %v", first.Code, second.Code, second.Header())
	}
}

func TestTargetComesFromTheRequestLine(t *testing.T) {
	h := httpguard.Middleware(newGuard(t, block("admin", "/admin/x")), atNoon(nil))(welcome)
	for target, want := range map[string]int{
		"/admin/x":                      403,
		"//admin/./%78?q":               403,
		"http://elsewhere/a/../admin/x": 403,
		"/admin":                        200,
	} {
		if w := request(h, "GET", target); w.Code != want {
			t.Errorf("GET %s: %d, want %d", target, w.Code, want)
		}
	}
	r, _ := http.NewRequest("GET", "http://site/admin/x", nil) // no RequestURI: made inside this process
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("request without a request line: %d, want 403", w.Code)
	}
}

// A hook that panics gives its slot back.
func TestPanicOfAHookSettles(t *testing.T) {
	dry := limit("dry", fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Hour})
	dry.DryRun = true
	slots := limit("slots", fairshare.Limit{Resource: fairshare.Concurrent, N: 1})
	h := httpguard.Middleware(newGuard(t, dry, slots), httpguard.Options{Refused: func(r *httpguard.Report) {
		if r.DryRun {
			panic("listener")
		}
	}})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i := range 4 {
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if recovered := recover(); (recovered != nil) != (i > 0) {
					t.Errorf("request %d: panic %v", i, recovered)
				}
			}()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		}()
		if w.Code != 200 {
			t.Errorf("request %d: %d: the slot was not given back", i, w.Code)
		}
	}
}

// A hasty writer records the read deadline for the rest of a body.
type hasty struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (w *hasty) SetReadDeadline(t time.Time) error {
	w.until = t
	return nil
}

// A refused client cannot keep its connection by sending an endless body.
func TestBodyOfARefusedRequestIsNotAwaited(t *testing.T) {
	for _, guard := range []*fairshare.Guard{
		newGuard(t, block("all", "*")),
		guardFor(t, &fairshare.Policy{Rules: []fairshare.Rule{limit("lost", requests(1, time.Second))}},
			func(l fairshare.Limiter) fairshare.Limiter { return &faulty{Limiter: l, take: true} }),
	} {
		h := httpguard.Middleware(guard, httpguard.Options{})(welcome)
		for body, want := range map[string]bool{"": false, "a=1": true} {
			w := &hasty{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
			if w.Code != 403 && w.Code != 503 {
				t.Errorf("status %d", w.Code)
			}
			if got := time.Until(w.until); (got > 0 && got <= 5*time.Second) != want {
				t.Errorf("status %d, body %q: the read deadline is in %v", w.Code, body, got)
			}
		}
	}
}
