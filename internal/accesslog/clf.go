package accesslog

import (
	"bytes"
	"time"
)

// The shape of a line, for parsers that read several shapes.
type shape uint8

const (
	hasVhost  shape = 1 << iota // a host before the client
	hasMiddle                   // a host between bytes and referer
	hasAgent                    // referer and user agent
	hasRouter                   // Traefik's count, router, URL and duration
	hasType                     // the type of an AWS load balancer
)

// A clfParser reads the common log format and its variants:
//
//	[vhost] client ident user [time] "request" status bytes [host] ["referer" "user agent" [more …]]
//
// It reads each line on its own, so a file may mix several formats.
type clfParser struct {
	escape escape
}

func (p *clfParser) parse(line []byte, e *Entry, w *worker) string {
	w.shape = 0
	if p.common(line, e, w) {
		return ""
	}
	w.shape, *e = 0, Entry{}
	return p.any(line, e, w)
}

// any reads a line of any form.
func (p *clfParser) any(line []byte, e *Entry, w *worker) string {
	if line[0] == '"' {
		line = w.unquoted(line, e)
	}
	rest, found := w.clfClient(line, e)
	if rest == nil {
		return reasonShape
	}
	rest, reason := w.clfTime(rest, e)
	if reason != "" {
		return unlessFound(found, reason)
	}

	// rest begins after the opening quote of the request
	end := closeRequest(rest)
	if end < 0 {
		return unlessFound(found, reasonCut)
	}
	request := rest[:end]
	rest = rest[end+1:]
	reason, rest = clfStatus(rest, e)
	switch {
	case reason != "":
		return unlessFound(found, reason)
	case !found:
		return reasonClient // everything else is valid
	}
	e.setRequest(w.text(request, p.escape))
	e.Has = hasRequest | HasStatus | HasBytes | before(e)
	if len(rest) > 1 {
		p.afterBytes(rest[1:], e, w)
	}
	return ""
}

// unquoted removes the quotes around a whole line, or a quoted forwarding header at the start of a
// line.
func (w *worker) unquoted(line []byte, e *Entry) []byte {
	line = line[1:]
	if end := bytes.IndexByte(line, '"'); end >= 0 && end+2 < len(line) && line[end+1] == ' ' &&
		(isAddrList(line[:end]) || isAbsent(line[:end])) {
		e.Forwarded = w.text(line[:end], escapeNone)
		return line[end+2:]
	}
	if n := len(line); n > 0 && line[n-1] == '"' {
		line = line[:n-1]
	}
	return line
}

// unlessFound returns reason if the client was found; without a client the line does not belong to
// this family.
func unlessFound(found bool, reason string) string {
	if found {
		return reason
	}
	return reasonShape
}

// before returns the facts before the client.
func before(e *Entry) (has Fields) {
	if e.Host != "" {
		has |= HasHost
	}
	if e.Forwarded != "" {
		has |= HasForwarded
	}
	return has
}

// clfClient reads the client and a host before it, if any. It returns the line from the ident on,
// and whether the client is an address.
func (w *worker) clfClient(line []byte, e *Entry) (rest []byte, found bool) {
	sp := bytes.IndexByte(line, ' ')
	if sp < 0 {
		return nil, false
	}
	client, ok := parseAddr(line[:sp])
	rest = line[sp+1:]
	if !ok || len(rest) > 0 && rest[0] != '-' {
		if sp2 := bytes.IndexByte(rest, ' '); sp2 > 0 {
			if second, ok2 := parseAddr(rest[:sp2]); ok2 {
				w.shape |= hasVhost
				e.Host = w.text(line[:sp], escapeBackslash)
				client, ok, rest = second, true, rest[sp2+1:]
			}
		}
	}
	if !ok {
		if inner := afterPrefix(line); inner != nil {
			return w.clfClient(inner, e)
		}
		return rest, false
	}
	e.Client = client
	return rest, true
}

// afterPrefix returns the text after a log collector's prefix ("Nov 20 10:00:00 web1 nginx[12]: ",
// "web-1  | "), if the text begins with an address.
func afterPrefix(line []byte) []byte {
	const longest = 120
	for i := 0; i+2 < len(line) && i < longest; i++ {
		if line[i] != ':' && line[i] != '|' || line[i+1] != ' ' {
			continue
		}
		inner := line[i+2:]
		if sp := bytes.IndexByte(inner, ' '); sp > 0 {
			if _, ok := parseAddr(inner[:sp]); ok {
				return inner
			}
		}
	}
	return nil
}

// clfTime reads ident, user and time, and returns the text after the opening quote of the request.
// The user may contain spaces and brackets, but no quote. So the time is the first text in brackets
// that a quote follows.
func (w *worker) clfTime(b []byte, e *Entry) (rest []byte, reason string) {
	const stampLen = 26
	for i := 0; ; {
		j := bytes.IndexByte(b[i:], '[')
		if j < 0 {
			return nil, reasonNoTime
		}
		i += j + 1
		n := stampLen
		if len(b) < i+n+3 || b[i+n] != ']' {
			n = bytes.IndexByte(b[i:min(len(b), i+40)], ']')
			if n < 0 {
				if len(b) < i+40 && bytes.IndexByte(b[i:], '[') < 0 {
					return nil, reasonCut
				}
				continue
			}
		}
		if len(b) < i+n+3 || b[i+n+1] != ' ' || b[i+n+2] != '"' {
			if len(b) < i+n+3 {
				return nil, reasonCut
			}
			continue
		}
		ident := bytes.IndexByte(b[:i-1], ' ')
		if ident < 1 || ident >= i-2 || b[i-2] != ' ' {
			return nil, reasonUser
		}
		if n == stampLen {
			sec, reason := w.clock.stamp(b[i : i+n])
			if reason == "" {
				e.Time = time.Unix(sec, 0).UTC()
				return b[i+n+3:], ""
			}
		}
		t, reason := w.clock.moment(b[i : i+n])
		e.Time = t
		return b[i+n+3:], reason
	}
}

// closeRequest returns the end of the quoted request: a quote that a status follows, because not
// every server escapes quotes; -1 if there is none.
func closeRequest(b []byte) int {
	escaped, other := -1, -1 // second and third choice
	for i := 0; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		i += j
		atEnd := i+1 == len(b)
		if !atEnd && b[i+1] != ' ' {
			continue
		}
		status := i+2 < len(b) && (b[i+2]-'0' <= 9 || b[i+2] == '-')
		switch {
		case i > 0 && b[i-1] == '\\' && escapedAt(b, i):
			if status && escaped < 0 {
				escaped = i
			}
		case status:
			return i
		case other < 0:
			other = i
		}
	}
	if escaped >= 0 {
		return escaped
	}
	return other
}

// clfStatus reads " status bytes" and returns the rest, which begins with a space.
func clfStatus(b []byte, e *Entry) (reason string, rest []byte) {
	if len(b) < 2 || b[0] != ' ' {
		return reasonCut, nil
	}
	b = b[1:]
	sp := bytes.IndexByte(b, ' ')
	if sp < 0 || sp+1 == len(b) {
		return reasonCut, nil
	}
	status, ok := statusOf(b[:sp])
	if !ok {
		return reasonStatus, nil
	}
	b = b[sp+1:]
	if sp = bytes.IndexByte(b, ' '); sp < 0 {
		sp = len(b)
	}
	n, ok := bytesOf(b[:sp])
	if !ok {
		return reasonBytes, nil
	}
	e.Status, e.Bytes = status, n
	return "", b[sp:]
}

// statusOf reads a status of one to three digits; "-" is 0.
func statusOf(b []byte) (int, bool) {
	if len(b) == 1 && b[0] == '-' {
		return 0, true
	}
	if len(b) > 3 {
		return 0, false
	}
	n, ok := digits(b)
	return int(n), ok
}

// bytesOf reads a byte count; "-" and negative counts are 0.
func bytesOf(b []byte) (int64, bool) {
	if len(b) > 0 && b[0] == '-' {
		return 0, allDigits(b[1:])
	}
	return digits(b)
}

// afterBytes reads the fields after the byte count. They never make a line invalid.
func (p *clfParser) afterBytes(b []byte, e *Entry, w *worker) {
	if len(b) > 0 && b[0] != '"' { // a host, if the referer follows it
		sp := bytes.IndexByte(b, ' ')
		if sp < 0 || sp+1 >= len(b) || b[sp+1] != '"' || b[0]-'0' <= 9 && !bytes.Contains(b[:sp], []byte{'.'}) {
			p.tail(b, e, w)
			return
		}
		if _, isTime := seconds(b[:sp]); isTime {
			p.tail(b, e, w)
			return
		}
		w.shape |= hasMiddle
		e.Host = w.text(b[:sp], p.escape)
		e.Has |= HasHost
		b = b[sp+1:]
	}
	referer, rest, ok := quoted(b)
	if !ok {
		return
	}
	e.Referer = w.text(referer, p.escape)
	e.Has |= HasReferer
	if len(rest) == 0 || rest[0] != '"' {
		p.tail(rest, e, w)
		return
	}
	agent, rest, _ := quoted(rest)
	e.UserAgent = w.text(agent, p.escape)
	e.Has |= HasUserAgent
	w.shape |= hasAgent
	if len(rest) > 0 {
		p.tail(rest, e, w)
	}
}

// quoted cuts the quoted text and the next space off the start of b. A truncated text without a
// closing quote extends to the end.
func quoted(b []byte) (text, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	end := closeQuote(b[1:])
	if end < 0 {
		return b[1:], nil, len(b) > 1
	}
	text, rest = b[1:1+end], b[2+end:]
	if len(rest) > 0 {
		rest = rest[1:] // closeQuote saw a space
	}
	return text, rest, true
}

// tail searches the fields after the known ones for a duration and a forwarding header. It knows a
// bare number with decimals (nginx $request_time), rt= and similar, a quoted list of addresses, and
// Traefik's last four fields.
func (p *clfParser) tail(b []byte, e *Entry, w *worker) {
	const most = 64 // most words to check
	for range most {
		if len(b) == 0 {
			break
		}
		if b[0] == ' ' {
			b = b[1:]
			continue
		}
		if b[0] == '"' {
			text, rest, ok := quoted(b)
			if !ok {
				return
			}
			b = rest
			if e.Forwarded == "" && isAddrList(text) {
				e.Forwarded = str(text)
				e.Has |= HasForwarded
			}
			continue
		}
		word := b
		if sp := bytes.IndexByte(b, ' '); sp >= 0 {
			word, b = b[:sp], b[sp+1:]
		} else {
			b = nil
		}
		if eq := bytes.IndexByte(word, '='); eq > 0 {
			name, value := word[:eq], word[eq+1:]
			if len(value) > 0 && value[0] == '"' { // key="value with spaces"
				value, b, _ = quoted(word[eq+1 : len(word)+restLen(word, b)])
			}
			switch string(name) {
			case "rt", "request_time":
				if d, ok := seconds(value); ok {
					e.Duration = d
					e.Has |= HasDuration
				}
			case "host":
				if e.Has&HasHost == 0 && len(value) > 0 && !isAbsent(value) {
					e.Host = w.text(value, p.escape)
					e.Has |= HasHost
				}
			case "cpu_time": // of serve
				if d, ok := seconds(value); ok {
					e.CPU = min(d, maxCPU)
					e.Has |= HasCPU
				}
			case "urt", "upstream_response_time":
				e.setUpstream(value, time.Second)
			case "server_timing", "upstream_http_server_timing":
				w.setTiming(e, w.text(value, p.escape))
			}
			continue
		}
		switch n := len(word); {
		case n > 2 && string(word[n-2:]) == "ms" && allDigits(word[:n-2]):
			ms, _ := digits(word[:n-2])
			e.Duration = time.Duration(min(ms, 1e12)) * time.Millisecond
			e.Has |= HasDuration
			if len(b) == 0 {
				w.shape |= hasRouter
			}
		case e.Has&HasDuration == 0 && bytes.IndexByte(word, '.') > 0:
			if d, ok := seconds(word); ok {
				e.Duration = d
				e.Has |= HasDuration
			}
		}
	}
}

// restLen returns the length of the line after word, including the space; word and rest are
// adjacent in one line.
func restLen(word, rest []byte) int {
	if rest == nil {
		return 0
	}
	return min(1+len(rest), cap(word)-len(word))
}

// secondsSum adds up an nginx $upstream_response_time: "0.010, 0.020 : 0.005" has one time for each
// server that was asked, and "-" for one that was not.
func secondsSum(b []byte) (sum time.Duration, ok bool) {
	for len(b) > 0 {
		i := bytes.IndexAny(b, ",: ")
		item := b
		if i >= 0 {
			item, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if d, good := seconds(item); good {
			sum, ok = min(sum+d, maxDuration), true
		}
	}
	return sum, ok
}
