package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// serve replaces an unused socket, reads client addresses from the proxy in
// front, and removes the socket at its end.
func TestServeOnAUnixSocket(t *testing.T) {
	seen := make(chan string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		seen <- r.Header.Get("X-Forwarded-For")
	}))
	defer site.Close()
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Skip(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close() // the socket stays, and nobody listens

	policy := strings.Replace(threeInAnHour, "loopback", "unix", 1)
	s := startServe(t, policy, "--upstream", site.URL, "--listen", "unix:"+path)
	if s.addr != "unix:"+path {
		t.Errorf("the start line names %q", s.addr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", path)
	}}
	defer transport.CloseIdleConnections()
	for i := range 5 {
		req, _ := http.NewRequest("GET", "http://site.example/", nil)
		req.Header.Set("X-Forwarded-For", "203.0.113.1")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		want := 200
		if i >= 3 {
			want = 429
		} else if got := <-seen; got != "203.0.113.1" {
			t.Errorf("X-Forwarded-For: %s", got)
		}
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
		}
	}
	if code := s.stop(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
}

// An upstream that is the address of serve itself is an error.
func TestUpstreamMustNotBeServeItself(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	var stderr bytes.Buffer
	code := run([]string{"serve", "--listen", addr, "--upstream", "http://" + addr},
		&cli.Environment{Context: t.Context(), Stderr: &stderr})
	if code != cli.ExitFailed || !strings.Contains(stderr.String(), "is the address of fairshare itself\nhint: ") {
		t.Errorf("exit code %d, stderr %s", code, &stderr)
	}
}
