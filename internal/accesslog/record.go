package accesslog

import (
	"bytes"
	"time"
)

// A fact is one value of a request in a log.
type fact uint8

const (
	factTime fact = iota
	factDate      // together with factClock, instead of factTime
	factClock
	factClient
	factForwarded
	factRequest // the request line, whole
	factMethod
	factTarget // with the query
	factPath   // without
	factQuery
	factHost
	factReferer
	factAgent
	factCookie
	factStatus
	factBytes
	factDuration // of unit record.unit, as is
	factUpstream
	factTiming // Server-Timing
	factCPU    // in seconds
	factReference
	nFacts
	noFact = nFacts
)

// A coding is the encoding of texts in a log.
type coding uint8

const (
	codedBackslash coding = iota // see escapeBackslash
	codedJSON                    // raw JSON values with their quotes
	codedPlus                    // IIS: spaces are "+"
	codedPercent                 // CloudFront: percent escapes, often twice
	codedNot
)

// A record holds the raw facts of one line.
type record struct {
	raw  [nFacts][]byte
	rank [nFacts]uint8 // rank of the name of each fact; the lowest wins
	have uint32        // facts whose raw is set

	// The units of factDuration and factUpstream; 0 means as jsonSeconds reads them.
	unit, upstreamUnit time.Duration
}

// put sets a fact unless a name with a lower rank has set it.
func (r *record) put(f fact, rank uint8, raw []byte) bool {
	if r.has(f) && r.rank[f] <= rank {
		return false
	}
	r.raw[f], r.rank[f] = raw, rank
	r.have |= 1 << f
	return true
}

func (r *record) has(f fact) bool { return r.have>>f&1 == 1 }

// text returns a fact as text, "" if it is absent.
func (r *record) text(w *worker, f fact, c coding) string {
	if !r.has(f) {
		return ""
	}
	b := r.raw[f]
	switch c {
	case codedJSON:
		return w.jsonText(b)
	case codedBackslash:
		return w.text(b, escapeBackslash)
	}
	if len(b) == 1 && b[0] == '-' {
		return ""
	}
	switch c {
	case codedPlus:
		if f == factCookie || f == factForwarded { // they have spaces only in "; " and ", "
			if i := bytes.IndexAny(b, ";,"); i >= 0 && i+1 < len(b) && b[i+1] == '+' {
				return w.spaced(b)
			}
		}
		if f == factAgent && bytes.IndexByte(b, '+') >= 0 {
			start := len(w.arena)
			w.arena = append(w.arena, b...)
			b = w.arena[start:]
			for i := range b {
				if b[i] == '+' {
					b[i] = ' '
				}
			}
		}
	case codedPercent:
		if f == factAgent || f == factReferer || f == factCookie {
			return w.percentDecoded(w.percentDecoded(str(b)))
		}
	}
	return str(b)
}

// spaced writes ";+" as "; " and ",+" as ", ".
func (w *worker) spaced(b []byte) string {
	start := len(w.arena)
	w.arena = append(w.arena, b...)
	b = w.arena[start:]
	for i := 1; i < len(b); i++ {
		if b[i] == '+' && (b[i-1] == ';' || b[i-1] == ',') {
			b[i] = ' '
		}
	}
	return str(b)
}

// fill fills an entry from a record. Time and client are required, all other facts are optional.
func (r *record) fill(e *Entry, w *worker, c coding) string {
	var reason string
	plain := func(f fact) []byte {
		if c == codedJSON {
			return bare(r.raw[f])
		}
		return r.raw[f]
	}
	if !r.has(factTime) {
		return reasonTime
	}
	if e.Time, reason = w.clock.moment(plain(factTime)); reason != "" {
		return reason
	}
	var ok bool
	if e.Client, ok = parseAddr(plain(factClient)); !ok {
		return reasonClient
	}

	if r.has(factRequest) && (!r.has(factMethod) || !r.has(factTarget) || r.rank[factRequest] <= r.rank[factTarget]) {
		e.setRequest(r.text(w, factRequest, c))
	}
	if e.Method == "" {
		r.fillTarget(e, w, c)
	}
	e.Has |= r.request(e)
	for _, t := range [...]struct {
		f    fact
		text *string
		has  Fields
	}{
		{factForwarded, &e.Forwarded, HasForwarded}, {factHost, &e.Host, HasHost},
		{factReferer, &e.Referer, HasReferer},
		{factAgent, &e.UserAgent, HasUserAgent}, {factCookie, &e.Cookie, HasCookie},
	} {
		if r.has(t.f) {
			*t.text = r.text(w, t.f, c)
			e.Has |= t.has
		}
	}

	if r.has(factStatus) {
		status, ok := number(plain(factStatus))
		if !ok && !isAbsent(plain(factStatus)) || status > 999 {
			return reasonStatus
		}
		e.Status = int(status)
		e.Has |= HasStatus
	}
	if r.has(factBytes) {
		if e.Bytes, ok = number(plain(factBytes)); !ok && !isAbsent(plain(factBytes)) {
			return reasonBytes
		}
		e.Has |= HasBytes
	}
	if r.has(factDuration) {
		if d, ok := inUnit(plain(factDuration), r.unit); ok {
			e.Duration = d
		}
		e.Has |= HasDuration
	}
	if r.has(factUpstream) {
		e.setUpstream(plain(factUpstream), r.upstreamUnit)
	}
	if r.has(factTiming) {
		w.setTiming(e, r.text(w, factTiming, c))
	}
	if r.has(factReference) && !isAbsent(plain(factReference)) {
		e.Reference = r.text(w, factReference, c)
	}
	if r.has(factCPU) {
		if d, ok := seconds(plain(factCPU)); ok {
			e.CPU = min(d, maxCPU)
			e.Has |= HasCPU
		}
	}
	return ""
}

// fillTarget sets method and target from their own facts. The server has already parsed the request
// line, so the target is used as logged.
func (r *record) fillTarget(e *Entry, w *worker, c coding) {
	target := r.text(w, factTarget, c)
	if target == "" {
		target = r.text(w, factPath, c)
	}
	if target != "" && (!r.has(factTarget) || r.rank[factTarget] > 0) && indexByte(target, '?') < 0 {
		query := r.text(w, factQuery, c)
		if len(query) > 0 && query[0] == '?' {
			query = query[1:]
		}
		if query != "" {
			start := len(w.arena)
			w.arena = append(w.arena, target...)
			w.arena = append(w.arena, '?')
			w.arena = append(w.arena, query...)
			target = str(w.arena[start:])
		}
	}
	method := r.text(w, factMethod, c)
	alone := !r.has(factRequest) // an empty request line is not HTTP
	switch {
	case alone && !r.has(factMethod):
		e.Target = target
	case !isToken(method): // not HTTP
	case target != "" || alone && !r.has(factTarget) && !r.has(factPath):
		e.Method, e.Target = method, target
	}
}

// request returns which parts of the request line are logged.
func (r *record) request(e *Entry) (has Fields) {
	if r.has(factRequest) {
		return hasRequest
	}
	if r.has(factMethod) {
		has = HasMethod
	}
	if r.has(factTarget) || r.has(factPath) {
		has |= HasPath
	}
	switch {
	case r.has(factQuery), r.has(factTarget) && r.rank[factTarget] < vagueTarget:
		has |= HasQuery
	case r.has(factTarget):
		if i := indexByte(e.Target, '?'); i >= 0 && i+1 < len(e.Target) {
			has |= HasQuery
		}
	}
	return has
}

// vagueTarget is the first rank of names for targets that may lack their query. Such a log has
// queries if any of its lines has one.
const vagueTarget = 2

func isAbsent(b []byte) bool { return len(b) == 0 || string(b) == "-" || string(b) == "null" }

// inUnit reads a duration in a unit; unit 0 means jsonSeconds. Negative durations become 0.
func inUnit(b []byte, unit time.Duration) (time.Duration, bool) {
	if unit == 0 {
		return jsonSeconds(b)
	}
	if unit == time.Second {
		if d, ok := seconds(b); ok {
			return d, true
		}
		return secondsSum(b)
	}
	n, ok := number(b)
	if !ok || n > int64(time.Duration(1e18)/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
