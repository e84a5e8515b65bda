// Command gin guards a site made with gin.
package main

import (
	"log"
	"net/http"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"

	"github.com/gin-gonic/gin"
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
	site := gin.New()
	site.Use(gin.Recovery(), limited(httpguard.New(guard, httpguard.Options{RateLimitFields: true}, nil)))
	site.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	site.GET("/report", func(c *gin.Context) {
		httpguard.From(c.Request.Context()).ReportCost(10)
		c.String(http.StatusOK, "an expensive report")
	})
	return site
}

// limited returns middleware that judges each request. gin writes the status
// after its middleware has returned, and handlers need gin's own writer. So the
// answer is reported.
func limited(guard *httpguard.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		guard.Do(c.Writer, c.Request, func(_ http.ResponseWriter, r *http.Request) error {
			passed = true
			c.Request = r
			c.Next()
			httpguard.From(r.Context()).ReportAnswer(c.Writer.Status(), int64(c.Writer.Size()))
			return nil
		})
		if !passed {
			c.Abort()
		}
	}
}
