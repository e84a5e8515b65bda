package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/registry"
)

// maxReason bounds the texts that operators write, in bytes.
const maxReason = 500

// CheckText checks a text that an operator writes: its length, and that it can
// be printed.
func CheckText(what, text string) error {
	switch {
	case len(text) > maxReason:
		return fmt.Errorf("%s: %d bytes are more than %d", what, len(text), maxReason)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%s: it contains a control character or is not UTF-8", what)
	}
	return nil
}

// ago returns how long before the start of the command t was.
func (o *operation) ago(t time.Time) string { return prose.Ago(o.now, t) }

// untilText returns the end of a decision or ban, such as "permanently" or
// "until 2026-11-21 06:00:00 UTC (2h)".
func (o *operation) untilText(t time.Time) string {
	switch remaining := t.Sub(o.now); {
	case t.IsZero():
		return "permanently"
	case remaining <= 0:
		return "until " + prose.Moment(t) + " (over)"
	default:
		return fmt.Sprintf("until %s (%s)", prose.Moment(t), prose.ShortDuration(remaining))
	}
}

// inForce reports whether a decision or ban with that end is still in force.
func (o *operation) inForce(until time.Time) bool { return until.IsZero() || until.After(o.now) }

// overrideText returns an operator's decision, such as "banned permanently:
// scraper".
func (o *operation) overrideText(s *registry.OverrideRecord) string {
	text := "banned"
	if s.Action == fairshare.Allow {
		text = "allowed"
	}
	return text + " " + o.untilText(s.Until) + reasonText(s.Reason)
}

// reasonText returns the reason as the end of a line, "" for none.
func reasonText(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + prose.Printable(reason)
}

// banText returns a rule's ban, such as `by rule "rapid requests" until …, the
// 3rd time`.
func (o *operation) banText(b *fairshare.BanRecord) string {
	text := fmt.Sprintf("by rule %q %s", prose.Printable(b.Rule), o.untilText(b.Until))
	if b.Number > 1 {
		text += ", the " + prose.Ordinal(b.Number) + " time"
	}
	if b.DryRun {
		text += " (dry run: would have been)"
	}
	return text
}

// shellWord quotes a text for a shell if necessary.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// writeJSON writes one value on one line. Characters that control a terminal are
// written as escapes.
func writeJSON(w io.Writer, v any) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(prose.PrintableJSON(b.String()))
	return err
}

// endOf returns the end of a period that starts now. A period of 0 has no end:
// the zero time.
func endOf(period time.Duration, now time.Time) time.Time {
	if period == 0 {
		return time.Time{}
	}
	return now.Add(period)
}
