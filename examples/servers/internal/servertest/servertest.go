// Package servertest checks that a guarded server counts as it should.
package servertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// Guard returns a guard with one limit per hour and client address.
func Guard(t testing.TB, resource fairshare.Resource, n int64) *fairshare.Guard {
	t.Helper()
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "limit",
		Limit: &fairshare.Limit{Resource: resource, N: n, Window: time.Hour},
	}}}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// Run checks a server. newServer returns it with the given guard. The server
// answers /hello with 200, /missing with 404 as for any unknown path, and
// /report with a reported cost of 10 units.
func Run(t *testing.T, newServer func(*fairshare.Guard) http.Handler) {
	hour := func(server http.Handler, path string, want ...int) {
		t.Helper()
		for i, status := range want {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			if w.Code != status {
				t.Fatalf("request %d for %s: status %d, want %d", i, path, w.Code, status)
			}
			if status == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Errorf("request %d for %s: no Retry-After", i, path)
			}
		}
	}
	t.Run("requests are limited", func(t *testing.T) {
		hour(newServer(Guard(t, fairshare.Requests, 2)), "/hello", 200, 200, 429, 429)
	})
	t.Run("404 counts as an error", func(t *testing.T) {
		server := newServer(Guard(t, fairshare.Errors, 2))
		hour(server, "/hello", 200, 200, 200)
		hour(server, "/missing", 404, 404, 429)
		hour(server, "/hello", 429)
	})
	t.Run("the cost that a handler reports counts behind a TimeoutHandler", func(t *testing.T) {
		server := http.TimeoutHandler(newServer(Guard(t, fairshare.Cost, 15)), time.Minute, "too slow")
		hour(server, "/report", 200, 200, 429)
	})
	t.Run("answers that pass have RateLimit fields", func(t *testing.T) {
		w := httptest.NewRecorder()
		newServer(Guard(t, fairshare.Requests, 2)).ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
		if got, want := w.Header().Get("RateLimit"), `"limit";r=1;t=`; !strings.HasPrefix(got, want) {
			t.Errorf("RateLimit: %s, want %s…", got, want)
		}
	})
}
