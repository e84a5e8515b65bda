package outbound

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"fairshare/internal/httpfield"
)

// A head is the last head of an answer that came on a connection, if it was a plain one. Most lines of the next one are
// the same, and are not read again.
type head struct {
	status string // such as "200 OK"
	code   int
	lines  []line
	framed bool // framing is that of lines
	framing
	raw []byte // all of the head: often the next one is the same; empty if it is long
}

// A framing is what the lines of a head say of the answer's end, and how they look to a client.
type framing struct {
	length   int64 // −1: unknown
	chunked  bool
	closes   bool     // the connection ends with the answer
	trailers []string // the values of Trailer
	isSimple bool     // no field is special: see Options.Special and Call.Whole
	text     []byte   // see plainLines; empty: not known yet
	dated    bool     // there is a Date

	contentType string   // the first one
	setCookie   []string // all values
}

// A line is a field of a head.
type line struct {
	text         string // without the line end
	name, value  string // name is canonical
	ofConnection bool   // see httpfield.IsOfConnection
	listsFields  bool   // it is Connection, and may name further fields of the connection
}

// longestRaw bounds the heads that are kept as a whole.
const longestRaw = 1 << 10

// mostLines is how many lines a connection remembers. Their texts fit into bufferBytes in all, mostly.
const mostLines = 64

// parse reads a head at the beginning of b, and returns its size. It is 0 unless the whole head is there and is a plain
// one: net/http reads the others. Then h is not valid.
func (h *head) parse(b []byte) (size int) {
	if n := len(h.raw); n > 0 && len(b) >= n && string(b[:n]) == string(h.raw) {
		return n
	}
	// HTTP/1.1 200 OK
	const version = "HTTP/1.1 "
	if len(b) < len(version)+len("200\r\n\r\n") || string(b[:len(version)]) != version {
		return 0
	}
	rest := b[len(version):]
	framed := h.framed
	h.framed, h.raw = false, h.raw[:0] // until the head is complete
	if h.status != "" && beginsWithLine(rest, h.status) {
		rest = rest[len(h.status)+2:]
	} else if end := lineEnd(rest); end < 0 || !h.parseStatus(rest[:end]) {
		return 0
	} else {
		rest = rest[end+2:]
	}
	n := 0
	for ; !beginsWithLine(rest, ""); n++ {
		if n < len(h.lines) && beginsWithLine(rest, h.lines[n].text) {
			rest = rest[len(h.lines[n].text)+2:]
			continue
		}
		end := lineEnd(rest)
		if end < 0 || !h.parseLine(n, rest[:end]) {
			return 0
		}
		rest = rest[end+2:]
		framed = false
	}
	if len(h.lines) > n {
		clear(h.lines[n:])
		h.lines = h.lines[:n]
		framed = false
	}
	h.framed = framed
	size = len(b) - len(rest) + 2
	if size <= longestRaw {
		h.raw = append(h.raw, b[:size]...)
	}
	return size
}

// beginsWithLine reports whether b begins with a text, which has no line end, and a line end.
func beginsWithLine(b []byte, text string) bool {
	n := len(text)
	return len(b) >= n+2 && b[n] == '\r' && b[n+1] == '\n' && string(b[:n]) == text
}

// lineEnd returns the size of the first line of b without its end; −1 if the line does not end with CR and LF.
func lineEnd(b []byte) int {
	end := bytes.IndexByte(b, '\r')
	if end < 0 || end+1 == len(b) || b[end+1] != '\n' {
		return -1
	}
	return end
}

func (h *head) parseStatus(b []byte) bool {
	h.status = ""
	if len(b) < 3 || len(b) > 3 && b[3] != ' ' || !httpfield.IsValue(b) {
		return false
	}
	code := 0
	for _, d := range b[:3] {
		if d < '0' || d > '9' {
			return false
		}
		code = 10*code + int(d-'0')
	}
	if code < 100 {
		return false
	}
	h.status, h.code = string(b), code
	return true
}

// parseLine reads the line with index n. Lines from there on are those of the last head, in any order.
func (h *head) parseLine(n int, b []byte) bool {
	for i := n; i < min(len(h.lines), 2*mostLines); i++ {
		if h.lines[i].text == string(b) {
			h.lines[n], h.lines[i] = h.lines[i], h.lines[n]
			return true
		}
	}
	colon := bytes.IndexByte(b, ':')
	if colon <= 0 || !httpfield.IsToken(b[:colon]) || !httpfield.IsValue(b[colon+1:]) {
		return false // also if it begins with a space, and continues the line before it
	}
	l := line{text: string(b)}
	if l.name = l.text[:colon]; !httpfield.IsCanonical(l.name) {
		l.name = http.CanonicalHeaderKey(l.name)
	}
	l.value = textproto.TrimString(l.text[colon+1:])
	l.ofConnection = httpfield.IsOfConnection(l.name)
	l.listsFields = l.name == "Connection" && l.value != "close" && l.value != "keep-alive"
	switch {
	case n == len(h.lines):
		h.lines = append(h.lines, l)
		return true
	case n < mostLines: // one of the next lines may be that of the last head
		h.lines = append(h.lines, h.lines[n])
	}
	h.lines[n] = l
	return true
}

// frame finds out how the answer ends. An error means that this is not clear. isSpecial is Options.Special; nil: no
// answer is simple.
func (h *head) frame(isSpecial func(name string) bool) error {
	if h.framed {
		return nil
	}
	hasType := false
	f := framing{length: -1, isSimple: isSpecial != nil, text: h.text[:0]}
	h.framing = f
	for i := range h.lines {
		l := &h.lines[i]
		switch l.name {
		case "Content-Length":
			n, err := strconv.ParseUint(l.value, 10, 63)
			if err != nil || f.length >= 0 || l.value[0] == '+' {
				return malformed("Content-Length %q", l.value)
			}
			f.length = int64(n)
		case "Transfer-Encoding":
			if f.chunked || !strings.EqualFold(l.value, "chunked") {
				return malformed("Transfer-Encoding %q", l.value)
			}
			f.chunked = true
		case "Connection":
			f.closes = f.closes || httpfield.HasToken(l.value, "close")
		case "Trailer":
			f.trailers = append(f.trailers, l.value)
		case "Date":
			f.dated = true
		case "Content-Type":
			if !hasType {
				f.contentType, hasType = l.value, true
			}
		case "Set-Cookie":
			f.setCookie = append(f.setCookie, l.value)
		}
		f.isSimple = f.isSimple && !l.listsFields && !isSpecial(l.name)
	}
	if f.chunked && f.length >= 0 { // a trick to have the end of the answer seen elsewhere (RFC 9112 §6.3)
		return malformed("both Content-Length and Transfer-Encoding")
	}
	h.framing, h.framed = f, true
	return nil
}

// plainLines returns the lines of a simple head without those of the connection.
func (h *head) plainLines() []byte {
	if len(h.text) == 0 {
		for i := range h.lines {
			if l := &h.lines[i]; !l.ofConnection {
				h.text = httpfield.AppendValid(h.text, l.name, l.value)
			}
		}
	}
	return h.text
}

// fill adds the fields to an empty header, except Transfer-Encoding.
func (h *head) fill(to http.Header) {
	h.fillWith(to, func(l *line) bool { return l.name != "Transfer-Encoding" })
}

// fillWithoutConnection does so without the fields that belong to the connection, except a Connection that may name
// further ones.
func (h *head) fillWithoutConnection(to http.Header) {
	h.fillWith(to, func(l *line) bool { return !l.ofConnection || l.listsFields })
}

func (h *head) fillWith(to http.Header, wanted func(*line) bool) {
	values, n := make([]string, len(h.lines)), 0
	for i := range h.lines {
		if l := &h.lines[i]; wanted(l) {
			values[n] = l.value
			to[l.name] = values[n : n+1 : n+1]
			n++
		}
	}
	if len(to) == n { // usually each name comes once
		return
	}
	clear(to)
	for i := range h.lines {
		if l := &h.lines[i]; wanted(l) {
			to[l.name] = append(to[l.name], l.value)
		}
	}
}

// forget is called when the connection becomes idle.
func (h *head) forget() {
	if cap(h.lines) > 2*mostLines {
		*h = head{}
	}
}
