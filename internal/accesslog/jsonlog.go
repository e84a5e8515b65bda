package accesslog

import (
	"bytes"
	"time"
)

// jsonStart returns the JSON object in a line. A log collector may have added a name before it
// ("caddy  | {…}").
func jsonStart(line []byte) (object, bool) {
	if line[0] != '{' {
		i := bytes.Index(line[:min(len(line), 200)], []byte(" {"))
		if i < 0 {
			return object{}, false
		}
		line = line[i+1:]
	}
	return object{rest: line}, true
}

// A caddyParser reads Caddy v2's JSON access log.
type caddyParser struct{}

func (caddyParser) parse(line []byte, e *Entry, w *worker) string {
	o, ok := jsonStart(line)
	if !ok {
		return reasonJSON
	}
	var r record
	var request []byte
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch string(key) {
		case "ts":
			r.put(factTime, 0, value)
		case "logger":
			if !bytes.HasPrefix(bare(value), []byte("http.log.access")) {
				return reasonMessage
			}
		case "request":
			request = value
		case "resp_headers":
			w.caddyTiming(value, e)
		case "status":
			r.put(factStatus, 0, value)
		case "size":
			r.put(factBytes, 0, value)
		case "fairshare_reference":
			r.put(factReference, 0, value)
		case "user_id": // Caddy before 2.8 cannot add fields to its log
			r.put(factReference, 1, value)
		case "duration":
			r.put(factDuration, 0, value)
			if n, whole := digits(value); whole && n >= 1e5 {
				r.unit = time.Nanosecond // duration_format nano
			}
		}
	}
	if !o.whole {
		return reasonJSON
	}
	if request == nil || !r.has(factStatus) {
		return reasonMessage
	}
	o = object{rest: request}
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch string(key) {
		case "client_ip":
			r.put(factClient, 0, value)
		case "remote_ip":
			r.put(factClient, 1, value)
		case "remote_addr":
			r.put(factClient, 2, value)
		case "method":
			r.put(factMethod, 0, value)
		case "host":
			r.put(factHost, 0, value)
		case "uri":
			r.put(factTarget, 0, value)
		case "headers":
			w.caddyHeaders(value, e)
		}
	}
	return r.fill(e, w, codedJSON)
}

// caddyHeaders reads the known headers. Caddy logs all request headers, but hides the values of
// cookies; older versions log an empty list.
func (w *worker) caddyHeaders(headers []byte, e *Entry) {
	if headers[0] != '{' {
		return
	}
	e.Has |= HasForwarded | HasReferer | HasUserAgent | HasCookie
	o := object{rest: headers}
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch {
		case isName(key, "user-agent"):
			e.UserAgent = w.joined(value, "")
		case isName(key, "referer"):
			e.Referer = w.joined(value, "")
		case isName(key, "x-forwarded-for"):
			e.Forwarded = w.joined(value, ", ")
		case isName(key, "cookie"):
			if e.Cookie = w.joined(value, "; "); e.Cookie == "" || e.Cookie == "REDACTED" {
				e.Cookie = loggedCookie
			}
		}
	}
}

// caddyTiming reads Server-Timing from the headers of the answer.
func (w *worker) caddyTiming(headers []byte, e *Entry) {
	o := object{rest: headers}
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		if isName(key, "server-timing") {
			w.setTiming(e, w.joined(value, ", "))
		}
	}
}

// loggedCookie stands for cookies whose names and values are not in the log.
const loggedCookie = "logged=1"

// joined returns a list of texts with sep between them, or only the first if sep is "". A text that
// is not a list is returned unchanged.
func (w *worker) joined(raw []byte, sep string) string {
	if raw[0] != '[' {
		return w.jsonText(raw)
	}
	value, rest, ok := element(raw)
	if !ok {
		return ""
	}
	first := w.jsonText(value)
	value, rest, ok = element(rest)
	if !ok || sep == "" {
		return first
	}
	texts := []string{first} // more than one is rare
	for ; ok; value, rest, ok = element(rest) {
		texts = append(texts, w.jsonText(value))
	}
	start := len(w.arena)
	for i, t := range texts {
		if i > 0 {
			w.arena = append(w.arena, sep...)
		}
		w.arena = append(w.arena, t...)
	}
	return str(w.arena[start:])
}

// isName reports whether key equals name in upper or lower case; name is in lower case.
func isName(key []byte, name string) bool {
	if len(key) != len(name) {
		return false
	}
	for i, c := range key {
		if c-'A' <= 'Z'-'A' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// A traefikParser reads Traefik's JSON access log.
type traefikParser struct{}

func (traefikParser) parse(line []byte, e *Entry, w *worker) string {
	o, ok := jsonStart(line)
	if !ok {
		return reasonJSON
	}
	r := record{unit: time.Nanosecond, upstreamUnit: time.Nanosecond}
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch string(key) {
		case "StartUTC":
			r.put(factTime, 0, value)
		case "StartLocal":
			r.put(factTime, 1, value)
		case "time":
			r.put(factTime, 2, value)
		case "ClientHost": // from X-Forwarded-For, if Traefik trusts it
			if isAddrList(bare(value)) && bytes.IndexByte(value, ',') > 0 {
				r.put(factForwarded, 0, value)
			} else {
				r.put(factClient, 0, value)
			}
		case "ClientAddr":
			r.put(factClient, 1, value)
		case "RequestMethod":
			r.put(factMethod, 0, value)
		case "RequestPath":
			r.put(factTarget, 0, value)
		case "RequestHost":
			r.put(factHost, 1, value)
		case "RequestAddr": // with the port
			r.put(factHost, 0, value)
		case "DownstreamStatus":
			r.put(factStatus, 0, value)
		case "DownstreamContentSize":
			r.put(factBytes, 0, value)
		case "Duration":
			r.put(factDuration, 0, value)
		case "OriginDuration":
			r.put(factUpstream, 0, value)
		case "origin_Server-Timing":
			r.put(factTiming, 0, value)
		case "downstream_Server-Timing":
			r.put(factTiming, 1, value)
		default:
			if name, isHeader := bytes.CutPrefix(key, []byte("request_")); isHeader {
				r.header(name, value)
			}
		}
	}
	switch {
	case !o.whole:
		return reasonJSON
	case !r.has(factClient) || !r.has(factStatus):
		return reasonMessage
	}
	return r.fill(e, w, codedJSON)
}

// header stores a request header if entries have a field for it.
func (r *record) header(name, value []byte) {
	switch {
	case isName(name, "user-agent"):
		r.put(factAgent, 0, value)
	case isName(name, "referer"):
		r.put(factReferer, 0, value)
	case isName(name, "cookie"):
		r.put(factCookie, 0, value)
	case isName(name, "x-forwarded-for"):
		r.put(factForwarded, 0, value)
	case isName(name, "fairshare-reference"):
		r.put(factReference, 0, value)
	}
}

// An azureParser reads the access log of Azure's Application Gateway.
type azureParser struct{}

func (azureParser) parse(line []byte, e *Entry, w *worker) string {
	o, ok := jsonStart(line)
	if !ok {
		return reasonJSON
	}
	r := record{unit: time.Second, upstreamUnit: time.Second}
	var properties []byte
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch string(key) {
		case "timeStamp":
			r.put(factTime, 0, value)
		case "time":
			r.put(factTime, 1, value)
		case "properties":
			properties = value
		}
	}
	if !o.whole {
		return reasonJSON
	}
	o = object{rest: properties}
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		switch string(key) {
		case "clientIP", "clientIp":
			r.put(factClient, 0, value)
		case "httpMethod":
			r.put(factMethod, 0, value)
		case "originalRequestUriWithArgs":
			r.put(factTarget, 0, value)
		case "requestUri":
			r.put(factPath, 0, value)
		case "requestQuery":
			r.put(factQuery, 0, value)
		case "httpStatus":
			r.put(factStatus, 0, value)
		case "sentBytes":
			r.put(factBytes, 0, value)
		case "userAgent":
			r.put(factAgent, 0, value)
		case "originalHost":
			r.put(factHost, 0, value)
		case "host":
			r.put(factHost, 1, value)
		case "timeTaken":
			r.put(factDuration, 0, value)
		case "serverResponseLatency":
			r.put(factUpstream, 0, value)
		}
	}
	if !r.has(factClient) || !r.has(factStatus) {
		return reasonMessage
	}
	return r.fill(e, w, codedJSON)
}

// A flatJSONParser reads objects whose members have the usual names of an nginx log_format with
// escape=json.
type flatJSONParser struct {
	names   map[string]namedFact
	cookies map[string]string // members with a single cookie, and the name of the cookie
}

// A namedFact is the fact of a name; if several names are present, the lowest rank wins.
type namedFact struct {
	fact fact
	rank uint8
}

func (p flatJSONParser) parse(line []byte, e *Entry, w *worker) string {
	o, ok := jsonStart(line)
	if !ok {
		return reasonJSON
	}
	var r record
	cookies := len(w.arena)
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		name := plainName(key, &w.name)
		if cookie, ok := p.cookies[string(name)]; ok {
			w.addCookie(cookies, cookie, bare(value))
			e.Has |= HasCookie
			continue
		}
		n, known := p.names[string(name)]
		if !known || len(value) == 0 || value[0] == '{' || value[0] == '[' {
			continue
		}
		unit := unitOf(name)
		if (n.fact == factDuration || n.fact == factUpstream) && n.rank > 0 && unit == 0 &&
			bytes.IndexByte(value, '.') < 0 {
			continue // a whole number with an unknown unit
		}
		if !r.put(n.fact, n.rank, value) {
			continue
		}
		switch n.fact {
		case factDuration:
			r.unit = unit
		case factUpstream:
			r.upstreamUnit = unit
		}
	}
	switch {
	case !o.whole:
		return reasonJSON
	case !r.has(factTime) || !r.has(factClient):
		return reasonMessage
	}
	e.Cookie = str(w.arena[cookies:])
	return r.fill(e, w, codedJSON)
}

// unitOf returns the unit that ends the name of a duration; 0 if there is none.
func unitOf(name []byte) time.Duration {
	switch {
	case bytes.HasSuffix(name, []byte("_ms")):
		return time.Millisecond
	case bytes.HasSuffix(name, []byte("_us")):
		return time.Microsecond
	}
	return 0
}

// maxName is the longest name of a member that is read.
const maxName = 40

// plainName returns a member's name in lower case, with "_" for "-", without "@" and "$". Long
// names are truncated.
func plainName(key []byte, buf *[maxName]byte) []byte {
	name := buf[:0]
	for i, c := range key[:min(len(key), maxName)] {
		switch {
		case i == 0 && (c == '@' || c == '$'):
		case c == '-':
			name = append(name, '_')
		case c-'A' <= 'Z'-'A':
			name = append(name, c|0x20)
		default:
			name = append(name, c)
		}
	}
	return name
}

var flatNames = ranked(map[fact][]string{
	factTime: {"msec", "time_iso8601", "timestamp", "time_local", "time", "ts", "datetime", "date_time", "date",
		"time_utc", "local_time", "request_timestamp"},
	factClient: {"remote_addr", "remote_ip", "client_ip", "client_addr", "clientip", "client", "remote_address",
		"client_address", "remote_host", "ip",
		"ip_address", "remote", "addr", "realip_remote_addr"},
	factForwarded: {"http_x_forwarded_for", "x_forwarded_for", "xff", "forwarded_for", "x_forwarded"},
	factRequest:   {"request", "request_line", "http_request"},
	factMethod:    {"request_method", "method", "verb", "http_method"},
	factTarget:    {"request_uri", "uri_with_args", "url", "uri", "request_url", "request_path", "target"},
	factPath:      {"path", "document_uri"},
	factQuery:     {"args", "query_string", "query"},
	factHost:      {"http_host", "host", "server_name", "vhost", "domain", "virtual_host"},
	factReferer:   {"http_referer", "http_referrer", "referer", "referrer"},
	factAgent:     {"http_user_agent", "user_agent", "useragent", "agent", "ua"},
	factCookie:    {"http_cookie", "cookie", "cookies"},
	factStatus:    {"status", "status_code", "response_status", "response_code", "http_status", "code", "response"},
	factBytes: {"body_bytes_sent", "bytes_sent", "bytes", "size", "body_bytes", "response_size", "length",
		"bytes_out"},
	factDuration: {"request_time", "duration", "response_time", "rt", "elapsed", "request_duration",
		"request_time_ms", "request_time_us"},
	factUpstream: {"upstream_response_time", "upstream_time", "upstream_duration", "urt",
		"upstream_response_time_ms", "upstream_response_time_us"},
	factCPU:    {"cpu_time"},
	factTiming: {"upstream_http_server_timing", "sent_http_server_timing", "server_timing"},

	factReference: {"fairshare_reference"},
})

func ranked(names map[fact][]string) map[string]namedFact {
	m := map[string]namedFact{}
	for f, list := range names {
		for i, name := range list {
			m[name] = namedFact{f, uint8(i)}
		}
	}
	return m
}
