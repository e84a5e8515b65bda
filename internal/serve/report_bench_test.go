package serve

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
)

// reporting returns the functions by which the guard of a server with a state folder reports refused and passed
// requests.
func reporting(b *testing.B) (*server, httpguard.Options) {
	opts := Options{Flags: Flags{Policy: writeFile(b, "site.yaml",
		"upstream: http://127.0.0.1:9\nrules: [{name: one an hour, limit: {requests: 1, per: 1h, by: addr}}]\n"),
		Listen: "127.0.0.1:0"}, State: b.TempDir(), Now: time.Now, Stderr: io.Discard}
	file, err := opts.load(opts.Stderr)
	if err != nil {
		b.Fatal(err)
	}
	s, err := newServer(b.Context(), file, opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { // the policy was not started: writing the registry in the background is not measured
		s.listener.Close()
		s.close()
	})
	return s, s.guardOptions(s.runtime.Load())
}

// BenchmarkReport reports requests to all that counts and logs them: metrics, lists for operators, warnings,
// registry and journal.
func BenchmarkReport(b *testing.B) {
	const agent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
	header := http.Header{"User-Agent": {agent}, "Accept": {"*/*"}, "Accept-Language": {"en"},
		"Cookie": {"session=0123456789abcdef"}}
	paths, addrs := make([]string, 1<<14), make([]netip.Addr, 1<<14)
	for i := range paths {
		paths[i] = fmt.Sprintf("/shop/articles/%d/details", i)
		addrs[i] = netip.AddrFrom4([4]byte{203, byte(i >> 8), byte(i), 7})
	}
	for _, bench := range []struct {
		name           string
		passed         bool
		paths, clients int
	}{
		{"refused", false, 1, 1},
		{"refused/paths", false, len(paths), 1},
		{"refused/clients", false, 100, len(addrs)},
		{"passed", true, 1, 1},
		{"passed/paths", true, len(paths), 1},
		{"passed/clients", true, 100, len(addrs)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s, opts := reporting(b)
			rule := &s.runtime.Load().File.Policy.Rules[0]
			var begin atomic.Int64
			b.ReportAllocs()
			before := processorTime(b)
			b.RunParallel(func(pb *testing.PB) {
				req := fairshare.Request{Method: "GET", Host: "www.example.org", UserAgent: agent, Header: header}
				refused := httpguard.Report{Request: &req, Status: 429, RetryAfter: 3600, ID: "0123456789",
					Finding: fairshare.Finding{Action: fairshare.Refuse, Rule: rule, Limit: rule.Limit,
						Tally: fairshare.Tally{Over: true, Used: 1}, Wait: time.Hour}}
				passed := httpguard.Completion{Method: "GET", Host: "www.example.org", UserAgent: agent, Status: 200,
					Took: 3 * time.Millisecond, Bytes: 12_345}
				i := int(begin.Add(1)) * len(paths) / 3
				for ; pb.Next(); i++ {
					if i%64 == 0 || req.Time.IsZero() {
						req.Time = s.policy.Now()
						passed.Time = req.Time
					}
					req.Path, req.Addr = paths[i%bench.paths], addrs[i%bench.clients]
					if bench.passed {
						passed.Path, passed.Addr = req.Path, req.Addr
						opts.Passed(&passed)
					} else {
						opts.Refused(&refused)
					}
				}
			})
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the CPU time of this process: others on the machine do not change it.
func processorTime(b *testing.B) time.Duration {
	var all syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &all); err != nil {
		b.Fatal(err)
	}
	return time.Duration(all.Utime.Nano() + all.Stime.Nano())
}
