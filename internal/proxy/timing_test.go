package proxy

import (
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTiming(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		lines string // separated by "\n"
		want  time.Duration
		rest  string // that the client gets
	}{
		{`cpu;dur=12.5`, 12500 * time.Microsecond, ""},
		{`cpu;dur=0`, 0, ""},
		{`cpu`, none, ""},
		{`CPU;dur=1`, none, `CPU;dur=1`},
		{`cpux;dur=1, xcpu;dur=1`, none, `cpux;dur=1, xcpu;dur=1`},
		{`db;dur=3;desc="two, queries; cpu;dur=9", cpu;dur=1`, time.Millisecond,
			`db;dur=3;desc="two, queries; cpu;dur=9"`},
		{`total;dur=123.4,cpu;desc="a \"b\", c";dur=2,db;dur=3`, 2 * time.Millisecond, `total;dur=123.4, db;dur=3`},
		{" \tcpu\t; \tdesc=x ;\tDUR =\t1.25 , db", 1250 * time.Microsecond, "db"},
		{`cpu;dur="2.5"`, 2500 * time.Microsecond, ""},
		{`cpu;dur="\2\.5"`, 2500 * time.Microsecond, ""},
		{`cpu;dur=1;dur=2`, time.Millisecond, ""},
		{`cpu;dur=x;dur=2`, none, ""},
		{`cpu;dur;dur=2`, none, ""},
		{`cpu;dur=1, cpu;dur=2`, 3 * time.Millisecond, ""},
		{"cpu;dur=1\ndb;dur=5\ncpu;dur=2, cpu;dur=oops", 3 * time.Millisecond, "db;dur=5"},
		{`cpu more words;dur=1 ms;desc=x`, time.Millisecond, ""}, // text after a name or value is ignored
		{`cpu;dur=1ms`, none, ""},
		{`cpu;dur=1,5`, time.Millisecond, "5"},
		{`cpu;dur=-1`, none, ""},
		{`cpu;dur=NaN`, none, ""},
		{`cpu;dur=Infinity`, none, ""},
		{`cpu;dur=inf`, none, ""},
		{`cpu;dur=0x10`, none, ""},
		{`cpu;dur=1_000`, none, ""},
		{`cpu;dur=`, none, ""},
		{`cpu;dur=""`, none, ""},
		{`cpu;dur=1e3`, time.Second, ""},
		{`cpu;dur=9.9999999999999995e-05`, 100 * time.Nanosecond, ""},
		{`cpu;dur=0.001`, time.Microsecond, ""},
		{`cpu;dur=12345.678901`, 12345678901 * time.Nanosecond, ""},
		{`cpu;dur=86400000`, 24 * time.Hour, ""},
		{`cpu;dur=86400001`, 24 * time.Hour, ""},
		{`cpu;dur=1e999`, 24 * time.Hour, ""},
		{`cpu;dur=` + strings.Repeat("9", 1000), 24 * time.Hour, ""},
		{`cpu;dur=86400000, cpu;dur=86400000`, 24 * time.Hour, ""},
		{`cpu;desc="never closed, cpu;dur=1`, none, ""},
		{"cpu;desc=\"never closed\ncpu;dur=1", time.Millisecond, ""},
		{`cpu;dur=2;desc="ends in \`, 2 * time.Millisecond, ""},
		{`,, ,cpu;dur=1,`, time.Millisecond, ""},
		{`;dur=1`, none, `;dur=1`},
		{``, none, ``},
	} {
		lines := strings.Split(test.lines, "\n")
		got, reported := timing(lines, "cpu")
		if reported != (test.want != none) || reported && got != test.want {
			t.Errorf("%q: %v, reported %v; want %v", test.lines, got, reported, test.want)
		}
		if rest := strings.Join(withoutMetric(lines, "cpu"), "\n"); rest != test.rest {
			t.Errorf("%q: %q remains, want %q", test.lines, rest, test.rest)
		}
	}
}

// A timed is one entry of a Server-Timing, as readTiming reads it.
type timed struct {
	name string
	dur  time.Duration // -1: missing or invalid
	text string        // unchanged
}

var (
	quotedString = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*(?:"|\\?\z)`)
	leadingToken = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]*")
	quotedValue  = regexp.MustCompile(`(?s)^"((?:[^"\\]|\\.)*(?:\\\z)?)`)
	escapedByte  = regexp.MustCompile(`(?s)\\(.)`)
	decimal      = regexp.MustCompile(`^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?$`)
)

// readTiming is the slow model of the parser: regular expressions, and numbers of any
// size.
func readTiming(line string) (entries []timed) {
	for _, text := range splitOutside(line, ',') {
		params := splitOutside(text, ';')
		e := timed{leadingToken.FindString(strings.Trim(params[0], " \t")), -1, strings.Trim(text, " \t")}
		for _, param := range params[1:] {
			name, value, _ := strings.Cut(param, "=")
			if strings.ToLower(strings.Trim(name, " \t")) != "dur" {
				continue
			}
			value = strings.Trim(value, " \t")
			if m := quotedValue.FindStringSubmatch(value); m != nil {
				value = escapedByte.ReplaceAllString(m[1], "$1")
			} else {
				value = leadingToken.FindString(value)
			}
			e.dur = readMilliseconds(value)
			break
		}
		entries = append(entries, e)
	}
	return entries
}

func splitOutside(s string, sep byte) (parts []string) {
	inside := make([]bool, len(s))
	for _, at := range quotedString.FindAllStringIndex(s, -1) {
		for i := at[0]; i < at[1]; i++ {
			inside[i] = true
		}
	}
	from := 0
	for i := range len(s) {
		if s[i] == sep && !inside[i] {
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

func readMilliseconds(text string) time.Duration {
	r := readNumber(text)
	if r == nil {
		return -1
	}
	r.Mul(r, big.NewRat(int64(time.Millisecond), 1))
	if r.Cmp(big.NewRat(int64(longestReported), 1)) >= 0 {
		return longestReported
	}
	f, _ := r.Float64()
	return time.Duration(math.Round(f))
}

// readNumber returns a number that is not negative; nil for other texts.
func readNumber(text string) *big.Rat {
	m := decimal.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	// Larger exponents have the same result, unless thousands of digits compensate
	// for them.
	if e, err := strconv.Atoi(m[1]); m[1] != "" && (err != nil || e > 9_999 || e < -9_999) {
		text = regexp.MustCompile(`[eE].*`).ReplaceAllString(text, "e"+strings.TrimLeft(m[1], "+0123456789")+"9999")
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || r.Sign() < 0 {
		return nil
	}
	return r
}

func FuzzTiming(f *testing.F) {
	for _, seed := range []string{`cpu;dur=12.5`, `db;dur=3;desc="a, \"b; cpu;dur=9", cpu ; DUR = "1.25" ;dur=2`,
		`cpu x;dur=1e-3 y,cpu;dur=1e999`, "cpu;desc=\"\\", `,;="`, `cpu;dur=0.0000015`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		var want time.Duration
		var others []string
		wantReported := false
		for _, line := range lines {
			entries := readTiming(line)
			own := slices.ContainsFunc(entries, func(e timed) bool { return e.name == "cpu" })
			var kept []string
			for _, e := range entries {
				switch {
				case e.name == "cpu" && e.dur >= 0:
					want, wantReported = min(want+e.dur, longestReported), true
				case e.name != "cpu" && e.text != "":
					kept = append(kept, e.text)
				}
			}
			if own {
				line = strings.Join(kept, ", ")
			}
			if line != "" {
				others = append(others, line)
			}
		}
		got, reported := timing(lines, "cpu")
		bound := time.Duration(len(text))
		if diff := got - want; reported != wantReported || diff < -bound || diff > bound {
			t.Errorf("%q: %v, reported %v; want %v, %v", text, got, reported, want, wantReported)
		}
		if got < 0 || got > longestReported {
			t.Errorf("%q: %v", text, got)
		}
		rest := withoutMetric(lines, "cpu")
		if !slices.Equal(rest, others) {
			t.Errorf("%q: %q remains, want %q", text, rest, others)
		}
		if d, reported := timing(rest, "cpu"); reported || !slices.Equal(withoutMetric(rest, "cpu"), rest) {
			t.Errorf("%q: the rest, %q, still reports %v", text, rest, d)
		}
	})
}
