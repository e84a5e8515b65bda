//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A program is fairshare serve as a process of its own.
type program struct {
	*os.Process
	stderr *watched
	ended  chan error
}

// startProgram runs serve with a policy file until the test ends, and waits
// until it listens.
func startProgram(t *testing.T, policy string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{stderr: newWatched(), ended: make(chan error, 1)}
	cmd := &exec.Cmd{Path: self, Args: []string{"fairshare", "serve", "-c", policy, "--state",
		filepath.Join(filepath.Dir(policy), "state")}, Stderr: p.stderr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Process = cmd.Process
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() { p.Kill() })
	p.stderr.wait(`(protects)`)
	return p
}

// Reloads and restarts behind an nginx that may bypass fairshare lose no
// request of visitors. Counters survive a reload, and a faulty policy changes
// nothing.
func TestReloadsAndRestartsBehindNginxLoseNoRequest(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 4, map[string]string{"# server 127.0.0.1:8081 backup;": "server 127.0.0.1:8081 backup;"})
	s.stop() // a process takes its place
	policy := filepath.Join(t.TempDir(), "fairshare.yaml")
	write := func(more string) {
		t.Helper()
		text := deployed(t, map[string]string{"127.0.0.1:8080": s.addr, "127.0.0.1:8081": s.inner,
			"rules:\n": "rules:\n" + more}, "nginx/fairshare.yaml")
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const ours = "  - {name: load, match: {addr: [127.0.0.1, 127.0.0.2]}, allow: true}\n"
	write(ours)
	p := startProgram(t, policy)

	visitors := startVisitors(t, s)
	served := visitors.served

	guesser := s.visitor(t, "127.0.0.3")
	for range 3 {
		if got := guesser.statuses(25, "/wp-login.php", "-d", "log=admin"); got[200]+got[429] != 25 {
			t.Errorf("guesses: %v", got)
		}
	}
	for i := range 5 {
		write(fmt.Sprintf("%s  - {name: more %d, limit: {requests: 100000, per: 1m}}\n", ours, i))
		p.Signal(syscall.SIGHUP)
		p.stderr.wait(fmt.Sprintf(`(counters that start from zero: more %d;)`, i))
		served(50)
		guesser.get(429, "", "/wp-login.php", "-d", "log=admin")
	}
	write("  - {name: faulty, alow: true}\n")
	p.Signal(syscall.SIGHUP)
	p.stderr.wait(`(nothing has changed)`)
	served(50)
	guesser.get(429, "", "/wp-login.php", "-d", "log=admin")

	write(ours)
	for range 3 {
		p.Signal(syscall.SIGTERM)
		if err := <-p.ended; err != nil {
			t.Errorf("the end: %v\n%s", err, p.stderr)
		}
		served(20) // around it
		p = startProgram(t, policy)
		served(50)
	}
	visitors.stop()
}

// A POST that fairshare had when it was killed is not sent to the site again by
// an nginx that may bypass fairshare.
func TestBypassAfterAKillRepeatsNoPost(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 4, map[string]string{"# server 127.0.0.1:8081 backup;": "server 127.0.0.1:8081 backup;"})
	s.stop()
	text := deployed(t, map[string]string{"127.0.0.1:8080": s.addr, "127.0.0.1:8081": s.inner}, "nginx/fairshare.yaml")
	p := startProgram(t, writeFile(t, "fairshare.yaml", text))
	v := s.visitor(t, "127.0.0.2")
	answer := make(chan string)
	go func() {
		defer close(answer)
		answer <- v.do("/slow.php?ms=1000", "-i", "-d", "order=1")
	}()
	deadline := time.Now().Add(patience)
	for now := 0; now == 0 && time.Now().Before(deadline); now, _, _ = runs(t, s.root) {
		time.Sleep(5 * time.Millisecond)
	}
	p.Kill()
	if got := <-answer; statusOf(got) != 502 {
		t.Errorf("the post: %s", got)
	}
	v.get(200, "done", "/slow.php?ms=1", "-d", "order=2")
	if _, _, all := runs(t, s.root); all != 2 {
		t.Errorf("two posts ran %d times", all)
	}
}

// Reloads of the public and the inner nginx lose no request of visitors.
func TestNginxReloadsLoseNoRequest(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 4,
		map[string]string{"rules:\n": "rules:\n  - {name: load, match: {addr: 127.0.0.1}, allow: true}\n"})
	visitors := startVisitors(t, s)
	visitors.served(50)
	for range 5 {
		s.nginx.Signal(syscall.SIGHUP)
		visitors.served(300)
	}
	visitors.stop()
}

// visitors send GET and POST requests in turns, over HTTP/2.
type visitors struct {
	t        *testing.T
	done     atomic.Bool
	answered atomic.Int64
	all      sync.WaitGroup
}

func startVisitors(t *testing.T, s *sandwich) *visitors {
	v := &visitors{t: t}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	client := http.Client{Transport: transport, Timeout: patience}
	for range 4 {
		v.all.Go(func() {
			for i := 0; !v.done.Load(); i++ {
				method, body := "GET", ""
				if i%2 == 1 {
					method, body = "POST", strings.Repeat("log=a&", 50)
				}
				req, err := http.NewRequest(method, "https://"+s.public+"/asked.php", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.Host = "shop.example"
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("a %s was lost: %v", method, err)
					return
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 {
					t.Errorf("a %s was lost: %s %v %.300s", method, resp.Status, err, text)
					return
				}
				v.answered.Add(1)
			}
		})
	}
	t.Cleanup(func() {
		v.stop()
		transport.CloseIdleConnections()
	})
	return v
}

// served waits until n more requests were answered.
func (v *visitors) served(n int64) {
	deadline := time.Now().Add(time.Minute)
	for until := v.answered.Load() + n; v.answered.Load() < until && !v.t.Failed(); {
		if time.Now().After(deadline) {
			v.t.Error("no request is answered")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (v *visitors) stop() {
	v.done.Store(true)
	v.all.Wait()
}
