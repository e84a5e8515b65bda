package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// everythingMeasured looks at all that a log can hold.
const everythingMeasured = `
clients: {trusted_proxies: []} # the log is of the server in front
rules:
  - {name: at once, limit: {concurrent: 1}, dry_run: true}
  - {name: finely, limit: {requests: 1000, per: 5ms}}
  - {name: no cookie, match: {cookie: none}, limit: {requests: 1000, per: 1h}}
  - {name: a cookie, match: {cookie: any}, limit: {requests: 1000, per: 1h}}
  - {name: host, match: {host: shop.example}, limit: {requests: 1000, per: 1h, by: host}}
  - {name: login, match: {method: POST, path: /wp-login.php}, limit: {requests: 1000, per: 1h}}
  - {name: query, match: {query: {n: "7"}}, limit: {requests: 1000, per: 1h}}
  - {name: agent, match: {user_agent: Firefox/140}, limit: {requests: 1000, per: 1h}}
  - {name: referer, match: {header: {Referer: example.org}}, limit: {requests: 1000, per: 1h}}
  - {name: forwarded, match: {header: {X-Forwarded-For: 203.0.113.9}}, limit: {requests: 1000, per: 1h}}
  - {name: bytes, limit: {bytes: 1GB, per: 1h}}
  - {name: errors, limit: {errors: 1000, per: 1h}}
  - {name: refund, limit: {requests: 1000, per: 1h}, refund: 5xx}
`

// The log_format of deploy/nginx contains everything that a replay can use, but
// no cookie's name or value. replay reads what a real nginx writes with it.
func TestReplayReadsTheLogOfDeployedNginx(t *testing.T) {
	t.Parallel()
	s := startSandwich(t, 4, nil)
	v := s.visitor(t, "127.0.0.2")
	v.args = v.args[:len(v.args)-4] // keeps no cookies
	asked := func(want int, args ...string) {
		t.Helper()
		if out := v.do(args[0], append(args[1:], "-o", "/dev/null", "-w",
			"%{http_code}")...); out != map[int]string{200: "200", 404: "404"}[want] {
			t.Errorf("%s: %s", args, out)
		}
	}
	asked(200, "/")
	asked(200, "/?n=7")
	asked(404, "/nowhere/")
	asked(200, "/", "-b", "PHPSESSID=geheim; other=geheim")
	asked(200, "/", "-b", " spaced=geheim", "-e", "https://example.org/\"quoted\" and\ttabbed")
	for _, none := range []string{"geheim=\u00e4", "=geheim", "geheim", "\"=geheim", "=;", "(x)=geheim", "a=\\geheim"} {
		asked(200, "/", "-H", "Cookie: "+none)
	}
	asked(200, "/wp-login.php", "-d", "log=a", "-H", "X-Forwarded-For: 203.0.113.9, 198.51.100.1")
	asked(200, "/wp-content/themes/plain/a0.css")
	asked(200, "/", "-A", "")
	for range 2 { // two at once
		cmd := exec.Command(v.curl, append(append([]string{}, v.args...), v.base+"/slow.php?ms=1500")...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
	}
	const lines = 17
	var log string
	for deadline := time.Now().Add(time.Minute); strings.Count(log, "\n") < lines &&
		time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(s.log)
		if err != nil {
			t.Fatal(err)
		}
		log = string(b)
	}
	if n := strings.Count(log, "\n"); n != lines {
		t.Fatalf("%d lines:\n%s", n, log)
	}
	for _, secret := range []string{"geheim", "PHPSESSID"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log contains %s:\n%s", secret, log)
		}
	}

	// The sed command of the page finds the format in the configuration.
	format, err := exec.Command("sed", "-n", "/^log_format fairshare/,/;$/p", "../../deploy/nginx/fairshare.conf").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	verdicts := filepath.Join(t.TempDir(), "verdicts")
	var stdout, stderr bytes.Buffer
	code := run([]string{"replay", "-c", writeFile(t, "all.yaml", everythingMeasured), "--format",
		strings.TrimSpace(string(format)), "--json", "--verdicts", verdicts, s.log},
		&cli.Environment{Context: t.Context(), Stdout: &stdout, Stderr: &stderr})
	var report struct {
		Lines, Skipped, Clients int
		Verdicts                map[string]int
		Unmeasured              []struct{ Rule, What, Why string }
		Rules                   []struct {
			Name             string
			Matched, Refused int
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || code != cli.ExitOK {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, stdout.String(), stderr.String())
	}
	if report.Lines != lines || report.Skipped != 0 || report.Clients != 1 || report.Verdicts["allow"] != lines {
		t.Errorf("the report: %+v", report)
	}
	if len(report.Unmeasured) != 0 {
		t.Errorf("unmeasured, though the log has it: %+v", report.Unmeasured)
	}
	for _, r := range report.Rules {
		want := map[string]int{"no cookie": lines - 2, "a cookie": 2, "login": 1, "query": 1, "agent": lines - 1,
			"referer": 1, "forwarded": 1}[r.Name]
		if want == 0 {
			want = lines
		}
		if r.Matched != want {
			t.Errorf("rule %s held for %d, want %d\n%s", r.Name, r.Matched, want, log)
		}
		if r.Name == "at once" && r.Refused == 0 {
			t.Error("two requests at once were not seen")
		}
	}
}
