package accesslog

import (
	"fmt"
	"strings"
	"time"
)

// nginxTokens splits an nginx log_format into tokens. Unknown variables are skipped.
func nginxTokens(s string) ([]token, error) {
	var tokens []token
	for i := 0; i < len(s); {
		dollar := strings.IndexByte(s[i:], '$')
		if dollar < 0 {
			return append(tokens, token{literal: s[i:]}), nil
		}
		if dollar > 0 {
			tokens = append(tokens, token{literal: s[i : i+dollar]})
			i += dollar
		}
		name, n := nginxName(s[i:])
		if n == 0 {
			return nil, &placedError{i + 1, "no variable name after $"}
		}
		t := nginxVariable(name)
		t.name, t.column = s[i:i+n], i+1
		tokens = append(tokens, t)
		i += n
	}
	return tokens, nil
}

// nginxName reads "$name" or "${name}"; n is its length, 0 if it is none.
func nginxName(s string) (name string, n int) {
	if strings.HasPrefix(s, "${") {
		end := strings.IndexByte(s, '}')
		if end < 3 {
			return "", 0
		}
		return s[2:end], end + 1
	}
	n = 1
	for n < len(s) && (s[n] == '_' || s[n]-'0' <= 9 || s[n]|0x20-'a' <= 'z'-'a') {
		n++
	}
	if n == 1 {
		return "", 0
	}
	return s[1:n], n
}

func nginxVariable(name string) token {
	if cookie, ok := strings.CutPrefix(name, "cookie_"); ok {
		return token{namedFact: namedFact{fact: noFact}, field: field{cookie: cookie}}
	}
	switch name {
	case "server_port":
		return token{kind: portToken, namedFact: namedFact{fact: noFact}}
	case "is_args":
		return token{kind: isArgsToken, namedFact: namedFact{fact: noFact}}
	case "time_local":
		return token{kind: localToken, namedFact: nginxNames[name]}
	}
	if f, ok := nginxNames[name]; ok {
		return token{namedFact: f}
	}
	return token{namedFact: namedFact{fact: noFact}}
}

var nginxNames = ranked(map[fact][]string{
	factTime:   {"msec", "time_iso8601", "time_local"},
	factClient: {"remote_addr", "realip_remote_addr", "proxy_protocol_addr"},
	factForwarded: {"http_x_forwarded_for", "proxy_add_x_forwarded_for", "http_forwarded", "http_x_real_ip",
		"http_cf_connecting_ip", "http_true_client_ip"},
	factRequest:  {"request"},
	factMethod:   {"request_method"},
	factTarget:   {"request_uri"},
	factPath:     {"uri", "document_uri"},
	factQuery:    {"args", "query_string"},
	factHost:     {"http_host", "host", "server_name"},
	factReferer:  {"http_referer"},
	factAgent:    {"http_user_agent"},
	factCookie:   {"http_cookie"},
	factStatus:   {"status"},
	factBytes:    {"body_bytes_sent", "bytes_sent"},
	factDuration: {"request_time"},
	factUpstream: {"upstream_response_time"},
	factTiming:   {"upstream_http_server_timing", "sent_http_server_timing"},

	factReference: {"fairshare_reference"},
})

// compileJSON returns a parser for a log_format that is a JSON object. Members with more than one
// variable are skipped.
func compileJSON(s string) (flatJSONParser, error) {
	p := flatJSONParser{names: map[string]namedFact{}, cookies: map[string]string{}}
	o := object{rest: []byte(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }),
		" "))}
	hasTime, hasClient := false, false
	for key, value, ok := o.next(); ok; key, value, ok = o.next() {
		text := string(bare(value))
		name, n := nginxName(text)
		if n == 0 || n != len(text) {
			continue
		}
		t := nginxVariable(name)
		var buf [maxName]byte
		switch member := string(plainName(key, &buf)); {
		case t.cookie != "":
			p.cookies[member] = t.cookie
		case t.fact != noFact:
			p.names[member] = t.namedFact
			hasTime = hasTime || t.fact == factTime
			hasClient = hasClient || t.fact == factClient
		}
	}
	switch {
	case !o.whole:
		return p, fmt.Errorf("it begins like a JSON object but is not one")
	case !hasClient:
		return p, fmt.Errorf("it holds no client address: $remote_addr")
	case !hasTime:
		return p, fmt.Errorf("it holds no time: $time_local, $time_iso8601 or $msec")
	}
	return p, nil
}

// apacheTokens splits an Apache LogFormat into tokens (mod_log_config).
func apacheTokens(s string) ([]token, error) {
	var tokens []token
	literal := func(text string) {
		if n := len(tokens); n > 0 && tokens[n-1].literal != "" {
			tokens[n-1].literal += text
			return
		}
		tokens = append(tokens, token{literal: text})
	}
	for i := 0; i < len(s); {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			switch s[i+1] {
			case 't':
				literal("\t")
			case 'n':
				return nil, &placedError{i + 1, "a line break inside a line"}
			default:
				literal(s[i+1 : i+2])
			}
			i += 2
		case s[i] != '%':
			literal(s[i : i+1])
			i++
		case strings.HasPrefix(s[i:], "%%"):
			literal("%")
			i += 2
		default:
			t, n, msg := apacheDirective(s[i:])
			if msg != "" {
				return nil, &placedError{i + 1, msg}
			}
			t.name, t.column = s[i:i+n], i+1
			tokens = append(tokens, t)
			i += n
		}
	}
	return tokens, nil
}

// apacheDirective reads one directive: % modifiers {argument} letter.
func apacheDirective(s string) (t token, n int, msg string) {
	n = 1
	for n < len(s) && strings.IndexByte("<>!,0123456789", s[n]) >= 0 {
		n++
	}
	arg := ""
	if n < len(s) && s[n] == '{' {
		end := strings.IndexByte(s[n:], '}')
		if end < 0 {
			return t, 0, "no } after {"
		}
		arg = s[n+1 : n+end]
		n += end + 1
	}
	if n >= len(s) {
		return t, 0, "no directive after %"
	}
	if strings.HasPrefix(s[n:], "^t") && len(s) >= n+3 { // %^ti, %^to: trailers
		return token{namedFact: namedFact{fact: noFact}}, n + 3, ""
	}
	letter := s[n]
	n++
	none := token{namedFact: namedFact{fact: noFact}}
	of := func(f fact, rank uint8) token { return token{namedFact: namedFact{f, rank}} }
	switch letter {
	case 'a':
		if arg == "c" {
			return of(factClient, 2), n, ""
		}
		return of(factClient, 0), n, ""
	case 'h':
		return of(factClient, 1), n, ""
	case 't':
		return apacheTime(arg), n, ""
	case 'r':
		return of(factRequest, 0), n, ""
	case 'm':
		return of(factMethod, 0), n, ""
	case 'U':
		return of(factPath, 0), n, ""
	case 'q':
		return of(factQuery, 0), n, ""
	case 's':
		return of(factStatus, 0), n, ""
	case 'b', 'B':
		return of(factBytes, 0), n, ""
	case 'O':
		return of(factBytes, 1), n, ""
	case 'D':
		t = of(factDuration, 0)
		t.unit = time.Microsecond
		return t, n, ""
	case 'T':
		t = of(factDuration, 1)
		switch arg {
		case "", "s":
			t.unit = time.Second
		case "ms":
			t.unit, t.rank = time.Millisecond, 0
		case "us":
			t.unit, t.rank = time.Microsecond, 0
		default:
			return t, 0, fmt.Sprintf("%%T knows s, ms and us, not %q", arg)
		}
		return t, n, ""
	case 'V':
		return of(factHost, 1), n, ""
	case 'v':
		return of(factHost, 2), n, ""
	case 'p':
		none.kind = portToken
		return none, n, ""
	case 'i':
		return apacheHeader(arg), n, ""
	case 'o':
		if strings.EqualFold(arg, "server-timing") {
			return of(factTiming, 0), n, ""
		}
		return none, n, ""
	case 'C':
		none.cookie = arg
		return none, n, ""
	}
	if strings.IndexByte("AefHIklLnPRSuXx", letter) >= 0 {
		return none, n, ""
	}
	return t, 0, fmt.Sprintf("no such directive: %%%c", letter)
}

func apacheHeader(name string) token {
	f := namedFact{fact: noFact}
	switch strings.ToLower(name) {
	case "user-agent":
		f = namedFact{factAgent, 0}
	case "referer":
		f = namedFact{factReferer, 0}
	case "cookie":
		f = namedFact{factCookie, 0}
	case "host":
		f = namedFact{factHost, 0}
	case "x-forwarded-for":
		f = namedFact{factForwarded, 0}
	case "forwarded":
		f = namedFact{factForwarded, 2}
	case "x-real-ip", "cf-connecting-ip", "true-client-ip":
		f = namedFact{factForwarded, 3}
	}
	return token{namedFact: f}
}

// apacheTime returns the token of %{form}t.
func apacheTime(form string) token {
	form = strings.TrimPrefix(strings.TrimPrefix(form, "begin:"), "end:")
	t := token{namedFact: namedFact{factTime, 1}}
	switch form {
	case "":
		t.kind = stampToken
	case "sec", "msec", "usec":
		t.rank = 0
	case "msec_frac", "usec_frac":
		t.kind, t.layout = fracToken, form
	default:
		t.kind, t.layout = strfToken, form
	}
	return t
}

// sampleTime returns a sample of a time token's output.
func sampleTime(t token) string {
	if t.kind == fracToken {
		return map[string]string{"msec_frac": "123", "usec_frac": "123456"}[t.layout]
	}
	var b strings.Builder
	for i := 0; i < len(t.layout); i++ {
		if t.layout[i] != '%' || i+1 == len(t.layout) {
			b.WriteByte(t.layout[i])
			continue
		}
		i++
		if s, ok := strftime[t.layout[i]]; ok {
			b.WriteString(s)
		} else {
			b.WriteByte('?')
		}
	}
	return b.String()
}

// strftime has the output of each conversion for one moment.
var strftime = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'b': "Jan", 'h': "Jan", 'T': "15:04:05",
	'F': "2006-01-02",
	'R': "15:04", 'z': "+0100", 's': "1136214245", '%': "%", 'e': " 2", 'y': "06", 'j': "002", 'a': "Mon",
	'A': "Monday", 'B': "January", 'Z': "UTC",
}
