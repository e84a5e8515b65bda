package inbound

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"
)

// mostFields bounds the fields of a simple request.
const mostFields = 64

// A span is a part of the buffer.
type span struct{ from, to uint16 }

// A fastHead says where the parts of a simple request are.
type fastHead struct {
	method, target, host span
	agent                int // index of User-Agent in fields; −1: none
	fields               [mostFields]struct{ name, value span }
	count                int
	end                  int // of the head
	length               int // of the body
	close                bool
	hasLength            bool
}

func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenBytes[c] {
			return false
		}
	}
	return len(b) > 0
}

// Which bytes a token (RFC 9110 §5.6.2), the value of a field (§5.5), a target and a host may have. A target or host
// with others may be valid: then the server reads it.
var tokenBytes, valueBytes, targetBytes, hostBytes = func() (token, value, target, host [256]bool) {
	for i := range 256 {
		c := byte(i)
		alphanumeric := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		token[i] = alphanumeric || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
		value[i] = c >= ' ' && c != 0x7F || c == '\t'
		target[i] = c > ' ' && c < 0x7F
		host[i] = alphanumeric || c != 0 && strings.IndexByte("-._:[]", c) >= 0
	}
	return
}()

func all(b []byte, allowed *[256]bool) bool {
	for _, c := range b {
		if !allowed[c] {
			return false
		}
	}
	return true
}

// scan finds a simple request at the beginning of b. If there is none, more says whether more bytes may make it one.
func (h *fastHead) scan(b []byte) (found, more bool) {
	h.count, h.agent, h.length, h.hasLength, h.close, h.host = 0, -1, 0, false, false, span{}
	hasConnection := false
	for from := 0; ; {
		n := bytes.IndexByte(b[from:], '\n')
		if n < 0 {
			return false, true
		}
		if n == 0 || b[from+n-1] != '\r' {
			return false, false
		}
		line := b[from : from+n-1]
		start := from
		from += n + 1
		if start == 0 {
			if !h.scanRequestLine(line) {
				return false, false
			}
			continue
		}
		if len(line) == 0 {
			h.end = from
			if h.host.to == 0 || h.length > len(b)-from {
				return false, false
			}
			return true, false
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || h.count == mostFields || !isToken(line[:colon]) || !all(line[colon+1:], &valueBytes) {
			return false, false
		}
		name, value := line[:colon], line[colon+1:]
		at := start + colon + 1
		for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
			value, at = value[1:], at+1
		}
		for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
			value = value[:len(value)-1]
		}
		place := span{uint16(at), uint16(at + len(value))}
		switch len(name) {
		case len("Host"):
			if !equalFold(name, "host") {
				break
			}
			if h.host.to != 0 || len(value) == 0 || !all(value, &hostBytes) {
				return false, false
			}
			h.host = place
			continue
		case len("Expect"):
			if equalFold(name, "expect") {
				return false, false
			}
		case len("Upgrade"):
			if equalFold(name, "upgrade") || equalFold(name, "trailer") {
				return false, false
			}
		case len("Connection"):
			switch {
			case equalFold(name, "user-agent"):
				if h.agent < 0 {
					h.agent = h.count
				}
			case !equalFold(name, "connection"):
			case hasConnection:
				return false, false
			default:
				hasConnection = true
				if h.close = equalFold(value, "close"); !h.close && !equalFold(value, "keep-alive") {
					return false, false
				}
			}
		case len("Content-Length"):
			if !equalFold(name, "content-length") {
				break
			}
			if h.hasLength || len(value) == 0 || len(value) > 4 {
				return false, false
			}
			h.hasLength = true
			for _, d := range value {
				if d < '0' || d > '9' {
					return false, false
				}
				h.length = 10*h.length + int(d-'0')
			}
		case len("Transfer-Encoding"):
			if equalFold(name, "transfer-encoding") {
				return false, false
			}
		}
		h.fields[h.count].name, h.fields[h.count].value = span{uint16(start), uint16(start + colon)}, place
		h.count++
	}
}

// scanRequestLine reads a line such as GET / HTTP/1.1.
func (h *fastHead) scanRequestLine(line []byte) bool {
	method := bytes.IndexByte(line, ' ')
	const version = " HTTP/1.1"
	end := len(line) - len(version)
	if method <= 0 || end <= method+1 || string(line[end:]) != version || line[method+1] != '/' ||
		!isToken(line[:method]) || !all(line[method+1:end], &targetBytes) {
		return false
	}
	h.method, h.target = span{0, uint16(method)}, span{uint16(method + 1), uint16(end)}
	return true
}

// equalFold reports whether b is a word, which is in lower case, in any case.
func equalFold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// methods are the usual ones, which need no memory.
var methods = map[string]string{"GET": "GET", "HEAD": "HEAD", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH",
	"DELETE": "DELETE", "OPTIONS": "OPTIONS"}

// request makes the request of a head, as net/http does, and removes it from the buffer. It returns nil if the server
// must read it.
func (c *fastConn) request(h *fastHead) *http.Request {
	b := c.buffer[c.from:c.to]
	// Some texts of a request live long, so they share no memory with the others.
	target := string(b[h.target.from:h.target.to])
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	if host := b[h.host.from:h.host.to]; string(host) != c.host {
		c.host = string(host)
	}
	if h.agent >= 0 {
		if agent := b[h.fields[h.agent].value.from:h.fields[h.agent].value.to]; string(agent) != c.agent {
			c.agent = string(agent)
		}
	}
	method, usual := methods[string(b[h.method.from:h.method.to])]
	if !usual {
		method = string(b[h.method.from:h.method.to])
	}
	text := string(b[:h.end])
	header, values := make(http.Header, h.count+8), make([]string, h.count)
	for i := range h.fields[:h.count] {
		f := &h.fields[i]
		name := text[f.name.from:f.name.to]
		if !isCanonical(name) {
			name = textproto.CanonicalMIMEHeaderKey(name)
		}
		values[i] = text[f.value.from:f.value.to]
		if i == h.agent {
			values[i] = c.agent
		}
		if prior, found := header[name]; found {
			header[name] = append(prior, values[i])
		} else {
			header[name] = values[i : i+1 : i+1]
		}
	}
	if pragma := header["Pragma"]; len(pragma) > 0 && pragma[0] == "no-cache" && header["Cache-Control"] == nil {
		header["Cache-Control"] = []string{"no-cache"} // as net/http does
	}
	a := &fastAnswer{fastContext: fastContext{conn: c, began: time.Now()}, length: -1, closes: h.close,
		isHead: method == http.MethodHead}
	c.base.Method, c.base.URL, c.base.RequestURI, c.base.Host = method, u, target, c.host
	c.base.Header, c.base.Close = header, h.close
	c.base.Body, c.base.ContentLength = http.NoBody, int64(h.length)
	if h.length > 0 {
		c.base.Body = &shortBody{rest: bytes.Clone(b[h.end : h.end+h.length])}
	}
	r := c.base.WithContext(a)
	c.base.URL, c.base.Header, c.base.Body = nil, nil, nil
	c.from += h.end + h.length
	return r
}

// isCanonical reports whether textproto.CanonicalMIMEHeaderKey returns a token unchanged.
func isCanonical(name string) bool {
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

// A shortBody is the body of a simple request.
type shortBody struct {
	rest   []byte
	closed bool
}

func (b *shortBody) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func (b *shortBody) Close() error {
	b.closed = true
	return nil
}
