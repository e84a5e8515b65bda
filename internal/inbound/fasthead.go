package inbound

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"fairshare/internal/httpfield"
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

// Which bytes a target and a host may have, and the path and query of a target that url.ParseRequestURI returns
// unchanged. Others may be valid: then the server, or url.ParseRequestURI, reads them.
var targetBytes, hostBytes, pathBytes = func() (target, host, path [256]bool) {
	for i := range 256 {
		c := byte(i)
		alphanumeric := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		target[i] = c > ' ' && c < 0x7F
		host[i] = alphanumeric || c != 0 && strings.IndexByte("-._:[]", c) >= 0
		path[i] = alphanumeric || c != 0 && strings.IndexByte("/-._~", c) >= 0
	}
	return
}()

func all[T string | []byte](s T, allowed *[256]bool) bool {
	for i := 0; i < len(s); i++ {
		if !allowed[s[i]] {
			return false
		}
	}
	return true
}

// parseTarget is url.ParseRequestURI for a target of targetBytes that begins with "/". It returns false if that has an
// error.
func parseTarget(u *url.URL, target string) bool {
	path, query, hasQuery := strings.Cut(target, "?")
	if all(path, &pathBytes) && (query != "" || !hasQuery) {
		u.Path, u.RawQuery = path, query
		return true
	}
	parsed, err := url.ParseRequestURI(target)
	if err == nil {
		*u = *parsed
	}
	return err == nil
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
		if colon <= 0 || h.count == mostFields ||
			!httpfield.IsToken(line[:colon]) || !httpfield.IsValue(line[colon+1:]) {
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
		!httpfield.IsToken(line[:method]) || !all(line[method+1:end], &targetBytes) {
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
	x := &exchange{fastAnswer: fastAnswer{fastContext: fastContext{conn: c}, length: -1, closes: h.close}}
	if !parseTarget(&x.url, target) {
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
	header, values := make(http.Header, h.count+moreFields), x.values[:]
	if h.count > len(values) {
		values = make([]string, h.count)
	}
	for i := range h.fields[:h.count] {
		f := &h.fields[i]
		name := text[f.name.from:f.name.to]
		if !httpfield.IsCanonical(name) {
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
	x.began, x.isHead = time.Now(), method == http.MethodHead
	c.base.Method, c.base.URL, c.base.RequestURI, c.base.Host = method, &x.url, target, c.host
	c.base.Header, c.base.Close = header, h.close
	c.base.Body, c.base.ContentLength = http.NoBody, int64(h.length)
	if h.length > 0 {
		x.body.rest = bytes.Clone(b[h.end : h.end+h.length])
		c.base.Body = &x.body
	}
	r := c.base.WithContext(&x.fastAnswer)
	c.base.URL, c.base.Header, c.base.Body = nil, nil, nil
	c.from += h.end + h.length
	return r
}

// moreFields is how many fields a proxy may add to those of a request without a larger map.
const moreFields = 6

// An exchange is what a request needs, and its answer. Each request has its own: what a handler keeps of it by mistake
// shows nothing of another request.
type exchange struct {
	fastAnswer
	url    url.URL
	body   shortBody
	values [12]string // of fields that come once; longer requests have memory of their own
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
