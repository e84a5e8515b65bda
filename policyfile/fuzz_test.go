package policyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
)

// Parse never panics. Faults have positions in the file and can be printed. A file
// without faults is a policy that NewGuard accepts and Sentence describes, and
// parsing it again gives the same.
func FuzzParse(f *testing.F) {
	inOneGoroutine(f)
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, path := range append(paths, "default.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Options{Bots: someBots}.Parse("testdata/good/fuzz.yaml", data)
		if err != nil {
			faults := Faults(err)
			if len(faults) == 0 {
				t.Fatalf("not a fault of the file: %v", err)
			}
			lines := strings.Count(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") +
				strings.Count(string(data), "\r") + 1
			for _, fault := range faults {
				if fault.Line > lines || fault.Line > 0 && fault.Column < 1 {
					t.Errorf("%v: the file has %d lines", fault, lines)
				}
				if text := fault.Text(); strings.ContainsFunc(text,
					func(c rune) bool { return control(c) && c != '\n' }) {
					t.Errorf("control characters in %q", text)
				}
			}
			return
		}
		for i := range got.Policy.Rules {
			if s := got.Sentence(&got.Policy.Rules[i]); strings.ContainsFunc(s, control) || !strings.HasSuffix(s, ".") {
				t.Errorf("sentence %q", s)
			}
		}
		for _, s := range got.Settings() {
			if strings.ContainsFunc(s, control) || !strings.HasSuffix(s, ".") {
				t.Errorf("setting %q", s)
			}
		}
		for i := range got.Warnings {
			got.Warnings[i].Long()
		}
		again, err := Options{Bots: someBots}.Parse("testdata/good/fuzz.yaml", data)
		if err != nil {
			t.Fatalf("parsed once, then: %v", err)
		}
		if diff := cmp.Diff(got, again, compareFiles); diff != "" {
			t.Errorf("parsed twice (-first +second):\n%s", diff)
		}
	})
}

// The value of a flag is read, or its error is one line that is safe for a terminal.
// A value in the hint is valid.
func FuzzFlags(f *testing.F) {
	for _, s := range []string{"2h", "1h30m", "0.5ms", "7", "2 weeks", "36501d", "good-partner", "Good Partner",
		"re:x", "\x1b[2J", "\u212a"} {
		f.Add(s)
	}
	harmless := func(t *testing.T, texts ...string) {
		for _, s := range texts {
			if strings.ContainsFunc(s, control) {
				t.Errorf("control characters in %q", s)
			}
		}
	}
	meant := func(hint string) string {
		s, found := strings.CutPrefix(hint, "did you mean ")
		if !found {
			return ""
		}
		return strings.Trim(strings.TrimSuffix(s, "?"), `"`)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil {
			if again, err := ParseDuration(FormatDuration(d)); err != nil || again < d || again-d >= time.Millisecond {
				t.Errorf("%q is %v, written %s and read %v, %v", s, d, FormatDuration(d), again, err)
			}
		} else {
			hint := err.(*DurationError).Hint()
			harmless(t, err.Error(), hint)
			if m := meant(hint); m != "" {
				if _, ok := parseDuration(m); !ok {
					t.Errorf("%q: the hint %s is none", s, hint)
				}
			}
		}
		if label, err := ParseLabel(s); err == nil {
			if again, err := ParseLabel(label); err != nil || again != label || !strings.EqualFold(label, s) {
				t.Errorf("%q is %q, read %q, %v", s, label, again, err)
			}
		} else {
			hint := err.(*LabelError).Hint()
			harmless(t, err.Error(), hint)
			if m := meant(hint); m != "" {
				if _, err := ParseLabel(m); err != nil {
					t.Errorf("%q: the hint %s is none", s, hint)
				}
			}
		}
	})
}

// An amount of CPU or time is from a microsecond to 35 years. The error of any other
// text is safe for a terminal, and an amount in its hint is valid.
func FuzzAmounts(f *testing.F) {
	for _, s := range []string{"7%", "1.05s", "7", "7 %", "%7", "s30", "7,5%", "500us", "7%/15s", "100.1%",
		"0.0009ms", "2 cores", "30 seconds", "-7%", "99999999%", "1e1%", "\x1b[2J", "\u2007%"} {
		f.Add(s, true, int64(15*time.Second))
		f.Add(s, false, int64(time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, s string, cpu bool, window int64) {
		d := &fairshare.Limit{Resource: fairshare.Time,
			Window: time.Duration(max(window, int64(fairshare.MinWindow)) % int64(fairshare.MaxWindow+1))}
		if cpu {
			d.Resource = fairshare.CPU
		}
		read := func(s string) (int64, []*ParseError) {
			r := &reader{file: &File{}, options: Options{Cores: 4}}
			n := r.micros(&node{kind: scalarNode, text: s, line: 1, column: 1}, d.Resource.String(), d)
			return n, r.faults
		}
		n, faults := read(s)
		switch {
		case len(faults) == 0 && (n < 1 && d.Window > 0 || n < 0 || n > fairshare.MaxMicros), len(faults) > 1,
			len(faults) == 1 && n != 0:
			t.Fatalf("%q of %v: %d, faults %v", s, d.Window, n, faults)
		case len(faults) == 0:
			return
		}
		if text := faults[0].Text(); strings.ContainsFunc(text, func(c rune) bool { return control(c) && c != '\n' }) {
			t.Errorf("control characters in %q", text)
		}
		meant, found := strings.CutPrefix(faults[0].Hint, d.Resource.String()+": ")
		if !found || strings.Contains(meant, "per:") { // the text before a slash is not checked
			return
		}
		if _, faults := read(meant); len(faults) > 0 && !strings.Contains(faults[0].Error(), "micro") &&
			!strings.Contains(faults[0].Error(), "more than") {
			t.Errorf("%q: the hint %s is none: %v", s, meant, faults)
		}
	})
}
