package proxy

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"fairshare"
)

// HTTP/2 allows bytes in a target that would end a request line early.
func TestTargetHasNoBlanks(t *testing.T) {
	for _, sent := range []string{"/a b", "/a HTTP/1.0", "/a?b c", "/\t", "/a\x7f"} {
		r := &http.Request{Method: "GET", RequestURI: sent, URL: &url.URL{Path: sent}}
		if got := target(r); got != "" {
			t.Errorf("%q goes out as %q", sent, got)
		}
	}
}

// The upstream gets the path that the guard judged.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/", "//a|", "/a%2fb?c#d", "*", "http://a", "http://a/b", "http://a?b/c",
		"mailto:x://y/admin", "HTTPS://a//b", "a:80", "//[::1]/a", "/?"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + sent +
			" HTTP/1.1\r\nHost: site\r\n\r\n")))
		if err != nil || r.RequestURI != sent {
			return // net/http refuses it, or it is more than one target
		}
		got := target(r)
		if got == "" {
			return
		}
		var judged, forwarded fairshare.Request
		judged.SetTarget(r.RequestURI)
		forwarded.SetTarget(got)
		if judged.Path != forwarded.Path || judged.Query != forwarded.Query || judged.OddPath != forwarded.OddPath {
			t.Errorf("%q: judged %q ? %q, forwarded %q: %q ? %q", sent, judged.Path, judged.Query, got, forwarded.Path,
				forwarded.Query)
		}
		if got[0] != '/' || !strings.HasSuffix(sent, got) {
			t.Errorf("%q goes out as %q", sent, got)
		}
	})
}
