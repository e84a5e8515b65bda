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
	ofConnection bool   // see httpfield.IsOfConnection
	listsFields  bool   // it is Connection, and may name further fields of the connection
}

// mostLines is how many lines a connection remembers. Their texts fit into bufferBytes in all, mostly.
const mostLines = 64

// parse reads a head. It returns false unless the head is a plain one: net/http reads the others. Then h is not valid.
func (h *head) parse(b []byte) bool {
	// HTTP/1.1 200 OK
	const version = "HTTP/1.1 "
	if len(b) < len(version)+len("200\r\n\r\n") || string(b[:len(version)]) != version {
		return false
	}
	end := bytes.IndexByte(b, '\r')
	if end < len(version) || b[end+1] != '\n' {
		return false
	}
	if status := b[len(version):end]; (h.status == "" || string(status) != h.status) && !h.parseStatus(status) {
		return false
	}
	n := 0
	for rest := b[end+2:]; string(rest) != "\r\n"; n++ {
		end := bytes.IndexByte(rest, '\r')
		if end < 0 || rest[end+1] != '\n' || !h.parseLine(n, rest[:end]) {
			return false
		}
		rest = rest[end+2:]
	}
	if len(h.lines) > n {
		clear(h.lines[n:])
		h.lines = h.lines[:n]
	}
	return true
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

// fill adds the fields to a header, except Transfer-Encoding.
func (h *head) fill(to http.Header) {
	values := make([]string, len(h.lines))
	for i := range h.lines {
		if l := &h.lines[i]; l.name != "Transfer-Encoding" {
			add(to, l, values[i:i+1:i+1])
		}
	}
}

// fillWithoutConnection does so without the fields that belong to the connection, except a Connection that may name
// further ones.
func (h *head) fillWithoutConnection(to http.Header) {
	values := make([]string, len(h.lines))
	for i := range h.lines {
		if l := &h.lines[i]; !l.ofConnection || l.listsFields {
			add(to, l, values[i:i+1:i+1])
		}
	}
}

// add adds a line to a header. space is for its value.
func add(to http.Header, l *line, space []string) {
	space[0] = l.value
	if prior, ok := to[l.name]; ok {
		space = append(prior, l.value)
	}
	to[l.name] = space
}

// forget is called when the connection becomes idle.
func (h *head) forget() {
	if cap(h.lines) > 2*mostLines {
		*h = head{}
	}
}
