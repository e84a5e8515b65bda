package accesslog

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds a sum of durations: 31 years.
const maxDuration = time.Duration(1e18)

// setUpstream reads the time of the upstream, as inUnit does. A value that means that no upstream
// was asked ("-", "-1") is 0; an invalid value is ignored. If the log has no time of the whole
// request, the upstream's time is used for it too.
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

// setTiming reads the CPU time from a Server-Timing: "cpu;dur=12.5, db;dur=3".
func (w *worker) setTiming(e *Entry, text string) {
	metric := w.metric
	if metric == "" {
		metric = "cpu"
	}
	if d, ok := timeOf(text, metric); ok {
		e.CPU = d
		e.Has |= HasCPU
	}
}

// maxCPU bounds the CPU time of one line, as in serve.
const maxCPU = 24 * time.Hour

// timeOf returns the sum of the dur values, in milliseconds, of a metric in a Server-Timing (W3C
// Server Timing §2). If an entry has several dur values, the first counts.
func timeOf(text, metric string) (sum time.Duration, ok bool) {
	for text != "" {
		var entry string
		entry, text = cutOutside(text, ',')
		name, params := cutOutside(entry, ';')
		if strings.Trim(name, " \t") != metric {
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
				sum, ok = min(sum+d, maxCPU), true
			}
			break
		}
	}
	return sum, ok
}

// cutOutside cuts s at the first sep outside quotes.
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

// milliseconds reads a non-negative decimal number as programs print it: 12, 12.5, 1e-05.
func milliseconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, false
	}
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !(ms >= 0) {
		return 0, false
	}
	return time.Duration(min(ms, float64(maxCPU/time.Millisecond)) * 1e6), true
}
