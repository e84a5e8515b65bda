// Package prose writes numbers, durations, lists and texts of clients as people
// read them. All commands, reports and logs use it, so that the same fact reads
// the same everywhere. It needs the standard library only.
//
// What a policy file or a program parses is not written here, except
// [ExactDuration], which policy files and messages share.
package prose

import (
	"strconv"
	"strings"
	"time"
)

// An Integer is what can be counted.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64
}

// Number writes a number with commas: "12,345".
func Number[N Integer](n N) string {
	digits, sign := "", ""
	if n < 0 {
		digits, sign = strconv.FormatInt(int64(n), 10)[1:], "-"
	} else {
		digits = strconv.FormatUint(uint64(n), 10)
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Plural writes a number and what is counted, which gets an s unless there is
// exactly one: "1 line", "2,000 lines".
func Plural[N Integer](n N, one string) string { return Counted(n, one, one+"s") }

// Counted is Plural for a noun with a plural of its own: "1 reply", "2 replies".
func Counted[N Integer](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + more
}

// Times writes how often: "once", "twice", "1,200 times".
func Times[N Integer](n N) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return Number(n) + " times"
}

// Ordinal writes a position: "1st", "22nd", "113th".
func Ordinal(n int) string {
	end := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return strconv.Itoa(n) + end
}

// Estimate writes an estimated number with at most three digits that are not
// zero: "about 12,300".
func Estimate[N Integer](n N) string {
	unit := N(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return "about " + Number((n+unit/2)/unit*unit)
}

// Percent writes n of all: "0 %", "<0.1 %", "3.2 %", "47 %", "99.6 %", "100 %".
// Only nothing is 0 %, and only all is 100 %. Nothing of nothing is "–".
func Percent[N Integer](n, all N) string {
	if all == 0 {
		return "–"
	}
	return Share(float64(n) / float64(all))
}

// Share is Percent for a part of 1.
func Share(part float64) string {
	switch p := part * 100; {
	case p <= 0:
		return "0 %"
	case p < 0.1:
		return "<0.1 %"
	case p > 99.9 && p < 100:
		return ">99.9 %"
	case p < 9.95 || p > 99 && p < 100:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

// Size writes a number of bytes in powers of 1,000: "512 B", "12.3 MB".
func Size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/1000, 0
	const units = "kMGTPE"
	for value >= 999.95 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit:unit+1] + "B"
}

// Seconds writes a duration in seconds, to the millisecond; under 10 ms to the
// microsecond: "1.05 s".
func Seconds(d time.Duration) string {
	decimals := 3
	if d.Abs() < 10*time.Millisecond {
		decimals = 6
	}
	text := strconv.FormatFloat(d.Seconds(), 'f', decimals, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " s"
}
