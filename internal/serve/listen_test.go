package serve

import (
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnixSocketFaults(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:":                                 "does not name a file",
		"unix:@":                                "does not name a file",
		"unix:" + writeFile(t, "a", "precious"): "is not a socket",
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
}

func TestUsedUnixSocketIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listen("unix:" + path)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	if _, err := listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a socket in use: %v", err)
	}
}
