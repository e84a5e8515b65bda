package sessions

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A cookie is a cookie of the upstream. Domain is ignored: the cookie is sent only to the host that
// set it.
type cookie struct {
	name, value string // value is unchanged
	path        string // of requests to which it applies
	expires     time.Time
	secure      bool // it was set over TLS and is sent only over TLS
}

// gone reports whether a cookie has expired. With a zero time it never expires.
func (c cookie) gone(now time.Time) bool { return !c.expires.IsZero() && !c.expires.After(now) }

// same reports whether one cookie replaces the other (RFC 6265 §5.3).
func (c cookie) same(d cookie) bool { return c.name == d.name && c.path == d.path }

// parseSetCookie reads a value of Set-Cookie in answer to a request for path. ok is false if the
// cookie has no value, or one that browsers may read differently. Such a cookie cannot be a session.
func parseSetCookie(line, path string, secure bool, now time.Time) (c cookie, ok bool) {
	set, err := http.ParseSetCookie(line)
	if err != nil || set.Name == "" {
		return cookie{}, false
	}
	set.Value = strings.Trim(set.Value, " \t")
	c = cookie{name: set.Name, value: set.Value, path: set.Path, expires: set.Expires, secure: set.Secure && secure}
	if set.Quoted {
		c.value = `"` + set.Value + `"`
	}
	if !strings.HasPrefix(c.path, "/") {
		c.path = defaultPath(path)
	}
	switch {
	case set.MaxAge < 0, set.Value == "":
		c.expires = now
	case set.MaxAge > 0:
		const longest = 400 * 24 * 60 * 60 // seconds, as browsers do
		c.expires = now.Add(time.Duration(min(set.MaxAge, longest)) * time.Second)
	}
	return c, true
}

// defaultPath returns the path of a cookie without a path (RFC 6265 §5.1.4).
func defaultPath(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 && path[0] == '/' {
		return path[:i]
	}
	return "/"
}

// applies reports whether the cookie is sent with a request for path.
func (c *cookie) applies(path string, secure bool) bool {
	if c.secure && !secure {
		return false
	}
	rest, found := strings.CutPrefix(path, c.path)
	return found && (rest == "" || rest[0] == '/' || c.path[len(c.path)-1] == '/')
}

// header returns cookies as a value of Cookie.
func header(cookies []cookie) string {
	n := 0
	for i := range cookies {
		n += len(cookies[i].name) + len(cookies[i].value) + len("=; ")
	}
	var b strings.Builder
	b.Grow(n)
	for i := range cookies {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(cookies[i].name)
		b.WriteByte('=')
		b.WriteString(cookies[i].value)
	}
	return b.String()
}

// pairs calls found with each name and value of a value of Cookie. It is
// lenient, as upstreams are.
func pairs(line string, found func(name, value string)) {
	for pair := range strings.SplitSeq(line, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			found(strings.Trim(name, " \t"), strings.Trim(value, " \t"))
		}
	}
}

// parameters calls found with each name and value in a request target, from its query and after ";"
// in its path, without decoding.
func parameters(target string, found func(name, value string)) {
	path, query, _ := strings.Cut(target, "?")
	if strings.IndexByte(path, ';') >= 0 {
		for segment := range strings.SplitSeq(path, "/") {
			_, params, _ := strings.Cut(segment, ";")
			pairs(params, found)
		}
	}
	for query != "" {
		var pair string
		if i := strings.IndexAny(query, "&;"); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			pair, query = query, ""
		}
		if name, value, ok := strings.Cut(pair, "="); ok {
			found(name, value)
		}
	}
}

// A mark identifies a session: the value of one of its cookies, together with the name in lower
// case if the value may not be unique.
type mark struct{ name, value string }

// Lengths of values. A value of uniqueLength is unique under any name. A value shorter than weakLength may
// be the same for all clients, if another cookie of the session is longer (Lucee's CFTOKEN is
// always 0).
const (
	uniqueLength = 16
	weakLength   = 4
)

// markOf returns the mark of a cookie's value. It is the same for every spelling of the value.
func markOf(name, value string) mark {
	if value = unquote(value); len(value) >= uniqueLength {
		return mark{value: value}
	}
	return mark{strings.ToLower(name), value}
}

// unquote returns a value without quotes and percent escapes.
func unquote(value string) string {
	if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	if strings.IndexByte(value, '%') >= 0 {
		if v, err := url.PathUnescape(value); err == nil {
			return v
		}
	}
	return value
}

// marks calls found with the marks of a session until it returns false.
func marks(cookies []cookie, found func(mark) bool) {
	longest := 0
	for i := range cookies {
		longest = max(longest, len(unquote(cookies[i].value)))
	}
	for i := range cookies {
		m := markOf(cookies[i].name, cookies[i].value)
		if (len(m.value) >= weakLength || longest < weakLength) && !found(m) {
			return
		}
	}
}

// names are patterns of cookie names, each split at its "*".
type names [][]string

func newNames(patterns []string) names {
	n := make(names, len(patterns))
	for i, p := range patterns {
		n[i] = strings.Split(p, "*")
	}
	return n
}

// match reports whether a name matches one of the patterns.
func (n names) match(name string) bool {
	for _, parts := range n {
		if matchParts(parts, name) {
			return true
		}
	}
	return false
}

// matchParts reports whether s consists of the parts with any text between them.
func matchParts(parts []string, s string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = after
	}
	return true
}
