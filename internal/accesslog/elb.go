package accesslog

import (
	"bytes"
	"strings"
	"time"
)

// An elbParser reads the logs of AWS load balancers: application ones, which write a type first,
// and classic ones. It reads only the fields up to the user agent; more may follow.
//
//	[type] time elb client:port target:port times… elb_status target_status received sent "request" "user agent" …
type elbParser struct{}

func (elbParser) parse(line []byte, e *Entry, w *worker) string {
	var f [11][]byte
	rest := line
	w.shape = 0
	if line[0]-'0' > 9 {
		_, rest = cutWord(rest)
		w.shape = hasType
	}
	n := 0
	for ; n < len(f) && len(rest) > 0; n++ {
		f[n], rest = cutWord(rest)
	}
	if n < 3 || len(f[0]) < 20 || f[0][10] != 'T' {
		return reasonShape
	}
	var ok bool
	if e.Client, ok = parseAddrPort(f[2]); !ok {
		return reasonClient
	}
	if n < len(f) {
		return reasonCut
	}
	var reason string
	if e.Time, reason = w.clock.moment(f[0]); reason != "" {
		return reason
	}
	status, ok := statusOf(f[7])
	if !ok {
		return reasonStatus
	}
	sent, ok := bytesOf(f[10])
	if !ok {
		return reasonBytes
	}
	e.Status, e.Bytes = status, sent
	e.Has = HasStatus | HasBytes | HasHost | HasDuration
	for _, t := range f[4:7] { // "-1" if the request was not dispatched
		if d, ok := seconds(t); ok {
			e.Duration += d
		}
	}
	e.setUpstream(f[5], time.Second)
	request, rest, ok := quoted(rest)
	if !ok {
		return ""
	}
	e.Has |= hasRequest
	if text := w.text(request, escapeBackslash); !strings.HasPrefix(text, "- ") { // "- http://host:80- -" is malformed
		e.setRequest(text)
		if n := schemeLen(e.Target); n > 0 {
			host := e.Target[n:]
			if end := strings.IndexAny(host, "/?#"); end >= 0 {
				host = host[:end]
			}
			e.Host = host
		}
	}
	agent, rest, ok := quoted(rest)
	if ok {
		e.UserAgent = w.text(agent, escapeBackslash)
		e.Has |= HasUserAgent
	}
	if w.shape == hasType && len(f[3]) > 1 && isMinusOne(f[5]) && !isMinusOne(f[4]) {
		w.unanswered(e, rest)
	}
	return ""
}

// unanswered sets the duration of a request whose target did not answer in time. It begins at the
// creation of the request, a field after cipher, protocol, target group, "trace" "domain"
// "certificate" and priority.
func (w *worker) unanswered(e *Entry, rest []byte) {
	for range 3 {
		_, rest = cutWord(rest)
	}
	for range 3 {
		_, rest, _ = quoted(rest)
	}
	_, rest = cutWord(rest)
	created, _ := cutWord(rest)
	before := e.Duration // until the request was sent to the target
	if at, reason := w.clock.moment(created); reason == "" && e.Time.After(at) {
		e.Duration = min(e.Time.Sub(at), maxDuration)
		e.Upstream = max(e.Duration-before, 0)
	}
}

// cutWord cuts off the text up to the next space, and the spaces after it.
func cutWord(b []byte) (text, rest []byte) {
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], bytes.TrimLeft(b[i:], " ")
	}
	return b, nil
}

// A haproxyParser reads HAProxy's HTTP log, usually after a syslog prefix:
//
//	client:port [time] frontend backend/server times status bytes … "request"
type haproxyParser struct{}

func (haproxyParser) parse(line []byte, e *Entry, w *worker) string {
	open := acceptTime(line)
	if open < 1 {
		return reasonMessage
	}
	before, b := line[:open-1], line[open+1:]
	client := before[bytes.LastIndexByte(before, ' ')+1:]
	end := bytes.IndexByte(b, ']')
	if end < 0 || end+2 > len(b) || b[end+1] != ' ' {
		return reasonCut
	}
	stamp := b[:end]
	rest := b[end+2:]
	_, rest = cutWord(rest) // frontend
	_, rest = cutWord(rest) // backend/server
	times, rest := cutWord(rest)
	status, rest := cutWord(rest)
	sent, rest := cutWord(rest)
	switch {
	case len(times) > 0 && bytes.Count(times, []byte{'/'}) != 4:
		return reasonMessage // the TCP log has three times
	case len(sent) == 0:
		return reasonCut
	}
	var ok bool
	if e.Client, ok = parseAddrPort(client); !ok {
		return reasonClient
	}
	var reason string
	if e.Time, reason = w.clock.moment(stamp); reason != "" {
		return reason
	}
	if string(status) != "-1" {
		if e.Status, ok = statusOf(status); !ok {
			return reasonStatus
		}
	}
	if e.Bytes, ok = bytesOf(bytes.TrimPrefix(sent, []byte{'+'})); !ok {
		return reasonBytes
	}
	e.Has = HasStatus | HasBytes
	e.setTimes(times)
	if i := bytes.Index(rest, []byte(` "`)); i >= 0 {
		request := rest[i+2:] // may be truncated
		if j := bytes.LastIndexByte(request, '"'); j >= 0 {
			request = request[:j]
		}
		e.setRequest(w.text(request, escapeHash))
		e.Has |= hasRequest
	}
	return ""
}

// setTimes reads TR/Tw/Tc/Tr/Ta, all in ms: until the request was complete, in the queue, until the
// connection, until the server's headers, and in total; −1 means never. A server that was asked and
// never answered counts as busy until the end.
func (e *Entry) setTimes(times []byte) {
	var t [5]time.Duration
	for i := range t {
		text, rest, _ := bytes.Cut(times, []byte{'/'})
		times = rest
		t[i] = -time.Millisecond
		if ms, ok := digits(bytes.TrimPrefix(text, []byte{'+'})); ok {
			t[i] = time.Duration(min(ms, 1e12)) * time.Millisecond
		}
	}
	e.Duration, e.Upstream = max(t[4], 0), max(t[3], 0)
	if t[3] < 0 && t[2] >= 0 {
		e.Upstream = max(e.Duration-max(t[0], 0)-max(t[1], 0)-t[2], 0)
	}
	e.Has |= HasDuration | HasUpstream
}

// acceptTime returns the index of "[06/Feb/2009:12:14:14.655]", or -1.
func acceptTime(line []byte) int {
	for i := 0; ; {
		j := bytes.IndexByte(line[i:], '[')
		if j < 0 {
			return -1
		}
		i += j
		if b := line[i+1:]; len(b) > 12 && b[2] == '/' && b[6] == '/' && b[11] == ':' && i > 0 && line[i-1] == ' ' {
			return i
		}
		i++
	}
}
