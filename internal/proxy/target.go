package proxy

import (
	"net/http"
	"strings"
)

// target returns the request target to send: byte for byte as the client sent
// it, in origin form. It is "" when that cannot be done or when it is not
// plain which path the guard judged.
func target(r *http.Request) string {
	t := r.RequestURI
	for i := 0; i < len(t); i++ {
		if t[i] <= ' ' || t[i] == 0x7F { // HTTP/2 may carry them, a request line may not
			return ""
		}
	}
	switch {
	case t == "":
		return r.URL.RequestURI()
	case strings.IndexByte(t, '#') >= 0: // no target holds one (RFC 9112 §3.2), and many upstreams cut there
		return ""
	case t == "*" && r.Method == http.MethodOptions:
		return t
	case t[0] != '/': // absolute form; other schemes are not ours to serve
		scheme, rest, _ := strings.Cut(t, "://")
		i := strings.IndexAny(rest, "/?")
		if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") || i < 0 || rest[i] != '/' {
			return ""
		}
		t = rest[i:]
	}
	// net/url takes an opaque "//" for an authority, so that such a path has
	// to go as net/url spells it.
	if strings.HasPrefix(t, "//") {
		if path, _, _ := strings.Cut(t, "?"); r.URL.EscapedPath() != path {
			return ""
		}
	}
	return t
}

// validHost reports whether host goes to the upstream as it is. net/http
// looks at it in HTTP/1 only, and would send another one than was judged: in
// ASCII, without a zone, or none. An empty one is the upstream's own name.
func validHost(host string) bool {
	for i := 0; i < len(host); i++ {
		c := host[i]
		if !alphanumeric(c) && strings.IndexByte("-._~!$&'()*+,;=:[]", c) < 0 {
			return false
		}
	}
	return true
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
