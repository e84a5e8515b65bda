package policyfile

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

// expectMark begins the lines of a test file with the expected result of the lines
// above them.
const expectMark = "#| "

// someBots returns a table of bots. The table broken.json cannot be read.
func someBots(table string) ([]BotName, error) {
	if filepath.Base(table) == "broken.json" {
		return nil, errors.New(filepath.Base(table) + ": line 3: a name is needed")
	}
	search, ai := []string{"search"}, []string{"ai"}
	return []BotName{
		{Name: "googlebot", Categories: search, Checked: true},
		{Name: "bingbot", Categories: search, Checked: true},
		{Name: "google-extended", Categories: ai},
		{Name: "google-read-aloud", Categories: []string{"fetcher"}, Checked: true, UserTriggered: true},
		{Name: "gptbot", Categories: []string{"ai", "ai-training"}, Operator: "openai", Checked: true},
		{Name: "openvas", Categories: ai, Operator: "greenbone"},
		{Name: "80legs", Categories: []string{"seo"}},
		{Name: "facebookexternalhit", Categories: []string{"preview"}, Checked: true, UserTriggered: true},
		{Name: "archiver", Categories: []string{"archive"}},
		{Name: "oversized", Category: true},
	}, nil
}

// testCases parses each file in testdata/dir and compares the result of describe
// with the expected result at the end of the file.
func testCases(t *testing.T, dir string, describe func(t *testing.T, f *File, err error) string) {
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no cases", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			source, want := data, ""
			if i := bytes.Index(data, []byte(expectMark)); i >= 0 {
				source = data[:i]
				for line := range strings.Lines(string(data[i:])) {
					want += strings.TrimPrefix(strings.TrimPrefix(line, "#|"), " ")
				}
			}
			f, err := Options{Bots: someBots, Cores: 4}.Parse(path, source)
			got := describe(t, f, err)
			got = strings.ReplaceAll(got, path, filepath.Base(path))
			if *update {
				var out strings.Builder
				out.Write(source)
				for line := range strings.Lines(got) {
					out.WriteString(strings.TrimRight(expectMark+strings.TrimRight(line, "\n"), " ") + "\n")
				}
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		})
	}
}

func TestGoodFilesHaveSentencesAndWarnings(t *testing.T) {
	inOneGoroutine(t)
	testCases(t, "good", func(t *testing.T, f *File, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		built := BuiltIn().Policy.Rules
		for i := 0; i < len(f.Policy.Rules); i++ {
			if rules := f.Policy.Rules[i:]; rules[0].Name == built[0].Name && len(rules) >= len(built) &&
				rules[len(built)-1].Name == built[len(built)-1].Name && filepath.Base(f.Name) != "default.yaml" {
				fmt.Fprintln(&b, "(the built-in rules)")
				i += len(built) - 1
				continue
			}
			fmt.Fprintln(&b, f.Sentence(&f.Policy.Rules[i]))
		}
		for _, line := range f.Settings() {
			fmt.Fprintln(&b, line)
		}
		for i := range f.Warnings {
			b.WriteString(f.Warnings[i].Long())
		}
		return b.String()
	})
}

func TestAllFaultsOfBadFilesAreReported(t *testing.T) {
	testCases(t, "bad", func(t *testing.T, f *File, err error) string {
		faults := Faults(err)
		if f != nil || len(faults) == 0 {
			t.Fatalf("file %v, error %v, want faults and no file", f, err)
		}
		var b strings.Builder
		for _, fault := range faults {
			b.WriteString(fault.Text())
		}
		return b.String()
	})
}
