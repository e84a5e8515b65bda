//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"fairshare/internal/cli"
)

// A serving is a process of serve, with a pipe for its stderr.
type serving struct {
	*exec.Cmd
	addr   string
	stderr *os.File // the reader's end
	lines  *bufio.Reader
}

// startProcess runs serve with a policy until its start lines have been read.
func startProcess(t *testing.T, policy string, args ...string) *serving {
	t.Helper()
	return startServing(t, append(args, "-c", writeFile(t, "site.yaml", policy))...)
}

// startServing runs serve until its start lines have been read.
func startServing(t *testing.T, args ...string) *serving {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"fairshare", "serve", "--listen", "127.0.0.1:0"}, ownState(t, args)...)
	p := launch(t, &exec.Cmd{Path: self, Args: args})
	p.awaitStart(t)
	return p
}

// programLink returns the path of the program in dir: a link to the program of
// the tests, which acts by the name that it is called.
func programLink(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "fairshare")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// launch starts a command that runs serve, with a pipe for its stderr. The
// process is killed when the test ends.
func launch(t *testing.T, cmd *exec.Cmd) *serving {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = write
	p := &serving{Cmd: cmd, stderr: read, lines: bufio.NewReader(read)}
	err = p.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait() // a running process could still write to folders that the test removes
		read.Close()
	})
	return p
}

// awaitStart reads the start lines and the address in them.
func (p *serving) awaitStart(t *testing.T) {
	t.Helper()
	p.addr = p.read(t, `https?://(\S+) protects`)
	p.read(t, `(journal: refusals)`)
}

// read reads lines until one matches, and returns the group of pattern.
func (p *serving) read(t *testing.T, pattern string) string {
	t.Helper()
	for re := regexp.MustCompile(pattern); ; {
		line, err := p.lines.ReadString('\n')
		if m := re.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		if err != nil {
			t.Fatalf("stderr ended before %s", pattern)
		}
	}
}

func (p *serving) exitCode(t *testing.T) int {
	t.Helper()
	var failed *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if !p.ProcessState.Exited() {
		t.Errorf("ended by %v", p.ProcessState)
	}
	return p.ProcessState.ExitCode()
}

// serve continues after the reader of its stderr has ended.
func TestServeContinuesWithoutAReaderOfItsLog(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer site.Close()
	p := startProcess(t, threeInAnHour, "--upstream", site.URL)
	p.stderr.Close()
	for i := range 6 {
		want := 200
		if i >= 3 {
			want = 429
		}
		if resp := getFrom(t, "http://"+p.addr, "203.0.113.1"); resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	p.Process.Signal(syscall.SIGTERM) // the last lines are written before it ends
	if code := p.exitCode(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// serve continues when it writes more than a pipe holds and nobody reads it.
func TestServeContinuesIfItsLogIsNotRead(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	site.Close()
	p := startProcess(t, threeInAnHour, "--upstream", site.URL)
	for i := range 400 {
		want := 502
		if i >= 3 {
			want = 429
		}
		if resp := getFrom(t, "http://"+p.addr+"/"+strings.Repeat("x", 600), "203.0.113.1"); resp.StatusCode != want {
			t.Fatalf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	if resp := getFrom(t, "http://"+p.addr, "203.0.113.2"); resp.StatusCode != 502 {
		t.Errorf("with the upstream down: %d, want 502", resp.StatusCode)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exitCode(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// SIGHUP reloads, SIGTERM drains, and a second signal cuts off the requests in
// progress.
func TestSignalsReloadAndStop(t *testing.T) {
	site, arrived, _ := holdingSite(t)
	p := startProcess(t, "grace: 1h\n"+threeInAnHour, "--upstream", site.URL)
	p.Process.Signal(syscall.SIGHUP)
	p.read(t, `(SIGHUP: \S+ was loaded again: 1 rule, enforcing; all counters and bans are kept)`)
	failed := make(chan error)
	go func() {
		_, err := http.Get("http://" + p.addr)
		failed <- err
	}()
	<-arrived
	p.Process.Signal(syscall.SIGTERM)
	p.read(t, `stopping; requests in progress have 1h0m0s to end; a (second) SIGTERM or SIGINT stops at once`)
	p.Process.Signal(os.Interrupt)
	p.read(t, `(have been cut off)`)
	if err := <-failed; err == nil {
		t.Error("the request got an answer")
	}
	io.Copy(io.Discard, p.lines)
	if code := p.exitCode(t); code != cli.ExitFailed {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailed)
	}
}
