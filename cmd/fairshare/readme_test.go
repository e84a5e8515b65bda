package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// The README shows what the program prints.
func TestReadmeShowsTheProgramsOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and tests commands only")
	}
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile("../../internal/replay/testdata/airisdata-2016.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	policy := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if policy == nil {
		t.Fatal("the README shows no policy")
	}
	slip := bytes.Replace(policy[1], []byte("    allow: true\n"), []byte("    alow: true\n"), 1)

	t.Chdir(t.TempDir())
	for name, data := range map[string][]byte{"access.log.gz": log, "site.yaml": policy[1], "slip/site.yaml": slip} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		dir  string
		args string
		exit int
		from string // the output from this line on
		to   string // to before this one; "" means to the end
	}{
		{".", "replay|access.log.gz", cli.ExitOK, "access.log.gz\n", "\nPeople who"},
		{".", "replay|access.log.gz", cli.ExitOK, "Bots: ", "\n  category"},
		{".", "bot|Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)|--addr|66.249.66.1",
			cli.ExitOK, "googlebot (search)", ""},
		{".", "check|site.yaml", cli.ExitOK, "site.yaml: ok\n", ""},
		{"slip", "check|site.yaml", cli.ExitFailed, "site.yaml:11:5", ""},
		{".", "replay|-c|site.yaml|access.log.gz", cli.ExitOK, "What each rule did\n", "  matched: "},
		{".", "check|site.yaml|--try|GET /shop?page=2|--addr|203.0.113.9|--user-agent|curl/8", cli.ExitOK,
			"GET /shop from", ""},
	} {
		t.Chdir(c.dir)
		var out bytes.Buffer
		if exit := run(strings.Split(c.args, "|"), &cli.Environment{Context: t.Context(), Stdin: strings.NewReader(""),
			Stdout: &out, Stderr: &out}); exit != c.exit {
			t.Fatalf("%s: exit %d, want %d:\n%s", c.args, exit, c.exit, &out)
		}
		printed := out.String()
		if i := strings.Index(printed, c.from); i >= 0 {
			printed = printed[i:]
		} else {
			t.Errorf("%s does not print %q:\n%s", c.args, c.from, &out)
		}
		if c.to != "" {
			printed, _, _ = strings.Cut(printed, c.to)
		}
		if !strings.Contains(string(page), printed) {
			t.Errorf("the README does not show what %s prints:\n%s", c.args, printed)
		}
		if c.dir != "." {
			t.Chdir("..")
		}
	}
}
