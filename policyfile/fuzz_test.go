package policyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever a file holds: no panic; faults have places in it and can be shown;
// what parses is a policy that the guard takes, is said in sentences, and
// parses to the same again.
func FuzzParse(f *testing.F) {
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
			lines := strings.Count(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") + strings.Count(string(data), "\r") + 1
			for _, fault := range faults {
				if fault.Line > lines || fault.Line > 0 && fault.Column < 1 {
					t.Errorf("%v: the file has %d lines", fault, lines)
				}
				if text := fault.Text(); strings.ContainsFunc(text, func(c rune) bool { return control(c) && c != '\n' }) {
					t.Errorf("control characters in %q", text)
				}
			}
			return
		}
		for i := range got.Policy.Rules {
			if s := Sentence(&got.Policy.Rules[i]); strings.ContainsFunc(s, control) || !strings.HasSuffix(s, ".") {
				t.Errorf("sentence %q", s)
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
