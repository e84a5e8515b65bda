package proxy

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// timingHeader reports how long the parts of an answer took (W3C Server Timing). It
	// is a list; each entry is a metric with parameters:
	//
	//	cpu;dur=12.5, db;dur=3;desc="two queries"
	timingHeader = "Server-Timing"

	// longestReported is the highest CPU time of one answer.
	longestReported = 24 * time.Hour
)

// timing returns the sum of dur, in milliseconds, of all entries of a metric. It
// ignores entries without a valid dur; reported is false if there is no other entry.
//
// It ignores text between a name or value and the next separator, and repeated
// parameters (Server Timing §2).
func timing(lines []string, metric string) (d time.Duration, reported bool) {
	for _, line := range lines {
		for more := true; more; {
			var entry string
			if entry, line, more = cut(line, ','); metricOf(entry) != metric {
				continue
			}
			if one, ok := duration(entry); ok {
				d, reported = min(d+one, longestReported), true
			}
		}
	}
	return d, reported
}

// withoutMetric returns lines without the entries of a metric, nil if no other entry
// remains. Lines without such entries stay unchanged.
func withoutMetric(lines []string, metric string) []string {
	var kept []string
	for _, line := range lines {
		var others []string
		own := false
		for rest, more := line, true; more; {
			var entry string
			if entry, rest, more = cut(rest, ','); metricOf(entry) == metric {
				own = true
			} else if entry = trim(entry); entry != "" {
				others = append(others, entry)
			}
		}
		if own {
			line = strings.Join(others, ", ")
		}
		if line != "" {
			kept = append(kept, line)
		}
	}
	return kept
}

// metricOf returns the name of an entry's metric.
func metricOf(entry string) string {
	name, _, _ := cut(entry, ';')
	return token(trim(name))
}

// duration returns the first dur of an entry.
func duration(entry string) (time.Duration, bool) {
	_, rest, more := cut(entry, ';')
	for more {
		var param string
		param, rest, more = cut(rest, ';')
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(trim(name), "dur") {
			return milliseconds(unquote(trim(value)))
		}
	}
	return 0, false
}

// milliseconds reads a time, to the nanosecond.
func milliseconds(text string) (time.Duration, bool) {
	ms, ok := number(text)
	if ms >= float64(longestReported/time.Millisecond) {
		return longestReported, ok
	}
	return time.Duration(math.Round(ms * float64(time.Millisecond))), ok
}

// number reads a decimal number that is not negative, such as 12, 12.5 or 1e-05. A
// number that is too large for a float64 is infinite.
func number(text string) (float64, bool) {
	for i := 0; i < len(text); i++ {
		if c := text[i]; (c < '0' || c > '9') && strings.IndexByte("+-.eE", c) < 0 {
			return 0, false // "inf", "nan", hexadecimal
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(f >= 0) {
		return 0, false
	}
	return f, true
}

// cut cuts s around the first sep outside of quoted strings. A quoted string without
// an end extends to the end of s.
func cut(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// unquote returns the beginning of a value: the text of a quoted string, or a token.
func unquote(value string) string {
	if value == "" || value[0] != '"' {
		return token(value)
	}
	text := make([]byte, 0, len(value))
	for i := 1; i < len(value) && value[i] != '"'; i++ {
		if value[i] == '\\' && i+1 < len(value) {
			i++
		}
		text = append(text, value[i])
	}
	return string(text)
}

// token returns the token that s begins with (RFC 9110 §5.6.2).
func token(s string) string {
	for i := 0; i < len(s); i++ {
		if !tokenByte(s[i]) {
			return s[:i]
		}
	}
	return s
}

func tokenByte(c byte) bool {
	return alphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func trim(s string) string { return strings.Trim(s, " \t") }

// ValidMetric reports whether a Server-Timing may have a metric of this name:
// a token.
func ValidMetric(name string) bool { return name != "" && token(name) == name }
