package httpguard

import "strings"

// A bodyKind is a form of an answer's body.
type bodyKind uint8

const (
	textBody bodyKind = iota
	htmlBody
	jsonBody
)

// preferred returns the form of the answer that a client prefers, from the values
// of its Accept header (RFC 9110 §12.5.1). A client that names no form gets a line
// of text.
func preferred(accept []string) bodyKind {
	if len(accept) == 0 || len(accept) == 1 && (accept[0] == "*/*" || accept[0] == "") {
		return textBody
	}
	// Browsers name HTML first and with full weight.
	if len(accept) == 1 && strings.HasPrefix(accept[0], "text/html,") {
		return htmlBody
	}
	// For each form the weight of the most specific range that includes it.
	var forms [3]struct{ q, specific int }
	note := func(kind bodyKind, q, specific int) {
		if f := &forms[kind]; specific > f.specific || specific == f.specific && q > f.q {
			f.q, f.specific = q, specific
		}
	}
	for _, line := range accept {
		for line != "" {
			var item string
			item, line, _ = strings.Cut(line, ",")
			name, q := mediaRange(item)
			switch {
			case equalFold(name, "text/html"), equalFold(name, "application/xhtml+xml"):
				note(htmlBody, q, 3)
			case equalFold(name, "application/problem+json"), equalFold(name, "application/json"):
				note(jsonBody, q, 3)
			case equalFold(name, "text/plain"):
				note(textBody, q, 3)
			case equalFold(name, "text/*"):
				note(htmlBody, q, 2)
				note(textBody, q, 2)
			case equalFold(name, "application/*"):
				note(jsonBody, q, 2)
			case name == "*/*":
				note(htmlBody, q, 1)
				note(jsonBody, q, 1)
				note(textBody, q, 1)
			}
		}
	}
	best := textBody
	for _, kind := range [...]bodyKind{htmlBody, jsonBody} {
		f, b := forms[kind], forms[best]
		if f.q > b.q || f.q == b.q && f.q > 0 && (f.specific > b.specific ||
			best == textBody && f.specific == 3 && b.specific == 3) {
			best = kind
		}
	}
	return best
}

// mediaRange splits one element of an Accept header. The weight is in thousandths;
// an invalid one is 0.
func mediaRange(item string) (name string, q int) {
	name, params, _ := strings.Cut(item, ";")
	q = 1000
	for params != "" {
		var param string
		param, params, _ = strings.Cut(params, ";")
		key, value, _ := strings.Cut(param, "=")
		if equalFold(strings.Trim(key, " \t"), "q") {
			q = weight(strings.Trim(value, " \t"))
		}
	}
	return strings.Trim(name, " \t"), q
}

// weight parses a qvalue such as "0.5", in thousandths; an invalid one is 0.
func weight(s string) int {
	if s == "" || len(s) > 5 || s[0] != '0' && s[0] != '1' || len(s) > 1 && s[1] != '.' {
		return 0
	}
	q := int(s[0]-'0') * 1000
	unit := 100
	for i := 2; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0
		}
		q += int(s[i]-'0') * unit
		unit /= 10
	}
	if q > 1000 {
		return 0
	}
	return q
}

// equalFold is strings.EqualFold for a lower-case ASCII text b.
func equalFold(a, b string) bool {
	return len(a) == len(b) && strings.EqualFold(a, b)
}
