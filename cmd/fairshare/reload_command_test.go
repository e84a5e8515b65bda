package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// fairshare reload shows what changes, asks, and reloads only what it has shown.
func TestReloadCommand(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(site.Close)
	const first = `contact: a@example.org
clients: {trusted_proxies: loopback}
rules:
  - {name: robots, match: {path: /robots.txt}, allow: true}
  - {name: three, limit: {requests: 3, per: 1h}, ban: {after: 1, for: 1h}}
  - {name: pages, match: {path: "/shop/*"}, limit: {requests: 100, per: 1h}}
`
	const second = `contact: b@example.org
clients: {trusted_proxies: loopback, memory: 2MiB}
rules:
  - {name: robots, match: {path: /robots.txt}, allow: true}
  - {name: three a minute, limit: {requests: 3, per: 1m}}
  - {name: pages, match: {path: "/shop/*"}, limit: {requests: 200, per: 1h}, answer: {status: 503}}
`
	token := writeFile(t, "token", strings.Repeat("a", 32))
	policy := writeFile(t, "site.yaml", first)
	s := runServe(t, nil, "-c", policy, "--upstream", site.URL, "--state", t.TempDir(), "--admin", "127.0.0.1:0",
		"--admin-token-file", token)
	addr := s.stderr.wait(`admin: http://(\S+): /metrics`)
	for range 4 {
		getFrom(t, "http://"+s.addr+"/", "203.0.113.7")
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(answer string, want int, flags ...string) (out, errs string) {
		t.Helper()
		var stdout, stderr strings.Builder
		args := append([]string{"reload", "--admin", addr, "--admin-token-file", token}, flags...)
		if exit := run(args, &cli.Environment{Context: t.Context(), Stdin: strings.NewReader(answer), Stdout: &stdout,
			Stderr: &stderr}); exit != want {
			t.Fatalf("%q: exit code %d, want %d:\n%s%s", flags, exit, want, &stdout, &stderr)
		}
		return stdout.String(), stderr.String()
	}
	rule := func() string { // the rule that refuses the fourth request
		t.Helper()
		for range 4 {
			getFrom(t, "http://"+s.addr+"/", "203.0.113.8")
		}
		return s.stderr.wait(`"client":"203.0.113.8".*"rule":"([^"]+)"`)
	}
	if out, _ := reload("", cli.ExitOK, "--dry-run"); !strings.Contains(out, "no rule and no setting differs") ||
		!strings.Contains(out, "bans: all are kept, 1 in force") {
		t.Error(out)
	}

	write(second)
	shown := policy + `:
  + three a minute: a client (by addr) may send 3 requests in 1m; then 429.
  - three: a client (by addr) may send 3 requests in 1h; then 429. 1 refusal in 10m ban it for 1h.
  ~ pages: a client (by addr) may send 200 requests to path /shop/* in 1h; then 503. Before: pages: a client (by addr) may send 100 requests to path /shop/* in 1h; then 429.
  other settings that change: contact, clients
  only after a restart: clients.memory
  counters: these start from zero: three a minute; all others are kept
  bans: 0 in force stay; these do not hold without their rule: three (1 ban)
`
	for range 2 { // the first look changes nothing
		if out, _ := reload("", cli.ExitOK, "--dry-run"); out != shown {
			t.Errorf("%s\nwant\n%s", out, shown)
		}
	}
	if out, errs := reload("n\n", cli.ExitFailed); out != shown+"Load the policy? [y/N] " ||
		!strings.Contains(errs, "nothing has changed") {
		t.Error(out, errs)
	}
	if name := rule(); name != "three" {
		t.Errorf("before the reload %q refuses", name)
	}

	write("rules:\n  - {name: a, alow: true}\n  - {name: b, limit: {requests: x, per: 1m}}\n")
	out, errs := reload("", cli.ExitFailed, "--yes")
	for _, want := range []string{`site.yaml:2:15: unknown key: "alow"`, `did you mean "allow"?`,
		`site.yaml:3:33: requests: a whole number is needed`, "the old policy stays in force"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is missing in %s%s", want, out, errs)
		}
	}

	write(second)
	if out, _ := reload("", cli.ExitOK, "--yes"); !strings.HasSuffix(out, policy+" is in force\n") {
		t.Error(out)
	}
	s.stderr.wait(`reload: \S+ was loaded again: (3 rules)`)
	s.stderr.wait(`\+ (three a minute): a client`)
	for range 4 {
		getFrom(t, "http://"+s.addr+"/", "203.0.113.9")
	}
	if name := s.stderr.wait(`"client":"203.0.113.9".*"rule":"([^"]+)"`); name != "three a minute" {
		t.Errorf("after the reload %q refuses", name)
	}

	// Without a token a program may look, and change nothing. A plan holds for one version of the file.
	a := &adminClient{t: t, url: "http://" + addr, token: strings.Repeat("a", 32)}
	post := func(plan, token string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", a.url+"/api/v1/reload", strings.NewReader(`{"plan": "`+plan+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var body strings.Builder
		resp.Write(&body)
		return resp.StatusCode, body.String()
	}
	if status, body := post("0123", a.token); status != http.StatusConflict ||
		!strings.Contains(body, "has changed since") {
		t.Error(status, body)
	}
	if status, body := post("", a.token); status != http.StatusBadRequest || !strings.Contains(body, "needs its plan") {
		t.Error(status, body)
	}
	if status, body := post("0123", "wrong"); status != http.StatusUnauthorized {
		t.Error(status, body)
	}
}

// Without a terminal and without --yes nobody can be asked.
func TestReloadNeedsSomebodyToAsk(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var out strings.Builder
	if exit := run([]string{"reload"}, &cli.Environment{Context: t.Context(), Stdin: null, Stdout: &out,
		Stderr: &out}); exit != cli.ExitUsage || !strings.Contains(out.String(), "--yes reloads without asking") {
		t.Errorf("exit %d: %s", exit, &out)
	}
}
