package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// Each policy of docs/tasks.md is correct and causes no warning, and the commands after it print the
// lines that the page shows.
func TestTasksPageShowsTheProgramsOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	fairshare := func(args ...string) string {
		var out bytes.Buffer
		if exit := run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out}); exit != cli.ExitOK {
			t.Fatalf("fairshare %q: exit %d:\n%s", args, exit, &out)
		}
		return out.String()
	}
	policies, lines := 0, 0
	blocks := regexp.MustCompile("(?s)```(yaml|console)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		if block[1] == "yaml" {
			policies++
			if err := os.WriteFile("site.yaml", []byte(block[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := fairshare("check", "site.yaml"); strings.Contains(out, "warning") {
				t.Errorf("%s\n%s", block[2], out)
			}
			continue
		}
		out := ""
		for line := range strings.Lines(block[2]) {
			if command, ok := strings.CutPrefix(line, "$ fairshare "); ok {
				var args []string
				for _, arg := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command, -1) {
					args = append(args, strings.Trim(arg, "'"))
				}
				out = fairshare(args...)
			} else if lines++; !strings.Contains(out, "\n"+strings.TrimSuffix(line, "\n")) {
				t.Errorf("the output lacks %q:\n%s", line, out)
			}
		}
	}
	if policies < 7 || lines < 8 {
		t.Errorf("only %d policies and %d lines of output were checked", policies, lines)
	}
}
