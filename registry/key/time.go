package key

import (
	"math"
	"time"
)

const maxSeconds = 9_223_372_036 // in the year 2262

// Nanoseconds returns a time in its stored form, as Unix ns. 0 is the zero time. A time
// out of range becomes the nearest one in range.
func Nanoseconds(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() < 0:
		return 1
	case t.Unix() >= maxSeconds:
		return maxSeconds * 1e9
	}
	return max(t.UnixNano(), 1)
}

// Time returns the time of a stored one, in UTC.
func Time(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// clockMargin bounds by how much Batch.At may be too early.
const clockMargin = 2 * time.Second

// Latest returns the At of a batch in its stored form, and the latest time if it is
// zero. What began later comes from a clock that was ahead.
func Latest(at time.Time) int64 {
	if at.IsZero() {
		return math.MaxInt64
	}
	return Nanoseconds(at.Add(clockMargin))
}
