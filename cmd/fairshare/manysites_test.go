//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Three reloads of a policy with a hundred sites, in the middle of load: no request fails, and none goes to another
// site. The sites change their order, their rules and their number.
func TestReloadsOfAHundredSitesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("it loads a hundred sites four times")
	}
	const sites = 100
	upstreams := make([]string, sites)
	for i := range upstreams {
		upstreams[i] = namedSite(t, fmt.Sprintf("site-%d", i))
	}
	policy := func(version int) string {
		var b strings.Builder
		b.WriteString("robots: off\nsites:\n")
		write := func(i int, name string) {
			fmt.Fprintf(&b, "  %s:\n    hosts: [%s.example]\n    upstream: %s\n    rules:\n"+
				"      - {name: private, match: {path: /private-%d}, block: true}\n"+
				"      - {name: pages, match: {path: \"/p/*\"}, limit: {requests: %d, per: 1m, by: addr}}\n", name, name, upstreams[i], version, 1_000_000+version)
		}
		for n := range sites {
			i := n * []int{1, 99, 3, 7}[version] % sites // another order in each version
			write(i, fmt.Sprintf("s%d", i))
		}
		for n := range version {
			write(n, fmt.Sprintf("new%d", n))
		}
		b.WriteString("rules: []\n")
		return b.String()
	}
	p, path := serveFile(t, policy(0))
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var answered atomic.Int64
	for worker := range 4 {
		all.Go(func() {
			for i := worker; ctx.Err() == nil; i += 7 {
				site := i % sites
				host := fmt.Sprintf("s%d.example", site)
				status, text, err := askSite(client, p.addr, host, "/p/page")
				if want := fmt.Sprintf("site-%d %s", site, host); err != nil || status != 200 || text != want {
					t.Errorf("%s: %d %.200q %v, want %q", host, status, text, err, want)
					return
				}
				answered.Add(1)
			}
		})
	}
	for version := 1; version <= 3; version++ {
		for before := answered.Load(); answered.Load() < before+sites && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		writeOver(t, path, policy(version))
		began, before := time.Now(), answered.Load()
		p.reload(t, `(was loaded again)`)
		t.Logf("reload %d: %v, %d requests answered meanwhile, %s", version, time.Since(began),
			answered.Load()-before, memoryOf(t, p.Process.Pid))
		for what, want := range map[string]int{"/": 200, fmt.Sprintf("/private-%d", version): 403,
			fmt.Sprintf("/private-%d", version-1): 200} {
			host := fmt.Sprintf("new%d.example", version-1)
			status, text, err := askSite(client, p.addr, host, what)
			right := want != 200 || strings.HasPrefix(text, fmt.Sprintf("site-%d ", version-1))
			if err != nil || status != want || !right {
				t.Errorf("%s%s: %d %.200q %v, want %d", host, what, status, text, err, want)
			}
		}
	}
	cancel()
	all.Wait()
}

// memoryOf returns what the system says of the memory of a process; "" if it does not say it.
func memoryOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	return strings.Join(regexp.MustCompile(`VmHWM.*|VmRSS.*`).FindAllString(string(text), -1), ", ")
}
