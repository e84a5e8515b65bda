package fairshare

import (
	"bytes"
	"strings"
	"unsafe"
)

// holdsEncoded looks at a parameter of a query, or at a field of a form. It does so as servers may
// read it: behind "&" or ";", in any spelling of its name, up to a "#" or with it, decoded once or
// twice, "+" as it stands or as a space. A permission needs the parameter in its plain spelling,
// and fits all values.
func (c *condition) holdsEncoded(d *decision, query string) bool {
	if c.filter != nil && strings.IndexByte(query, '%') < 0 && strings.IndexByte(query, '+') < 0 &&
		!c.filter.mayMatch(d.fold(query)) {
		return false // each value is a part of the query
	}
	before, _, fragment := strings.Cut(query, "#")
	if c.holdsParameters(d, query, "&") != c.favorable ||
		strings.Contains(query, ";") && c.holdsParameters(d, query, "&;") != c.favorable ||
		fragment && c.holdsParameters(d, before, "&") != c.favorable ||
		fragment && c.holdsParameters(d, before, "&;") != c.favorable {
		return !c.favorable
	}
	return c.favorable
}

// holdsParameters looks at one reading of the query: its parameters stand
// between separators. Of several names one that fits is enough, in a permission
// too.
func (c *condition) holdsParameters(d *decision, query, separators string) bool {
	found := false
	for query != "" {
		pair := query
		i := strings.IndexByte(query, '&')
		if len(separators) > 1 {
			i = strings.IndexAny(query, separators)
		}
		if i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			query = ""
		}
		name, value, _ := strings.Cut(pair, "=")
		any := c.spelling == ""
		if any && !c.isOneName(name) || !any && !c.isName(d, name) {
			continue
		}
		switch holds := c.holdsValue(d, value); {
		case holds && (any || !c.favorable):
			return true
		case !holds && !any && c.favorable:
			return false
		case holds && unescape(name) == c.name:
			found = true
		}
	}
	return found
}

// isName reports whether a parameter's name, as sent, may be the condition's.
func (c *condition) isName(d *decision, sent string) bool {
	if sent == c.name {
		return true
	}
	if len(sent) < len(c.spelling) ||
		!c.foldPaths && alphanumeric(sent[0]) && sent[0] != c.spelling[0] {
		return false
	}
	d.value = appendSpelling(d.value[:0], sent)
	return string(d.value) == c.spelling || c.foldPaths && strings.EqualFold(string(d.value), c.spelling)
}

// isOneName reports whether a parameter's name fits a pattern: in a
// restriction as it stands or in its spelling.
func (c *condition) isOneName(sent string) bool {
	if c.name == "*" || c.param.match(unescape(sent), "") {
		return true
	}
	return !c.favorable && c.param.match(string(appendSpelling(nil, sent)), "")
}

func alphanumeric(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// appendSpelling appends the name under which PHP and others know a parameter
// or cookie, such as "a_b" of "+a.b%5Bx]".
func appendSpelling(b []byte, sent string) []byte {
	begin := len(b)
	b = appendUnescaped(b, sent, true)
	name := bytes.TrimLeft(b[begin:], " ")
	for i, c := range name {
		switch {
		case (c == '[' || c == 0) && i > 0:
			return append(b[:begin], name[:i]...)
		case c == '.' || c == ' ' || c == '[':
			name[i] = '_'
		}
	}
	return append(b[:begin], name...)
}

// holdsValue looks at the readings of a value.
func (c *condition) holdsValue(d *decision, sent string) bool {
	plus := strings.IndexByte(sent, '+') >= 0
	if !plus && strings.IndexByte(sent, '%') < 0 {
		return c.matchesText(sent, d.fold(sent))
	}
	value := d.unescape(sent, true)
	if c.matchesText(value, d.fold(value)) != c.favorable {
		return !c.favorable
	}
	if strings.IndexByte(value, '%') >= 0 {
		twice := unescape(value)
		if c.matchesText(twice, d.fold(twice)) != c.favorable {
			return !c.favorable
		}
	}
	if plus {
		value = d.unescape(sent, false)
		if c.matchesText(value, d.fold(value)) != c.favorable {
			return !c.favorable
		}
	}
	return c.favorable
}

// unescape decodes percent escapes, and "+" if plus says so. The text is good
// until the next call.
func (d *decision) unescape(s string, plus bool) string {
	d.value = appendUnescaped(d.value[:0], s, plus)
	return unsafe.String(unsafe.SliceData(d.value), len(d.value))
}

// unescape decodes a text of a query; invalid escapes stay.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	return string(appendUnescaped(nil, s, true))
}

func appendUnescaped(b []byte, s string, plus bool) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '+' && plus:
			c = ' '
		case c == '%' && i+2 < len(s) && ishex(s[i+1]) && ishex(s[i+2]):
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return b
}
