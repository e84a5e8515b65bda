package prose

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a client's text harmless for a terminal and visible for
// people: control, direction, combining and invisible characters are written as
// escapes ("\x1b", "\n", "\u202e"), and so are bytes that are not UTF-8. A
// backslash stays as it is.
func Printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7F }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case isVisible(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// PrintableLines is Printable for a text of several lines, which stay lines.
func PrintableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// PrintableJSON writes the characters of a JSON text that control a terminal as escapes. Its value stays the same.
func PrintableJSON(text string) []byte {
	var b []byte
	for _, r := range text {
		switch {
		case r < 0x7F || unicode.IsGraphic(r):
			b = utf8.AppendRune(b, r)
		case r > 0xFFFF: // a surrogate pair
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

func isVisible(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) &&
		!unicode.Is(unicode.Mn, r)
}

// Cut shortens a printable text to so many characters. The last is then "…".
func Cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

// CutFront shortens a printable text to its last characters. The first is then
// "…".
func CutFront(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return "…" + string(runes[len(runes)-max(width-1, 0):])
}

// Wrap breaks a text into lines of at most so many characters. A longer word
// has a line of its own.
func Wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// List joins items with commas and a last word: "a, b and c", "a or b".
func List(items []string, last string) string {
	if n := len(items); n > 1 {
		return strings.Join(items[:n-1], ", ") + " " + last + " " + items[n-1]
	}
	return strings.Join(items, "")
}
