package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/limittest"
	"fairshare/share"
)

// startReal runs a program that listens at addr until the test ends. It is
// skipped where the program is not installed, but not in CI, which sets
// FAIRSHARE_REQUIRE_SERVICES=1.
func startReal(t *testing.T, debian, addr string, env []string, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		why := fmt.Sprintf("%s is not installed: apt-get install %s", program, debian)
		if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it may have workers
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	})
	for try := 0; ; try++ { // a real server: the only sign of its start is that it answers
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v", program, err)
		case <-time.After(20 * time.Millisecond):
		}
		if try == 1000 {
			t.Fatalf("%s does not listen at %s: %v", program, addr, err)
		}
	}
}

// freeAddr returns an address at which nothing listens. Its port is below those that the
// kernel chooses by itself.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10240+rand.IntN(32768-10240)))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// Each client is charged exactly what the upstream reports for it, to the microsecond.
// One heavy and many light clients send at once, and some disconnect early.
func TestChargesAreTheReportedCosts(t *testing.T) {
	for _, test := range []struct {
		name  string
		start func(t *testing.T, addr, costsFile string)
		query string
	}{
		{"PHP", func(t *testing.T, addr, costsFile string) {
			env := []string{"COSTS_FILE=" + costsFile, "PHP_CLI_SERVER_WORKERS=4"}
			startReal(t, "php-cli", addr, env, "php", "-S", addr,
				"testdata/costs.php")
		}, ""},
		{"Python", python("http"), ""},
		{"Python, in a trailer", python("http"), "&trailer=1"},
		{"Python, in a trailer that is announced", python("http"), "&trailer=1&declared=1"},
		{"Python, WSGI", python("wsgi"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			addr, costsFile := freeAddr(t), filepath.Join(t.TempDir(), "costs")
			test.start(t, addr, costsFile)
			charged, front := realSite(t, addr)
			var all sync.WaitGroup
			send := func(client string, ms float64, cost, n int, leave time.Duration) {
				all.Go(func() {
					for range n {
						req, _ := http.NewRequest("GET", fmt.Sprintf("%s/?ms=%v&cost=%d%s", front.URL, ms, cost,
							test.query), nil)
						req.Header.Set("X-Client", client)
						if leave > 0 {
							ctx, cancel := context.WithTimeout(req.Context(), leave)
							defer cancel()
							req = req.WithContext(ctx)
						}
						resp, err := http.DefaultTransport.RoundTrip(req)
						if err != nil {
							if leave == 0 {
								t.Errorf("%s: %v", client, err)
							}
							continue
						}
						page, err := io.ReadAll(resp.Body)
						resp.Body.Close()
						if leave == 0 && (resp.StatusCode != 200 || len(page) != 32 || err != nil) {
							t.Errorf("%s: %s %q %v", client, resp.Status, page, err)
						}
						for _, h := range []http.Header{resp.Header, resp.Trailer} {
							if rest := h.Get("Server-Timing"); strings.Contains(
								strings.ReplaceAll(rest, "; cpu;dur=9", ""), "cpu") || h.Get("X-Cost") != "" {
								t.Errorf("%s: the client gets %v", client, h)
							}
						}
					}
				})
			}
			send("heavy", 40, 1000, 10, 0)
			send("hasty", 20, 500, 5, 10*time.Millisecond)
			for i := range 4 {
				send(fmt.Sprintf("light%d", i), 0.5, 1+i, 20, 0)
			}
			all.Wait()
			front.Close() // when all are charged, also those whose clients have left
			wants := readCostsFile(t, costsFile)
			if len(wants) < 5 { // each request of hasty may have ended too early
				t.Errorf("the upstream reported %d clients: %v", len(wants), wants)
			}
			for client, want := range wants {
				if got := [2]int64{charged.of(fairshare.CPU, client), charged.of(fairshare.Cost, client)}; got != want {
					t.Errorf("%s is charged %d µs of CPU and %d units, and the upstream reported %d and %d", client,
						got[0], got[1], want[0], want[1])
				}
			}
			if light, heavy := wants["light0"][0], wants["heavy"][0]; light >= heavy {
				t.Errorf("a light client spent %d µs, the heavy one %d", light, heavy)
			}
		})
	}
}

// Queued requests whose clients disconnect leave the queue at once and do not reach
// the upstream.
func TestQueuedRequestsOfGoneClientsLeave(t *testing.T) {
	const crowd = 300
	release, requests := make(chan bool), new(atomic.Int64)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		io.Copy(io.Discard, r.Body)
		<-release
	}))
	defer upstream.Close()
	u, _ := url.Parse(upstream.URL)
	guard, err := fairshare.NewGuard(&fairshare.Policy{}, limittest.NewModel(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	q := share.New(share.Options{Capacity: 1, Queue: crowd, Wait: time.Hour})
	p := New(Config{Upstream: u})
	defer p.Close()
	front := httptest.NewServer(httpguard.Middleware(guard, httpguard.Options{HandlerAwaits: true, Share: q})(p))
	defer front.Close()
	until := func(inside, waiting int) {
		t.Helper()
		var st share.Stats
		for range 60_000 { // real sockets: only polling shows it
			if st = q.Stats(); st.Inside == inside && st.Waiting == waiting {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("%d are inside and %d wait; want %d and %d", st.Inside, st.Waiting, inside, waiting)
	}
	first := make(chan error)
	go func() {
		resp, err := http.Get(front.URL)
		if err == nil {
			resp.Body.Close()
		}
		first <- err
	}()
	until(1, 0)
	conns := make([]net.Conn, crowd)
	for i := range conns {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
		io.WriteString(conn, []string{
			"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", bodyAhead),
		}[i%3])
	}
	until(1, crowd)
	for _, conn := range conns {
		conn.Close()
	}
	until(1, 0)
	release <- true
	if err := <-first; err != nil {
		t.Error(err)
	}
	until(0, 0)
	if st := q.Stats(); requests.Load() != 1 || st.Classes[0].Gone != crowd {
		t.Errorf("the upstream got %d requests, %d clients left; want 1 and %d", requests.Load(), st.Classes[0].Gone, crowd)
	}
}

func python(how string) func(t *testing.T, addr, costsFile string) {
	return func(t *testing.T, addr, costsFile string) {
		_, port, _ := net.SplitHostPort(addr)
		startReal(t, "python3", addr, []string{"COSTS_FILE=" + costsFile}, "python3", "testdata/costs.py", port, how)
	}
}

// realSite starts a proxy on a socket, for the upstream at addr. It distinguishes its
// clients by X-Client.
func realSite(t *testing.T, addr string) (charged *ledger, front *httptest.Server) {
	t.Helper()
	rules := make([]fairshare.Rule, len(measured))
	for i, rule := range measured {
		lim := *rule.Limit
		lim.By = []fairshare.KeyPart{{Kind: fairshare.ByHeader, Name: "X-Client"}}
		rules[i] = fairshare.Rule{Name: rule.Name, Limit: &lim}
	}
	policy := &fairshare.Policy{Rules: rules}
	charged = newLedger(policy)
	guard, err := fairshare.NewGuard(policy, charged, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Upstream: &url.URL{Scheme: "http", Host: addr}, Timing: "cpu", CostHeader: "X-Cost",
		MaxCost: 1 << 20})
	front = httptest.NewServer(httpguard.Middleware(guard,
		httpguard.Options{HandlerAwaits: true, HandlerReportsCPU: true})(p))
	t.Cleanup(p.Close)
	t.Cleanup(front.Close)
	return charged, front
}

// readCostsFile returns the sums that an upstream recorded for each client: microseconds
// of CPU time, and units.
func readCostsFile(t *testing.T, file string) map[string][2]int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sums := make(map[string][2]int64)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var client string
		var cpu, cost int64
		if _, err := fmt.Sscan(lines.Text(), &client, &cpu, &cost); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		sum := sums[client]
		sums[client] = [2]int64{sum[0] + cpu, sum[1] + cost}
	}
	return sums
}
