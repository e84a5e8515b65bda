package accesslog

import (
	"bytes"
	"strings"
	"time"
)

// maxDuration bounds what is added up: 31 years.
const maxDuration = time.Duration(1e18)

// setUpstream reads the time that the upstream took, as inUnit does. One that
// says that none was asked ("-", "-1") is 0; what cannot be read is not told.
// Where nothing tells the time of the whole request, it stands for that too.
func (e *Entry) setUpstream(b []byte, unit time.Duration) {
	d, ok := inUnit(b, unit)
	if !ok && !isAbsent(b) && !isMinusOne(b) && len(bytes.Trim(b, "-,: ")) > 0 {
		return
	}
	e.Upstream = d
	if e.Has |= HasUpstream; e.Has&HasDuration == 0 {
		e.Duration = d
		e.Has |= HasDuration
	}
}

func isMinusOne(b []byte) bool { return len(b) > 1 && string(b[:2]) == "-1" }

// setTiming reads the CPU time off a Server-Timing: "cpu;dur=12.5, db;dur=3".
func (e *Entry) setTiming(text string) {
	if d, ok := cpuOf(text); ok {
		e.CPU = d
		e.Has |= HasCPU
	}
}

// cpuOf returns dur, in milliseconds, of the metrics called cpu in a
// Server-Timing (W3C Server Timing §3), added up.
func cpuOf(text string) (sum time.Duration, ok bool) {
	for text != "" {
		var metric string
		metric, text = cutOutside(text, ',')
		name, params := cutOutside(metric, ';')
		if !strings.EqualFold(strings.Trim(name, " \t"), "cpu") {
			continue
		}
		for params != "" {
			var param string
			param, params = cutOutside(params, ';')
			name, value, _ := strings.Cut(param, "=")
			if !strings.EqualFold(strings.Trim(name, " \t"), "dur") {
				continue
			}
			if d, read := milliseconds(strings.Trim(strings.Trim(value, " \t"), `"`)); read {
				sum, ok = min(sum+d, maxDuration), true
			}
			break // the first of a name counts
		}
	}
	return sum, ok
}

// cutOutside cuts s at the first sep that stands in no quotes.
func cutOutside(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// milliseconds reads "12.5".
func milliseconds(s string) (time.Duration, bool) {
	d, ok := seconds([]byte(s))
	return d / 1000, ok
}
