// Package httpfield checks the names and values of header fields (RFC 9110 §5), for
// programs that read and write HTTP/1.1 by themselves.
package httpfield

import (
	"bytes"
	"net/textproto"
	"strings"
)

// What bytes a token (§5.6.2) and the value of a field (§5.5) may have.
var tokenBytes, valueBytes = func() (token, value [256]bool) {
	for i := range 256 {
		c := byte(i)
		token[i] = c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' ||
			c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
		value[i] = c >= ' ' && c != 0x7F || c == '\t'
	}
	return
}()

// IsToken reports whether a text is a token, such as the name of a field.
func IsToken[T string | []byte](s T) bool {
	for i := 0; i < len(s); i++ {
		if !tokenBytes[s[i]] {
			return false
		}
	}
	return len(s) > 0
}

// IsValue reports whether a text may be the value of a field. It may be empty, and have
// spaces around it.
func IsValue[T string | []byte](s T) bool {
	for i := 0; i < len(s); i++ {
		if !valueBytes[s[i]] {
			return false
		}
	}
	return true
}

// IsCanonical reports whether [textproto.CanonicalMIMEHeaderKey] returns a token
// unchanged.
func IsCanonical(name string) bool {
	upper := true
	for i := 0; i < len(name); i++ {
		c := name[i]
		if upper && c >= 'a' && c <= 'z' || !upper && c >= 'A' && c <= 'Z' {
			return false
		}
		upper = c == '-'
	}
	return true
}

// Append appends a field as a line. As in net/http, spaces around the value are removed, a line end within it becomes
// spaces, and a field with an invalid name is omitted.
func Append[T string | []byte](b []byte, name string, value T) []byte {
	if !IsToken(name) {
		return b
	}
	from := len(b) + len(name) + len(": ")
	b = AppendValid(b, name, value)
	line := b[from : len(b)-len("\r\n")]
	for _, end := range [...]byte{'\n', '\r'} {
		for i := bytes.IndexByte(line, end); i >= 0; i = bytes.IndexByte(line, end) {
			line[i] = ' '
		}
	}
	return b
}

// AppendAll appends each value of a field as a line of its own.
func AppendAll(b []byte, name string, values []string) []byte {
	for _, value := range values {
		b = Append(b, name, value)
	}
	return b
}

// AppendValid is Append at less cost, for a name that is a token and a value without a line end. It does not check
// them: otherwise what follows could be read as other fields.
func AppendValid[T string | []byte](b []byte, name string, value T) []byte {
	if len(value) > 0 && (value[0] <= ' ' || value[len(value)-1] <= ' ') {
		for len(value) > 0 && isSpace(value[0]) {
			value = value[1:]
		}
		for len(value) > 0 && isSpace(value[len(value)-1]) {
			value = value[:len(value)-1]
		}
	}
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// HasToken reports whether a list of tokens has one of them, in any case.
func HasToken(list, token string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(textproto.TrimString(item), token) {
			return true
		}
	}
	return false
}

// IsOfConnection reports whether a field, by its canonical name, belongs to one connection (RFC 9110 §7.6.1), or did so
// in older versions of HTTP.
func IsOfConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect":
		return true
	}
	return false
}
