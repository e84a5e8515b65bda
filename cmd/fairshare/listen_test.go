package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServeOnAUnixSocket(t *testing.T) {
	seen := make(chan string, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("X-Forwarded-For") }))
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
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("%v, %v", info, err)
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}
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
	if _, err := listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a live socket: %v", err)
	}
	if code := s.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
}

func TestUnixSocketFaults(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:":                                 "names no file",
		"unix:@":                                "names no file",
		"unix:" + writeFile(t, "a", "precious"): "is no socket",
		"unix:" + filepath.Join(t.TempDir(), "nowhere/s"):  "listen: ",
		"unix:/tmp/" + strings.Repeat("long", 100) + "/so": "listen: ",
	} {
		l, err := listen(addr)
		if err == nil {
			l.Close()
			t.Errorf("%s is listened on", addr)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

func TestUpstreamThatIsItself(t *testing.T) {
	for _, test := range []struct {
		at       string
		upstream string
		want     bool
	}{
		{"127.0.0.1:8080", "http://127.0.0.1:8080", true},
		{"127.0.0.1:8080", "http://localhost:8080", true},
		{"127.0.0.1:8080", "http://0.0.0.0:8080", true},
		{"[::1]:8080", "http://[::1]:8080", true},
		{"127.0.0.1:80", "http://127.0.0.1", true},
		{"127.0.0.1:443", "https://127.0.0.1", true},
		{"[::]:8080", "http://127.0.0.1:8080", true},
		{"[::]:8080", "http://LOCALHOST:8080", true},
		{"127.0.0.1:8080", "http://127.0.0.1:3000", false},
		{"127.0.0.1:8080", "http://127.0.0.2:8080", false},
		{"[::]:8080", "http://192.0.2.1:8080", false},
		{"127.0.0.1:8080", "http://site.example:8080", false},
	} {
		at, err := net.ResolveTCPAddr("tcp", test.at)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(test.upstream)
		if err != nil {
			t.Fatal(err)
		}
		if got := isItself(at, u); got != test.want {
			t.Errorf("at %s, %s is itself: %v", test.at, test.upstream, got)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	var stderr bytes.Buffer
	code := run([]string{"serve", "--listen", addr, "--upstream", "http://" + addr}, &environment{ctx: t.Context(), stderr: &stderr})
	if code != exitFailed || !strings.Contains(stderr.String(), "is where fairshare itself listens\nhint: ") {
		t.Errorf("exit code %d, said %s", code, &stderr)
	}
}
