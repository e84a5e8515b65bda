package fairshare

import "strings"

// cookies calls found with the name and value of each valid cookie pair of
// the Cookie header lines until found returns false. A pair is valid as
// net/http sees it: a token, "=", and a value of printable ASCII without `"`,
// ";" and `\`; one pair of quotes around the value is passed over (RFC 6265
// §4.1.1).
func cookies(h Header, found func(name, value string) bool) {
	if h == nil {
		return
	}
	for _, line := range h.Values("Cookie") {
		for line != "" {
			var pair string
			pair, line, _ = strings.Cut(line, ";")
			name, value, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !ok {
				continue
			}
			name = strings.TrimRight(name, " \t")
			value = strings.TrimLeft(value, " \t")
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			if token(name) && cookieValue(value) && !found(name, value) {
				return
			}
		}
	}
}

// Cookies returns how many valid cookie pairs the Cookie headers of a request
// hold.
func Cookies(h Header) (n int) {
	cookies(h, func(string, string) bool {
		n++
		return true
	})
	return n
}

// hasPair reports whether there is a valid cookie pair.
func hasPair(h Header) bool {
	if h == nil {
		return false
	}
	for _, line := range h.Values("Cookie") {
		if plainPair(line) {
			return true
		}
	}
	found := false
	cookies(h, func(string, string) bool {
		found = true
		return false
	})
	return found
}

// plainPair reports whether line begins with a valid pair that needs no
// trimming, as nearly every one does.
func plainPair(line string) bool {
	i := 0
	for i < len(line) && byteKinds[line[i]]&tokenByte != 0 {
		i++
	}
	if i == 0 || i == len(line) || line[i] != '=' {
		return false
	}
	for i++; i < len(line) && line[i] != ';'; i++ {
		if byteKinds[line[i]]&cookieByte == 0 {
			return false
		}
	}
	return true
}

// token reports whether s is a token (RFC 9110 §5.6.2).
func token(s string) bool { return s != "" && all(s, tokenByte) }

func cookieValue(s string) bool { return all(s, cookieByte) }

const (
	tokenByte = 1 << iota
	cookieByte
)

// byteKinds tells for each byte where it may stand.
var byteKinds = func() (kinds [256]uint8) {
	for c := byte(' '); c < 0x7F; c++ {
		if strings.IndexByte(` "(),/:;<=>?@[\]{}`, c) < 0 {
			kinds[c] |= tokenByte
		}
		if strings.IndexByte(`";\`, c) < 0 {
			kinds[c] |= cookieByte
		}
	}
	return kinds
}()

func all(s string, kind uint8) bool {
	for i := 0; i < len(s); i++ {
		if byteKinds[s[i]]&kind == 0 {
			return false
		}
	}
	return true
}

// cookie returns the decoded value of the cookie called name; "" when there is
// none, or when it was sent again with another value: a server may take either.
func cookie(h Header, name string) string {
	var got string
	found, several := false, false
	cookies(h, func(n, v string) bool {
		if n == name {
			v = unescape(v)
			several = found && v != got
			got, found = v, true
		}
		return !several
	})
	if several {
		return ""
	}
	return got
}

// sentCookie reports whether a server may see some cookie, valid or not.
func sentCookie(h Header) bool {
	if h == nil {
		return false
	}
	for _, line := range h.Values("Cookie") {
		if strings.Trim(line, " \t;,") != "" {
			return true
		}
	}
	return false
}

// cookieNames calls found with each name that a server may read in the Cookie
// headers, in every spelling of it, until found returns false. Pairs need not
// be valid; "," may stand between them as in RFC 2965.
func cookieNames(h Header, found func(name string) bool) {
	for _, line := range h.Values("Cookie") {
		for pair := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ';' || c == ',' }) {
			name, _, _ := strings.Cut(pair, "=")
			name = strings.Trim(name, " \t\"")
			if !found(name) || !found(unescape(name)) || !found(string(appendSpelling(nil, name))) {
				return
			}
		}
	}
}
