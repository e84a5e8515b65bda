package replay

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// stamp is how the report for people writes times, all of them UTC.
const stamp = "2006-01-02 15:04:05"

// count writes a number with commas: 12,345.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimPrefix(s, "-")
	var b strings.Builder
	b.WriteString(s[:len(s)-len(digits)])
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// plural writes a number and what is counted: "1 line", "2 lines".
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + one + "s"
}

// times writes how often: "once", "3 times".
func times(n int64) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return count(n) + " times"
}

// percent writes a share of 1; what is not nothing is never 0 %, what is not
// all never 100 %.
func percent(share float64) string {
	switch p := share * 100; {
	case p > 0 && p < 0.1:
		return "<0.1 %"
	case p < 9.95:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	case p < 100 && p > 99:
		return strconv.FormatFloat(min(p, 99.9), 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

func shareOf(n, all int64) string {
	if all == 0 {
		return "–"
	}
	return percent(float64(n) / float64(all))
}

// roughly writes a time span with its two largest units: "3 d 11 h".
func roughly(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	units := []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	var parts []string
	for _, u := range units {
		n := d / u.d
		d -= n * u.d
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return strings.Join(parts, " ")
}

func zoneName(zone *time.Location) string {
	if zone == nil {
		return "UTC"
	}
	return zone.String()
}

// printable makes a text from a log harmless for a terminal: control, escape,
// direction and other invisible characters are written as escapes.
func printable(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7F }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Mn, r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// cut shortens a printable text to so many characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(width-1, 0)]) + "…"
}

// cutFront shortens a printable text, keeping its end.
func cutFront(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return "…" + string(runes[len(runes)-max(width-1, 0):])
}

// wrap breaks a text into lines of at most so many characters.
func wrap(text string, width int) []string {
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

// gist returns what tells one user agent from others, if the whole does not
// fit: the name of a bot, or a browser before its system.
func gist(agent string, width int) string {
	if utf8.RuneCountInString(agent) <= width {
		return agent
	}
	if _, rest, ok := strings.Cut(agent, "compatible; "); ok {
		return strings.TrimSuffix(rest, ")")
	}
	if i := strings.LastIndex(agent, " ("); i >= 0 && strings.HasSuffix(agent, ")") && strings.Contains(agent[:i], "(") {
		return agent[i+2 : len(agent)-1] // "Mozilla/5.0 (Macintosh) … Safari/605.1.15 (Applebot/0.1; …)"
	}
	system, products, ok := strings.Cut(strings.TrimPrefix(agent, "Mozilla/5.0 ("), ")")
	if !ok || !strings.HasPrefix(agent, "Mozilla/5.0 (") {
		return agent
	}
	for _, name := range []string{" Edg", " OPR/", " SamsungBrowser/", " CriOS/", " FxiOS/", " Firefox/", " Chrome/", " Version/"} {
		if i := strings.Index(products, name); i >= 0 {
			product, _, _ := strings.Cut(products[i+1:], " ")
			return strings.Replace(product, "Version/", "Safari/", 1) + " (" + system + ")"
		}
	}
	return agent
}
