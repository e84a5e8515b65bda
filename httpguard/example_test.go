package httpguard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

func ExampleMiddleware() {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "two a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Minute},
	}}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{})
	if err != nil {
		panic(err)
	}
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "welcome") })
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	handler := httpguard.Middleware(guard, httpguard.Options{
		Contact: "shop@example.org",
		Now:     func() time.Time { return noon },
	})(site)

	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header()["Retry-After"], w.Header()["Ratelimit"])
	}
	// Output:
	// 200 [] []
	// 200 [] []
	// 429 [90] ["two a minute";r=0;t=90]
}

func ExampleLimit() {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "welcome") })
	handler := httpguard.Limit(2, 24*time.Hour)(site)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}
