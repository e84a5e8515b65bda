// Command echo guards a site made with echo.
package main

import (
	"errors"
	"log"
	"net/http"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"

	"github.com/labstack/echo/v4"
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
	site := echo.New()
	site.Use(limited(httpguard.New(guard, httpguard.Options{RateLimitFields: true, ErrorStatus: errorStatus}, nil)))
	site.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	site.GET("/report", func(c echo.Context) error {
		httpguard.From(c.Request().Context()).ReportCost(10)
		return c.String(http.StatusOK, "an expensive report")
	})
	return site
}

// limited returns middleware that judges each request.
func limited(guard *httpguard.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			return guard.Do(c.Response(), c.Request(), func(w http.ResponseWriter, r *http.Request) error {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				return next(c)
			})
		}
	}
}

// errorStatus returns the status of the answer that echo's error handler writes
// after the middleware has returned; 0 for an unknown error.
func errorStatus(err error) int {
	var known *echo.HTTPError
	if errors.As(err, &known) {
		return known.Code
	}
	return 0
}
