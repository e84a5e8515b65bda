package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestRepositoryIsInPlainEnglish(t *testing.T) {
	allowed, err := parseExceptions(exceptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := checkPaths([]string{"../.."}, allowed)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range findings {
		t.Error(found)
	}
}

func TestPhrases(t *testing.T) {
	for text, want := range map[string]string{
		"Whoever floods the site is banned.":                          "Whoever",
		"The policy is read anew.":                                    "anew",
		"The lock stands beside the file.":                            "beside",
		"Expensive pages are dear.":                                   "dear",
		"The client is told.":                                         "told",
		"This is no address.":                                         "This is no address",
		"%q is no duration":                                           "q is no duration",
		"else who asks and hangs up passes by the limit":              "else who asks",
		"Those who run this site take no requests from you.":          "Those who",
		"It counts no more.":                                          "no more",
		"The ban spares search engines.":                              "spares",
		"People have steered the bot.":                                "steered",
		"Besides, `anew` in code and darling dearth are not reported": "",
		"There is no limit, and it is no longer than 10 s.":           "",
		"It sends no more requests than allowed.":                     "",
		"The client who asks first waits.":                            "",
	} {
		found := findPhrases(text)
		switch {
		case want == "" && len(found) > 0:
			t.Errorf("%q: %v, want nothing", text, found)
		case want != "" && (len(found) == 0 || !strings.HasPrefix(found[0], `"`+want+`"`)):
			t.Errorf("%q: %v, want %q", text, found, want)
		}
	}
}

// Each file in testdata is a case. A line with "WANT rule" or, where that is
// not possible, the first line with "WANT LINE:rule", says what is found.
func TestFiles(t *testing.T) {
	for file, want := range map[string][]string{
		"testdata/good.md":     nil,
		"testdata/good.go.txt": nil,
		"testdata/bad.md":      {"3 phrase", "6 long sentence", "9 long line", "16 phrase", "19 phrase", "21 phrase"},
		"testdata/bad.go.txt": {"1 phrase", "6 identifier", "8 phrase", "9 identifier", "10 identifier",
			"14 long line", "15 phrase"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found, err := checkFile(strings.TrimSuffix(file, ".txt"), text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		lines := map[string]bool{}
		for _, one := range found {
			got = append(got, one.String())
			lines[strings.TrimSpace(strings.Join([]string{strconv.Itoa(one.line), string(one.rule)}, " "))] = true
		}
		for _, line := range want {
			if !lines[line] {
				t.Errorf("%s: no finding %q", file, line)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("%s: found\n%s\nwant %q", file, strings.Join(got, "\n"), want)
		}
	}
}

func TestShareOfLongSentencesIsBounded(t *testing.T) {
	short := strings.Repeat("This is short.\n\n", 18)
	long := strings.Repeat("word ", 26) + "ends here.\n\n"
	for _, c := range []struct {
		text string
		want int
	}{
		{short + long + long, 0},
		{short + long + long + long, 1},
		{long + long + long, 0}, // too few sentences for a share
	} {
		found, err := checkFile("page.md", []byte(strings.ReplaceAll(c.text, "word word", "word\nword")))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != c.want {
			t.Errorf("%v, want %d findings", found, c.want)
		}
	}
}

func TestExceptionsAllowFindings(t *testing.T) {
	all, err := parseExceptions("# why\n\ndocs/a.md | phrase | anew | a quote\nbots/... | * | * | generated\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		found   finding
		allowed bool
	}{
		{finding{"docs/a.md", 1, rulePhrase, "", "read anew"}, true},
		{finding{"docs/a.md", 1, rulePhrase, "", "whoever"}, false},
		{finding{"docs/a.md", 1, ruleLine, "", "read anew"}, false},
		{finding{"docs/b.md", 1, rulePhrase, "", "read anew"}, false},
		{finding{"bots/gen/main.go", 1, ruleLine, "", "long"}, true},
	} {
		if got := len(all.filter([]finding{c.found})) == 0; got != c.allowed {
			t.Errorf("%v is allowed: %v, want %v", c.found, got, c.allowed)
		}
	}
	for _, text := range []string{"docs/a.md | phrase | anew", "docs/a.md | phrase | anew | ", "[ | * | * | why"} {
		if _, err := parseExceptions(text); err == nil {
			t.Errorf("%q is read without an error", text)
		}
	}
}

// A folder named testdata, or with a dot, is not searched.
func TestOnlyFilesOfTheModuleAreChecked(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"page.md", "testdata/page.md", ".git/page.md", "notes.txt"} {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("Read anew.\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, err := checkPaths([]string{folder}, nil)
	if err != nil || len(found) != 1 || !strings.HasSuffix(found[0].file, "/page.md") {
		t.Errorf("%v, %v; want one finding in page.md", found, err)
	}
}
