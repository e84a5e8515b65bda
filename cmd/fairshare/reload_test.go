//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// serveFile runs serve as a process with a policy file that the test may edit.
func serveFile(t *testing.T, policy string, args ...string) (p *serving, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "edited.yaml")
	writeOver(t, path, policy)
	return startServing(t, append(args, "-c", path)...), path
}

func (p *serving) reload(t *testing.T, pattern string) string {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	return p.read(t, pattern)
}

// A reload keeps the counters of unchanged limits and all bans. A faulty policy
// changes nothing.
func TestReloadKeepsCountersAndBans(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}))
	defer site.Close()
	const policy = `
clients: {trusted_proxies: loopback}
contact: %s
rules:
  - name: three
    limit: {requests: %d, per: 1h, algorithm: quiet}
    ban: {after: 2, for: 1h}
  - name: %s
    limit: {requests: 4, per: 1h, algorithm: quiet}
`
	p, path := serveFile(t, fmt.Sprintf(policy, "old@example.org", 3, "four"), "--upstream", site.URL)
	ask := func(client string, want int) string {
		t.Helper()
		resp, err := http.DefaultClient.Do(newRequest(t, "GET", "http://"+p.addr, client))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", client, resp.StatusCode, want, body)
		}
		return string(body)
	}
	for range 3 {
		ask("203.0.113.1", 200)
		ask("203.0.113.2", 200)
		ask("203.0.113.3", 200)
	}
	ask("203.0.113.1", 429)
	if body := ask("203.0.113.1", 429); !strings.Contains(body, "old@example.org") { // and is banned
		t.Error(body)
	}

	// The counters of a limit stay when its number changes, those of a renamed
	// limit start from zero, and bans stay.
	writeOver(t, path, fmt.Sprintf(policy, "new@example.org", 4, "renamed"))
	p.reload(t,
		`SIGHUP: \S+ was loaded again: 2 rules, enforcing; (counters that start from zero: renamed; other counters and all bans are kept)`)
	ask("203.0.113.2", 200)
	ask("203.0.113.2", 429)
	if body := ask("203.0.113.1", 429); !strings.Contains(body, "new@example.org") {
		t.Error(body)
	}
	for range 4 {
		ask("203.0.113.4", 200)
	}

	// A faulty policy changes nothing.
	writeOver(t, path, "rules:\n  - {name: three, alow: true}\n")
	p.reload(t, `edited.yaml:2:\d+: (unknown key: "alow")`)
	p.read(t, `SIGHUP: (nothing has changed; the old policy stays in force)`)
	ask("203.0.113.1", 429)

	// A reload changes the trusted proxies, and warns of settings that need a restart.
	writeOver(t, path, "listen: 127.0.0.1:1\nclients: {memory: 1MiB}\nrules: [{use: default}]\n")
	p.reload(t, `warning: changes of (clients.memory) take effect after a restart`)
	if got := ask("203.0.113.1", 200); got != "127.0.0.1" {
		t.Errorf("without trusted proxies the upstream gets %q", got)
	}
}

// A slot that was taken under the old policy is returned to it after a reload.
func TestReloadSettlesWithThePolicyThatJudged(t *testing.T) {
	site, arrived, leave := holdingSite(t)
	const policy = "rules:\n  - name: one\n    limit: {concurrent: 1}\n"
	p, path := serveFile(t, policy, "--upstream", site.URL)
	done := make(chan int)
	ask := func() {
		resp, err := http.Get("http://" + p.addr)
		if err != nil {
			t.Error(err)
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}
	go ask()
	<-arrived
	writeOver(t, path, "contact: a@example.org\n"+policy)
	p.reload(t, `(all counters and bans are kept)`)
	go ask()
	if code := <-done; code != 429 {
		t.Errorf("while the slot is taken: %d", code)
	}
	leave <- true
	if code := <-done; code != 200 {
		t.Errorf("the first request: %d", code)
	}
	go ask()
	<-arrived
	leave <- true
	if code := <-done; code != 200 {
		t.Errorf("after the slot was given back: %d", code)
	}
}

// After SIGHUP the journal is written to a new file: log rotation moved the old
// one away.
func TestReloadReopensTheJournal(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "fairshare.log")
	policy := "journal: {file: " + file + "}\nrules: [{name: all, block: true}]\n"
	p, path := serveFile(t, policy, "--upstream", site.URL)
	ask := func() {
		t.Helper()
		resp, err := http.Get("http://" + p.addr)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	ask()
	p.Process.Signal(syscall.SIGHUP)
	p.read(t, `(was loaded again)`)
	eventually(t, 1, func() int { // a busy machine may take a moment
		data, _ := os.ReadFile(file)
		return strings.Count(string(data), `"status":403`)
	})
	if err := os.Rename(file, file+".moved"); err != nil {
		t.Fatal(err)
	}
	p.reload(t, `(was loaded again)`)
	writeOver(t, path, strings.Replace(policy, file, filepath.Join(dir, "nowhere", "log"), 1))
	p.reload(t, `nowhere.*(no such file|does not exist)`)
	p.read(t, `(nothing has changed)`)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exitCode(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	moved, err := os.ReadFile(file + ".moved")
	if err != nil || strings.Count(string(moved), `"status":403`) != 1 {
		t.Errorf("the moved file holds %q, %v", moved, err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// Reloads and the end of the server under load lose no accepted request.
func TestReloadsUnderLoadLoseNoRequest(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	}))
	defer site.Close()
	const policy = "rules:\n  - name: many\n    limit: {requests: %d, per: 1m}\n"
	p, path := serveFile(t, fmt.Sprintf(policy, 10_000_000), "--upstream", site.URL)
	var answered atomic.Int64
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
			defer client.CloseIdleConnections()
			for {
				resp, err := client.Post("http://"+p.addr, "text/plain", strings.NewReader("here"))
				if err != nil {
					if !strings.Contains(err.Error(), "connection refused") {
						t.Error(err)
					}
					return
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != 200 || string(body) != "here" || err != nil {
					t.Errorf("%s %q %v", resp.Status, body, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i := range 20 {
		for before := answered.Load(); answered.Load() < before+50 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		writeOver(t, path, fmt.Sprintf(policy, 10_000_000+i))
		p.reload(t, `(was loaded again)`)
	}
	p.Process.Signal(syscall.SIGTERM)
	clients.Wait()
	io.Copy(io.Discard, p.lines)
	if code := p.exitCode(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// Event streams end with the grace period and are not reported as cut off.
func TestEventStreamsEndWithTheGrace(t *testing.T) {
	t.Parallel()
	site := eventStreamSite(t)
	p := startProcess(t, "grace: 5s\nrules: []\n", "--upstream", site.URL)
	events := openEventStream(t, "http://"+p.addr)
	p.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, events) // until the stream ends
	output, err := io.ReadAll(p.lines)
	if err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(t); code != cli.ExitOK || strings.Contains(string(output), "cut off") {
		t.Errorf("exit code %d; log:\n%s", code, output)
	}
}
