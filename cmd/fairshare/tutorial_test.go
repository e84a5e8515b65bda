//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The commands of docs/tutorial.md, run one after the other in one shell, print what the page shows. A line
// "…" stands for any number of lines, and … in a line for any text.
func TestTutorial(t *testing.T) {
	for _, program := range []string{"bash", "curl", "python3", "openssl"} {
		needProgram(t, program)
	}
	data, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, port := range []string{"8080", "3000", "9091"} {
		page = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(page, freePort(t))
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "internal"), filepath.Join(folder, "internal")); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	programLink(t, bin)
	sh := newShell(t, folder, "PATH="+bin+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+t.TempDir())
	if _, commands := sh.play(page, filepath.Join(folder, "first-hour", "site.yaml")); commands < 25 {
		t.Errorf("the page has %d commands only", commands)
	}
}

// play runs the commands of a page one after the other, and compares what they print with what the page shows.
// Each policy of the page is written to a file first.
func (s *shell) play(page, file string) (policies, commands int) {
	s.t.Helper()
	for _, block := range regexp.MustCompile("(?s)```(yaml|console)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if block[1] == "yaml" {
			policies++
			if err := os.WriteFile(file, []byte(block[2]), 0o600); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
			commands++
			command, want, _ := strings.Cut(part, "\n")
			out := s.run(command)
			shown := regexp.MustCompile(expected(want))
			for try := 0; try < 20 && strings.HasPrefix(command, "fairshare why") && !shown.MatchString(out); try++ {
				s.run("sleep 0.5") // a server records refusals within seconds
				out = s.run(command)
			}
			if !shown.MatchString(out) {
				s.t.Errorf("$ %s\nprints\n%s\nand the page shows\n%s", command, out, want)
			}
			if strings.HasSuffix(command, "&") { // until the server answers
				s.awaitServer(command)
			}
		}
	}
	return policies, commands
}

// expected returns a regular expression for the output that a page shows.
func expected(text string) string {
	var b strings.Builder
	b.WriteString(`^`)
	for line := range strings.Lines(text) {
		switch line = strings.TrimSuffix(line, "\n"); line {
		case "":
		case "…":
			b.WriteString(`(?s:.*)`)
		default:
			b.WriteString(`(?m:^)` + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n?`)
		}
	}
	return b.String() + `\n*$`
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// A shell runs commands one after the other.
type shell struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	n   int
}

func newShell(t *testing.T, folder string, env ...string) *shell {
	t.Helper()
	cmd := exec.Command("bash", "--norc")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		fmt.Fprintln(in, "kill $(jobs -p) 2>/dev/null; exit")
		in.Close()
		cmd.Wait()
		r.Close()
	})
	return &shell{t: t, in: in, out: bufio.NewReader(r)}
}

// run runs a command and returns what it prints.
func (s *shell) run(command string) string {
	s.t.Helper()
	s.n++
	mark := fmt.Sprintf("--- the end of command %d", s.n)
	fmt.Fprintf(s.in, "%s\necho; echo '%s'\n", command, mark)
	var out strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("$ %s: the shell ends: %s", command, &out)
		}
		if line == mark+"\n" {
			return strings.TrimSuffix(out.String(), "\n")
		}
		out.WriteString(line)
	}
}

// awaitServer waits until the server that a command has started in the background accepts connections.
func (s *shell) awaitServer(command string) {
	s.t.Helper()
	port := regexp.MustCompile(`(?:--(?:admin|listen) 127\.0\.0\.1:|http\.server )(\d+)`).FindStringSubmatch(command)
	if port == nil {
		s.t.Fatalf("$ %s: which port?", command)
	}
	for range 600 {
		if conn, err := net.DialTimeout("tcp", "127.0.0.1:"+port[1], time.Second); err == nil {
			conn.Close()
			return
		}
		time.Sleep(50 * time.Millisecond) // another program: a connection is the only sign that it is ready
	}
	s.t.Fatalf("$ %s: nothing listens on port %s", command, port[1])
}

// The policies of examples/ pass their own tests.
func TestExamplesPassTheirTests(t *testing.T) {
	policies, err := filepath.Glob("../../examples/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, policy := range policies {
		exit, out, errs := runCommand(t, "check", policy)
		if exit != 0 {
			t.Errorf("%s: %s", policy, errs)
		}
		if strings.Contains(out, " passed.") {
			tested++
		}
	}
	if tested == 0 {
		t.Error("no example has tests")
	}
}
