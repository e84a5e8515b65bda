package httpguard

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A template is a text with placeholders. Elements with an even index are text,
// those with an odd index are names of placeholders.
type template []string

// placeholders are the names that an operator's text may have in braces.
var placeholders = [...]string{"wait", "until", "rule", "id", "client", "contact"}

// parseTemplate cuts a text at its placeholders. Other braces are text.
func parseTemplate(s string) template {
	if s == "" {
		return nil
	}
	var t template
	text := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '{' {
			continue
		}
		for _, name := range placeholders {
			if strings.HasPrefix(s[i+1:], name) && strings.HasPrefix(s[i+1+len(name):], "}") {
				t = append(t, s[text:i], name)
				i += len(name) + 1
				text = i + 1
				break
			}
		}
	}
	return append(t, s[text:])
}

// kind returns the form of an operator's text: JSON if it is valid once filled in,
// HTML if it begins with "<", else plain text.
func (t template) kind() bodyKind {
	var b strings.Builder
	for i, s := range t {
		switch {
		case i%2 == 0:
			b.WriteString(s)
		case s == "wait":
			b.WriteByte('1')
		default:
			b.WriteByte('x')
		}
	}
	s := strings.TrimSpace(b.String())
	switch {
	case strings.HasPrefix(s, "<"):
		return htmlBody
	case strings.HasPrefix(s, "{") && json.Valid([]byte(s)):
		return jsonBody
	}
	return textBody
}

// appendTemplate appends a body with its placeholders filled in. The values are
// escaped for the form of the body.
func (f *refusal) appendTemplate(b []byte, t template, kind bodyKind) []byte {
	for i, s := range t {
		if i%2 == 0 {
			b = append(b, s...)
			continue
		}
		switch s = f.value(s); kind {
		case htmlBody:
			b = appendHTML(b, s)
		case jsonBody:
			quoted := appendJSON(nil, s)
			b = append(b, quoted[1:len(quoted)-1]...)
		default:
			b = append(b, oneLine(s)...)
		}
	}
	return b
}

// appendLocation appends a redirect with its placeholders filled in. A control character in the operator's
// text would end the header: it is left out.
func (f *refusal) appendLocation(b []byte, t template) []byte {
	for i, s := range t {
		if i%2 == 0 {
			b = append(b, oneLine(s)...)
		} else {
			b = appendPercent(b, f.value(s), "")
		}
	}
	return b
}

func (f *refusal) value(name string) string {
	switch name {
	case "wait":
		return strconv.FormatInt(f.wait, 10)
	case "until":
		until := f.now.Add(time.Duration(f.wait) * time.Second)
		if f.wall != nil {
			until = f.wall(until)
		}
		if until.Nanosecond() > 0 {
			until = until.Add(time.Second)
		}
		return until.UTC().Format("2006-01-02T15:04:05Z")
	case "rule":
		return f.name
	case "id":
		return f.id
	case "client":
		if !f.client.IsValid() {
			return "unknown"
		}
		return f.client.String()
	case "contact":
		return f.contact
	}
	return ""
}

// oneLine replaces control characters by spaces.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7F && r < 0xA0 {
			return ' '
		}
		return r
	}, s)
}

// appendHTML escapes s for text and quoted attributes.
func appendHTML(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '&':
			b = append(b, "&amp;"...)
		case '<':
			b = append(b, "&lt;"...)
		case '>':
			b = append(b, "&gt;"...)
		case '"':
			b = append(b, "&#34;"...)
		case '\'':
			b = append(b, "&#39;"...)
		case 0:
			b = utf8.AppendRune(b, utf8.RuneError)
		default:
			b = append(b, s[i])
		}
	}
	return b
}

// appendJSON appends s as a JSON string.
func appendJSON(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return append(b, quoted...)
}

// appendPercent percent-encodes all but unreserved characters (RFC 3986 §2.3)
// and those in except.
func appendPercent(b []byte, s, except string) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9',
			c == '-', c == '.', c == '_', c == '~', strings.IndexByte(except, c) >= 0:
			b = append(b, c)
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
