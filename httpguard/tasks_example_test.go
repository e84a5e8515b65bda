package httpguard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"fairshare"
	"fairshare/clientaddr"
	"fairshare/httpguard"
	"fairshare/httpguard/httpguardtest"
	"fairshare/memlimit"
)

// newExampleGuard returns a guard with counters of its own.
func newExampleGuard(rules ...fairshare.Rule) *fairshare.Guard {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: rules}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	return guard
}

var pages = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") })

// Each route may have a limit of its own: rules match paths.
func Example_perRoute() {
	guard := newExampleGuard(
		fairshare.Rule{
			Name:  "logins",
			Match: fairshare.Match{Path: []string{"/login"}},
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: 24 * time.Hour},
		},
		fairshare.Rule{
			Name:  "all pages",
			Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 100, Window: time.Minute},
		},
	)
	handler := httpguard.Middleware(guard, httpguard.Options{})(pages)

	for _, path := range []string{"/login", "/login", "/", "/"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /login 200
	// /login 429
	// / 200
	// / 200
}

type userKey struct{}

// The program gives the user. Requests without a user are counted by
// address.
func Example_byUser() {
	guard := newExampleGuard(fairshare.Rule{
		Name: "two a day",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: 24 * time.Hour,
			By: []fairshare.KeyPart{{Kind: fairshare.ByValue, Name: "user"}}},
	})
	handler := httpguard.Middleware(guard, httpguard.Options{
		Values: func(r *http.Request) map[string]string {
			user, _ := r.Context().Value(userKey{}).(string) // set by the site's authentication
			return map[string]string{"user": user}
		},
	})(pages)

	for _, user := range []string{"alice", "alice", "alice", "bob"} {
		r := httptest.NewRequest("GET", "/", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		fmt.Println(user, w.Code)
	}
	// Output:
	// alice 200
	// alice 200
	// alice 429
	// bob 200
}

// Behind a proxy all requests come from the proxy's address. A resolver finds
// the clients of the proxies that it trusts.
func Example_behindProxy() {
	resolver, err := clientaddr.New(clientaddr.Config{TrustedProxies: []string{"10.0.0.1"}})
	if err != nil {
		panic(err)
	}
	guard := newExampleGuard(fairshare.Rule{
		Name:  "one a day",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: 24 * time.Hour},
	})
	handler := httpguard.Middleware(guard, httpguard.Options{
		Client: func(r *http.Request) httpguard.Client {
			found := resolver.Resolve(r.RemoteAddr, r.Header)
			return httpguard.Client{Addr: found.Addr, Proxy: found.Proxy}
		},
	})(pages)

	for _, forwarded := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:1234"
		r.Header.Set("X-Forwarded-For", forwarded)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(forwarded, w.Code)
	}
	// Output:
	// 192.0.2.1 200
	// 192.0.2.2 200
	// 192.0.2.1 429
}

// The site answers refused clients itself. The status and the fields that tell
// clients when to come back are set already.
func Example_ownAnswer() {
	handler := httpguard.Middleware(httpguardtest.Refusing(time.Minute), httpguard.Options{
		Answer: func(w http.ResponseWriter, _ *http.Request, report *httpguard.Report) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"error":"slow down","seconds":%d}`, report.RetryAfter)
		},
	})(pages)

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	fmt.Println(w.Code, w.Header()["Retry-After"], w.Body)
	// Output:
	// 429 [60] {"error":"slow down","seconds":60}
}

// Hooks log refusals and passed requests. Reports hold nothing secret in a log.
func Example_hooksWithSlog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, slog.LevelKey, "id", "host", "wait", "method": // left out here for brevity
				return slog.Attr{}
			}
			return a
		},
	}))
	handler := httpguard.Middleware(httpguardtest.Refusing(time.Minute), httpguard.Options{
		Refused: func(r *httpguard.Report) {
			logger.InfoContext(r.HTTP.Context(), "refused", "report", r)
		},
	})(pages)

	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/page?token=secret", nil))
	// Output:
	// msg=refused report.action=refuse report.rule=test report.status=429 report.client=192.0.2.1 report.path=/page
}

// A handler finds its request, whatever wraps it.
func ExampleFrom() {
	guard := newExampleGuard(fairshare.Rule{
		Name:  "units",
		Limit: &fairshare.Limit{Resource: fairshare.Cost, N: 100, Window: 24 * time.Hour},
	})
	search := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := httpguard.From(r.Context())
		request.ReportCost(100)
		fmt.Fprintln(w, "results for", request.Client().Addr)
	})
	handler := httpguard.Middleware(guard, httpguard.Options{Context: true})(
		http.TimeoutHandler(search, time.Minute, "too slow"))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/search", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 429
}

var errNoSuchPage = errors.New("no such page")

// Some servers answer the errors of their handlers later. The status that they
// will send counts.
func ExampleHandler_Do() {
	guard := newExampleGuard(fairshare.Rule{
		Name:  "errors",
		Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 1, Window: 24 * time.Hour},
	})
	handler := httpguard.New(guard, httpguard.Options{
		ErrorStatus: func(err error) int {
			if errors.Is(err, errNoSuchPage) {
				return http.StatusNotFound
			}
			return http.StatusInternalServerError
		},
	}, nil)

	for range 2 {
		w := httptest.NewRecorder()
		err := handler.Do(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) error {
			return errNoSuchPage
		})
		fmt.Println(err, w.Code == http.StatusTooManyRequests)
	}
	// Output:
	// no such page false
	// <nil> true
}
