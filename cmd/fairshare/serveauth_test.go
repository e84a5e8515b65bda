//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// asksAbout sends a question about a GET request of a client, and returns the status of the answer.
func asksAbout(t *testing.T, client *http.Client, auth, addr, target string) int {
	t.Helper()
	req, err := http.NewRequest("GET", auth+"/caddy", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"X-Forwarded-Method": "GET", "X-Forwarded-Uri": target,
		"X-Forwarded-Host": "shop.example", "X-Forwarded-For": addr} {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// overSocket returns a client whose connections go to a Unix socket.
func overSocket(t *testing.T, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// serve --auth judges the requests of another server by the counters and bans of those that it passes on,
// and a reload changes both.
func TestServeAnswersForwardAuth(t *testing.T) {
	t.Parallel()
	site := authSite(t)
	const policy = `
rules:
  - name: banned
    match: {path: /trap}
    limit: {requests: 0, per: 1h}
    ban: {after: 1, within: 1h, for: 1h, all: true}
  - name: three
    limit: {requests: 3, per: 1h, algorithm: quiet}
`
	file := writeFile(t, "site.yaml", policy)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			listen, asking, auth := "127.0.0.1:0", http.DefaultClient, ""
			if network == "unix" {
				path := filepath.Join(shortDir(t), "auth.sock")
				listen, asking, auth = "unix:"+path, overSocket(t, path), "http://fairshare"
			}
			s := runServe(t, nil, "--upstream", site.URL, "--auth", listen, "-c", file, "--state", t.TempDir())
			if network == "tcp" {
				auth = s.stderr.wait(`auth: (http://\S+) answers`)
			}
			var got []int
			asks := func(addr, target string) { got = append(got, asksAbout(t, asking, auth, addr, target)) }
			passes := func(addr, target string) {
				got = append(got, statusFrom(t, clientAt(t, "127.0.0.1"), "http://"+s.addr+target, addr))
			}
			asks("192.0.2.1", "/a")
			passes("192.0.2.1", "/a")
			asks("192.0.2.1", "/b")
			passes("192.0.2.1", "/b") // the fourth
			asks("192.0.2.1", "/b")
			passes("192.0.2.2", "/trap")
			asks("192.0.2.2", "/") // banned
			asks("192.0.2.3", "/trap")
			passes("192.0.2.3", "/") // banned
			passes("192.0.2.4", "/")
			if want := "[204 200 204 429 429 429 429 429 429 200]"; fmt.Sprint(got) != want {
				t.Errorf("got %v, want %s", got, want)
			}
		})
	}
}

// Flags and policies that --auth cannot obey are errors at the start.
func TestServeAuthFaults(t *testing.T) {
	t.Parallel()
	log := writeFile(t, "access.log", "")
	const errors = "rules: [{name: e, limit: {errors: 3, per: 1h}}]\n"
	const failures = "rules: [{name: f, limit: {failures: 3, per: 1h}}]\n"
	for _, c := range []struct {
		policy string
		args   []string
		want   string // in stderr; "" if it starts
	}{
		{"rules: []\n", []string{"--settle-from", log}, "--settle-from: there is no --auth"},
		{"rules: []\n", []string{"--auth", "127.0.0.1"}, "--auth:"},
		{"clients: {trusted_proxies: []}\nrules: []\n", []string{"--auth", "127.0.0.1:0"}, "so no server may ask"},
		{errors, []string{"--auth", "127.0.0.1:0"}, "which forward-auth does not see"},
		{errors, []string{"--auth", "127.0.0.1:0", "--settle-from", log}, ""},
		{failures, []string{"--auth", "127.0.0.1:0"}, ""},
		{"rules: [{name: a, limit: {requests: 3, per: 1h}, answer: {status: 200}}]\n", []string{"--auth", "127.0.0.1:0"},
			"would let the request pass"},
	} {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "-c",
			writeFile(t, "site.yaml", c.policy)}, ownState(t, c.args)...)
		if c.want == "" {
			startServe(t, c.policy, append([]string{"--upstream", "http://127.0.0.1:1"}, c.args...)...).stop()
			continue
		}
		var stderr strings.Builder
		code := run(args, &cli.Environment{Context: t.Context(), Stdout: io.Discard, Stderr: &stderr})
		if code == cli.ExitOK || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: exit code %d, want %q in %s", c.args, code, c.want, stderr.String())
		}
	}
}
