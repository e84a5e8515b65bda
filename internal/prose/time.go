package prose

import (
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Moment writes a time to the second, in UTC: "2026-11-21 06:00:00 UTC".
func Moment(t time.Time) string { return t.UTC().Format(time.DateTime + " MST") }

// Duration writes a duration in words, rounded, in the largest unit of which
// there are at least two: "90 seconds", "10 minutes", "36 hours". One unit
// alone is named too ("1 hour"), and days under ten have their hours:
// "3 days 11 hours". Under a second it is "1 second", and nothing is "0 seconds".
func Duration(d time.Duration) string {
	if d >= 2*day-day/100 {
		hours := int64(math.Round(d.Hours()))
		switch {
		case hours > 10*24:
			return Plural((hours+12)/24, "day")
		case hours%24 > 0:
			return Plural(hours/24, "day") + " " + Plural(hours%24, "hour")
		}
		return Plural(hours/24, "day")
	}
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"day", day}, {"hour", time.Hour}, {"minute", time.Minute}} {
		n := int64(math.Round(float64(d) / float64(u.d)))
		if near := d - time.Duration(n)*u.d; n >= 2 && d >= 2*u.d-u.d/100 || n == 1 && near.Abs() < u.d/100 {
			return Plural(n, u.name)
		}
	}
	return Plural(int64(math.Ceil(max(d, 0).Seconds())), "second")
}

// Last writes a period that ends now: "the last 10 minutes", "the last hour".
func Last(d time.Duration) string { return "the last " + strings.TrimPrefix(Duration(d), "1 ") }

// ShortDuration writes a duration for a table, in its two largest units: "3d4h",
// "1h59m", "12s". It is rounded.
func ShortDuration(d time.Duration) string {
	switch {
	case d >= 2*day:
		d = d.Round(time.Hour)
	case d >= time.Hour:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Second)
	}
	return ExactDuration(d)
}

// Ago writes how long ago something happened, in one unit: "now", "12s ago",
// "3d ago". The zero time is "never".
func Ago(now, t time.Time) string {
	d, unit := now.Sub(t), time.Second
	switch {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	case d >= 2*day:
		unit = day
	case d >= time.Hour:
		unit = time.Hour
	case d >= time.Minute:
		unit = time.Minute
	}
	return ExactDuration(d.Truncate(unit)) + " ago"
}

// ExactDuration writes a duration as policy files spell it: "1h30m", "200ms".
// Fractions of a millisecond are rounded up. A day is 24h, because 36h reads
// better than 1d12h. Nothing, and what is negative, is "0s".
func ExactDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	d = (min(d, math.MaxInt64-time.Millisecond) + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	var b []byte
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if n := d / u.unit; n > 0 && (u.unit != day || n > 1) {
			b = append(strconv.AppendInt(b, int64(n), 10), u.name...)
			d -= n * u.unit
		}
	}
	return string(b)
}
