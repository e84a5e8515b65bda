package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"fairshare"
	"fairshare/policyfile"
)

// A period is a duration on the command line, spelt as in a policy.
type period time.Duration

// UnmarshalText is asked by kong.
func (p *period) UnmarshalText(text []byte) error {
	if n := string(text); n != "" && strings.Trim(n, "0") == "" {
		return fmt.Errorf("%s is not between 1s and 100 years; without --for it has no end", n)
	}
	d, err := policyfile.ParseDuration(string(text))
	if err != nil {
		if told, ok := err.(interface{ Hint() string }); ok && told.Hint() != "" {
			err = fmt.Errorf("%w: %s", err, told.Hint())
		}
		return err
	}
	if d < time.Second {
		return fmt.Errorf("%s is not between 1s and 100 years", policyfile.FormatDuration(d))
	}
	*p = period(d)
	return nil
}

// until returns when a period that begins now ends: the zero time for none.
func (p period) until(now time.Time) time.Time {
	if p == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(p))
}

// maxReason is the longest text of an operator, in bytes.
const maxReason = 500

// ownText checks a text of an operator's.
func ownText(what, text string) error {
	switch {
	case len(text) > maxReason:
		return fmt.Errorf("%s: %d bytes are more than %d", what, len(text), maxReason)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%s: it holds a control character, or is no UTF-8", what)
	}
	return nil
}

// printable makes a client's text harmless for a terminal: control, direction
// and other invisible characters are written as escapes.
func printable(s string) string {
	quoted := strconv.QuoteToGraphic(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// cut shortens a text to so many characters; 0: it is not cut.
func cut(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// count writes a number with commas: 12,345.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// counted writes a number and what it counts: "1 story", "2 stories".
func counted[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(int64(n)) + " " + more
}

// amount writes an amount of a resource in its unit: "1.05 s of CPU", "3 requests".
func amount(resource string, n int64) string {
	switch resource {
	case "cpu":
		return inSeconds(n) + " of CPU"
	case "time":
		return inSeconds(n) + " of the site's time"
	case "bytes":
		return size(n)
	case "cost":
		return counted(n, "unit of cost", "units of cost")
	case "concurrent":
		return counted(n, "request", "requests") + " in progress"
	}
	return counted(n, strings.TrimSuffix(resource, "s"), resource)
}

// inSeconds writes so many microseconds in seconds, to the millisecond unless
// there are few.
func inSeconds(micros int64) string {
	decimals := 3
	if micros < 10_000 {
		decimals = 6
	}
	text := strconv.FormatFloat(float64(micros)/1e6, 'f', decimals, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " s"
}

// allowance writes what a limit allows: "1.05 s of CPU in 15s, by addr".
func allowance(l *fairshare.Limit) string {
	resource := l.Resource.String()
	text := amount(resource, l.N)
	if l.Window > 0 {
		text += " in " + policyfile.FormatDuration(l.Window)
	}
	if l.Allowed() != l.N {
		text += ", " + amount(resource, l.Allowed()) + " at once"
	}
	return text + ", by " + keyWords(l.By)
}

// times writes how often.
func times(n int64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return count(n) + " times"
}

// ordinal writes a place: "1st", "22nd".
func ordinal(n int) string {
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

// moment writes a time whole.
func moment(t time.Time) string { return t.UTC().Format(time.DateTime + " MST") }

// span writes how long, in its two largest units: "3d4h", "1h59m", "12s".
func span(d time.Duration) string {
	for _, u := range []struct{ from, to time.Duration }{{48 * time.Hour, time.Hour}, {time.Hour, time.Minute}, {0, time.Second}} {
		if d >= u.from {
			d = d.Round(u.to)
			break
		}
	}
	return policyfile.FormatDuration(d)
}

// ago writes how long since, in one unit.
func (o *operator) ago(t time.Time) string {
	d, unit := o.now.Sub(t), time.Second
	switch {
	case t.IsZero():
		return "never"
	case d < time.Second:
		return "now"
	case d >= 48*time.Hour:
		unit = 24 * time.Hour
	case d >= time.Hour:
		unit = time.Hour
	case d >= time.Minute:
		unit = time.Minute
	}
	return policyfile.FormatDuration(d.Truncate(unit)) + " ago"
}

// until writes when something ends: "for ever", "until 2026-11-21 06:00:00 UTC (2h)".
func (o *operator) until(t time.Time) string {
	switch left := t.Sub(o.now); {
	case t.IsZero():
		return "for ever"
	case left <= 0:
		return "until " + moment(t) + " (over)"
	default:
		return fmt.Sprintf("until %s (%s)", moment(t), span(left))
	}
}

// holds reports whether a word or a ban that ends then still holds.
func (o *operator) holds(until time.Time) bool { return until.IsZero() || until.After(o.now) }

// word tells what an operator has said: "banned for ever: scraper".
func (o *operator) word(s *fairshare.Said) string {
	text := "banned"
	if s.Action == fairshare.Allow {
		text = "allowed"
	}
	return text + " " + o.until(s.Until) + because(s.Reason)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + printable(reason)
}

// ban tells of a rule's ban: `by rule "rapid requests" until …, the 3rd time`.
func (o *operator) ban(b *fairshare.Banned) string {
	text := fmt.Sprintf("by rule %q %s", printable(b.Rule), o.until(b.Until))
	if b.Number > 1 {
		text += ", the " + ordinal(b.Number) + " time"
	}
	if b.DryRun {
		text += " (dry run: would have been)"
	}
	return text
}

// shellWord quotes a text for a shell where that needs it.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// writeJSON writes one value on one line. Characters that steer a terminal are
// written as escapes.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	var line []byte
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		switch {
		case r < 0x7F || unicode.IsGraphic(r):
			line = utf8.AppendRune(line, r)
		case r > 0xFFFF: // a surrogate pair
			r -= 0x10000
			line = fmt.Appendf(line, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
	}
	_, err := w.Write(append(line, '\n'))
	return err
}
