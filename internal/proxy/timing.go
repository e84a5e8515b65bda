package proxy

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// timingHeader tells how long the parts of an answer took (W3C Server
	// Timing). It is a list, each entry a metric with parameters:
	//
	//	cpu;dur=12.5, db;dur=3;desc="two queries"
	timingHeader = "Server-Timing"

	// longestTold is what one answer tells of CPU time at most.
	longestTold = 24 * time.Hour
)

// timing returns what all entries of a metric tell together by their dur,
// which is in milliseconds. Entries without a good one tell nothing; told is
// false when none tells anything.
//
// What stands behind a name or a value and before the next mark is passed
// over, and so are parameters that come again (Server Timing §2).
func timing(lines []string, metric string) (d time.Duration, told bool) {
	for _, line := range lines {
		for more := true; more; {
			var entry string
			if entry, line, more = cut(line, ','); metricOf(entry) != metric {
				continue
			}
			if one, ok := duration(entry); ok {
				d, told = min(d+one, longestTold), true
			}
		}
	}
	return d, told
}

// withoutMetric takes the entries of a metric out of lines. nil means that
// nothing is left. Lines that have none stay as they are.
func withoutMetric(lines []string, metric string) []string {
	var left []string
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
			left = append(left, line)
		}
	}
	return left
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
	if ms >= float64(longestTold/time.Millisecond) {
		return longestTold, ok
	}
	return time.Duration(math.Round(ms * float64(time.Millisecond))), ok
}

// number reads a decimal number that is not negative, as programs print them:
// 12, 12.5, 1e-05. One that is too large for a float64 is infinite.
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

// cut cuts s around the first sep that stands in no quoted string. A string
// without an end goes to the end of s.
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

// unquote returns what a value begins with: a quoted string's text, or a
// token.
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
