package inbound

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"

	"fairshare/internal/httpfield"
)

// mostFields bounds the fields of a simple request.
const mostFields = 64

// A span is a part of the buffer.
type span struct{ from, to uint16 }

// A fastHead says where the parts of a simple request are: those of its first line in the buffer, those of its fields
// behind that line.
type fastHead struct {
	method, target span
	host           span
	agent          int // index of User-Agent in fields; −1: none
	fields         [mostFields]struct{ name, value span }
	count          int
	line, end      int // of the first line with its end, and of the head
	length         int // of the body
	close          bool
	hasLength      bool

	// text has the lines after the first one, as the last request had them; "" if they were long, or nothing is
	// known. Most clients send the same fields again and again. Then these are not read again. An idle connection
	// keeps it, unless there are many: see fastConn.forgetText.
	text string
}

const (
	// longestText and longestName bound what a connection remembers of its last request, in bytes: its fields, and each
	// of its host and user agent.
	longestText = 1 << 10
	longestName = 256

	// mostTexts is how many idle connections of a Lane remember their fields, and what the handler remembers: at most
	// 4 MiB in all, and 16 MiB.
	mostTexts = 4096
)

// forgetText is called when a connection becomes idle. If there are many, their fields would need much memory, and
// reading them again costs less.
func (c *fastConn) forgetText(h *fastHead) {
	if c.lane.open.Load() > mostTexts {
		h.text, c.memory = "", nil
	}
}

// ownText returns a text that shares no memory with others: *last if that is the same. Otherwise *last becomes this
// one, or "" if it is long.
func ownText(text string, last *string) string {
	if text == *last {
		return *last
	}
	text = strings.Clone(text)
	if *last = text; len(text) > longestName {
		*last = ""
	}
	return text
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
	n := bytes.IndexByte(b, '\n')
	if n < 0 {
		return false, true
	}
	if n == 0 || b[n-1] != '\r' || !h.scanRequestLine(b[:n-1]) {
		return false, false
	}
	h.line = n + 1
	fields := b[h.line:]
	size := len(h.text)
	if size == 0 || len(fields) < size || string(fields[:size]) != h.text {
		h.text = ""
		if size, more = h.scanFields(fields); size == 0 {
			return false, more
		}
	}
	h.end = h.line + size
	return h.length <= len(b)-h.end, false
}

// scanFields finds the fields of a simple request at the beginning of b. It returns their size with the empty line, 0
// if there are none: more says whether more bytes may make them ones.
func (h *fastHead) scanFields(b []byte) (size int, more bool) {
	h.count, h.agent, h.length, h.hasLength, h.close, h.host = 0, -1, 0, false, false, span{}
	hasConnection := false
	for from := 0; ; {
		n := bytes.IndexByte(b[from:], '\n')
		if n < 0 {
			return 0, true
		}
		if n == 0 || b[from+n-1] != '\r' {
			return 0, false
		}
		line := b[from : from+n-1]
		start := from
		from += n + 1
		if len(line) == 0 {
			if h.host.to == 0 {
				return 0, false
			}
			return from, false
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 || h.count == mostFields ||
			!httpfield.IsToken(line[:colon]) || !httpfield.IsValue(line[colon+1:]) {
			return 0, false
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
				return 0, false
			}
			h.host = place
			continue
		case len("Expect"):
			if equalFold(name, "expect") {
				return 0, false
			}
		case len("Upgrade"):
			if equalFold(name, "upgrade") || equalFold(name, "trailer") {
				return 0, false
			}
		case len("Connection"):
			switch {
			case equalFold(name, "user-agent"):
				if h.agent < 0 {
					h.agent = h.count
				}
			case !equalFold(name, "connection"):
			case hasConnection:
				return 0, false
			default:
				hasConnection = true
				if h.close = equalFold(value, "close"); !h.close && !equalFold(value, "keep-alive") {
					return 0, false
				}
			}
		case len("Content-Length"):
			if !equalFold(name, "content-length") {
				break
			}
			if h.hasLength || len(value) == 0 || len(value) > 4 {
				return 0, false
			}
			h.hasLength = true
			for _, d := range value {
				if d < '0' || d > '9' {
					return 0, false
				}
				h.length = 10*h.length + int(d-'0')
			}
		case len("Transfer-Encoding"):
			if equalFold(name, "transfer-encoding") {
				return 0, false
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
func (c *fastConn) request(h *fastHead) *exchange {
	b := c.buffer[c.from:c.to]
	// Some texts of a request live long, so they share no memory with the others.
	target := string(b[h.target.from:h.target.to])
	x := exchanges.Get().(*exchange)
	if !parseTarget(&x.url, target) {
		return nil
	}
	text := h.text
	if text == "" {
		if text = string(b[h.line:h.end]); len(text) <= longestText {
			h.text = text
		}
	}
	host := ownText(text[h.host.from:h.host.to], &c.host)
	method, usual := methods[string(b[h.method.from:h.method.to])]
	if !usual {
		method = string(b[h.method.from:h.method.to])
	}
	if x.fields == nil {
		x.fields = make(http.Header, h.count)
	}
	header, values := x.fields, x.values[:]
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
			values[i] = ownText(values[i], &c.agent)
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
	x.fastAnswer = fastAnswer{fastContext: fastContext{conn: c}, header: x.header, length: -1, closes: h.close,
		isHead: method == http.MethodHead}
	if x.r == nil {
		x.r = new(http.Request).WithContext(&x.fastAnswer)
	}
	r := x.r
	r.Proto, r.ProtoMajor, r.ProtoMinor, r.RemoteAddr, r.TLS = "HTTP/1.1", 1, 1, c.remoteAddr, c.tlsState
	r.Method, r.URL, r.RequestURI, r.Host = method, &x.url, target, host
	r.Header, r.Close = header, h.close
	r.Body, r.ContentLength = http.NoBody, int64(h.length)
	if h.length > 0 {
		x.body.rest = bytes.Clone(b[h.end : h.end+h.length])
		r.Body = &x.body
	}
	c.from += h.end + h.length
	return x
}

// An exchange is what a request needs, and its answer. Each request has its own: what a handler keeps of it by mistake
// shows nothing of another request. Only after Reuse it is used again, but never its texts.
type exchange struct {
	fastAnswer
	r      *http.Request
	fields http.Header // of the request
	url    url.URL
	body   shortBody
	values [12]string // of fields that come once; longer requests have memory of their own

	// empty has only the context of r, which cannot be set again without a new Request: reuse copies it to r. It is nil
	// until x is used again.
	empty *http.Request
}

// exchanges holds those that are used again. They are empty.
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// reuse lets another request use x.
func (x *exchange) reuse() {
	if x.empty == nil {
		x.empty = new(http.Request).WithContext(&x.fastAnswer)
	}
	*x.r = *x.empty
	clear(x.fields)
	clear(x.header)
	x.fastAnswer = fastAnswer{header: x.header}
	x.url, x.body, x.values = url.URL{}, shortBody{}, [12]string{}
	exchanges.Put(x)
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
