package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"

	"fairshare/internal/cli"
	"fairshare/policyfile"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

// TestOperators runs operators' commands, one behavior a file. Other commands write
// to the registry as a server would: "server DIR FILE" a batch, "settings DIR FILE"
// its settings. The others are "holder DIR FILE" for which client holds most of the
// upstream, "fleets DIR FILE" for its fleets, and "owners DIR FILE" for the name of a
// table of owners. In the files, @-5m is the time five minutes ago.
func TestOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and tests commands only")
	}
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/operator",
		RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": func(ts *testscript.TestScript, _ bool, args []string) {
				changeRegistry(ts, args, (*sqlregistry.Registry).Write)
			},
			"settings": func(ts *testscript.TestScript, _ bool, args []string) {
				changeRegistry(ts, args, (*sqlregistry.Registry).SetSettings)
			},
			"holder": func(ts *testscript.TestScript, _ bool, args []string) {
				changeRegistry(ts, args, (*sqlregistry.Registry).SetHolder)
			},
			"fleets": func(ts *testscript.TestScript, _ bool, args []string) {
				changeRegistry(ts, args, (*sqlregistry.Registry).SetFleets)
			},
			"owners": func(ts *testscript.TestScript, _ bool, args []string) { // the policy names a table
				ts.Check(os.MkdirAll(ts.MkAbs(args[0]), 0o700))
				r, err := sqlregistry.Open(context.Background(), filepath.Join(ts.MkAbs(args[0]), "registry.db"),
					sqlregistry.Options{})
				ts.Check(err)
				defer r.Close()
				ts.Check(r.SetSettings(context.Background(), registry.Settings{Owners: []string{ts.MkAbs(args[1])}}))
			},
			"json": checkJSON,
		},
	})
}

// changeRegistry opens a registry and calls a method with the value of a file.
func changeRegistry[V any](ts *testscript.TestScript, args []string,
	do func(*sqlregistry.Registry, context.Context, V) error) {
	if len(args) != 2 {
		ts.Fatalf("usage: server|settings|holder DIR FILE")
	}
	var v V
	decode := json.NewDecoder(strings.NewReader(withTimes(ts.ReadFile(args[1]), time.Now())))
	decode.DisallowUnknownFields()
	ts.Check(decode.Decode(&v))
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	r, err := sqlregistry.Open(context.Background(), filepath.Join(dir, "registry.db"), sqlregistry.Options{})
	ts.Check(err)
	defer r.Close()
	ts.Check(do(r, context.Background(), v))
}

var relative = regexp.MustCompile(`"@([+-])([0-9a-z]+)"`)

// withTimes replaces relative times by absolute ones.
func withTimes(text string, now time.Time) string {
	return relative.ReplaceAllStringFunc(text, func(found string) string {
		d, err := time.ParseDuration(found[2 : len(found)-1])
		if err != nil {
			return found
		}
		return `"` + now.Add(d).UTC().Format(time.RFC3339Nano) + `"`
	})
}

// checkJSON reads standard output as JSON, one value a line, and compares the
// text at a path in the first value: json .word.action block. Without a path it
// counts the values: json 2.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json COUNT, or json .PATH WANT")
	}
	var values []any
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			ts.Fatalf("%q: %v", line, err)
		}
		values = append(values, v)
	}
	if len(args) == 1 {
		if got := fmt.Sprint(len(values)); got != args[0] {
			ts.Fatalf("%s values, want %s", got, args[0])
		}
		return
	}
	if len(values) == 0 {
		ts.Fatalf("no value")
	}
	v := values[0]
	for key := range strings.SplitSeq(strings.TrimPrefix(args[0], "."), ".") {
		switch at := v.(type) {
		case map[string]any:
			var found bool
			if v, found = at[key]; !found {
				ts.Fatalf("%s: there is no %s", args[0], key)
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(at) {
				ts.Fatalf("%s: there is no %s among %d", args[0], key, len(at))
			}
			v = at[i]
		default:
			ts.Fatalf("%s: there is nothing in %v", args[0], v)
		}
	}
	if got := fmt.Sprint(v); got != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

// runCommand runs a command in this process.
func runCommand(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = run(args, &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &errs})
	return exit, out.String(), errs.String()
}

// A ban of an address of the machine itself needs --force.
func TestBanOfThisMachineNeedsForce(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Skip(err)
	}
	for _, a := range addrs {
		own := a.(*net.IPNet).IP.String()
		exit, out, errs := runCommand(t, "ban", own, "--state", t.TempDir())
		if exit != cli.ExitFailed || out != "" || !strings.Contains(errs, "this machine itself") ||
			!strings.Contains(errs, "hint: --force") {
			t.Errorf("ban %s: exit %d, %q, %q", own, exit, out, errs)
		}
	}
}

// Decisions of two operators at the same time are both kept.
func TestConcurrentDecisionsAreKept(t *testing.T) {
	dir := t.TempDir()
	const n = 8
	output := make(chan string, n)
	for i := range n {
		go func() {
			var out bytes.Buffer
			env := &cli.Environment{Context: t.Context(), Stdout: &out, Stderr: &out}
			if exit := run([]string{"ban", fmt.Sprintf("203.0.113.%d", i), "--state", dir}, env); exit != cli.ExitOK {
				output <- fmt.Sprintf("exit %d: %s", exit, &out)
				return
			}
			output <- ""
		}()
	}
	for range n {
		if problem := <-output; problem != "" {
			t.Error(problem)
		}
	}
	_, out, _ := runCommand(t, "bans", "--json", "--state", dir)
	if got := strings.Count(out, "\n"); got != n {
		t.Errorf("%d bans are kept, want %d:\n%s", got, n, out)
	}
}

// Each command in docs/registry.md has valid arguments, and each policy there
// has no errors.
func TestRegistryPageShowsValidCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commands{}, kong.Vars{"version": "", "behind": ""})
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?:(?m:^)    (?:\$ )?|undo: |to let it in: |hint: |`+"`"+
		`)fairshare ([a-z]+ [^\n`+"`"+`|,<]*)`).FindAllSubmatch(page, -1)
	if len(shown) < 15 {
		t.Fatalf("%d commands are shown", len(shown))
	}
	word := regexp.MustCompile(`'[^']*'|\S+`)
	for _, s := range shown {
		args := word.FindAllString(string(s[1]), -1)
		for i := range args {
			args[i] = strings.Trim(args[i], "'")
		}
		if _, err := parser.Parse(args); err != nil {
			t.Errorf("fairshare %s: %v", s[1], err)
		}
	}
	for _, policy := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		if _, err := policyfile.Parse("site.yaml", policy[1]); err != nil {
			t.Error(err)
		}
	}
}

// An interrupted command prints nothing.
func TestInterruptedCommandIsSilent(t *testing.T) {
	dir := t.TempDir()
	if exit, _, errs := runCommand(t, "ban", "203.0.113.9", "--state", dir); exit != cli.ExitOK {
		t.Fatal(errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"bans", "bans --json", "clients", "client 203.0.113.9", "why 7k3m9x2abc",
		"unban 203.0.113.9", "forget 203.0.113.9"} {
		var out bytes.Buffer
		if exit := run(append(strings.Fields(args), "--state", dir),
			&cli.Environment{Context: ctx, Stdout: &out, Stderr: &out}); exit != cli.ExitFailed || out.Len() > 0 {
			t.Errorf("%s: exit %d, %q", args, exit, &out)
		}
	}
	if _, out, _ := runCommand(t, "bans", "--json", "--state", dir); strings.Count(out, "\n") != 1 {
		t.Errorf("the ban is gone: %q", out)
	}
}

// full is a disk on which there is no space left.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// A command whose output cannot be written fails.
func TestCommandFailsIfItsOutputCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{
		"ban 203.0.113.9", "label 203.0.113.9 x", "note 203.0.113.9 x", "allow 198.51.100.7", "clients",
		"clients --json", "client 203.0.113.9", "client 203.0.113.9 --json",
		"why 203.0.113.9", "bans", "bans --json", "unlabel 203.0.113.9 x", "unban 203.0.113.9", "bans",
		"unallow 198.51.100.7", "forget 203.0.113.9",
	} {
		var errs bytes.Buffer
		exit := run(append(strings.Fields(args), "--state", dir),
			&cli.Environment{Context: t.Context(), Stdout: full{}, Stderr: &errs})
		if exit != cli.ExitFailed || !strings.HasSuffix(errs.String(), "fairshare: no space left on device\n") {
			t.Errorf("%s: exit %d, %q", args, exit, &errs)
		}
	}
}
