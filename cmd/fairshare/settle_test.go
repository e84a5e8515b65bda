//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const settledPolicy = `
contact: shop@example.org
rules:
  - name: errors
    match: {path: "/missing/*"}
    limit: {errors: 5, per: 1h, by: addr, statuses: [404]}
  - name: bytes
    match: {path: /big}
    limit: {bytes: 1MB, per: 1h, by: addr}
  - name: retries
    match: {path: "/gone/*"}
    limit: {requests: 3, per: 1h, algorithm: quiet}
    refund: 410
`

// settledSite returns the address of a site that gets no references, unless it is behind Traefik.
func settledSite(t *testing.T, front string) string {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Fairshare-Reference"); front != "traefik" && got != "" && got != forgedReference {
			t.Errorf("the site got the reference %q", got)
		}
		switch {
		case strings.HasPrefix(r.URL.Path, "/missing/"):
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(r.URL.Path, "/gone/"):
			w.WriteHeader(http.StatusGone)
		case r.URL.Path == "/big":
			w.Write(make([]byte, 400_000))
		}
	}))
	t.Cleanup(site.Close)
	return strings.TrimPrefix(site.URL, "http://")
}

const forgedReference = "0123456789abcdef0123456789abcdef"

// getSettled sends one request with a forged reference, and returns the status of its answer.
func getSettled(t *testing.T, client *http.Client, listen, path string) int {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+listen+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "shop.example"
	req.Header.Set("Fairshare-Reference", forgedReference)
	resp, err := client.Do(req)
	if err != nil { // Apache may close a connection that is not in use just when a request comes
		resp, err = client.Do(req)
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	for name := range resp.Header {
		if strings.HasPrefix(name, "Fairshare-") {
			t.Errorf("the client got %s", name)
		}
	}
	return resp.StatusCode
}

// With --settle-from, limits of errors and bytes and refunds work as in serve.
func TestForwardAuthSettlesFromTheLog(t *testing.T) {
	t.Parallel()
	site := settledSite(t, "serve")
	direct := startServe(t, strings.Replace(settledPolicy, "rules:", "clients: {trusted_proxies: []}\nrules:", 1),
		"--upstream", "http://"+site)
	// sequence returns the statuses of requests, each sent after the one before was settled.
	sequence := func(t *testing.T, listen string, settled func()) (statuses []string) {
		for _, c := range []struct {
			client, path string
			times        int
		}{{"127.0.0.2", "/missing/%d", 8}, {"127.0.0.3", "/big", 6}, {"127.0.0.4", "/gone/%d", 8},
			{"127.0.0.5", "/missing/%d", 3}, {"127.0.0.5", "/big", 1}} {
			client := clientAt(t, c.client)
			for i := range c.times {
				path := c.path
				if strings.Contains(path, "%") {
					path = fmt.Sprintf(path, i)
				}
				status := getSettled(t, client, listen, path)
				if settled(); status == http.StatusTooManyRequests {
					path = "refused"
				}
				statuses = append(statuses, fmt.Sprintf("%s %s: %d", c.client, path, status))
			}
		}
		return statuses
	}
	want := strings.Join(sequence(t, direct.addr, func() {}), "\n")
	if !strings.Contains(want, "127.0.0.2 refused: 429") || !strings.Contains(want, "127.0.0.3 refused: 429") ||
		strings.Contains(want, "127.0.0.4 refused") {
		t.Fatalf("serve:\n%s", want)
	}
	for _, front := range authFronts {
		if !front.logs {
			continue
		}
		t.Run(front.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "fairshare.log")
			auth := startAuth(t, settledPolicy, "--settle-from", log)
			listen := front.start(t, authTest{auth: auth.addr, site: settledSite(t, front.name), log: log}).listen
			size := int64(0)
			got := strings.Join(sequence(t, listen, func() {
				for range 50 { // a request that was refused has no line behind nginx
					if info, err := os.Stat(log); err == nil && info.Size() > size {
						size = info.Size()
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(300 * time.Millisecond) // several times what reading the log takes
			}), "\n")
			if got != want {
				t.Errorf("behind %s:\n%s\nserve:\n%s", front.name, got, want)
			}
		})
	}
}

// A client that scans is refused after its errors, although the log is rotated. Other requests do not count.
func TestForwardAuthSettlesWhileTheLogIsRotated(t *testing.T) {
	t.Parallel()
	for _, front := range authFronts {
		if !front.logs || front.name == "caddy" { // Caddy rotates its logs itself
			continue
		}
		t.Run(front.name, func(t *testing.T) { testRotatedLog(t, front) })
	}
}

func testRotatedLog(t *testing.T, front authFront) {
	site := settledSite(t, front.name)
	log := filepath.Join(t.TempDir(), "fairshare.log")
	policy := "rules:\n- {name: errors, limit: {errors: 100, per: 1h, by: addr, statuses: [404]}}\n"
	auth := startAuth(t, policy, "--settle-from", log)
	running := front.start(t, authTest{auth: auth.addr, site: site, log: log})
	listen := running.listen
	var all sync.WaitGroup
	var mu sync.Mutex
	passed := map[string]int{}
	for _, addr := range []string{"127.0.0.2", "127.0.0.3"} {
		client := clientAt(t, addr)
		all.Go(func() {
			refused := 0 // in a row, at the end
			for i := 0; i < 500 || refused < 5; i++ {
				if i >= 500 { // requests without a line yet count as errors
					time.Sleep(100 * time.Millisecond)
					refused++
				}
				switch getSettled(t, client, listen, []string{"/missing/x", "/"}[i%2]) {
				case http.StatusNotFound:
					mu.Lock()
					passed[addr]++
					mu.Unlock()
					refused = 0
				case http.StatusOK:
					refused = 0
				}
			}
		})
	}
	for i := range 3 {
		time.Sleep(100 * time.Millisecond)
		if err := os.Rename(log, fmt.Sprintf("%s.%d", log, i)); err != nil {
			t.Error(err)
		}
		running.reopen()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(log); err == nil {
				break
			}
		}
	}
	all.Wait()
	for addr, n := range passed {
		if n != 100 {
			t.Errorf("%s: %d errors passed, want 100", addr, n)
		}
	}
}

// nginx asks again after an internal redirect. Such a request counts once.
func TestForwardAuthCountsInternalRedirectsOnce(t *testing.T) {
	t.Parallel()
	site := settledSite(t, "nginx")
	log := filepath.Join(t.TempDir(), "fairshare.log")
	auth := startAuth(t, "rules: [{name: three, limit: {requests: 3, per: 1h, algorithm: quiet}}]\n", "--settle-from", log)
	listen, _ := startAuthNginx(t, auth.addr, site, log,
		map[string]string{"	location / {": "	location /front/ { try_files /none /index; }\n	location / {"})
	client := clientAt(t, "127.0.0.2")
	var got []int
	for range 5 {
		got = append(got, getSettled(t, client, listen, "/front/page"))
	}
	if want := []int{200, 200, 200, 429, 429}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
