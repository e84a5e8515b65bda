package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// needProgram skips a test without a program, unless services are required.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("needs %s: apt-get install %s", name, name)
	}
}

// bash completes commands, flags, the words of flags, and files.
func TestCompletionInBash(t *testing.T) {
	needProgram(t, "bash")
	_, script, _ := runCommand(t, "completion", "bash")
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"completion.bash": script, "site one.yaml": "", "access.log": ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		line      string // words, the last one is completed
		want, not string // one of the answers; no answer
	}{
		{"fairshare|re", "reload", "ban"},
		{"fairshare|re", "replay", "--help"},
		{"fairshare|--h", "--help", "reload"},
		{"fairshare|reload|--d", "--dry-run", "--yes"},
		{"fairshare|clients|--sort|by", "bytes", "time"},
		{"fairshare|clients|--by|=|", "fleet", "bytes"},
		{"fairshare|clients|--by|=|bo", "bot", "fleet"},
		{"fairshare|serve|--policy|si", "site one.yaml", "access.log"},
		{"fairshare|check|si", "site one.yaml", "access.log"},
		{"fairshare|serve|--listen|", "", "access.log"},
		{"fairshare|completion|z", "zsh", "bash"},
		{"fairshare|help|unb", "unban", "ban"},
	} {
		words := strings.Split(c.line, "|")
		const command = `source ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fairshare; ` +
			`printf '%s\n' "${COMPREPLY[@]}"`
		args := append([]string{"--norc", "-c", command, "bash"}, words...)
		out, err := exec.Command("bash", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", c.line, err, out)
		}
		answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		found := map[string]bool{}
		for _, answer := range answers {
			found[answer] = true
		}
		if !found[c.want] || found[c.not] {
			t.Errorf("%s: %q; %q should be there, %q not", c.line, answers, c.want, c.not)
		}
	}
}

// zsh and fish read their scripts, and these name each command.
func TestCompletionInOtherShells(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		_, script, _ := runCommand(t, "completion", shell)
		for _, want := range []string{"reload", "dry-run", "owner fleet bot"} {
			if !strings.Contains(script, want) {
				t.Errorf("%s: %q is missing", shell, want)
			}
		}
		t.Run(shell, func(t *testing.T) {
			needProgram(t, shell)
			name := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(name, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(shell, "-n", name).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// Each command has a man page without warnings of mandoc and groff.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if exit, _, errs := runCommand(t, "man", "--dir", dir); exit != 0 {
		t.Fatal(errs)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 25 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	_, one, _ := runCommand(t, "man", "ban")
	for _, want := range []string{".TH \"FAIRSHARE\\-BAN\" 1 ", "fairshare\\-ban \\- ban an address",
		`\fB\-\-reason\fR \fITEXT\fR`} {
		if !strings.Contains(one, want) {
			t.Errorf("%q is missing in\n%s", want, one)
		}
	}
	if exit, _, errs := runCommand(t, "man", "bann"); exit != 2 || !strings.Contains(errs, `did you mean "ban"?`) {
		t.Errorf("exit %d: %s", exit, errs)
	}
	for _, lint := range [][]string{{"mandoc", "-T", "lint", "-W", "warning"}, {"groff", "-man", "-ww", "-z"}} {
		t.Run(lint[0], func(t *testing.T) {
			needProgram(t, lint[0])
			out, err := exec.Command(lint[0], append(lint[1:], pages...)...).CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
