package accesslog

import (
	"bytes"
	"math"
	"time"
)

// Times from 1970 to 2261 can be read: the whole years that fit into an int64 of nanoseconds since
// the epoch.
const (
	minYear = 1970
	maxYear = 2261
	endUnix = 9_214_646_400 // start of 2262
)

// A clock reads times. It caches the last stamp of the common log format, because adjacent lines
// mostly have the same stamp, or the same day and zone.
type clock struct {
	zone     *time.Location // for times without a zone
	zoneless bool           // a time without a zone was read

	last    [26]byte // stamp, as "10/Oct/2000:13:55:36 -0700"
	lastSec int64    // its time
	midnite int64    // Unix time of last's day at 00:00:00 in its zone
	known   bool     // last is set
}

// stamp reads a time in the common log format. Reason is empty on success.
func (c *clock) stamp(b []byte) (sec int64, reason string) {
	if len(b) != 26 {
		return 0, reasonTime
	}
	if c.known {
		if string(b) == string(c.last[:]) {
			return c.lastSec, ""
		}
		if string(b[:12]) == string(c.last[:12]) && string(b[20:]) == string(c.last[20:]) {
			tod, ok := timeOfDay(b[12:20])
			if !ok {
				return 0, reasonTime
			}
			copy(c.last[12:20], b[12:20])
			c.lastSec = c.midnite + tod
			return c.lastSec, ""
		}
	}
	midnite, tod, reason := parseStamp(b)
	if reason != "" {
		return 0, reason
	}
	if midnite >= 0 && midnite+86400 < endUnix { // the whole day is in range
		copy(c.last[:], b)
		c.midnite, c.lastSec, c.known = midnite, midnite+tod, true
	}
	return midnite + tod, ""
}

// parseStamp reads "10/Oct/2000:13:55:36 -0700".
func parseStamp(b []byte) (midnite, tod int64, reason string) {
	if b[2] != '/' || b[6] != '/' || b[11] != ':' || b[20] != ' ' {
		return 0, 0, reasonTime
	}
	day, ok1 := digits(b[0:2])
	month := monthOf(b[3:6])
	year, ok2 := digits(b[7:11])
	tod, ok3 := timeOfDay(b[12:20])
	offset, ok4 := zoneOffset(b[21:])
	if !ok1 || !ok2 || !ok3 || !ok4 || month == 0 {
		return 0, 0, reasonTime
	}
	days, reason := daysOf(year, month, day)
	if reason != "" {
		return 0, 0, reason
	}
	midnite = days*86400 - offset
	if midnite+tod < 0 || midnite+tod >= endUnix {
		return 0, 0, reasonYear
	}
	return midnite, tod, ""
}

// moment reads a time in any usual format: Unix seconds (also milli-, micro- and nanoseconds,
// recognized by their size), ISO 8601 and similar formats, the common log format. A time without a
// zone is in c.zone.
func (c *clock) moment(b []byte) (time.Time, string) {
	b = bytes.TrimSpace(b)
	if len(b) >= 2 && b[0] == '[' && b[len(b)-1] == ']' {
		b = b[1 : len(b)-1]
	}
	switch {
	case len(b) < 8:
		return time.Time{}, reasonTime
	case len(b) == 26 && b[2] == '/':
		if sec, reason := c.stamp(b); reason != reasonTime {
			return time.Unix(sec, 0).UTC(), reason
		}
		return c.namedMonth(b) // it only has the same length
	case b[2] == '/':
		return c.namedMonth(b)
	case b[4] == '-' || b[4] == '/':
		return c.iso(b)
	}
	if sec, nsec, ok := unixTime(b); ok {
		return unix(sec, nsec)
	}
	return time.Time{}, reasonTime
}

func unix(sec, nsec int64) (time.Time, string) {
	if sec < 0 || sec >= endUnix {
		return time.Time{}, reasonYear
	}
	return time.Unix(sec, nsec).UTC(), ""
}

// namedMonth reads "06/Feb/2009:12:14:14.655", with or without fraction and
// zone.
func (c *clock) namedMonth(b []byte) (time.Time, string) {
	if len(b) < 20 || b[2] != '/' || b[6] != '/' || b[11] != ':' && b[11] != ' ' {
		return time.Time{}, reasonTime
	}
	day, ok1 := digits(b[0:2])
	year, ok2 := digits(b[7:11])
	month := monthOf(b[3:6])
	if !ok1 || !ok2 || month == 0 {
		return time.Time{}, reasonTime
	}
	return c.onDay(year, month, day, b[12:])
}

// iso reads "2006-01-02T15:04:05.999Z", "2006/01/02 15:04:05,999 +0100" and similar formats.
func (c *clock) iso(b []byte) (time.Time, string) {
	if len(b) < 19 || b[7] != b[4] || b[10] != 'T' && b[10] != ' ' && b[10] != 't' && b[10] != '_' {
		return time.Time{}, reasonTime
	}
	year, ok1 := digits(b[0:4])
	month, ok2 := digits(b[5:7])
	day, ok3 := digits(b[8:10])
	if !ok1 || !ok2 || !ok3 {
		return time.Time{}, reasonTime
	}
	return c.onDay(year, month, day, b[11:])
}

// onDay reads the time of day, fraction and zone after a date.
func (c *clock) onDay(year, month, day int64, b []byte) (time.Time, string) {
	if len(b) < 8 {
		return time.Time{}, reasonTime
	}
	tod, ok := timeOfDay(b[:8])
	if !ok {
		return time.Time{}, reasonTime
	}
	b = b[8:]
	nsec := int64(0)
	if len(b) > 1 && (b[0] == '.' || b[0] == ',') {
		n := 1
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		nsec = fraction(b[1:n])
		b = b[n:]
	}
	days, reason := daysOf(year, month, day)
	if reason != "" {
		return time.Time{}, reason
	}
	b = bytes.TrimLeft(b, " ")
	switch {
	case len(b) == 0:
		c.zoneless = true
		if c.zone != nil && c.zone != time.UTC {
			t := later(time.Date(int(year), time.Month(month), int(day), 0, 0, int(tod), 0, c.zone))
			return unix(t.Unix(), nsec)
		}
		return unix(days*86400+tod, nsec)
	case len(b) == 1 && (b[0] == 'Z' || b[0] == 'z'), string(b) == "UTC", string(b) == "GMT":
		return unix(days*86400+tod, nsec)
	}
	offset, ok := zoneOffset(b)
	if !ok {
		return time.Time{}, reasonTime
	}
	return unix(days*86400+tod-offset, nsec)
}

// later returns the second of two times that a clock shows twice, because it is set back between them. Then a live log
// is never late: its lines during the first count as the present.
func later(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if end.IsZero() {
		return t
	}
	_, before := t.Zone()
	_, after := end.Zone()
	if again := t.Add(time.Duration(before-after) * time.Second); !again.Before(end) {
		return again
	}
	return t
}

// unixTime reads a number of seconds with a fraction, or a whole number of
// milli-, micro- or nanoseconds.
func unixTime(b []byte) (sec, nsec int64, ok bool) {
	whole, frac := b, []byte(nil)
	if i := bytes.IndexByte(b, '.'); i >= 0 {
		whole, frac = b[:i], b[i+1:]
	}
	if len(whole) > 19 {
		return 0, 0, false
	}
	n, ok := digits(whole)
	if !ok || frac != nil && !allDigits(frac) {
		return 0, 0, false
	}
	unit := int64(1)
	switch {
	case n < 1e11:
		return n, fraction(frac), true
	case n < 1e14:
		unit = 1e3
	case n < 1e17:
		unit = 1e6
	default:
		unit = 1e9
	}
	return n / unit, n%unit*(1e9/unit) + fraction(frac)/unit, true
}

// fraction reads the digits after a decimal point as nanoseconds; digits after the ninth are
// dropped.
func fraction(b []byte) int64 {
	n := int64(0)
	for i := range 9 {
		n *= 10
		if i < len(b) {
			n += int64(b[i] - '0')
		}
	}
	return n
}

// timeOfDay reads "15:04:05" as seconds. Second 60, a leap second, is the
// first of the next minute.
func timeOfDay(b []byte) (int64, bool) {
	if len(b) != 8 || b[2] != ':' || b[5] != ':' {
		return 0, false
	}
	h1, h2, m1, m2, s1, s2 := b[0]-'0', b[1]-'0', b[3]-'0', b[4]-'0', b[6]-'0', b[7]-'0'
	if h1 > 2 || h2 > 9 || m1 > 5 || m2 > 9 || s1 > 6 || s2 > 9 {
		return 0, false
	}
	h, m, s := int64(h1)*10+int64(h2), int64(m1)*10+int64(m2), int64(s1)*10+int64(s2)
	if h > 23 || s > 60 {
		return 0, false
	}
	return h*3600 + m*60 + s, true
}

// zoneOffset reads "-0700", "-07:00" or "-07" as seconds east of UTC.
func zoneOffset(b []byte) (int64, bool) {
	if len(b) < 3 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, ok := digits(b[1:3])
	m := int64(0)
	switch {
	case !ok:
		return 0, false
	case len(b) == 3:
	case len(b) == 5:
		m, ok = digits(b[3:5])
	case len(b) == 6 && b[3] == ':':
		m, ok = digits(b[4:6])
	default:
		return 0, false
	}
	if !ok || h > 24 || m > 59 {
		return 0, false
	}
	offset := h*3600 + m*60
	if b[0] == '-' {
		offset = -offset
	}
	return offset, true
}

func monthOf(b []byte) int64 {
	if len(b) != 3 {
		return 0
	}
	switch uint32(b[0]|0x20)<<16 | uint32(b[1]|0x20)<<8 | uint32(b[2]|0x20) {
	case 'j'<<16 | 'a'<<8 | 'n':
		return 1
	case 'f'<<16 | 'e'<<8 | 'b':
		return 2
	case 'm'<<16 | 'a'<<8 | 'r':
		return 3
	case 'a'<<16 | 'p'<<8 | 'r':
		return 4
	case 'm'<<16 | 'a'<<8 | 'y':
		return 5
	case 'j'<<16 | 'u'<<8 | 'n':
		return 6
	case 'j'<<16 | 'u'<<8 | 'l':
		return 7
	case 'a'<<16 | 'u'<<8 | 'g':
		return 8
	case 's'<<16 | 'e'<<8 | 'p':
		return 9
	case 'o'<<16 | 'c'<<8 | 't':
		return 10
	case 'n'<<16 | 'o'<<8 | 'v':
		return 11
	case 'd'<<16 | 'e'<<8 | 'c':
		return 12
	}
	return 0
}

// daysOf returns the days from 1970-01-01 to a date.
func daysOf(year, month, day int64) (int64, string) {
	if month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, reasonTime
	}
	if year < minYear-1 || year > maxYear+1 { // the zone may move it into the range
		return 0, reasonYear
	}
	t := time.Date(int(year), time.Month(month), int(day), 0, 0, 0, 0, time.UTC)
	if t.Day() != int(day) {
		return 0, reasonTime
	}
	return t.Unix() / 86400, ""
}

// digits reads a number of 1 to 19 decimal digits; numbers beyond an int64 become the largest
// int64.
func digits(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range b {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return int64(min(n, math.MaxInt64)), true
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c-'0' > 9 {
			return false
		}
	}
	return true
}

// seconds reads "0.123" as a duration: at least one digit, and at most one point.
func seconds(b []byte) (time.Duration, bool) {
	whole, frac := b, []byte(nil)
	if i := bytes.IndexByte(b, '.'); i >= 0 {
		whole, frac = b[:i], b[i+1:]
	}
	n, ok := digits(whole)
	if !ok || n > 1e9 || !allDigits(frac) {
		return 0, false
	}
	return time.Duration(n)*time.Second + time.Duration(fraction(frac)), true
}
