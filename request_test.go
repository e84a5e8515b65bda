package fairshare

import (
	"strings"
	"testing"
)

func TestSetTarget(t *testing.T) {
	for _, c := range []struct {
		target, path, query string
		odd                 bool
	}{
		{"/", "/", "", false},
		{"/a.css?v=1&w=a?b", "/a.css", "v=1&w=a?b", false},
		{"", "", "", false}, // the request line was not HTTP
		{"*", "*", "", false},
		{"example.org:443", "example.org:443", "", false},
		{"http://example.org/a", "/a", "", false},
		{"HTTP+x://u@example.org:80/a?b", "/a", "b", false},
		{"http://example.org", "", "", true},            // or "/"
		{"http://example.org?x=/a", "/a", "x=/a", true}, // the authority runs to the first slash, or to the "?"
		{`http://example.org\a/b`, "/b", "", true},
		{"1http://example.org/a", "1http:/example.org/a", "", true},
		{"//a///b", "/a/b", "", true}, // or a host
		{"/a//b", "/a/b", "", false},
		{"/a%20b+c", "/a b+c", "", false},
		{"/%41", "/A", "", false},
		{"/%2541", "/%41", "", true}, // decoded once; an escaped %
		{"/%4", "/%4", "", false},    // servers keep these, or answer 400
		{"/%zz", "/%zz", "", false},
		{"/%%34%31", "/%41", "", true},
		{"/a%2fb", "/a/b", "", true},
		{"/a%5Cb", `/a\b`, "", true},
		{`/a\b`, `/a\b`, "", true},
		{"/a%3fb", "/a?b", "", true},
		{"/a%23b", "/a#b", "", true},
		{"/a;b", "/a;b", "", true},
		{"/a%3bb", "/a;b", "", true},
		{"/a\x01", "/a\x01", "", true},
		{"/a\x01b", "/a\x01b", "", false},
		{"/a%7f", "/a\x7f", "", true},
		{"/./a", "/a", "", true},
		{"/a/.", "/a/", "", true},
		{"/a/..", "/", "", true},
		{"/a/../../b", "/b", "", true},
		{"/a/b/../c", "/a/c", "", true},
		{"/a/%2e%2e/b", "/b", "", true},
		{"/a//../b", "/b", "", true}, // "//" first, then the dots
		{"/..a/b..c", "/..a/b..c", "", false},
		{"/a./b", "/a./b", "", true},
		{"/a%20", "/a ", "", true},
		{"/a%20b", "/a b", "", false},
		{"/a::$DATA", "/a::$DATA", "", true},
		{"/a$b", "/a$b", "", false},
		{"/%c0%afa", "/\xc0\xafa", "", true},
		{"/%u002fa", "/%u002fa", "", true},
		{`/\a`, `/\a`, "", true},
		{"/.well-known/x", "/.well-known/x", "", false},
		{"/a.php/b.css", "/a.php/b.css", "", true},
		{"/a.php%2fb.css", "/a.php/b.css", "", true},
		{"/a.php//b", "/a.php/b", "", true},
		{"/a.php", "/a.php", "", false},
		{"/a.PHP5/b", "/a.PHP5/b", "", true},
		{"/a.html/b", "/a.html/b", "", false},
		{"/é%C3%A9", "/éé", "", false},
		{"/a#b", "/a#b", "", true},
		{"..", "", "", true},
	} {
		var req Request
		req.SetTarget(c.target)
		if req.Path != c.path || req.Query != c.query || req.OddPath != c.odd {
			t.Errorf("SetTarget(%q): path %q, query %q, odd %v; want %q, %q, %v", c.target, req.Path, req.Query,
				req.OddPath, c.path, c.query, c.odd)
		}
	}
}

func TestSetTargetTakesLinearTime(t *testing.T) {
	var req Request
	req.SetTarget(strings.Repeat("/a/..", 1<<20)) // quadratic work would not end
	if req.Path != "/" {
		t.Errorf("path %.20q, want /", req.Path)
	}
}

// A path that stands for itself must come out of the long way unchanged.
func FuzzSetTarget(f *testing.F) {
	for _, s := range []string{"/", "/a.css?b", "//a/../b", "/%2e%2e/", "/a.php/b", "http://h/a", "*", "h:1", "/a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var req Request
		req.SetTarget(target)
		if plainPath(req.Path) && req.Path != "" {
			var again Request
			if again.setPath(req.Path); again.Path != req.Path || again.OddPath {
				t.Errorf("plain path %q resolves to %q, odd %v", req.Path, again.Path, again.OddPath)
			}
		}
		raw, _, _ := strings.Cut(target[authorityEnd(target):], "?")
		if !plainPath(raw) && !(raw == "*" || raw == target && hostPort(raw)) {
			if strings.Contains(req.Path, "//") || strings.Contains(req.Path+"/", "/../") {
				t.Errorf("SetTarget(%q): %q is not resolved", target, req.Path)
			}
		}
	})
}

func TestPlainHost(t *testing.T) {
	for host, want := range map[string]string{
		"": "", "a.example": "a.example", "a.example.": "a.example", "a.example:80": "a.example",
		"a.example.:80": "a.example",
		"[::1]:80":      "[::1]", "[::1]": "[::1]", "::1": "::1", "192.0.2.1:8080": "192.0.2.1",
	} {
		if got := plainHost(host); got != want {
			t.Errorf("plainHost(%q) = %q, want %q", host, got, want)
		}
	}
}
