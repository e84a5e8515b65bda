package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// costSite returns a site that reports the CPU time of its pages.
func costSite(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cost := "5"
		if strings.HasPrefix(r.URL.Path, "/search") {
			cost = "700"
		}
		w.Header().Set("Server-Timing", "db;dur=3, cpu;dur="+cost)
		fmt.Fprint(w, "found")
	}))
	t.Cleanup(site.Close)
	return site
}

// until503 sends requests until one is answered 503. It returns how many were
// answered 200, and the refusal.
func until503(t *testing.T, ask func(i int) *http.Response) (n int, refused *http.Response) {
	t.Helper()
	for i := range 40 {
		switch resp := ask(i); resp.StatusCode {
		case 200:
			n++
		case 503:
			return n, resp
		default:
			t.Fatalf("request %d: %s", i, resp.Status)
		}
	}
	t.Fatal("40 expensive requests are not refused")
	return 0, nil
}

// The policy of examples/seven-percent limits the CPU time of each client.
func TestEachClientUsesAtMostSevenPercent(t *testing.T) {
	policy, err := os.ReadFile("../../examples/seven-percent/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	p, _ := serveFile(t, string(policy), "--upstream", costSite(t).URL, "--state", state)
	get := func(path, client, agent string) *http.Response {
		t.Helper()
		resp, _ := requestAs(t, "GET", "http://"+p.addr+path, client, agent)
		if timing := resp.Header.Get("Server-Timing"); resp.StatusCode == 200 && timing != "db;dur=3" {
			t.Errorf("the client gets %q", timing)
		}
		return resp
	}
	const google = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"

	harvested, refused := until503(t, func(int) *http.Response { return get("/search", "203.0.113.7", "harvest/2.1") })
	// 4.2 s are allowed; a window that ends meanwhile counts less and less.
	if wait, err := strconv.Atoi(refused.Header.Get("Retry-After")); harvested < 6 || err != nil || wait < 1 ||
		wait > 30 {
		t.Errorf("%d searches before %s, Retry-After %q", harvested, refused.Status, refused.Header.Get("Retry-After"))
	}
	line := p.read(t, `(\{.*"client":"203\.0\.113\.7".*\})`)
	var entry struct {
		Rule      string  `json:"rule"`
		Resource  string  `json:"resource"`
		Used      float64 `json:"used"`
		Allowed   float64 `json:"allowed"`
		Load      float64 `json:"load"`
		UserAgent string  `json:"user_agent"`
		Status    int     `json:"status"`
	}
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Rule != "seven percent" ||
		entry.Resource != "cpu" || entry.Used < 4.2 || entry.Used > 4.9 ||
		entry.Allowed != 4.2 || runtime.GOOS == "linux" && !strings.Contains(line, `"load":`) ||
		entry.UserAgent != "harvest/2.1" || entry.Status != 503 {
		t.Errorf("the journal says %s (%v)", line, err)
	}
	for i := range 50 {
		if resp := get("/page", "203.0.113.8", "Mozilla/5.0"); resp.StatusCode != 200 {
			t.Fatalf("a reader's page %d: %s", i, resp.Status)
		}
		if resp := get("/search", "192.0.2.10", "nightly-report/1.0"); resp.StatusCode != 200 {
			t.Fatalf("an own host's search %d: %s", i, resp.Status)
		}
	}
	crawled, _ := until503(t, func(i int) *http.Response {
		addr := netip.AddrFrom4([4]byte{66, 249, 66, byte(1 + i)})
		return get("/search", addr.String(), google)
	})
	if resp := get("/search", "203.0.113.9", google); resp.StatusCode != 200 {
		t.Errorf("an unverified Googlebot: %s", resp.Status)
	}
	if code := func() int { p.Process.Signal(os.Interrupt); return p.exitCode(t) }(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}

	// The registry has the CPU time of each client, to the microsecond.
	used := map[string]float64{}
	for line := range strings.Lines(runOperator(t, state, "clients", "--sort", "cpu", "--json")) {
		var c struct {
			Client     string  `json:"client"`
			CPUSeconds float64 `json:"cpu_seconds"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		used[c.Client] = c.CPUSeconds
	}
	for client, want := range map[string]float64{
		"203.0.113.7": 0.7 * float64(harvested), "203.0.113.8": 0.25, "192.0.2.10": 35,
		"googlebot": 0.7 * float64(crawled), "203.0.113.9": 0.7,
	} {
		if got := used[client]; got < want-1e-6 || got > want+1e-6 {
			t.Errorf("%s used %v s of CPU, want %v", client, got, want)
		}
	}
}

// A long page is charged while it runs: its client is refused other pages.
func TestLongPagesAreChargedWhileTheyRun(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			<-end
		}
	}))
	defer site.Close()
	s := startServe(t, "clients: {trusted_proxies: loopback}\nrules: [{name: time, limit: {time: 700ms, per: 1h}}]",
		"--upstream", site.URL)
	long := make(chan int)
	go func() { long <- getFrom(t, "http://"+s.addr+"/long", "192.0.2.7").StatusCode }()
	eventually(t, 429, func() int { return getFrom(t, "http://"+s.addr+"/short", "192.0.2.7").StatusCode })
	if resp := getFrom(t, "http://"+s.addr+"/short", "192.0.2.8"); resp.StatusCode != 200 {
		t.Errorf("another client: %s", resp.Status)
	}
	close(end)
	if code := <-long; code != 200 {
		t.Errorf("the long page: %d", code)
	}
}

// If the upstream reports CPU time, the duration of a page is not charged,
// neither while it runs nor at its end.
func TestReportedCPUTimeReplacesTheDuration(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(1300 * time.Millisecond)
		w.Header().Set("Server-Timing", "cpu;dur=5")
	}))
	defer site.Close()
	s := startServe(t,
		"clients: {trusted_proxies: loopback}\nupstream: {cpu: {from: server-timing}}\nrules: [{name: cpu, limit: {cpu: 500ms, per: 1h}}]", "--upstream", site.URL)
	for range 2 {
		if resp := getFrom(t, "http://"+s.addr+"/", "192.0.2.7"); resp.StatusCode != 200 {
			t.Errorf("a page that waits: %s", resp.Status)
		}
	}
}

// A request that does not reach the upstream costs nothing.
func TestRequestsThatDoNotReachTheUpstreamCostNothing(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer site.Close()
	s := startServe(t,
		"clients: {trusted_proxies: loopback}\nhosts: [example.org]\nupstream: {cost: {header: X-Cost}}\nrules: [{name: cost, limit: {cost: 2, per: 1h}}]", "--upstream", site.URL)
	for range 3 {
		if resp := getFrom(t, "http://"+s.addr+"/", "192.0.2.7"); resp.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("a host of somebody else: %s", resp.Status)
		}
	}
}

// Of many expensive requests at once, only as many pass as the limit allows at
// their expected cost.
func TestConcurrentExpensiveRequestsAreBounded(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}, 500), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			began <- struct{}{}
			<-end
		}
		w.Header().Set("X-Cost", "100")
	}))
	defer site.Close()
	s := startServe(t, `
clients: {trusted_proxies: loopback}
upstream: {cost: {header: X-Cost, max: 1000}}
rules: [{name: cost, limit: {cost: 1000, per: 1h}}]
`, "--upstream", site.URL)
	if resp := getFrom(t, "http://"+s.addr+"/", "192.0.2.7"); resp.StatusCode != 200 ||
		resp.Header.Get("X-Cost") != "" {
		t.Fatalf("%s, cost %q", resp.Status, resp.Header.Get("X-Cost"))
	}
	const n = 100
	codes := make(chan int, n)
	for range n {
		go func() { codes <- getFrom(t, "http://"+s.addr+"/wait", "192.0.2.7").StatusCode }()
	}
	// One has settled, so the client may have five in progress. They cost 500;
	// 100 are spent. The others wait for three seconds and are refused.
	const inProgress = 5
	for range inProgress {
		<-began
	}
	for range n - inProgress {
		if code := <-codes; code != 429 {
			t.Errorf("answer %d while %d are in progress", code, inProgress)
		}
	}
	close(end)
	for range inProgress {
		if code := <-codes; code != 200 {
			t.Errorf("one of the first %d: %d", inProgress, code)
		}
	}
	for i := range 6 {
		if want := map[bool]int{true: 200, false: 429}[i < 4]; getFrom(t, "http://"+s.addr+"/", "192.0.2.7").
			StatusCode != want {
			t.Errorf("request %d afterwards: want %d", i, want)
		}
	}
}

// serve samples the CPU time of a process that does not report it: a plain
// Python server.
func TestCPUOfAProcessIsSampled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU time of processes is sampled on Linux")
	}
	python := need(t, "python3", "python3")
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	cmd := exec.Command(python, "-c", `
import http.server, sys, time
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        began = time.thread_time()
        while self.path == '/expensive' and time.thread_time() - began < 0.2: pass
        if self.path == '/cheap': time.sleep(0.3)
        self.send_response(200)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Page).serve_forever()
`, port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	eventually(t, true, func() bool { return pageArrives(addr, time.Second) })
	s := startServe(t, `
clients: {trusted_proxies: loopback}
upstream: {cpu: {from: process, cores: 2}}
rules: [{name: one percent, limit: {cpu: 1%, per: 105s}, answer: {status: 503}}]
`, "--upstream", "http://"+addr)
	url := "http://" + s.addr
	// 2.1 s are allowed: ten and a half expensive pages, with some error of sampling,
	// and any number of pages that only take time. The window is long, so that a slow
	// machine can serve that many pages in it.
	n, _ := until503(t, func(int) *http.Response {
		if resp := getFrom(t, url+"/cheap", "192.0.2.8"); resp.StatusCode != 200 {
			t.Errorf("a light client: %s", resp.Status)
		}
		return getFrom(t, url+"/expensive", "192.0.2.7")
	})
	if n < 8 || n > 30 {
		t.Errorf("%d expensive pages before the first refusal", n)
	}
}
