package remote

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/httpguard"
	"fairshare/internal/adminapi"
	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
)

const policy = `rules:
  - {name: five a minute, limit: {requests: 5, per: 1m, by: addr}}
  - {name: secret, match: {path: /secret}, block: true}
`

// api returns the API of a server with some requests of 192.0.2.1.
func api(t *testing.T) http.Handler {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	p, err := livepolicy.New(t.Context(), file, livepolicy.Options{Clock: httpguard.NewClock(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c := console.New(console.Options{Policy: p, Traffic: traffic.New(p.Now()), Version: "1",
		Address:  func() string { return "http://127.0.0.1:8080" },
		Upstream: func() string { return "http://127.0.0.1:3000" }})
	rt := p.Current()
	guard := httpguard.New(rt.Guard, p.GuardOptions(rt, httpguard.Options{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	for i := range 8 {
		r := httptest.NewRequest("GET", []string{"/shop", "/secret"}[i/7], nil)
		r.Header.Set("User-Agent", "a\x1b[31mb")
		guard.ServeHTTP(httptest.NewRecorder(), r)
	}
	c.Policy.FlushReports()
	c.Traffic.Tick(p.Now(), p.Wall(p.Now()), traffic.Load{})
	return adminapi.New(c, func(*http.Request) bool { return false })
}

// serve serves the API on a Unix socket and returns its address.
func serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "unix:" + path
}

func run(t *testing.T, addr, token string, command func(*Server, *cli.Environment) error) (out string, err error) {
	t.Helper()
	s, err := Open(Options{Addr: addr, TokenFile: token})
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = command(s, &cli.Environment{Context: t.Context(), Stdout: &b, Stderr: &b})
	if strings.ContainsRune(b.String(), '\x1b') {
		t.Errorf("a control character is printed: %q", b.String())
	}
	return b.String(), err
}

func explain(q console.Question) func(*Server, *cli.Environment) error {
	return func(s *Server, env *cli.Environment) error { return s.Explain(env, q) }
}

func TestStatusFitsOnOneScreen(t *testing.T) {
	out, err := run(t, serve(t, api(t)), "", (*Server).Status)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"http://127.0.0.1:8080 protects http://127.0.0.1:3000, enforcing",
		"5 passed (0 in dry run, 0 failed), 2 refused, 1 blocked", "/etc/site.yaml, 2 rules; version 1",
		"registry: none",
		"8   100 %        3    0s  client 192.0.2.1", "five a minute"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	lines := strings.Split(out, "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestExplainPrintsTheWalk(t *testing.T) {
	addr := serve(t, api(t))
	out, err := run(t, addr, "", explain(console.Question{Client: "192.0.2.1", Path: "/shop?password=hidden"}))
	if err != nil || !strings.Contains(out, "now 5 of 5 requests in 1m, by addr: over, for ") ||
		!strings.Contains(out, `verdict: it is refused by rule "five a minute": 5 of 5 requests in 1m`) ||
		strings.Contains(out, "hidden") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, addr, "", explain(console.Question{Client: "192.0.2.2", Path: "/secret"}))
	if err != nil || !strings.Contains(out, "now 0 of 5 requests in 1m, by addr: passes") ||
		!strings.Contains(out, "verdict: it is blocked by rule") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestErrorsOfServersHaveHints(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the-token-of-the-listener\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	needsToken := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer the-token-of-the-listener" {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error": "Unauthorized", "hint": "the token is missing"}`)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	if _, err := run(t, needsToken, token, explain(console.Question{Client: "192.0.2.1"})); err != nil {
		t.Errorf("with the token: %v", err)
	}
	for addr, want := range map[string]string{
		needsToken:                       "--admin-token-file FILE",
		serve(t, http.NotFoundHandler()): "it is not the admin listener",
		serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })): "",
		"unix:" + filepath.Join(t.TempDir(),
			"none"): "name the address that serve --admin has",
		"localhost": "it is a host and a port",
	} {
		_, err := run(t, addr, "", explain(console.Question{Client: "192.0.2.1"}))
		var hint *cli.HintError
		if err == nil || want != "" && (!errors.As(err, &hint) || !strings.Contains(hint.Hint, want)) {
			t.Errorf("%s: %v, want the hint %q", addr, err, want)
		}
	}
	var usage *cli.UsageError
	if _, err := run(t, serve(t, api(t)), "", explain(console.Question{Client: "192.0.2.300"})); !errors.As(err,
		&usage) {
		t.Errorf("a wrong address: %v", err)
	}
	if _, err := Open(Options{TokenFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a token file that does not exist")
	}
}
