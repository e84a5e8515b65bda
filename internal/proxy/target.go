package proxy

import (
	"net/http"
	"strings"
)

// target returns the request target for the upstream: the client's bytes, in origin
// form. It is "" if that is impossible, or if the path that the guard judged is
// ambiguous.
func target(r *http.Request) string {
	t := r.RequestURI
	for i := 0; i < len(t); i++ {
		if t[i] <= ' ' || t[i] == 0x7F { // HTTP/2 allows them, a request line does not
			return ""
		}
	}
	switch {
	case t == "":
		return r.URL.RequestURI()
	case strings.IndexByte(t, '#') >= 0: // not allowed in a target (RFC 9112 §3.2), and many upstreams cut there
		return ""
	case t == "*" && r.Method == http.MethodOptions:
		return t
	case t[0] != '/': // absolute form; other schemes are not served
		scheme, rest, _ := strings.Cut(t, "://")
		i := strings.IndexAny(rest, "/?")
		if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") || i < 0 || rest[i] != '/' {
			return ""
		}
		t = rest[i:]
	}
	// net/url parses an opaque "//" as an authority, so such a path is sent in the
	// spelling of net/url.
	if strings.HasPrefix(t, "//") {
		if path, _, _ := strings.Cut(t, "?"); r.URL.EscapedPath() != path {
			return ""
		}
	}
	return t
}

// twoHosts reports whether a request names a host in addition to the judged one.
// net/http keeps Host in the header only for HTTP/2, where it may come in addition
// to :authority (RFC 9113 §8.3.1).
func twoHosts(r *http.Request) bool {
	for _, host := range r.Header["Host"] {
		if host != r.Host {
			return true
		}
	}
	return false
}

func validMethod(method string) bool {
	for i := 0; i < len(method); i++ {
		if !alphanumeric(method[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", method[i]) < 0 {
			return false
		}
	}
	return method != ""
}

func alphanumeric(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}
