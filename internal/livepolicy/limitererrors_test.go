package livepolicy

import (
	"errors"
	"testing"
	"time"
)

var errNoCounters = errors.New("the counters are out of reach")

func TestLimiterErrorsAreReportedOnceAMinute(t *testing.T) {
	var e limiterErrors
	now := time.Unix(1_800_000_000, 0)
	var lines []string
	for range 600 { // ten minutes, a look each second
		e.add(errNoCounters)
		e.addUnjudged(true)
		e.addUnjudged(false)
		if line := e.report(now); line != "" {
			lines = append(lines, line)
		}
		now = now.Add(time.Second)
	}
	if len(lines) != 10 {
		t.Fatalf("%d lines in ten minutes, want 10: %q", len(lines), lines)
	}
	const want = "error: the counters failed 60 times; 60 requests passed without being judged; 60 requests were answered 503; the last error: the counters are out of reach"
	if lines[9] != want {
		t.Errorf("got %q, want %q", lines[9], want)
	}
	if now = now.Add(time.Minute); e.report(now) == "" {
		t.Error("the rest is not reported")
	}
	if line := e.report(now.Add(time.Hour)); line != "" {
		t.Errorf("without an error: %q", line)
	}
}

// The line says what failed.
func TestPanicsAreNotErrorsOfTheCounters(t *testing.T) {
	var e limiterErrors
	now := time.Unix(1_800_000_000, 0)
	e.addPanic(errors.New("panic while requests were recorded: index out of range"))
	const want = "error: logs and statistics failed once by a fault of this program: some requests are missing there; " +
		"the last error: panic while requests were recorded: index out of range"
	if got := e.report(now); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := e.report(now.Add(time.Hour)); got != "" {
		t.Errorf("then %q", got)
	}
}
