//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairshare/internal/cli"
	"fairshare/pgregistry/pgtest"
)

const grouped = behindLoopback + `
rules:
  - name: fifty
    match: {path: /fifty}
    limit: {requests: 50, per: 1h, by: addr}
    ban: {after: 1, within: 1h, for: 1h}
`

// status requests a path as a client, and returns the status and the page.
func (p *serving) status(t *testing.T, client, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// await requests /fifty as a client until the status is this one: fewer times than the
// limit allows, so that only a ban or a decision refuses it.
func (p *serving) await(t *testing.T, client string, want int) {
	t.Helper()
	got := 0
	for range 45 {
		if got, _ = p.status(t, client, "/fifty"); got == want {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
	t.Fatalf("%s gets %d, want %d", client, got, want)
}

// Two servers share a registry in PostgreSQL: bans by rules and decisions of operators
// hold on both, and references are explained from each. While the database is away,
// both work, and nothing is lost, even if a server is killed.
func TestServersShareBansAndDecisions(t *testing.T) {
	db := pgtest.Start(t)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok")
	}))
	defer site.Close()
	policy := writeFile(t, "site.yaml", grouped)
	states := [2]string{t.TempDir(), t.TempDir()}
	serve := func(n int) *serving {
		p := startServing(t, "-c", policy, "--state", states[n], "--registry", db.URL("postgres"),
			"--upstream", site.URL)
		go io.Copy(io.Discard, p.lines)
		return p
	}
	// A server that worked alone brings its decisions along when it joins.
	alone := startServing(t, "-c", policy, "--state", states[0], "--upstream", site.URL)
	runOperator(t, states[0], "ban", "203.0.113.7", "--reason", "before it joined")
	runOperator(t, states[0], "allow", "203.0.113.8")
	alone.Process.Kill()
	alone.Wait()
	a, b := serve(0), serve(1)
	a.await(t, "203.0.113.7", 403)
	b.await(t, "203.0.113.7", 403)
	for range 60 {
		b.await(t, "203.0.113.8", 200)
	}

	runOperator(t, states[0], "ban", "203.0.113.1", "--reason", "scraper")
	a.await(t, "203.0.113.1", 403)
	b.await(t, "203.0.113.1", 403)
	runOperator(t, states[1], "unban", "203.0.113.1")
	a.await(t, "203.0.113.1", 200)

	var page string
	for range 52 {
		_, page = a.status(t, "203.0.113.2", "/fifty")
	}
	b.await(t, "203.0.113.2", 429)
	reference := ""
	for deadline := time.Now().Add(20 * time.Second); reference == "" && time.Now().Before(deadline); {
		for _, word := range strings.FieldsFunc(page, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9')
		}) {
			if len(word) == 10 {
				var out bytes.Buffer
				env := &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: io.Discard}
				if run([]string{"why", "--state", states[1], word}, env) == cli.ExitOK &&
					strings.Contains(out.String(), `203.0.113.2`) {
					reference = word
				}
			}
		}
	}
	if reference == "" {
		t.Errorf("why finds no reference of the page on the other server: %s", page)
	}

	db.Kill()
	var messages bytes.Buffer
	env := &cli.Environment{Context: t.Context(), Stdout: io.Discard, Stderr: &messages}
	if code := run([]string{"ban", "--state", states[0], "203.0.113.3"}, env); code != cli.ExitOK ||
		!strings.Contains(messages.String(), "handed it over") {
		t.Errorf("ban without the database: %d, %s", code, &messages)
	}
	a.await(t, "203.0.113.3", 403)
	for range 52 {
		b.status(t, "203.0.113.4", "/fifty")
	}
	if code, _ := b.status(t, "203.0.113.4", "/fifty"); code != 429 {
		t.Errorf("a ban without the database: %d", code)
	}
	b.Process.Signal(syscall.SIGKILL)
	b.Wait()
	b = serve(1) // with its own registry alone
	for client, want := range map[string]int{"203.0.113.2": 429, "203.0.113.4": 429, "203.0.113.5": 200} {
		if code, _ := b.status(t, client, "/fifty"); code != want {
			t.Errorf("after a start without the database, %s gets %d, want %d", client, code, want)
		}
	}
	db.Run(t)
	a.await(t, "203.0.113.4", 429)
	b.await(t, "203.0.113.3", 403)
	listed := runOperator(t, states[0], "bans")
	for _, client := range []string{"203.0.113.2", "203.0.113.3", "203.0.113.4"} {
		if !strings.Contains(listed, client) {
			t.Errorf("bans does not list %s:\n%s", client, listed)
		}
	}
	a.Process.Signal(syscall.SIGTERM)
	if err := a.Wait(); err != nil {
		t.Errorf("a server ended with %v", err)
	}
	if clients := runOperator(t, states[1], "clients"); !strings.Contains(clients, "203.0.113.2") {
		t.Errorf("clients:\n%s", clients)
	}
}

// A password in a URL is refused, on the command line and in a policy.
func TestPasswordInRegistryURL(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "site.yaml")
	text := "registry: {url: \"postgres://shop:geheim@db/shop\"}\nrules: [{use: default}]\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", policy}, {"serve", "--registry", "postgres://shop:geheim@db/shop"}} {
		var out bytes.Buffer
		code := run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out})
		if code == cli.ExitOK || !strings.Contains(out.String(), "password_file") ||
			strings.Contains(out.String(), "remove it from the URL: shop:geheim") {
			t.Errorf("%q: %d, %s", args, code, &out)
		}
	}
}
