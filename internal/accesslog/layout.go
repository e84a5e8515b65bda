package accesslog

import (
	"bytes"
	"time"
)

// A layout is the format that the directives of a W3C extended log define for the next lines. It is
// immutable, because workers share it. A nil layout means a file without directives.
type layout struct {
	fields     []byte // the text of the #Fields line, nil if there was none
	columns    []namedFact
	date       []byte // of #Date, "2006-01-02"
	local      bool   // times are the server's own, not UTC
	cloudfront bool
	noClient   bool          // no column contains the client
	unit       time.Duration // of time-taken
}

// directive returns the layout after a line that begins with "#".
func (l *layout) directive(line []byte) *layout {
	if fields, ok := cutPrefixFold(line, "#fields:"); ok {
		if l != nil && bytes.Equal(l.fields, fields) {
			return l
		}
		next := newLayout(fields)
		if l != nil {
			next.date = l.date
		}
		return next
	}
	for _, name := range []string{"#date:", "#start-date:"} {
		if date, ok := cutPrefixFold(line, name); ok {
			date = bytes.TrimSpace(date)
			if len(date) < 10 || date[4] != '-' || date[7] != '-' || l != nil && bytes.Equal(l.date, date[:10]) {
				return l
			}
			next := &layout{}
			if l != nil {
				*next = *l
			}
			next.date = bytes.Clone(date[:10])
			return next
		}
	}
	return l
}

func cutPrefixFold(line []byte, prefix string) ([]byte, bool) {
	if len(line) < len(prefix) || !isName(line[:len(prefix)], prefix) {
		return nil, false
	}
	return line[len(prefix):], true
}

func newLayout(fields []byte) *layout {
	l := &layout{fields: bytes.Clone(fields), noClient: true, unit: time.Millisecond}
	for _, name := range bytes.Fields(fields) {
		name := string(bytes.ToLower(name))
		n, ok := w3cNames[name]
		if !ok {
			n = namedFact{fact: noFact}
		}
		l.columns = append(l.columns, n)
		switch {
		case n.fact == factClient:
			l.noClient = false
		case name == "date-local":
			l.local = true
		case name == "x-edge-location":
			l.cloudfront, l.unit = true, time.Second
		}
	}
	return l
}

var w3cNames = ranked(map[fact][]string{
	factDate:      {"date", "date-local"},
	factClock:     {"time", "time-local"},
	factClient:    {"c-ip"},
	factForwarded: {"x-forwarded-for", "cs(x-forwarded-for)", "x_forwarded_for", "s-xff"},
	factMethod:    {"cs-method"},
	factTarget:    {"cs-uri"},
	factPath:      {"cs-uri-stem"},
	factQuery:     {"cs-uri-query"},
	factHost:      {"x-host-header", "cs-host", "cs(host)"},
	factReferer:   {"cs(referer)", "cs(referrer)"},
	factAgent:     {"cs(user-agent)"},
	factCookie:    {"cs(cookie)"},
	factStatus:    {"sc-status"},
	factBytes:     {"sc-bytes", "bytes"},
	factDuration:  {"time-taken", "timetakenms"},
})

// CloudFront's standard log, for files without header lines. Newer fields are at the end.
var cloudfrontLayout = newLayout(
	[]byte("date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status " +
		"cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes " +
		"time-taken x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status " +
		"fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len sc-range-start sc-range-end"))

// A w3cParser reads W3C extended logs, including those of IIS and CloudFront. The latest #Fields
// line defines the columns.
type w3cParser struct{}

func (w3cParser) parse(line []byte, e *Entry, w *worker) string {
	l := w.layout
	tabs := bytes.IndexByte(line, '\t') >= 0
	lost := l == nil || l.columns == nil // no header lines
	if lost {
		if !tabs {
			return reasonNoFields
		}
		l = cloudfrontLayout
	}
	w.cloudfront = l.cloudfront
	var r record
	n := 0
	for rest := line; len(rest) > 0; n++ {
		var value []byte
		value, rest = w3cValue(rest, tabs)
		if n < len(l.columns) {
			if c := l.columns[n]; c.fact != noFact {
				r.put(c.fact, c.rank, value)
			}
		}
	}
	switch {
	case l.noClient:
		return reasonNoClient
	case n > len(l.columns) && !lost, !r.has(factClient), !r.has(factClock):
		return reasonFields
	case n < len(l.columns) && !r.has(factStatus):
		return reasonFields // truncated before the fields that a verdict needs
	}

	if !w.w3cTime(&r, l) {
		return reasonNoDate
	}
	r.unit = l.unit
	if r.has(factDuration) && bytes.IndexByte(r.raw[factDuration], '.') > 0 {
		r.unit = time.Second
	}
	if !l.cloudfront {
		return r.fill(e, w, codedPlus)
	}
	reason := r.fill(e, w, codedPercent)
	if e.Cookie == "" {
		e.Has &^= HasCookie // the field exists even if cookies are not logged
	}
	if e.Forwarded != "" {
		e.Forwarded = w.percentDecoded(e.Forwarded)
	}
	return reason
}

// w3cTime joins date and time.
func (w *worker) w3cTime(r *record, l *layout) bool {
	date := l.date
	if r.has(factDate) {
		date = r.raw[factDate]
	}
	if len(date) == 0 {
		return false
	}
	start := len(w.arena)
	w.arena = append(w.arena, date...)
	w.arena = append(w.arena, ' ')
	w.arena = append(w.arena, r.raw[factClock]...)
	if !l.local {
		w.arena = append(w.arena, 'Z')
	}
	r.put(factTime, 0, w.arena[start:])
	return true
}

// w3cValue cuts off the next value and its separator: a tab, or any number of spaces. It removes
// the quotes around a value; doubled quotes inside stay doubled.
func w3cValue(b []byte, tabs bool) (value, rest []byte) {
	if tabs {
		if i := bytes.IndexByte(b, '\t'); i >= 0 {
			return bytes.Trim(b[:i], " "), b[i+1:]
		}
		return bytes.Trim(b, " "), nil
	}
	b = bytes.TrimLeft(b, " ")
	if len(b) > 1 && b[0] == '"' {
		for i := 1; i < len(b); i++ {
			switch {
			case b[i] != '"':
			case i+1 == len(b) || b[i+1] == ' ':
				return b[1:i], bytes.TrimLeft(b[i+1:], " ")
			case b[i+1] == '"':
				i++
			}
		}
	}
	if i := bytes.IndexByte(b, ' '); i >= 0 {
		return b[:i], bytes.TrimLeft(b[i:], " ")
	}
	return b, nil
}
