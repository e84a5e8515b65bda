package httpguard

import (
	"fmt"
	"net/http"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// Limit returns middleware that allows each client n requests per window and
// answers the others with 429. A client is a peer address, of IPv6 a /64.
// Behind a proxy all requests come from the proxy's address: use [Middleware]
// there, with Options.Client. A handler finds its request with [From].
//
// The counters take 4 MiB: room for about 100,000 clients in one window. Limit
// panics if n or the window is out of the bounds of a [fairshare.Limit].
func Limit(n int64, window time.Duration) func(http.Handler) http.Handler {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{
		Name:  fmt.Sprintf("%d requests in %v", n, window),
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: n, Window: window},
	}}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 4 << 20})
	if err != nil {
		panic("httpguard.Limit: " + err.Error())
	}
	return Middleware(guard, Options{Context: true})
}
