package httpguardtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/httpguard/httpguardtest"
	"fairshare/memlimit"
)

var site = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "welcome") })

func Example() {
	for _, guard := range []*fairshare.Guard{
		httpguardtest.Passing(), httpguardtest.Refusing(90 * time.Second), httpguardtest.Blocking(),
	} {
		w := httptest.NewRecorder()
		httpguard.Middleware(guard, httpguard.Options{})(site).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header()["Retry-After"])
	}
	// Output:
	// 200 []
	// 429 [90]
	// 403 []
}

func ExampleClock() {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "one a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute, Algorithm: fairshare.GCRA},
	}}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		panic(err)
	}
	clock := httpguardtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	handler := httpguard.Middleware(guard, httpguard.Options{Now: clock.Now})(site)
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code)
		clock.Advance(40 * time.Second)
	}
	// Output:
	// 200
	// 429
	// 200
}
