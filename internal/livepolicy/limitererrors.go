package livepolicy

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"fairshare/internal/prose"
)

// errorsEvery is the least time between two reports of limiterErrors.
const errorsEvery = time.Minute

// limiterErrors counts errors of the limiter, the requests that could not be judged, and
// panics of what records requests. The zero value is ready. It is safe for concurrent use.
type limiterErrors struct {
	mu         sync.Mutex
	errors     int64
	panics     int64
	last       error
	passed     int64 // requests that passed without a verdict
	refused    int64 // requests that were answered 503 instead
	reportedAt time.Time
}

func (e *limiterErrors) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errors++
	e.last = err
}

// addPanic adds a panic of a [reports.Recorder].
func (e *limiterErrors) addPanic(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.panics++
	e.last = err
}

func (e *limiterErrors) addUnjudged(passed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if passed {
		e.passed++
	} else {
		e.refused++
	}
}

// report returns a line about what was added since the last report, and "" if
// that is nothing or the last report is less than a minute old.
func (e *limiterErrors) report(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.errors == 0 && e.panics == 0 && e.passed == 0 && e.refused == 0 ||
		!e.reportedAt.IsZero() && now.Sub(e.reportedAt) < errorsEvery {
		return ""
	}
	var parts []string
	if e.errors > 0 {
		parts = append(parts, fmt.Sprintf("the counters failed %s", prose.Times(e.errors)))
	}
	if e.panics > 0 {
		parts = append(parts, fmt.Sprintf("logs and statistics failed %s by a fault of this program: "+
			"some requests are missing there", prose.Times(e.panics)))
	}
	if e.passed > 0 {
		parts = append(parts, fmt.Sprintf("%d requests passed without being judged", e.passed))
	}
	if e.refused > 0 {
		parts = append(parts, fmt.Sprintf("%d requests were answered 503", e.refused))
	}
	line := "error: " + strings.Join(parts, "; ")
	if e.last != nil {
		line += fmt.Sprintf("; the last error: %v", e.last)
	}
	e.errors, e.panics, e.last, e.passed, e.refused, e.reportedAt = 0, 0, nil, 0, 0, now
	return line
}
