// Command chi guards a site made with chi, whose middleware is that of net/http.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"

	"github.com/go-chi/chi/v5"
)

func main() {
	guard, err := memlimit.NewGuard(&fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  "100 requests a minute",
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 100, Window: time.Minute},
	}}}, memlimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", newSite(guard)))
}

func newSite(guard *fairshare.Guard) http.Handler {
	site := chi.NewRouter()
	site.Use(httpguard.Middleware(guard, httpguard.Options{Context: true, RateLimitFields: true}))
	site.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	site.Get("/report", func(w http.ResponseWriter, r *http.Request) {
		httpguard.From(r.Context()).ReportCost(10)
		fmt.Fprint(w, "an expensive report")
	})
	return site
}
