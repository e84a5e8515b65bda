package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairshare/internal/cli"
)

// TestExitCodes runs commands that fail. The exit code of wrong usage is 2: a
// wrong command, flag, argument or value. That of any other failure is 1.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", "rules: [{name: a, match: {path: /x}, block: true}]\n")
	bad := file("bad.yaml", "rules: [{name: a, alow: true}]\n")
	access := file("access.log", `192.0.2.1 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`+"\n")
	state := filepath.Join(dir, "state")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	ended, end := context.WithCancel(t.Context())
	end() // a serve that starts nevertheless ends at once
	try := func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		ctx := t.Context()
		if len(args) > 0 && args[0] == "serve" {
			ctx = ended
		}
		exit := run(args, &cli.Environment{Context: ctx, Stdout: &out, Stderr: &errs})
		return exit, out.String(), errs.String()
	}
	if exit, _, errs := try("label", "192.0.2.99", "seen", "--state", state); exit != cli.ExitOK {
		t.Fatal(errs)
	}
	for _, c := range []struct {
		exit int
		args []string
	}{
		{cli.ExitUsage, []string{}},
		{cli.ExitUsage, []string{"frobnicate"}},
		{cli.ExitUsage, []string{"--frobnicate"}},
		{cli.ExitUsage, []string{"help", "frobnicate"}},
		{cli.ExitUsage, []string{"version", "more"}},
		{cli.ExitUsage, []string{"policy", "more"}},

		{cli.ExitUsage, []string{"serve"}},
		{cli.ExitUsage, []string{"serve", "--frobnicate"}},
		{cli.ExitUsage, []string{"serve", "site.yaml"}},
		{cli.ExitUsage, []string{"serve", "--upstream"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "ftp://127.0.0.1"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "nonsense"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "nonsense"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:70000"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--listen", "unix:"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--behind", "nonsense"}},
		{cli.ExitUsage, []string{"serve", "--upstream", "http://127.0.0.1:1", "--registry", "some"}},
		{cli.ExitFailed, []string{"serve", "--upstream", "http://127.0.0.1:1", "-c", bad}},
		{cli.ExitFailed, []string{"serve", "--upstream", "http://127.0.0.1:1", "-c",
			filepath.Join(dir, "nowhere.yaml")}},

		{cli.ExitUsage, []string{"check"}},
		{cli.ExitUsage, []string{"check", good, "--try", "GET"}},
		{cli.ExitUsage, []string{"check", good, "--try", "/x", "--addr", "here"}},
		{cli.ExitUsage, []string{"check", good, "--try", "/x", "--header", "nonsense"}},
		{cli.ExitUsage, []string{"check", good, "--try", "/x", "--label", "a b"}},
		{cli.ExitUsage, []string{"check", good, "--addr", "192.0.2.1"}},
		{cli.ExitFailed, []string{"check", bad}},
		{cli.ExitFailed, []string{"check", filepath.Join(dir, "nowhere.yaml")}},

		{cli.ExitUsage, []string{"bot"}},
		{cli.ExitUsage, []string{"bot", "192.0.2.1"}},
		{cli.ExitUsage, []string{"bot", "curl", "--addr", "here"}},
		{cli.ExitUsage, []string{"bot", "-", "--addr", "192.0.2.1"}},
		{cli.ExitFailed, []string{"bot", "curl", "-c", bad}},

		{cli.ExitUsage, []string{"replay"}},
		{cli.ExitUsage, []string{"replay", access, "--format", "nonsense"}},
		{cli.ExitUsage, []string{"replay", access, "--format", "$nonsense{"}},
		{cli.ExitUsage, []string{"replay", access, "--timezone", "Mars/Olympus"}},
		{cli.ExitUsage, []string{"replay", access, "--top", "0"}},
		{cli.ExitUsage, []string{"replay", access, "--top", "many"}},
		{cli.ExitUsage, []string{"replay", access, "--verdicts", "-"}},
		{cli.ExitUsage, []string{"replay", access, "--verdicts", access}},
		{cli.ExitUsage, []string{"replay", "-", "-"}},
		{cli.ExitFailed, []string{"replay", filepath.Join(dir, "nowhere.log")}},
		{cli.ExitFailed, []string{"replay", access, "-c", bad}},
		{cli.ExitFailed, []string{"replay", access, "--verdicts", filepath.Join(dir, "no", "such", "folder")}},

		{cli.ExitUsage, []string{"ban"}},
		{cli.ExitUsage, []string{"ban", "192.0.2.300"}},
		{cli.ExitUsage, []string{"ban", "192.0.2.0/33"}},
		{cli.ExitUsage, []string{"ban", "nosuchbot"}},
		{cli.ExitUsage, []string{"ban", "ai"}},
		{cli.ExitUsage, []string{"ban", "0.0.0.0"}},
		{cli.ExitUsage, []string{"ban", "192.0.2.1", "--for", "60"}},
		{cli.ExitUsage, []string{"ban", "192.0.2.1", "--reason", "a\x1b"}},
		{cli.ExitUsage, []string{"ban", "192.0.2.1", "--state", good}},
		{cli.ExitFailed, []string{"ban", "127.0.0.1"}}, // meant, and refused without --force
		{cli.ExitUsage, []string{"unban"}},
		{cli.ExitUsage, []string{"unban", "192.0.2.300"}},
		{cli.ExitFailed, []string{"unban", "192.0.2.1"}},
		{cli.ExitUsage, []string{"allow", "192.0.2.0/33"}},
		{cli.ExitUsage, []string{"allow", "curl"}}, // has no addresses of its own
		{cli.ExitFailed, []string{"allow", "0.0.0.0/0"}},
		{cli.ExitUsage, []string{"unallow", "192.0.2.300"}},
		{cli.ExitFailed, []string{"unallow", "192.0.2.1"}},
		{cli.ExitUsage, []string{"label", "192.0.2.1"}},
		{cli.ExitUsage, []string{"label", "192.0.2.1", "a b"}},
		{cli.ExitUsage, []string{"label", "192.0.2.300", "seen"}},
		{cli.ExitUsage, []string{"unlabel", "192.0.2.1", "a b"}},
		{cli.ExitFailed, []string{"unlabel", "192.0.2.1", "seen"}},
		{cli.ExitUsage, []string{"note", "192.0.2.300", "text"}},
		{cli.ExitUsage, []string{"note", "192.0.2.1", "a\x1b"}},
		{cli.ExitUsage, []string{"bans", "more"}},
		{cli.ExitUsage, []string{"clients", "--sort", "nonsense"}},
		{cli.ExitUsage, []string{"clients", "--top", "-1"}},
		{cli.ExitUsage, []string{"clients", "--label", "a b"}},
		{cli.ExitUsage, []string{"client"}},
		{cli.ExitUsage, []string{"client", "192.0.2.300"}},
		{cli.ExitFailed, []string{"client", "192.0.2.1"}},
		{cli.ExitUsage, []string{"why"}},
		{cli.ExitUsage, []string{"why", "192.0.2.300"}},
		{cli.ExitUsage, []string{"why", "no reference"}},
		{cli.ExitFailed, []string{"why", "0000000000"}},
		{cli.ExitFailed, []string{"why", "192.0.2.1"}},
		{cli.ExitUsage, []string{"forget"}},
		{cli.ExitUsage, []string{"forget", "192.0.2.300"}},
		{cli.ExitUsage, []string{"forget", "nosuchbot"}},
		{cli.ExitOK, []string{"forget", "192.0.2.1"}}, // its counters
		{cli.ExitFailed, []string{"forget", "0.0.0.0/0"}},
	} {
		args := c.args
		if operators[strings.Join(args[:min(1, len(args))], "")] &&
			!strings.Contains(strings.Join(args, " "), "--state") {
			args = append(args[:len(args):len(args)], "--state", state)
		}
		exit, stdout, stderr := try(args...)
		if exit != c.exit {
			t.Errorf("fairshare %q: exit %d, want %d: %s", c.args, exit, c.exit, stderr)
		}
		if stdout != "" && c.exit == cli.ExitUsage {
			t.Errorf("fairshare %q writes to stdout: %s", c.args, stdout)
		}
		if len(args) > 0 && !strings.Contains(stderr, "\nhint: ") && c.exit == cli.ExitUsage &&
			!strings.HasPrefix(stderr, "fairshare: --verdicts") {
			t.Errorf("fairshare %q: no hint: %s", c.args, stderr)
		}
	}
}

// A wrong client is wrong usage even without a registry, and creates none. A
// correct one fails there if the command needs the registry.
func TestClientArgumentIsCheckedBeforeTheRegistry(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	try := func(want int, command, client, hint string) {
		t.Helper()
		args := []string{command, client, "--state", state}
		if command == "label" || command == "note" {
			args = append(args, "word")
		}
		exit, out, errs := runCommand(t, args...)
		if exit != want || out != "" || !strings.Contains(errs, hint) {
			t.Errorf("fairshare %q: exit %d, %q, %q; want exit %d and %q", args, exit, out, errs, want, hint)
		}
		if _, err := os.Stat(state); err == nil {
			t.Fatalf("fairshare %q: there is a state folder now", args)
		}
	}
	for command := range operators {
		if command == "bans" || command == "clients" {
			continue
		}
		for _, client := range []string{"192.0.2.300", "192.0.2.0/33", "203.0.113.*", "2001:db8::/129",
			"192.0.2.1:80", "0.0.0.0", "192.0.2.1-9", ""} {
			try(cli.ExitUsage, command, client, "\nhint: ")
		}
		if !map[string]bool{"ban": true, "allow": true, "label": true, "note": true}[command] { // these make a registry
			try(cli.ExitFailed, command, "192.0.2.1", "no registry in ")
		}
	}
	try(cli.ExitUsage, "why", "no\treference", "ten letters and digits")
}

// operators are the commands that have --state and end at once.
var operators = map[string]bool{
	"ban": true, "unban": true, "allow": true, "unallow": true, "label": true, "unlabel": true, "note": true,
	"bans": true, "clients": true, "client": true, "why": true, "forget": true,
}

// Without a command the help goes to stderr, so that a script does not read it
// as a result.
func TestHelpWithoutACommandGoesToStderr(t *testing.T) {
	var help, out, errs bytes.Buffer
	if exit := run([]string{"--help"}, &cli.Environment{Context: t.Context(), Stdout: &help,
		Stderr: &errs}); exit != cli.ExitOK || errs.Len() > 0 {
		t.Fatalf("--help: exit %d, %s", exit, errs.String())
	}
	exit := run(nil, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &errs})
	if exit != cli.ExitUsage || out.Len() > 0 || errs.String() != help.String() {
		t.Errorf("fairshare: exit %d, stdout %q, stderr %q; want %d and the text of --help on stderr", exit,
			out.String(), errs.String(), cli.ExitUsage)
	}
}

func TestVersionFlags(t *testing.T) {
	_, want, _ := runCommand(t, "version")
	for _, flag := range []string{"-v", "-V", "--version"} {
		if exit, out, errs := runCommand(t, flag); exit != cli.ExitOK || out != want || errs != "" {
			t.Errorf("fairshare %s: exit %d, %q, %q; want %q", flag, exit, out, errs, want)
		}
	}
}
