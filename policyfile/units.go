package policyfile

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairshare/internal/prose"
)

// maxDuration is the longest duration in a policy: 100 years.
const maxDuration = 100 * 365 * 24 * time.Hour

// durationUnits are the units of durations. "ms" is before "m" and "s", so that the
// longest unit that matches is found first.
var durationUnits = []struct {
	name string
	unit time.Duration
}{{"ms", time.Millisecond}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// duration reads a duration from least to most. Any other value is a fault, and 0
// is returned.
func (r *reader) duration(n *node, what string, least, most time.Duration) time.Duration {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a duration is needed, such as 10s or 1h30m, not %s", what, n.describe())
		return 0
	}
	d, ok := parseDuration(n.text)
	if !ok {
		r.fault(n, durationHint(n.text, what, least, most), "%s: a duration is needed, such as 10s or 1h30m, not %s",
			what, n.describe())
		return 0
	}
	if d < least || d > most {
		r.fault(n, "", "%s: %s is not between %s and %s", what, shorten(n.text), FormatDuration(least),
			FormatDuration(most))
		return 0
	}
	return d
}

// parseDuration reads numbers with the units ms, s, m, h, d, joined, such as
// "1h30m". Numbers may have a fraction. Fractions of a nanosecond are cut off. For
// more than maxDuration it returns maxDuration + 1 ns.
func parseDuration(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	sum := new(big.Rat)
	for s != "" {
		i := 0
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
			i++
		}
		number := s[:i]
		if i == 0 || i > 18 || number[0] == '.' || number[i-1] == '.' {
			return 0, false
		}
		v, ok := new(big.Rat).SetString(number)
		if !ok {
			return 0, false
		}
		var unit time.Duration
		for _, u := range durationUnits {
			if rest, ok := strings.CutPrefix(s[i:], u.name); ok && (rest == "" || rest[0] >= '0' && rest[0] <= '9') {
				unit, s = u.unit, rest
				break
			}
		}
		if unit == 0 {
			return 0, false
		}
		if sum.Add(sum, v.Mul(v, big.NewRat(int64(unit), 1))); sum.Cmp(big.NewRat(int64(maxDuration), 1)) > 0 {
			return maxDuration + 1, true
		}
	}
	return time.Duration(new(big.Int).Quo(sum.Num(), sum.Denom()).Int64()), true
}

// ParseDuration reads a duration as policy files write it, such as "90s", "2h30m"
// or "7d", from "0s" to 100 years. The error is a [*DurationError].
func ParseDuration(s string) (time.Duration, error) {
	d, ok := parseDuration(s)
	if !ok || d > maxDuration {
		return 0, &DurationError{Text: s}
	}
	return d, nil
}

// A DurationError reports a text that is not a duration, or a duration that is too
// long.
type DurationError struct{ Text string }

func (e *DurationError) Error() string {
	if _, ok := parseDuration(e.Text); ok {
		return fmt.Sprintf("%s is longer than %s", printable(shorten(e.Text)), FormatDuration(maxDuration))
	}
	return "a duration is needed, such as 10s or 1h30m, not " + printable(quote(e.Text))
}

// Hint returns a fix; "" if there is none.
func (e *DurationError) Hint() string {
	if _, ok := parseDuration(e.Text); ok {
		return ""
	}
	if plainDigits(e.Text) {
		return fmt.Sprintf("a unit is needed: %ss, %sm, %sh or %sd", shorten(e.Text), shorten(e.Text),
			shorten(e.Text), shorten(e.Text))
	}
	if meant := guessDuration(e.Text); meant != "" {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	return durationUnitsHint
}

const durationUnitsHint = "units are ms, s, m, h and d, joined: 1h30m"

func durationHint(s, what string, least, most time.Duration) string {
	if plainDigits(s) {
		unit := "s"
		for _, u := range []string{"s", "ms", "m", "h"} { // the first that gives a valid value
			if d, ok := parseDuration(s + u); ok && d >= least && d <= most {
				unit = u
				break
			}
		}
		return fmt.Sprintf("%s needs a unit: %s: %s%s", what, what, shorten(s), unit)
	}
	if meant := guessDuration(s); meant != "" {
		return fmt.Sprintf("%s: %s", what, meant)
	}
	return durationUnitsHint
}

// guessDuration returns the duration that a text such as "5 minutes" probably means;
// "" if there is no guess.
func guessDuration(s string) string {
	guess := strings.NewReplacer("seconds", "s", "second", "s", "secs", "s", "sec", "s", "minutes", "m", "minute",
		"m", "mins", "m", "min", "m",
		"hours", "h", "hour", "h", "hrs", "h", "days", "d", "day", "d", " ", "").Replace(strings.ToLower(s))
	if unit := strings.Trim(guess, "0123456789."); unit == guess && guess != "" &&
		slices.ContainsFunc(durationUnits, func(u struct {
			name string
			unit time.Duration
		}) bool {
			return u.name == guess
		}) {
		guess = "1" + guess
	}
	if weeks, ok := strings.CutSuffix(strings.TrimRight(strings.ReplaceAll(strings.ToLower(s), " ", ""), "eks"),
		"w"); ok && plainDigits(weeks) && len(weeks) < 4 {
		n, _ := strconv.Atoi(weeks)
		guess = fmt.Sprintf("%dd", 7*n)
	}
	if _, ok := parseDuration(guess); !ok {
		return ""
	}
	return guess
}

// FormatDuration returns a duration as policy files write it: "1h30m".
// Fractions of a millisecond are rounded up.
func FormatDuration(d time.Duration) string { return prose.ExactDuration(d) }

var sizeUnits = []struct {
	name string
	unit int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// bytes reads a size from least to most. Any other value is a fault, and 0 is
// returned.
func (r *reader) bytes(n *node, what string, least, most int64) int64 {
	if n.kind != scalarNode {
		r.fault(n, "", "%s: a size is needed, such as 500MB or 1GiB, not %s", what, n.describe())
		return 0
	}
	v, ok := parseSize(n.text)
	if !ok {
		r.fault(n, sizeHint(n.text, what, most), "%s: a size is needed, such as 500MB or 1GiB, not %s", what,
			n.describe())
		return 0
	}
	if v < least || v > most {
		r.fault(n, "", "%s: %s is not between %s and %s", what, shorten(n.text), FormatSize(least), FormatSize(most))
		return 0
	}
	return v
}

// parseSize reads a number with a unit. Sizes above the largest int64 become the
// largest int64.
func parseSize(s string) (int64, bool) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		whole, fraction, dotted := strings.Cut(number, ".")
		if !plainDigits(whole) || dotted && !plainDigits(fraction) || dotted && u.unit == 1 {
			return 0, false
		}
		if n, err := strconv.ParseInt(whole, 10, 64); !dotted && err == nil && n <= math.MaxInt64/u.unit {
			return n * u.unit, true
		}
		v, err := strconv.ParseFloat(number, 64)
		if v *= float64(u.unit); err != nil || v >= math.MaxInt64 {
			return math.MaxInt64, true
		}
		return int64(v), true
	}
	return 0, false
}

func sizeHint(s, what string, most int64) string {
	if plainDigits(s) {
		unit := "B"
		switch {
		case len(s) < 6 && most >= 1<<30:
			unit = "MB"
		case len(s) < 4:
			unit = "KiB"
		}
		return fmt.Sprintf("%s needs a unit: %s: %s%s", what, what, shorten(s), unit)
	}
	if count, window, ok := strings.Cut(s, "/"); ok {
		return fmt.Sprintf("%s: %s, per: %s", what, strings.TrimSpace(count), windowText(window))
	}
	squeezed := strings.ReplaceAll(s, " ", "")
	for _, suffixes := range [][3]string{{"kB", "kb", "k"}, {"MB", "mb", "m"}, {"GB", "gb", "g"},
		{"KiB", "kib", "ki"}, {"MiB", "mib", "mi"}, {"GiB", "gib", "gi"}} {
		for _, suffix := range suffixes[1:] {
			if number, ok := strings.CutSuffix(strings.ToLower(squeezed), suffix); ok {
				if _, ok := parseSize(number + suffixes[0]); ok {
					return fmt.Sprintf("%s: %s", what, number+suffixes[0])
				}
			}
		}
	}
	return "units are B, kB, MB, GB, KiB, MiB and GiB"
}

// FormatSize returns a size as policy files write it: "64MiB".
func FormatSize(n int64) string {
	for _, u := range []struct {
		name string
		unit int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}} {
		if n >= u.unit && n%u.unit == 0 {
			return fmt.Sprintf("%d%s", n/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
