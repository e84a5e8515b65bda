package accesslog

import (
	"fmt"
	"strings"
	"time"
)

// A field describes a variable, besides its fact.
type field struct {
	unit   time.Duration // of a duration; 0 means seconds, or a list of them
	cookie string        // name of the one cookie it holds
}

// A token is a part of a format string: literal text or a variable.
type token struct {
	literal string // if not empty, it is text
	name    string // variable as written, for messages
	column  int    // from 1
	kind    tokenKind
	layout  string // of a strftime
	namedFact
	field
}

type tokenKind uint8

const (
	plainToken tokenKind = iota
	portToken            // belongs to the host before it
	isArgsToken
	stampToken // Apache's %t, brackets and all
	strfToken  // %{…}t
	fracToken  // %{msec_frac}t
	localToken // time with one space
)

// isFormatString reports whether s is a format string rather than a name.
func isFormatString(s string) bool { return strings.ContainsAny(s, "$%{") }

// compileFormat returns a parser for an nginx log_format or an Apache LogFormat.
func compileFormat(s string) (format, error) {
	fault := func(column int, msg, hint string) error {
		return &FormatError{Format: s, Column: column, Msg: msg, Hint: hint}
	}
	text, start, coding := unwrapFormat(s)
	if isNginx(text) && strings.HasPrefix(strings.TrimSpace(text), "{") {
		p, err := compileJSON(text)
		if err != nil {
			return format{}, fault(0, err.Error(), nginxHint)
		}
		return format{name: "custom", parser: p}, nil
	}
	var tokens []token
	var err error
	hint := nginxHint
	if isNginx(text) {
		tokens, err = nginxTokens(text)
	} else {
		tokens, err = apacheTokens(text)
		hint = apacheHint
	}
	if at, ok := err.(*placedError); ok {
		return format{}, fault(start+at.column, at.msg, hint)
	}
	p, at := assemble(tokens)
	if at != nil {
		column := at.column
		if column > 0 {
			column += start
		}
		return format{}, fault(column, at.msg, hint)
	}
	p.coding = coding
	return format{name: "custom", parser: p}, nil
}

const (
	nginxHint  = `an nginx log_format looks like: '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'`
	apacheHint = `an Apache LogFormat looks like: '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"'`
)

// A placedError is an error at a column of a format string, from 1; 0 means the whole string.
type placedError struct {
	column int
	msg    string
}

func (e *placedError) Error() string { return e.msg }

// unwrapFormat removes the configuration directive around the format: log_format NAME escape=… '…'
// '…'; or LogFormat "…" NAME. If the format is one piece, start is its index in s.
func unwrapFormat(s string) (text string, start int, c coding) {
	trimmed := strings.TrimSpace(s)
	start = strings.Index(s, trimmed)
	parts := strings.Fields(trimmed)
	if len(parts) < 2 || !strings.EqualFold(parts[0], "log_format") && !strings.EqualFold(parts[0], "LogFormat") {
		return trimmed, start, codedBackslash
	}
	nginx := strings.EqualFold(parts[0], "log_format")
	rest := strings.TrimSpace(trimmed[len(parts[0]):])
	if nginx {
		rest = strings.TrimSpace(rest[len(parts[1]):])
		if after, ok := strings.CutPrefix(rest, "escape="); ok {
			mode, body, _ := strings.Cut(after, " ")
			if mode == "none" {
				c = codedNot
			}
			rest = strings.TrimSpace(body)
		}
		rest = strings.TrimSpace(strings.TrimSuffix(rest, ";"))
	}
	start = max(strings.Index(s, rest), 0)
	var b strings.Builder
	pieces := 0
	for rest != "" && (rest[0] == '\'' || rest[0] == '"') {
		quote := rest[0]
		i := 1
		for ; i < len(rest) && rest[i] != quote; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				if nginx && rest[i+1] != quote && rest[i+1] != '\\' || !nginx {
					b.WriteByte('\\') // Apache's own escapes are read later
				}
				i++
			}
			b.WriteByte(rest[i])
		}
		pieces++
		rest = strings.TrimSpace(rest[min(i+1, len(rest)):])
		if !nginx {
			break // a nickname follows
		}
	}
	if pieces == 0 {
		return rest, start, c
	}
	return b.String(), start + 1, c
}

// isNginx reports whether s contains nginx variables.
func isNginx(s string) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '$' && (s[i+1] == '{' || s[i+1] == '_' || s[i+1]|0x20-'a' <= 'z'-'a') {
			return true
		}
	}
	return false
}

// assemble builds a parser from tokens.
func assemble(tokens []token) (*customParser, *placedError) {
	tokens = joinTokens(tokens)
	p := &customParser{}
	if err := p.addValues(tokens); err != nil {
		return nil, err
	}
	hasTime, hasClient := false, false
	for i, v := range p.values {
		hasTime = hasTime || v.asTime
		hasClient = hasClient || v.fact == factClient
		switch v.fact {
		case factClient, factRequest, factMethod, factTarget, factPath, factStatus, factBytes:
			p.needed = i + 1
		}
		if v.asTime {
			p.needed = i + 1
		}
	}
	switch {
	case !hasClient:
		return nil, &placedError{0, "it holds no client address: $remote_addr, %h or %a"}
	case !hasTime:
		return nil, &placedError{0, "it holds no time: $time_local, $time_iso8601, $msec or %t"}
	}
	return p, nil
}

// joinTokens merges tokens that belong together: host and port, path and query, adjacent literals.
func joinTokens(tokens []token) []token {
	var out []token
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		last := len(out) - 1
		switch {
		case t.kind == portToken && last >= 1 && out[last].literal == ":" && out[last-1].fact == factHost &&
			out[last-1].literal == "":
			out = out[:last]
			continue
		case t.kind == isArgsToken && last >= 0 && out[last].fact == factPath:
			continue
		case t.literal == "" && t.fact == factQuery && last >= 0 && out[last].literal == "" &&
			out[last].fact == factPath:
			out[last].fact = factTarget
			continue
		case t.literal != "" && last >= 0 && out[last].literal != "":
			out[last].literal += t.literal
			continue
		case t.kind == stampToken: // the brackets are literal text
			if last >= 0 && out[last].literal != "" {
				out[last].literal += "["
			} else {
				out = append(out, token{literal: "["})
			}
			t.kind = localToken
			out = append(out, t, token{literal: "]"})
			continue
		}
		out = append(out, t)
	}
	return out
}

// addValues converts tokens to values.
func (p *customParser) addValues(tokens []token) *placedError {
	before := "" // literal text before the next value
	for i, t := range tokens {
		if t.literal != "" {
			before = t.literal
			if len(p.values) == 0 {
				p.head = []byte(before)
			}
			continue
		}
		v := value{namedFact: t.namedFact, field: t.field, literal: t.name}
		after := ""
		if i+1 < len(tokens) {
			next := tokens[i+1]
			after = next.literal
			if after == "" {
				switch {
				case next.fact == factTarget || next.fact == factPath:
					v.split = '/'
				default:
					return &placedError{next.column, fmt.Sprintf("%s follows %s with no text between them", next.name,
						t.name)}
				}
			}
		}
		v.stop = []byte(after)
		v.quoted = strings.HasSuffix(before, `"`) && strings.HasPrefix(after, `"`)
		v.requestLine = t.fact == factRequest && !v.quoted
		v.list = strings.HasPrefix(after, " ") && (t.fact == factForwarded || t.fact == factUpstream)
		switch t.kind {
		case localToken:
			v.spaces = 1
		case strfToken:
			v.spaces = strings.Count(t.layout, " ")
		}
		if t.literal == "" && t.fact == factTime {
			v.fact, v.asTime = noFact, true
		}
		p.values = append(p.values, v)
		before = ""
	}
	if len(p.values) == 0 {
		return &placedError{0, "it contains no variable"}
	}
	return joinTimes(tokens, p.values)
}

// joinTimes finds the parts of Apache times that are split ("%{%F %T}t.%{msec_frac}t"), and checks
// that the whole time can be read.
func joinTimes(tokens []token, values []value) *placedError {
	n := 0
	parts := []int(nil) // indexes in values
	sample := ""
	column := 0
	flush := func() *placedError {
		if len(parts) == 0 {
			return nil
		}
		for _, i := range parts[:len(parts)-1] {
			values[i].joined, values[i].asTime = true, false
		}
		var c clock
		if _, reason := c.moment([]byte(sample)); reason != "" {
			return &placedError{column, fmt.Sprintf("a time like %q cannot be read", sample)}
		}
		parts, sample = nil, ""
		return nil
	}
	between := ""
	for _, t := range tokens {
		if t.literal != "" {
			between = t.literal
			continue
		}
		switch {
		case t.kind != strfToken && t.kind != fracToken:
			if err := flush(); err != nil {
				return err
			}
		case len(parts) > 0:
			sample += between + sampleTime(t)
			parts = append(parts, n)
		default:
			sample, column = sampleTime(t), t.column
			parts = append(parts, n)
		}
		between = ""
		n++
	}
	return flush()
}
