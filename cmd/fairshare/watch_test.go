package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A syncBuffer collects the output of a process.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// watching starts fairshare watch with a log in dir, and waits until it follows it.
func watching(t *testing.T, dir string, args ...string) (*exec.Cmd, *syncBuffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "fairshare")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(link, append([]string{"watch", "--state", filepath.Join(dir, "state")}, args...)...)
	out := new(syncBuffer)
	cmd.Dir, cmd.Stderr = dir, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	until(t, "watch has started", func() bool { return strings.Contains(out.String(), "kill -HUP") })
	return cmd, out
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("in 30 s it is not so: %s", what)
}

// logged returns a line of client number n.
func logged(n int) string {
	return fmt.Sprintf("20.0.%d.%d - - [%s] \"GET /?trap=1 HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n", n>>8, n&255,
		time.Now().UTC().Format("02/Jan/2006:15:04:05 -0700"))
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A process that is killed and started again judges no line twice, and loses only lines that
// it was judging. Its exported bans are right again after the start, and gone after a stop.
func TestWatchContinuesAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, exported := filepath.Join(dir, "access.log"), filepath.Join(dir, "bans.conf")
	appendText(t, filepath.Join(dir, "site.yaml"), `bans: {export: {nginx: {file: bans.conf}}}
rules:
  - {name: trap, match: {query: {trap: "*"}}, block: true, ban: {after: 1, for: 1h, all: true}}
`)
	appendText(t, path, "")
	bans := func() int {
		data, _ := os.ReadFile(exported)
		return strings.Count(string(data), "deny ")
	}
	const rounds = 4
	journal, written := "", 0
	for round := range rounds {
		cmd, out := watching(t, dir, "-c", "site.yaml", path)
		for range 20 {
			for range 20 {
				appendText(t, path, logged(written))
				written++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if round == 1 {
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			appendText(t, path, logged(written))
			written++
		}
		if round < rounds-1 {
			cmd.Process.Kill()
		} else {
			until(t, "most bans are exported", func() bool { return bans() > written-rounds*50 })
			appendText(t, path, logged(written))
			written++
			until(t, "the last ban is exported", func() bool {
				data, _ := os.ReadFile(exported)
				last := fmt.Sprintf("deny 20.0.%d.%d/32;", (written-1)>>8, (written-1)&255)
				return strings.Contains(string(data), last)
			})
			if n := bans(); n < written-(rounds-1)*50 {
				t.Errorf("%d of %d lines have led to a ban", n, written)
			}
			cmd.Process.Signal(os.Interrupt)
		}
		cmd.Wait()
		journal += out.String()
	}
	if strings.Contains(journal, "in force\"") || strings.Contains(journal, "repeated") {
		t.Errorf("a line was judged twice:\n%s", journal)
	}
	if n := bans(); n != 0 {
		t.Errorf("%d bans are exported after the end", n)
	}
}
