//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/memlimit"
)

// used returns the CPU time of the calling thread, by getrusage.
func used() time.Duration {
	var u syscall.Rusage
	const thread = 1 // RUSAGE_THREAD
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// site spends CPU time and waits, for the requested numbers of ms. The header Used is the
// CPU time from getrusage, in µs.
func site(timing bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := used()
		burn, _ := strconv.Atoi(r.FormValue("burn"))
		wait, _ := strconv.Atoi(r.FormValue("wait"))
		sum := 0
		for until := began + time.Duration(burn)*time.Millisecond; used() < until; {
			for i := range 10_000 {
				sum += i * sum
			}
		}
		time.Sleep(time.Duration(wait) * time.Millisecond)
		took := used() - began
		w.Header().Set("Used", strconv.FormatInt(took.Microseconds(), 10))
		if timing {
			w.Header().Set("Server-Timing", fmt.Sprintf("cpu;dur=%.3f", float64(took.Microseconds())/1000))
		}
		fmt.Fprintf(w, "page %d\n", sum)
	})
}

// serveSite serves until SIGTERM.
func serveSite(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s protects\n", l.Addr())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(l, h) }()
	select {
	case <-ended:
		return nil
	case err := <-failed:
		return err
	}
}

// serveGuarded is a site in Go with the guard inside. At the end it writes the charged
// time of each client to a file, in s. limit is the allowed time of a client in 15 s, in
// µs; 0: no limit.
func serveGuarded(limit int64, sums string) error {
	if limit == 0 {
		limit = fairshare.MaxMicros
	}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{
		Name:   "seven percent",
		Limit:  &fairshare.Limit{Name: "seven percent", Resource: fairshare.CPU, N: limit, Window: 15 * time.Second},
		Answer: &fairshare.Answer{Status: http.StatusServiceUnavailable},
	}}}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		return err
	}
	guard, err := fairshare.NewGuard(policy, limiter, nil)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	charged := map[netip.Addr]float64{}
	err = serveSite(httpguard.Middleware(guard, httpguard.Options{
		ThreadCPU: true,
		Passed: func(p *httpguard.Completion) {
			mu.Lock()
			charged[p.Addr] += p.CPU.Seconds()
			mu.Unlock()
		},
	})(site(false)))
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	data, err := json.Marshal(charged)
	if err != nil {
		return err
	}
	return os.WriteFile(sums, data, 0o600)
}
