package sessions

import (
	"net/http"
	"net/url"
	"strings"
)

// usesOwnSession reports whether the client has, or is about to have, its own session.
func usesOwnSession(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if r.ContentLength != 0 {
			return true
		}
	case http.MethodOptions, http.MethodTrace:
	default:
		return true
	}
	for name, values := range r.Header {
		switch {
		case name == "Cookie":
			if !noCookies(values) {
				return true
			}
		case credential(name):
			return true
		}
	}
	return false
}

// noCookies reports whether the values of Cookie contain no cookie.
func noCookies(values []string) bool {
	for _, v := range values {
		if strings.Trim(v, " \t;") != "" {
			return false
		}
	}
	return true
}

// credential reports whether a header identifies the client, or turns a GET into another method.
func credential(name string) bool {
	if strings.IndexByte(name, '_') >= 0 { // many upstreams read it as "-"
		name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	switch name {
	case "X-Http-Method", "X-Http-Method-Override", "X-Method-Override":
		return true
	}
	if strings.HasPrefix(name, "Fairshare-") { // of another fairshare in front
		return false
	}
	for _, word := range [...]string{"auth", "token", "api-key", "apikey", "session", "secret", "password"} {
		if containsFold(name, word) {
			return true
		}
	}
	return false
}

// containsFold reports whether s contains word in upper or lower case; word is in lower case.
func containsFold(s, word string) bool {
	for i := 0; i+len(word) <= len(s); i++ {
		if s[i]|0x20 == word[0] && strings.EqualFold(s[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// bypasses reports whether a request gets no shared session and opens none: any request other than
// a plain GET or HEAD, and one whose address logs in.
func bypasses(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || len(r.Header["Upgrade"]) > 0 {
		return true
	}
	target := target(r)
	if strings.IndexByte(target, '=') < 0 {
		return false
	}
	login, code, state := false, false, false
	parameters(target, func(name, value string) {
		switch name = unquote(name); {
		case value == "":
		case strings.EqualFold(name, "code"):
			code = true
		case strings.EqualFold(name, "state"):
			state = true
		default:
			login = login || secret(name)
		}
	})
	return login || code && state // code and state are those of OAuth 2.0 (RFC 6749 §4.1.2)
}

// secret reports whether a parameter probably holds a secret of one person.
func secret(name string) bool {
	for _, word := range [...]string{"passw", "passwd", "pwd", "token", "secret", "oauth", "apikey", "api_key",
		"api-key", "signature", "samlresponse"} {
		if containsFold(name, word) {
			return true
		}
	}
	for _, word := range [...]string{"pass", "auth", "otp", "pin", "jwt", "ticket"} {
		if strings.EqualFold(name, word) {
			return true
		}
	}
	return false
}

// target returns the request target as the client sent it.
func target(r *http.Request) string {
	if r.RequestURI != "" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// targetPath returns the path as the client sent it.
func targetPath(r *http.Request) string {
	path, _, _ := strings.Cut(target(r), "?")
	if path != "" && path[0] != '/' { // absolute form
		if _, rest, found := strings.Cut(path, "://"); found {
			if i := strings.IndexByte(rest, '/'); i >= 0 {
				return rest[i:]
			}
		}
		return "/"
	}
	return path
}

// secure reports whether a client uses TLS. A false claim does no harm, because a client only gets
// the cookies of its own key.
func secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	proto := r.Header["X-Forwarded-Proto"]
	return len(proto) > 0 && strings.EqualFold(strings.Trim(proto[len(proto)-1], " \t"), "https")
}

// endBrought stops sharing the sessions that the client sends in a cookie or an address, except the
// one that k shares anyway.
func (s *setup) endBrought(r *http.Request, k key) {
	for _, line := range r.Header["Cookie"] {
		pairs(line, func(name, value string) {
			s.table.endBrought(markOf(name, value), key{}, s.names.match(name))
		})
	}
	if s.table.empty() {
		return
	}
	if t := target(r); strings.IndexByte(t, '=') >= 0 {
		parameters(t, func(name, value string) {
			s.table.endBrought(markOf(name, value), k, false)
		})
	}
}

// echoes reports whether a session's value came with the request, so that the session already
// belongs to a client.
func echoes(r *http.Request, c cookie) bool {
	value, t := unquote(c.value), target(r)
	if len(value) < uniqueLength {
		found := false
		parameters(t, func(name, v string) {
			found = found || strings.EqualFold(name, c.name) && unquote(v) == value
		})
		return found
	}
	if strings.Contains(t, value) {
		return true
	}
	if decoded, err := url.PathUnescape(t); err == nil && strings.Contains(decoded, value) {
		return true
	}
	for _, values := range r.Header {
		for _, v := range values {
			if strings.Contains(v, value) {
				return true
			}
		}
	}
	return false
}
