package prose

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTexts(t *testing.T) {
	at := time.Date(2026, 11, 21, 6, 0, 0, 0, time.FixedZone("", 3600))
	for _, c := range []struct{ got, want string }{
		{Number(0), "0"}, {Number(999), "999"}, {Number(1000), "1,000"}, {Number(int64(-1234567)), "-1,234,567"},
		{Number(int64(math.MinInt64)), "-9,223,372,036,854,775,808"},
		{Number(uint64(math.MaxUint64)), "18,446,744,073,709,551,615"},
		{Plural(1, "line"), "1 line"}, {Plural(0, "line"), "0 lines"}, {Plural(2000, "line"), "2,000 lines"},
		{Counted(1, "story", "stories"), "1 story"}, {Counted(2, "story", "stories"), "2 stories"},
		{Times(0), "0 times"}, {Times(1), "once"}, {Times(2), "twice"}, {Times(1200), "1,200 times"},
		{Ordinal(1), "1st"}, {Ordinal(22), "22nd"}, {Ordinal(3), "3rd"}, {Ordinal(11), "11th"},
		{Ordinal(113), "113th"},
		{Estimate(12), "about 12"}, {Estimate(12_345), "about 12,300"}, {Estimate(999_600), "about 1,000,000"},

		{Percent(0, 0), "–"}, {Percent(0, 9), "0 %"}, {Percent(1, 10_000), "<0.1 %"}, {Percent(1, 1000), "0.1 %"},
		{Percent(32, 1000), "3.2 %"}, {Percent(4, 100), "4 %"}, {Percent(1, 3), "33 %"}, {Percent(9, 9), "100 %"},
		{Percent(996, 1000), "99.6 %"}, {Percent(9999, 10_000), ">99.9 %"},
		{Share(0), "0 %"}, {Share(1e-9), "<0.1 %"}, {Share(0.0123), "1.2 %"}, {Share(0.0996), "10 %"},
		{Share(0.999999), ">99.9 %"}, {Share(1), "100 %"},

		{Size(0), "0 B"}, {Size(999), "999 B"}, {Size(1000), "1.0 kB"}, {Size(12_345_678), "12.3 MB"},
		{Size(999_999), "1.0 MB"}, {Size(math.MaxInt64), "9.2 EB"},
		{Seconds(1050 * time.Millisecond), "1.05 s"}, {Seconds(0), "0 s"}, {Seconds(20 * time.Second), "20 s"},
		{Seconds(1234 * time.Microsecond), "0.001234 s"},

		{Moment(at), "2026-11-21 05:00:00 UTC"},
		{Duration(0), "0 seconds"}, {Duration(-time.Hour), "0 seconds"}, {Duration(500 * time.Millisecond), "1 second"},
		{Duration(59 * time.Second), "59 seconds"}, {Duration(time.Minute), "1 minute"},
		{Duration(90 * time.Second), "90 seconds"}, {Duration(2 * time.Minute), "2 minutes"},
		{Duration(10*time.Minute - 2*time.Second), "10 minutes"}, {Duration(time.Hour + 5*time.Second), "1 hour"},
		{Duration(90 * time.Minute), "90 minutes"}, {Duration(26 * time.Hour), "26 hours"},
		{Duration(24 * time.Hour), "1 day"}, {Duration(48*time.Hour - time.Second), "2 days"},
		{Duration(72 * time.Hour), "3 days"}, {Duration(83 * time.Hour), "3 days 11 hours"},
		{Duration(255 * time.Hour), "11 days"},
		{Last(time.Hour), "the last hour"}, {Last(time.Minute), "the last minute"},
		{Last(11 * time.Second), "the last 11 seconds"}, {Last(10 * time.Minute), "the last 10 minutes"},
		{ShortDuration(76*time.Hour + 29*time.Minute), "3d4h"}, {ShortDuration(7170 * time.Second), "2h"},
		{ShortDuration(12400 * time.Millisecond), "12s"},
		{ExactDuration(90 * time.Minute), "1h30m"}, {ExactDuration(200 * time.Millisecond), "200ms"},
		{ExactDuration(24 * time.Hour), "24h"}, {ExactDuration(49 * time.Hour), "2d1h"},
		{ExactDuration(1), "1ms"}, {ExactDuration(-1), "0s"},
		{Ago(at, time.Time{}), "never"}, {Ago(at, at), "now"}, {Ago(at, at.Add(-12*time.Second)), "12s ago"},
		{Ago(at, at.Add(-90*time.Second)), "1m ago"}, {Ago(at, at.Add(-47*time.Hour)), "47h ago"},
		{Ago(at, at.Add(-73*time.Hour)), "3d ago"},

		{Cut("abcdef", 4), "abc…"}, {Cut("abcd", 4), "abcd"}, {CutFront("abcdef", 4), "…def"},
		{List(nil, "or"), ""}, {List([]string{"a"}, "or"), "a"}, {List([]string{"a", "b"}, "or"), "a or b"},
		{List([]string{"a", "b", "c"}, "and"), "a, b and c"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain \"quoted\" é":        "plain \"quoted\" é",
		`back\slash`:                `back\slash`,
		"\x1b[2J":                   `\x1b[2J`,
		"\xff":                      `\xff`,
		"a\u202eb":                  `a\u202eb`,
		"\u009b31m":                 `\u009b31m`,
		"two\nlines\r\t":            `two\nlines\r\t`,
		"\U000e0001":                `\U000e0001`,
		"e\u0301":                   `e\u0301`,
		"wide\u3000space":           `wide\u3000space`,
		"nbsp\u00a0c1\u009b":        `nbsp\u00a0c1\u009b`,
		"café ✓":                    "café ✓",
		"red\x07":                   `red\x07`,
		"a\u202Egnp.exe":            `a\u202egnp.exe`,
		"\u2066x\u200f\u200b\ufeff": `\u2066x\u200f\u200b\ufeff`,
		"a\xffb\u0301":              `a\xffb\u0301`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := Wrap("a text of averylongword words", 7)
	if want := []string{"a text", "of", "averylongword", "words"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"alow", "allow"}, {"ALLOW", "allow"}, {"nmae", "name"}, {"for", ""}, {"blokc", "block"}, {"", ""},
	} {
		if got := Nearest(c.word, []string{"name", "allow", "block", "per"}); got != c.want {
			t.Errorf("Nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
	if got, want := DidYouMean("alow", []string{"allow"}), `did you mean "allow"?`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := DidYouMean("zzzz", []string{"allow"}); got != "" {
		t.Errorf("got %q, want nothing", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"alow", "allow", 1}, {"nmae", "name", 1}, {"per", "for", 2}, {"é", "e", 1},
		{"kitten", "sitting", 3}, {strings.Repeat("a", 65), "a", 64}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
