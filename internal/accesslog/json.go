package accesslog

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// An object iterates over the members of a JSON object without decoding it:
//
//	o := object{text}
//	for key, value, ok := o.next(); ok; key, value, ok = o.next() { … }
//
// Values are raw: text keeps its quotes. It does not validate skipped values, and stops at the
// first invalid JSON. whole reports whether it reached the end.
type object struct {
	rest  []byte // remaining text, from "{" or "," on
	whole bool   // the closing brace was reached
}

// next returns the next member. The key is as written, without quotes.
func (o *object) next() (key, value []byte, ok bool) {
	b := skipSpace(o.rest)
	o.rest = nil
	if len(b) == 0 || b[0] != '{' && b[0] != ',' {
		o.whole = len(b) > 0 && b[0] == '}'
		return nil, nil, false
	}
	first := b[0] == '{'
	b = skipSpace(b[1:])
	if first && len(b) > 0 && b[0] == '}' {
		o.whole = true
		return nil, nil, false
	}
	n := valueLen(b)
	if n < 2 || b[0] != '"' {
		return nil, nil, false
	}
	key, b = b[1:n-1], skipSpace(b[n:])
	if len(b) == 0 || b[0] != ':' {
		return nil, nil, false
	}
	b = skipSpace(b[1:])
	n = valueLen(b)
	if n == 0 {
		return nil, nil, false
	}
	o.rest = b[n:]
	return key, b[:n], true
}

// element returns the first element of an array and the text after it, from "[" or "," on.
func element(b []byte) (value, rest []byte, ok bool) {
	b = skipSpace(b)
	if len(b) == 0 || b[0] != '[' && b[0] != ',' {
		return nil, nil, false
	}
	b = skipSpace(b[1:])
	n := valueLen(b)
	if n == 0 {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// valueLen returns the length of the JSON value at the start of b; 0 if there is none or it is
// truncated.
func valueLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return stringLen(b)
	case '{', '[':
		depth := 0
		for i := 0; i < len(b); {
			switch b[i] {
			case '"':
				n := stringLen(b[i:])
				if n == 0 {
					return 0
				}
				i += n
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return 0
	case '}', ']', ',', ':':
		return 0
	}
	for i, c := range b { // a number, true, false or null
		if c == ',' || c == '}' || c == ']' || c == ' ' || c == '\t' {
			return i
		}
	}
	return 0 // a scalar at the end of the line is truncated
}

// stringLen returns the length of the string at the start of b with its quotes; 0 if it is
// truncated.
func stringLen(b []byte) int {
	for i := 1; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return 0
		}
		i += j
		if b[i-1] != '\\' || i == 1 || !escapedAt(b[1:], i-1) {
			return i + 1
		}
		i++
	}
	return 0
}

// jsonText returns the text of a JSON string, or a number, true or false as
// written; "" for null, objects, arrays, and for "-".
func (w *worker) jsonText(raw []byte) string {
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null" {
		return ""
	}
	if raw[0] != '"' {
		return str(raw)
	}
	raw = raw[1 : len(raw)-1]
	if len(raw) == 1 && raw[0] == '-' {
		return ""
	}
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return str(raw)
	}
	start := len(w.arena)
	for ; i >= 0; i = bytes.IndexByte(raw, '\\') {
		w.arena = append(w.arena, raw[:i]...)
		raw = raw[i:]
		n := w.jsonEscape(raw)
		if n == 0 {
			w.arena, n = append(w.arena, '\\'), 1
		}
		raw = raw[n:]
	}
	w.arena = append(w.arena, raw...)
	return str(w.arena[start:])
}

// jsonEscape appends the decoded escape at the start of b, and returns the length of the escape; 0
// if there is none. \xXX is not JSON, but nginx writes it without escape=json.
func (w *worker) jsonEscape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '/':
		w.arena = append(w.arena, '/')
		return 2
	case 'f':
		w.arena = append(w.arena, '\f')
		return 2
	case 'u':
		r, ok := hex4(b)
		if !ok {
			return 0
		}
		if utf16.IsSurrogate(r) {
			if low, ok := hex4(b[6:]); ok {
				if joined := utf16.DecodeRune(r, low); joined != utf8.RuneError {
					w.arena = utf8.AppendRune(w.arena, joined)
					return 12
				}
			}
		}
		w.arena = utf8.AppendRune(w.arena, r)
		return 6
	}
	return w.backslash(b)
}

// hex4 reads "\uXXXX".
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[2:6] {
		if !isHex(c) {
			return 0, false
		}
		r = r<<4 | rune(unhex(c))
	}
	return r, true
}

// bare returns raw without its quotes, for texts without escapes.
func bare(raw []byte) []byte {
	if len(raw) >= 2 && raw[0] == '"' {
		return raw[1 : len(raw)-1]
	}
	return raw
}

// number reads a whole number, quoted or not; fractions are dropped.
func number(raw []byte) (int64, bool) {
	raw = bare(raw)
	if i := bytes.IndexByte(raw, '.'); i > 0 {
		raw = raw[:i]
	}
	if len(raw) > 1 && raw[0] == '-' {
		return 0, allDigits(raw[1:])
	}
	return digits(raw)
}

// jsonSeconds reads a duration: seconds as a number, quoted or not, nginx's
// lists of them, or a text with units as Go writes it ("1.5ms").
func jsonSeconds(raw []byte) (time.Duration, bool) {
	raw = bare(raw)
	if d, ok := seconds(raw); ok {
		return d, true
	}
	if bytes.IndexByte(raw, ',') > 0 || bytes.IndexByte(raw, ':') > 0 {
		return secondsSum(raw)
	}
	if len(raw) == 0 || len(raw) > 40 || raw[0]-'0' > 9 {
		return 0, false
	}
	if d, err := time.ParseDuration(string(raw)); err == nil && d >= 0 {
		return d, true
	}
	if s, err := strconv.ParseFloat(string(raw), 64); err == nil && s >= 0 && s < 1e9 { // 3.4e-05
		return time.Duration(s * 1e9), true
	}
	return 0, false
}
