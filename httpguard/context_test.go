package httpguard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

// errorsAllowed returns a guard that refuses a client after n answers 4xx in an
// hour.
func errorsAllowed(t *testing.T, n int64) *fairshare.Guard {
	return newGuard(t, limit("errors", fairshare.Limit{Resource: fairshare.Errors, N: n, Window: time.Hour}))
}

// A notFoundError is an error like those of frameworks.
type notFoundError struct{}

func (notFoundError) Error() string { return "not found" }

func TestDoCountsTheStatusOfAnError(t *testing.T) {
	opts := atNoon(nil)
	opts.ErrorStatus = func(err error) int {
		if errors.As(err, &notFoundError{}) {
			return 404
		}
		return 0
	}
	var passed []int
	opts.Passed = func(p *httpguard.Completion) { passed = append(passed, p.Status) }
	h := httpguard.New(errorsAllowed(t, 2), opts, nil)
	for i, step := range []struct {
		err    error
		status int // 0: refused
	}{
		{nil, 200}, {io.ErrUnexpectedEOF, 500}, {notFoundError{}, 404}, {notFoundError{}, 404}, {nil, 0},
	} {
		called := false
		w := httptest.NewRecorder()
		err := h.Do(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) error {
			called = true
			return step.err
		})
		if called != (step.status != 0) {
			t.Fatalf("request %d: next called: %v", i, called)
		}
		if !called {
			if err != nil || w.Code != 429 {
				t.Errorf("request %d: error %v, status %d, want it refused", i, err, w.Code)
			}
			continue
		}
		if err != step.err || passed[i] != step.status {
			t.Errorf("request %d: error %v, status %d, want %v and %d", i, err, passed[i], step.err, step.status)
		}
	}
}

func TestDoCountsWhatWasWrittenBeforeAnError(t *testing.T) {
	opts := atNoon(nil)
	status := 0
	opts.Passed = func(p *httpguard.Completion) { status = p.Status }
	h := httpguard.New(errorsAllowed(t, 2), opts, nil)
	err := h.Do(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil),
		func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(201)
			return io.EOF
		})
	if err != io.EOF || status != 201 {
		t.Errorf("error %v, status %d, want EOF and 201", err, status)
	}
}

func TestReportAnswerCountsForAllGuardsAround(t *testing.T) {
	var passed []string
	inner, outer := atNoon(nil), atNoon(nil)
	inner.Passed = func(p *httpguard.Completion) {
		passed = append(passed, fmt.Sprintf("inner %d, %d bytes", p.Status, p.Bytes))
	}
	outer.Passed = func(p *httpguard.Completion) {
		passed = append(passed, fmt.Sprintf("outer %d, %d bytes", p.Status, p.Bytes))
	}
	within := httpguard.New(errorsAllowed(t, 1), inner, nil)
	around := httpguard.Middleware(errorsAllowed(t, 1), outer)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			within.Do(w, r, func(_ http.ResponseWriter, r *http.Request) error {
				httpguard.From(r.Context()).ReportAnswer(404, 12)
				return nil
			})
		}))
	request(around, "GET", "/")
	if got := strings.Join(passed, "; "); got != "inner 404, 12 bytes; outer 404, 12 bytes" {
		t.Errorf("passed: %s", got)
	}
	if w := request(around, "GET", "/"); w.Code != 429 {
		t.Errorf("status %d after an error, want 429", w.Code)
	}
}

// contextKey is the key of a value that the tests add to a context.
type contextKey struct{}

func TestFromWorksThroughTimeoutHandler(t *testing.T) {
	opts := atNoon(nil)
	opts.Context = true
	spent := fairshare.Limit{Resource: fairshare.Cost, N: 10, Window: time.Hour}
	var got *httpguard.Exchange
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = httpguard.From(context.WithValue(r.Context(), contextKey{}, "value"))
		got.ReportCost(10)
		got.ReportCPU(time.Second)
	})
	h := httpguard.Middleware(newGuard(t, limit("cost", spent), limit("requests", requests(5, time.Hour))), opts)(
		http.TimeoutHandler(handler, time.Minute, "too slow"))
	request(h, "GET", "/")
	if got.Client().Addr.String() != "192.0.2.1" || got.Verdict().Action != fairshare.Allow {
		t.Errorf("client %v, verdict %v", got.Client().Addr, got.Verdict())
	}
	if w := request(h, "GET", "/"); w.Code != 429 {
		t.Errorf("status %d after the reported cost, want 429", w.Code)
	}
	if left := got.Limits(); left != nil {
		t.Errorf("limits of a request that has ended: %v", left)
	}
}

func TestFromEndsWithTheContextOfTheRequest(t *testing.T) {
	opts := atNoon(nil)
	opts.Context = true
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), contextKey{}, "value"), time.Hour)
	h := httpguard.Middleware(newGuard(t), opts)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		child, stop := context.WithCancel(r.Context())
		defer stop()
		_, bounded := child.Deadline()
		if !bounded || child.Value(contextKey{}) != "value" || child.Err() != nil {
			t.Errorf("deadline %v, value %v, error %v", bounded, child.Value(contextKey{}), child.Err())
		}
		cancel()
		<-child.Done()
		if r.Context().Err() != context.Canceled {
			t.Errorf("error %v", r.Context().Err())
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
}

func TestFromWithoutGuardDoesNothing(t *testing.T) {
	for name, x := range map[string]*httpguard.Exchange{"no guard": httpguard.From(t.Context()), "nil": nil} {
		x.ReportCost(1)
		x.ReportCPU(1)
		x.ReportAnswer(404, 0)
		if x != nil || x.Client().Addr.IsValid() || x.Verdict().Action != fairshare.Undecided || x.Limits() != nil {
			t.Errorf("%s: %v", name, x)
		}
	}
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if httpguard.From(r.Context()) != nil {
			t.Error("found without Options.Context")
		}
	}
	request(httpguard.Middleware(newGuard(t), atNoon(nil))(http.HandlerFunc(handler)), "GET", "/")
}

func TestLimitsOfARequest(t *testing.T) {
	opts := atNoon(nil)
	opts.Context, opts.RateLimitFields = true, true
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{
		limit("minute", requests(3, time.Minute)),
		limit("at once", fairshare.Limit{Resource: fairshare.Concurrent, N: 2}),
	}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	h := httpguard.Middleware(guard, opts)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, l := range httpguard.From(r.Context()).Limits() {
			left = append(left, fmt.Sprint(l.Rule.Name, " ", l.Remaining, " of ", l.Limit.Allowed(), ", ", l.Reset))
		}
	}))
	for i := range 2 {
		left = nil
		w := request(h, "GET", "/")
		if want := fmt.Sprintf("[minute %d of 3, 2m0s at once 1 of 2, 0s]", 2-i); fmt.Sprint(left) != want {
			t.Errorf("request %d: left %v, want %s", i, left, want)
		}
		want := fmt.Sprintf(`["minute";r=%d;t=120, "at once";r=1]`, 2-i)
		if got := w.Header()["Ratelimit"]; fmt.Sprint(got) != want {
			t.Errorf("request %d: RateLimit %v, want %s", i, got, want)
		}
		if got, want := w.Header()["Ratelimit-Policy"],
			`["minute";q=3;w=60, "at once";q=2;qu="concurrent-requests"]`; fmt.Sprint(got) != want {
			t.Errorf("request %d: RateLimit-Policy %v, want %s", i, got, want)
		}
	}
}

func TestValuesGiveTheKey(t *testing.T) {
	opts := atNoon(nil)
	opts.Values = func(r *http.Request) map[string]string {
		return map[string]string{"user": r.Header.Get("X-Test-User")}
	}
	byUser := requests(1, time.Hour)
	byUser.By = []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}}
	h := httpguard.Middleware(newGuard(t, limit("user", byUser)), opts)(http.NotFoundHandler())
	for i, step := range []struct {
		user   string
		status int
	}{{"alice", 404}, {"alice", 429}, {"bob", 404}, {"", 404}, {"", 429}} {
		if w := request(h, "GET", "/", "X-Test-User", step.user); w.Code != step.status {
			t.Errorf("request %d: status %d, want %d", i, w.Code, step.status)
		}
	}
}

func TestOwnAnswer(t *testing.T) {
	opts := atNoon(nil)
	opts.Answer = func(w http.ResponseWriter, r *http.Request, report *httpguard.Report) {
		switch r.URL.Path {
		case "/body":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "rule %s, wait %d, %s", report.Finding.Rule.Name, report.RetryAfter, r.Method)
		case "/status":
			w.WriteHeader(503)
		}
	}
	h := httpguard.Middleware(newGuard(t, limit("one", requests(1, time.Minute))), opts)(http.NotFoundHandler())
	request(h, "GET", "/")
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/body", 429, "rule one, wait 120, GET"},
		{"/status", 503, ""},
		{"/nothing", 429, ""},
		{"/robots.txt", 503, "*"}, // the usual answer
	} {
		w := request(h, "GET", c.path)
		if w.Code != c.status || c.body != "*" && w.Body.String() != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.path, w.Code, w.Body, c.status, c.body)
		}
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: header %v", c.path, w.Header())
		}
	}
}

func TestHooksGetTheRequestAndLogNoSecrets(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	opts := atNoon(nil)
	type contextKey struct{}
	opts.Refused = func(r *httpguard.Report) {
		logger.InfoContext(r.HTTP.Context(), "refused", "tenant", r.HTTP.Context().Value(contextKey{}), "report", r)
	}
	opts.Passed = func(p *httpguard.Completion) {
		logger.InfoContext(p.HTTP.Context(), "passed", "tenant", p.HTTP.Context().Value(contextKey{}), "completion", p)
	}
	h := httpguard.Middleware(newGuard(t, limit("one", requests(1, time.Minute))), opts)(http.NotFoundHandler())
	for range 2 {
		r := httptest.NewRequest("GET", "/page?token=secret", nil)
		r.Header.Set("Cookie", "session=secret")
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(t.Context(), contextKey{}, "acme")))
	}
	got := log.String()
	for _, want := range []string{
		"msg=passed tenant=acme completion.client=192.0.2.1 completion.method=GET completion.path=/page completion.status=404",
		"msg=refused tenant=acme report.action=refuse report.rule=one report.wait=2m0s report.status=429 report.id=",
		"report.client=192.0.2.1 report.method=GET report.host=example.com report.path=/page",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret") {
		t.Errorf("the log holds a secret:\n%s", got)
	}
}

func TestNilGuardPanicsAtConstruction(t *testing.T) {
	for name, construct := range map[string]func(){
		"Middleware": func() { httpguard.Middleware(nil, httpguard.Options{}) },
		"New":        func() { httpguard.New(nil, httpguard.Options{}, http.NotFoundHandler()) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != "httpguard: the guard is nil" {
					t.Errorf("%s: panic %q", name, got)
				}
			}()
			construct()
		}()
	}
}
