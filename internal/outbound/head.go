package outbound

import (
	"bytes"
	"net/http"
	"net/textproto"

	"fairshare/internal/httpfield"
)

// A head is the last head of an answer that came on a connection, if it was a plain one. Most lines of the next one are
// the same, and are not read again.
type head struct {
	status string // such as "200 OK"
	code   int
	lines  []line
}

// A line is a field of a head.
type line struct {
	text         string // without the line end
	name, value  string // name is canonical
	frames       bool   // see frame
	ofConnection bool   // see httpfield.IsOfConnection
	listsFields  bool   // it is Connection, and may name further fields of the connection
}

// frames reports whether frame looks at a field.
func frames(name string) bool {
	switch name {
	case "Content-Length", "Transfer-Encoding", "Connection", "Trailer":
		return true
	}
	return false
}

// mostLines is how many lines a connection remembers. Their texts fit into bufferBytes in all, mostly.
const mostLines = 64

// parse reads a head at the beginning of b, and returns its size. It is 0 unless the whole head is there and is a plain
// one: net/http reads the others. Then h is not valid.
func (h *head) parse(b []byte) (size int) {
	// HTTP/1.1 200 OK
	const version = "HTTP/1.1 "
	if len(b) < len(version)+len("200\r\n\r\n") || string(b[:len(version)]) != version {
		return 0
	}
	rest := b[len(version):]
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
	}
	if len(h.lines) > n {
		clear(h.lines[n:])
		h.lines = h.lines[:n]
	}
	return len(b) - len(rest) + 2
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
	l.frames, l.ofConnection = frames(l.name), httpfield.IsOfConnection(l.name)
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
