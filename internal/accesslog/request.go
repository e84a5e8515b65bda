package accesslog

import "strings"

// setRequest parses a request line. Method is its first word if that is a token (RFC 9110 §5.6.2).
// Target is the text between method and protocol; without a protocol the request is HTTP/0.9. Both
// stay empty if the line is not HTTP. NoRequest says that there was none.
func (e *Entry) setRequest(line string) {
	line = strings.Trim(line, " ")
	if line == "" || line == "-" {
		e.NoRequest = true
		return
	}
	sp := strings.IndexByte(line, ' ')
	if sp <= 0 || !isToken(line[:sp]) {
		return
	}
	method, target := line[:sp], line[sp+1:]
	if last := strings.LastIndexByte(target, ' '); strings.HasPrefix(target[last+1:], "HTTP/") {
		target = target[:max(last, 0)]
	}
	if target = strings.Trim(target, " "); isTarget(method, target) {
		e.Method, e.Target = method, target
	}
}

// isTarget reports whether s has one of the four forms of RFC 9112 §3.2.
func isTarget(method, s string) bool {
	if s == "" {
		return false
	}
	if s[0] == '/' || s == "*" || schemeLen(s) > 0 {
		return true
	}
	if method != "CONNECT" {
		return false
	}
	colon := strings.LastIndexByte(s, ':')
	return colon > 0 && isPort([]byte(s[colon+1:])) && !strings.ContainsAny(s, "/?# ")
}

// schemeLen returns the length of "scheme://" at the start of s, 0 if there
// is none.
func schemeLen(s string) int {
	if s == "" || s[0]|0x20-'a' > 'z'-'a' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c|0x20-'a' <= 'z'-'a', c-'0' <= 9, c == '+', c == '.', c == '-':
		case c == ':' && strings.HasPrefix(s[i:], "://"):
			return i + 3
		default:
			return 0
		}
	}
	return 0
}

// isToken reports whether s is a token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return true
}

var tokenChars = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()
