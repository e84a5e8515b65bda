package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare/internal/lockfile"
	"fairshare/internal/setup"
)

// An output collects what a watcher writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// await waits until a text was written.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	written := ""
	for range 600 {
		o.mu.Lock()
		written = o.text.String()
		o.mu.Unlock()
		if strings.Contains(written, text) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("in 30 s nothing has %q:\n%s", text, written)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// running runs a watcher of access.log in a folder until the test ends.
func running(t *testing.T, dir, policy string) *output {
	t.Helper()
	site, log, out := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "access.log"), new(output)
	write(t, site, policy)
	appendTo(t, log, "")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Policy: site, Logs: []string{log}, State: filepath.Join(dir, "state"), Now: time.Now,
			Stderr: out})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out
}

func TestAChangedListOfProxiesLoadsThePolicyAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "edges.txt"), "198.51.100.1\n")
	out := running(t, dir, "clients: {trusted_proxies: [edges]}\nlists: {edges: {file: edges.txt}}\nrules: []\n")
	out.await(t, "kill -HUP")
	write(t, filepath.Join(dir, "edges.txt"), "198.51.100.1\n198.51.100.2\n")
	out.await(t, "list edges has changed, and trusted_proxies uses it")
	out.await(t, "was loaded again")
}

// Positions that another process stores while this one waits for the state folder are used.
func TestPositionsAreReadWithTheStateFolder(t *testing.T) {
	dir := t.TempDir()
	state, log := filepath.Join(dir, "state"), filepath.Join(dir, "access.log")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := lockfile.Take(filepath.Join(state, setup.ServeLock))
	if err != nil {
		t.Fatal(err)
	}
	appendTo(t, log, logLine(1)+logLine(2))
	out := running(t, dir, "rules: []\n")
	time.Sleep(time.Second)
	f := follow(t, state, false, log)
	f.judge(2)
	f.look()
	f.close()
	lock.Release()
	out.await(t, "continued at byte")
}

// A log shows the answers to logins: a client that guesses passwords is banned, as a replay of the log says.
func TestAClientThatGuessesPasswordsIsBanned(t *testing.T) {
	dir := t.TempDir()
	site, log, out := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "access.log"), new(output)
	write(t, site, "rules:\n  - name: guessing\n    match: {attempt: login, not: {attempt: known}}\n"+
		"    limit: {failures: 5, per: 10m, by: addr}\n    ban: {after: 2, for: 1h, all: true}\n")
	var lines strings.Builder
	for i := range 20 {
		at := time.Now().Add(time.Duration(i-30) * time.Second)
		fmt.Fprintf(&lines, "192.0.2.1 - - [%s] \"POST /wp-login.php HTTP/1.1\" 200 4012 \"-\" \"Mozilla/5.0\"\n",
			at.Format("02/Jan/2006:15:04:05 -0700"))
	}
	write(t, log, lines.String())
	err := Run(t.Context(), Options{Policy: site, Logs: []string{log}, State: filepath.Join(dir, "state"),
		Now: time.Now, Stderr: out, Once: true})
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "20 lines were judged")
	out.await(t, "1 ban started")
	out.await(t, `"rule":"guessing"`)
}
