package httpguard_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/logins"
	"fairshare/memlimit"
)

// A settledAuth is a handler of questions with a limit of three errors for each address.
type settledAuth struct {
	t           *testing.T
	handler     http.Handler
	settlements httpguard.Settlements
	passed      []httpguard.Completion
}

func newSettledAuth(t *testing.T) *settledAuth {
	t.Helper()
	var statuses fairshare.StatusSet
	statuses.Add(400, 499)
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{Name: "errors",
		Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 3, Window: time.Hour,
			Statuses: statuses}}}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	a := &settledAuth{t: t}
	opts := httpguard.Options{
		Client: func(*http.Request) httpguard.Client {
			return httpguard.Client{Addr: netip.MustParseAddr("192.0.2.1")}
		},
		Passed: func(c *httpguard.Completion) { a.passed = append(a.passed, *c) },
	}
	a.handler = httpguard.ForwardAuth(httpguard.New(guard, opts, nil),
		httpguard.ForwardAuthOptions{Settlements: &a.settlements})
	return a
}

// question asks about a request, and returns its reference; "" if it was refused.
func (a *settledAuth) question(header ...string) string {
	a.t.Helper()
	resp := question(a.handler, local, "/nginx", append(append(header, about["/nginx"]...), "/a")...)
	reference := resp.Header.Get("Fairshare-Reference")
	if passed := resp.StatusCode == http.StatusNoContent; passed != (len(reference) == 32) {
		a.t.Fatalf("%s, reference %q", resp.Status, reference)
	}
	return reference
}

func TestSettlementsSettleOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSettledAuth(t)
		first := a.question()
		if !a.settlements.Settle(first, httpguard.LoggedAnswer{Status: 404, Bytes: 7, Took: time.Second}) {
			t.Error("not settled")
		}
		for _, reference := range []string{first, "", "zz", strings.Repeat("z", 32), strings.Repeat("0", 32)} {
			if a.settlements.Settle(reference, httpguard.LoggedAnswer{Status: 404}) {
				t.Errorf("settled by %q", reference)
			}
		}
		if len(a.passed) != 1 {
			t.Fatalf("reported: %+v", a.passed)
		}
		if c := a.passed[0]; c.Status != 404 || c.Bytes != 7 || c.Took != time.Second {
			t.Errorf("reported: %+v", c)
		}
		for range 9 { // good answers cost nothing, nor do clients that have left
			a.settlements.Settle(a.question(), httpguard.LoggedAnswer{Status: 200})
			a.settlements.Settle(a.question(), httpguard.LoggedAnswer{Status: 499})
		}
		// A request in progress holds an error until it is settled.
		second, third := a.question(), a.question()
		if a.question() != "" {
			t.Error("a fourth request passes while it may be the fourth error")
		}
		a.settlements.Settle(second, httpguard.LoggedAnswer{Status: 404})
		a.settlements.Settle(third, httpguard.LoggedAnswer{Status: 404})
		if a.question() != "" {
			t.Error("a request passes after three errors")
		}
	})
}

// nginx sends the reference of a request that it has redirected internally.
func TestAReferenceThatWaitsIsNotJudgedAgain(t *testing.T) {
	a := newSettledAuth(t)
	first := a.question()
	for range 5 {
		if got := a.question("Fairshare-Reference", first); got != first {
			t.Fatalf("got %q, want %q", got, first)
		}
	}
	a.settlements.Settle(first, httpguard.LoggedAnswer{Status: 404})
	for _, used := range []string{first, strings.Repeat("0", 32)} {
		if got := a.question("Fairshare-Reference", used); got == used {
			t.Errorf("%q lets another request pass", used)
		}
	}
}

func TestSettlementsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newSettledAuth(t)
		lost := a.question()
		time.Sleep(119 * time.Second)
		if n, silent := a.settlements.Expire(); n != 0 || silent {
			t.Errorf("too early: %d, %v", n, silent)
		}
		time.Sleep(time.Second)
		if n, silent := a.settlements.Expire(); n != 1 || silent {
			t.Errorf("expired: %d, %v", n, silent)
		}
		if a.settlements.Settle(lost, httpguard.LoggedAnswer{Status: 404}) || len(a.passed) != 1 {
			t.Error("an expired request is settled again")
		}
		a.question()
		a.settlements.Close()
		if len(a.passed) != 2 {
			t.Errorf("%d of 2 were reported", len(a.passed))
		}
	})
}

// If the log has no references at all, requests do not wait until it has some.
func TestASilentLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := memlimit.NewGuard(&fairshare.Policy{}, memlimit.Options{Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		a := &settledAuth{t: t}
		a.handler = httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{
			Passed: func(*httpguard.Completion) { passed++ }}, nil),
			httpguard.ForwardAuthOptions{Settlements: &a.settlements})
		for range 16 {
			a.question()
		}
		time.Sleep(time.Minute)
		if n, silent := a.settlements.Expire(); n != 16 || !silent || passed != 16 {
			t.Errorf("%d expired, silent %v, %d reported", n, silent, passed)
		}
		reference := a.question()
		if passed != 17 {
			t.Error("a request waits for a silent log")
		}
		a.settlements.Settle(reference, httpguard.LoggedAnswer{Status: 200})
		a.question()
		if n, silent := a.settlements.Expire(); n != 0 || silent || passed != 17 {
			t.Errorf("after a reference: %d expired, silent %v, %d reported", n, silent, passed)
		}
	})
}

func TestTheOldestRequestMakesRoom(t *testing.T) {
	guard, err := memlimit.NewGuard(&fairshare.Policy{}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	a := &settledAuth{t: t}
	a.handler = httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{
		Passed: func(*httpguard.Completion) { passed++ }}, nil),
		httpguard.ForwardAuthOptions{Settlements: &a.settlements})
	first, second := a.question(), a.question()
	for range 1<<16 - 1 {
		a.question()
	}
	if passed != 1 || a.settlements.Settle(first, httpguard.LoggedAnswer{}) ||
		!a.settlements.Settle(second, httpguard.LoggedAnswer{}) {
		t.Errorf("%d were settled, want the oldest only", passed)
	}
}

// Logins that pass hold no place: their results are not known.
func TestForwardAuthDoesNotCloseLogins(t *testing.T) {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{Name: "many",
		Match: fairshare.Match{Attempt: []string{"excess"}},
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 0, Window: time.Hour}}}},
		memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	n := byte(0)
	auth := httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{Logins: logins.New(logins.Options{}),
		Client: func(*http.Request) httpguard.Client {
			n++
			return httpguard.Client{Addr: netip.AddrFrom4([4]byte{192, 0, 2, n})}
		}}, nil), httpguard.ForwardAuthOptions{})
	for i := range 200 {
		r := httptest.NewRequest("GET", "/nginx", nil)
		r.RemoteAddr = local
		for name, value := range map[string]string{"X-Forwarded-For": "192.0.2.1", "X-Original-Method": "POST",
			"X-Original-Uri": "/wp-login.php"} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if auth.ServeHTTP(w, r); w.Code != http.StatusNoContent {
			t.Fatalf("login %d: %d", i, w.Code)
		}
	}
}

// A client does not choose how much memory its requests take until they are settled.
func TestUnsettledTextsAreShort(t *testing.T) {
	a := newSettledAuth(t)
	long := strings.Repeat("a", 30<<10)
	resp := question(a.handler, local, "/caddy", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", long,
		"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/"+long, "User-Agent", long)
	if !a.settlements.Settle(resp.Header.Get("Fairshare-Reference"), httpguard.LoggedAnswer{Status: 200}) {
		t.Fatal(resp.Status)
	}
	for name, text := range map[string]string{"host": a.passed[0].Host, "path": a.passed[0].Path,
		"user agent": a.passed[0].UserAgent, "method": a.passed[0].Method} {
		if len(text) == 0 || len(text) > 1<<10 {
			t.Errorf("%s: %d bytes are kept", name, len(text))
		}
	}
}

// That holds for what the guard computes of these texts, too.
func TestUnsettledRequestsNeedLittleMemory(t *testing.T) {
	policy := &fairshare.Policy{FoldPaths: true, Rules: []fairshare.Rule{
		{Name: "agent", Action: fairshare.Block, Match: fairshare.Match{UserAgent: []string{"*evil*"}}},
		{Name: "path", Action: fairshare.Block, Match: fairshare.Match{Path: []string{"/evil*"}}},
		{Name: "by path", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1000, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByPath}}}},
		{Name: "by host", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1000, Window: time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByHost}}}},
		{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 1000, Window: time.Hour}},
	}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	settlements := new(httpguard.Settlements)
	handler := httpguard.ForwardAuth(httpguard.New(guard, httpguard.Options{}, nil),
		httpguard.ForwardAuthOptions{Settlements: settlements})
	heap := func() int {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // empties pools
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	const n = 200
	before := heap()
	for i := range n {
		long := strings.Repeat("A", 30<<10) + strconv.Itoa(i)
		resp := question(handler, local, "/caddy", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Host", long,
			"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/a//"+long, "User-Agent", long)
		if resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.Status)
		}
	}
	if each := (heap() - before) / n; each > 16<<10 {
		t.Errorf("%d bytes for each request", each)
	}
	runtime.KeepAlive(handler)
	settlements.Close()
}
