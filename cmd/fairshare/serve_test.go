package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

const threeInAnHour = `
clients: {trusted_proxies: loopback}
contact: shop@example.org
rules:
  - name: three
    limit: {requests: 3, per: 1h, by: addr, algorithm: quiet}
`

// A client over its limit is refused, and another client is not. Messages and
// journal describe it.
func TestServeRefusesOnlyTheClientOverItsLimit(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, "welcome")
	}))
	defer site.Close()
	s := startServe(t, threeInAnHour, "--upstream", site.URL)
	for i := range 6 {
		want, after := 200, ""
		if i >= 3 {
			want, after = 429, "3600"
		}
		if resp := getFrom(t, "http://"+s.addr+"/page?secret=1", "203.0.113.1"); resp.StatusCode != want ||
			resp.Header.Get("Retry-After") != after {
			t.Errorf("request %d of the hammering client: %d %v", i, resp.StatusCode, resp.Header)
		}
	}
	if resp := getFrom(t, "http://"+s.addr+"/", "203.0.113.2"); resp.StatusCode != 200 {
		t.Errorf("the other client: %d", resp.StatusCode)
	}
	if code := s.stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	output := s.stderr.String()
	for _, want := range []string{
		"fairshare: http://" + s.addr + " protects " + site.URL + ", enforcing\n",
		"site.yaml, 1 rule, 64MiB of memory for counters\n",
		"fairshare: clients: by X-Forwarded-For of loopback; clients that another local peer names in a header count provisionally\n",
		"fairshare: journal: refusals, as lines of json, here; to load the policy again: kill -HUP ",
		"fairshare: stopping; requests in progress have 10s to end; a second SIGTERM or SIGINT stops at once\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("not written: %s", want)
		}
	}
	lines := 0
	var id any
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		lines++
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if lines == 2 { // the others, at the end of their minute
			if e["client"] != "203.0.113.1" || e["path"] != "/page" || e["rule"] != "three" || e["repeated"] != 2.0 ||
				e["id"] != id {
				t.Errorf("journal: %s", line)
			}
			continue
		}
		id = e["id"]
		if e["client"] != "203.0.113.1" || e["method"] != "GET" || e["host"] != s.addr || e["path"] != "/page" ||
			e["rule"] != "three" || e["action"] != "refuse" ||
			e["dry_run"] != false || e["cookies"] != 0.0 || e["status"] != 429.0 || e["retry_after"] != 3600.0 ||
			e["used"] != 3.0 || e["allowed"] != 3.0 || len(e["id"].(string)) != 10 ||
			e["user_agent"] != "hammer/1 \u202e" || strings.Contains(line, "\u202e") {
			t.Errorf("journal: %s", line)
		}
	}
	if lines != 2 {
		t.Errorf("%d lines in the journal, want 2:\n%s", lines, output)
	}
	if strings.Contains(output, "secret") {
		t.Error("the journal holds the query")
	}
}

// The built-in policy refuses a client that sends more than a thousand
// requests.
func TestBuiltInPolicyRefusesRapidRequests(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	for i := range 1300 {
		resp, err := http.Get("http://" + s.addr + "/page")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode == 429 {
			if i == 0 || resp.Header.Get("Retry-After") == "" {
				t.Errorf("request %d: %v", i, resp.Header)
			}
			return
		}
	}
	t.Error("1300 misses in a row were let through")
}

// With --dry-run every request passes, and the journal has the refusals.
func TestServeDryRun(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer site.Close()
	s := startServe(t, threeInAnHour, "--upstream", site.URL, "--dry-run")
	for i := range 5 {
		if resp := getFrom(t, "http://"+s.addr, "203.0.113.1"); resp.StatusCode != 200 {
			t.Errorf("request %d: %d", i, resp.StatusCode)
		}
	}
	s.stop()
	if output := s.stderr.String(); !strings.Contains(output, "dry run: every request passes") ||
		strings.Count(output, `"dry_run":true`) != 2 {
		t.Errorf("log:\n%s", output)
	}
}

// serve ends when the request in progress has been answered.
func TestServeDrains(t *testing.T) {
	site, arrived, leave := holdingSite(t)
	s := startServe(t, "", "--upstream", site.URL)
	got := make(chan string)
	go func() {
		resp, err := http.Get("http://" + s.addr)
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		got <- string(body)
	}()
	<-arrived
	code := make(chan int)
	go func() { code <- s.stop() }()
	s.stderr.wait(`(stopping)`)
	leave <- true
	if body := <-got; body != "done" {
		t.Errorf("the request in progress got %q", body)
	}
	if c := <-code; c != cli.ExitOK {
		t.Errorf("exit code %d", c)
	}
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		conn.Close()
		t.Error("the address is still taken")
	}
}

// Requests in progress are cut off after the grace period.
func TestServeCutsOffAfterGrace(t *testing.T) {
	site, arrived, _ := holdingSite(t)
	s := startServe(t, "grace: 1ms\nrules: [{use: default}]\n", "--upstream", site.URL)
	failed := make(chan error)
	go func() {
		_, err := http.Get("http://" + s.addr)
		failed <- err
	}()
	<-arrived
	if code := s.stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if err := <-failed; err == nil {
		t.Error("the request got an answer")
	}
	if output := s.stderr.String(); !strings.Contains(output, "have been cut off") {
		t.Errorf("log:\n%s", output)
	}
}

// serve starts without its upstream, and answers 502.
func TestServeWithoutItsUpstream(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.NotFoundHandler())
	site.Close()
	s := startServe(t, "", "--upstream", site.URL)
	s.stderr.wait(`(warning: upstream \S+ does not answer: .*refused)`)
	if resp := getFrom(t, "http://"+s.addr, "203.0.113.1"); resp.StatusCode != 502 {
		t.Errorf("%d, want 502", resp.StatusCode)
	}
	s.stderr.wait(`(upstream \S+ does not answer: .*refused)`)
}

// Errors at the start have a hint and an exit code.
func TestServeErrorsAtStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const policy = "rules: [{use: default}]\n"
	cert := writeFile(t, "cert.pem", "no certificate")
	for _, test := range []struct {
		name   string
		policy string
		args   []string
		code   int
		want   []string
	}{
		{"no upstream", "", nil, cli.ExitUsage, []string{"fairshare: no upstream is given\n",
			"hint: fairshare serve --upstream http://127.0.0.1:3000"}},
		{"no scheme", "", []string{"--upstream", "127.0.0.1:3000"}, cli.ExitUsage,
			[]string{`upstream "127.0.0.1:3000" is not a URL`, "hint: "}},
		{"port in use", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", taken.Addr().String()},
			cli.ExitFailed, []string{taken.Addr().String() + " is in use\n", "hint: another program"}},
		{"no port", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", "127.0.0.1"}, cli.ExitUsage,
			[]string{"missing port", "hint: an address is a host and a port"}},
		{"not ours", "", []string{"--upstream", "http://127.0.0.1:3000", "--listen", "192.0.2.1:8080"}, cli.ExitFailed,
			[]string{"192.0.2.1:8080 is not an address of this machine\n", "hint: "}},
		{"bad certificate", fmt.Sprintf("tls: {cert: %s, key: %s}\n", cert, cert) + policy,
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed,
			[]string{"certificate " + cert, "hint: both are PEM files"}},
		{"no certificate", "tls: {cert: /nowhere/a, key: /nowhere/b}\n" + policy,
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed,
			[]string{"/nowhere/a", "no such file", "hint: "}},
		{"faulty policy", "rules:\n  - {name: a, alow: true}\n  - {name: a, block: 7}\n",
			[]string{"--upstream", "http://127.0.0.1:3000"}, cli.ExitFailed, []string{`:2:`, `hint: `, `:3:`}},
		{"unknown flag", "", []string{"--upstraem", "x"}, cli.ExitUsage, []string{"hint: "}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"serve"}, test.args...)
			if test.policy != "" {
				args = append(args, "-c", writeFile(t, "site.yaml", test.policy))
			}
			var stdout, stderr bytes.Buffer
			code := run(args, &cli.Environment{Context: t.Context(), Stdout: &stdout, Stderr: &stderr})
			if code != test.code || stdout.Len() > 0 {
				t.Errorf("exit code %d, want %d; stdout %q", code, test.code, stdout.String())
			}
			for _, want := range test.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("no %q in:\n%s", want, stderr.String())
				}
			}
		})
	}
}

func TestServeTLS(t *testing.T) {
	seen := make(chan *http.Request, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/robots.txt" { // the server asks for it at its start
			seen <- r
		}
	}))
	defer site.Close()
	certFile, keyFile, roots := newCertificate(t)
	policy := writeFile(t, "site.yaml", fmt.Sprintf("tls: {cert: %s, key: %s}\nrules: [{use: default}]\n", certFile,
		filepath.Join("..", filepath.Base(filepath.Dir(keyFile)), "key.pem")))
	s := startServe(t, "", "--upstream", site.URL, "-c", policy) // the key's path begins at the policy
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + s.addr + "/a%2f|b")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		transport.CloseIdleConnections()
		r := <-seen
		if resp.StatusCode != 200 || resp.ProtoAtLeast(2, 0) != http2 || r.Proto != "HTTP/1.1" ||
			r.Header.Get("X-Forwarded-Proto") != "https" || r.Host != s.addr {
			t.Errorf("HTTP/2 %v: %s; the upstream got %s %s %v", http2, resp.Proto, r.Proto, r.Host, r.Header)
		}
	}
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11,
		MinVersion: tls.VersionTLS10})
	if err == nil {
		conn.Close()
		t.Error("TLS 1.1 was taken")
	}
}

func TestServePROXYProtocol(t *testing.T) {
	seen := make(chan string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		seen <- r.Header.Get("X-Forwarded-For")
	}))
	defer site.Close()
	s := startServe(t, "proxy_protocol: true\n"+threeInAnHour, "--upstream", site.URL)
	ask := func(first string) string {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn,
			first+"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.9\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		status, _, _ := strings.Cut(string(answer), "\r\n")
		return status
	}
	for range 3 {
		if status := ask("PROXY TCP4 203.0.113.1 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 200 OK" {
			t.Errorf("answer %q", status)
		}
		if got := <-seen; got != "203.0.113.1" {
			t.Errorf("X-Forwarded-For: %s", got)
		}
	}
	if status := ask("PROXY TCP4 203.0.113.1 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 429 Too Many Requests" {
		t.Errorf("fourth: %q", status)
	}
	if status := ask("PROXY TCP4 203.0.113.2 127.0.0.1 4711 80\r\n"); status != "HTTP/1.1 200 OK" {
		t.Errorf("another: %q", status)
	}
	if status := ask(""); strings.Contains(status, "200") {
		t.Errorf("without the header: %q", status)
	}
}
