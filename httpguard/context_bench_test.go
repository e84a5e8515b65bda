package httpguard_test

import (
	"net/http"
	"testing"

	"fairshare"
	"fairshare/httpguard"
)

// BenchmarkContext measures the cost of From and of the RateLimit fields for a
// request that passes.
func BenchmarkContext(b *testing.B) {
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("welcome")) })
	header := http.Header{"User-Agent": {"Mozilla/5.0"}, "Accept": {"*/*"}}
	for name, opts := range map[string]httpguard.Options{
		"without": {}, "context": {Context: true}, "fields": {RateLimitFields: true},
	} {
		b.Run(name, func(b *testing.B) {
			benchHandler(b, httpguard.Middleware(benchGuard(b, fairshare.MaxN), opts)(site), header, 200)
		})
	}
}
