package accesslog

import (
	"bytes"
	"unsafe"
)

// str returns b as a string that shares its memory.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// An escape is a server's encoding of bytes that would break its format.
type escape uint8

const (
	escapeBackslash escape = iota // nginx \xXX; Apache \" \\ \n \xhh and so on
	escapeQuote                   // Traefik: \" only
	escapeNone                    // nginx escape=none
	escapeHash                    // HAProxy #XX
)

// text returns a field's text: "" for "-", unescaped if there is an escape.
// Invalid escapes stay as they are.
func (w *worker) text(b []byte, e escape) string {
	if len(b) == 1 && b[0] == '-' {
		return ""
	}
	return w.unescape(b, e)
}

func (w *worker) unescape(b []byte, e escape) string {
	mark := byte('\\')
	switch e {
	case escapeHash:
		mark = '#'
	case escapeNone:
		return str(b)
	}
	i := bytes.IndexByte(b, mark)
	if i < 0 {
		return str(b)
	}
	start := len(w.arena)
	for i >= 0 {
		w.arena = append(w.arena, b[:i]...)
		b = b[i:]
		n := 0
		switch e {
		case escapeBackslash:
			n = w.backslash(b)
		case escapeQuote:
			if len(b) > 1 && b[1] == '"' {
				w.arena, n = append(w.arena, '"'), 2
			}
		case escapeHash:
			if len(b) > 2 && isHex(b[1]) && isHex(b[2]) {
				w.arena, n = append(w.arena, unhex(b[1])<<4|unhex(b[2])), 3
			}
		}
		if n == 0 {
			w.arena, n = append(w.arena, mark), 1
		}
		b = b[n:]
		i = bytes.IndexByte(b, mark)
	}
	w.arena = append(w.arena, b...)
	return str(w.arena[start:])
}

// backslash appends the decoded escape at the start of b, and returns the length of the escape; 0
// if there is none.
func (w *worker) backslash(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	c := byte(0)
	switch b[1] {
	case '"', '\\':
		c = b[1]
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'b':
		c = '\b'
	case 'v':
		c = '\v'
	case 'x':
		if len(b) < 4 || !isHex(b[2]) || !isHex(b[3]) {
			return 0
		}
		w.arena = append(w.arena, unhex(b[2])<<4|unhex(b[3]))
		return 4
	default:
		return 0
	}
	w.arena = append(w.arena, c)
	return 2
}

// percentDecoded returns s with percent escapes decoded once; invalid ones
// stay.
func (w *worker) percentDecoded(s string) string {
	i := indexByte(s, '%')
	if i < 0 {
		return s
	}
	start := len(w.arena)
	for ; i >= 0; i = indexByte(s, '%') {
		w.arena = append(w.arena, s[:i]...)
		s = s[i:]
		if len(s) > 2 && isHex(s[1]) && isHex(s[2]) {
			w.arena = append(w.arena, unhex(s[1])<<4|unhex(s[2]))
			s = s[3:]
			continue
		}
		w.arena = append(w.arena, '%')
		s = s[1:]
	}
	w.arena = append(w.arena, s...)
	return str(w.arena[start:])
}

// closeQuote returns the end of the quoted text that starts at b[0]: an unescaped quote before a
// space or at the end; -1 if there is none.
func closeQuote(b []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		j += i
		if (j+1 == len(b) || b[j+1] == ' ') && (j == 0 || b[j-1] != '\\' || !escapedAt(b, j)) {
			return j
		}
		i = j + 1
	}
	// A server that does not escape backslashes may end a text with one.
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return -1
		}
		j += i
		if j+1 == len(b) || b[j+1] == ' ' {
			return j
		}
		i = j + 1
	}
}

// escapedAt reports whether there is an odd number of backslashes before b[i].
func escapedAt(b []byte, i int) bool {
	n := 0
	for i > n && b[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

func isHex(c byte) bool { return c-'0' <= 9 || c|0x20-'a' <= 5 }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func indexByte(s string, c byte) int {
	return bytes.IndexByte(unsafe.Slice(unsafe.StringData(s), len(s)), c)
}
