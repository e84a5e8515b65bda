package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"
	"github.com/rogpeppe/go-internal/testscript"

	"fairshare"
	"fairshare/internal/lockfile"
	"fairshare/policyfile"
	"fairshare/sqlregistry"
)

// TestOperators runs the commands of operators, one promise a file. In them
// "server DIR FILE" writes what a server would have: a batch, or with
// "settings DIR FILE" its settings. In the files, @-5m is the time five minutes ago.
func TestOperators(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/operator",
		RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": func(ts *testscript.TestScript, _ bool, args []string) {
				asServer(ts, args, (*sqlregistry.Registry).Write)
			},
			"settings": func(ts *testscript.TestScript, _ bool, args []string) {
				asServer(ts, args, (*sqlregistry.Registry).SetSettings)
			},
			"json": checkJSON,
		},
	})
}

// asServer opens a registry and hands a value of a file to a method.
func asServer[V any](ts *testscript.TestScript, args []string, do func(*sqlregistry.Registry, context.Context, V) error) {
	if len(args) != 2 {
		ts.Fatalf("usage: server|settings DIR FILE")
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

// withTimes puts times into a text.
func withTimes(text string, now time.Time) string {
	return relative.ReplaceAllStringFunc(text, func(found string) string {
		d, err := time.ParseDuration(found[2 : len(found)-1])
		if err != nil {
			return found
		}
		return `"` + now.Add(d).UTC().Format(time.RFC3339Nano) + `"`
	})
}

// checkJSON reads standard output as JSON, a value a line, and compares the
// text of a path in the first of them: json .word.action block. Without a path
// it counts the values: json 2.
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

// operate runs a command in this process.
func tryCommand(t *testing.T, args ...string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = run(args, &environment{ctx: t.Context(), stdout: &out, stderr: &errs})
	return exit, out.String(), errs.String()
}

// Whoever bans an address of the machine itself is asked whether that is
// meant.
func TestBanOfThisMachineNeedsForce(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Skip(err)
	}
	for _, a := range addrs {
		own := a.(*net.IPNet).IP.String()
		exit, out, errs := tryCommand(t, "ban", own, "--state", t.TempDir())
		if exit != exitFailed || out != "" || !strings.Contains(errs, "this machine itself") || !strings.Contains(errs, "hint: --force") {
			t.Errorf("ban %s: exit %d, %q, %q", own, exit, out, errs)
		}
	}
}

// sudo hands on none of ssh's variables: they are looked for in the processes
// that began it.
func TestOperatorIsFoundThroughSudo(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	cmd := exec.Command("cat")
	cmd.Env = []string{"A=b", "SSH_CONNECTION=198.51.100.7 50000 192.0.2.1 22"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	if _, err := in.Write([]byte{'\n'}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	if got := cameThrough(cmd.Process.Pid); got != netip.MustParseAddr("198.51.100.7") {
		t.Errorf("came from %v", got)
	}
}

// When nobody names a folder, the registry of the systemd unit is found.
func TestRegistryOfTheServiceIsFound(t *testing.T) {
	home, service := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	t.Setenv("STATE_DIRECTORY", "")
	own := filepath.Join(home, "fairshare")
	find := func(named string) string {
		t.Helper()
		dir, err := registryDir(named, service)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if got := find(""); got != own {
		t.Errorf("with none there: %s, want %s", got, own)
	}
	touch := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, registryName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch(service)
	if got := find(""); got != service {
		t.Errorf("with the service's alone: %s, want %s", got, service)
	}
	if got := find("/elsewhere"); got != "/elsewhere" {
		t.Errorf("named: %s", got)
	}
	touch(own)
	if got := find(""); got != own {
		t.Errorf("with both: %s, want %s", got, own)
	}
	if err := os.Remove(filepath.Join(own, registryName)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STATE_DIRECTORY", "/systemd")
	if got := find(""); got != "/systemd" {
		t.Errorf("under systemd: %s", got)
	}
}

// A story that a server writes while somebody asks for it is found.
func TestWhyWaitsForAStory(t *testing.T) {
	dir := t.TempDir()
	r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, registryName), sqlregistry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	written := make(chan error)
	go func() {
		now := time.Now()
		client := fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32"))
		written <- r.Write(t.Context(), sqlregistry.Batch{Stories: []fairshare.Story{{
			ID: "7k3m9x2abc", Client: client, Rule: "pages", Action: fairshare.Refuse, Status: 429, First: now, Last: now, Count: 1, Until: now.Add(time.Hour),
		}}})
	}()
	exit, out, errs := tryCommand(t, "why", "7k3m9x2abc", "--state", dir)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if exit != exitOK || !strings.HasPrefix(out, "7k3m9x2abc: 203.0.113.9 was refused by the rule \"pages\"\n") {
		t.Errorf("exit %d, %q, %q", exit, out, errs)
	}
}

// Who asks with an address, while a server runs, gets the story of just now
// too; who was refused before, or where no server runs, is told at once.
func TestWhyOfAnAddressWaitsForANewerStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, err := sqlregistry.Open(t.Context(), filepath.Join(dir, registryName), sqlregistry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		write := func(id, rule string) {
			now := time.Now()
			if err := r.Write(t.Context(), sqlregistry.Batch{Stories: []fairshare.Story{{
				ID: id, Client: fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")), Rule: rule, Action: fairshare.Refuse,
				Status: 429, First: now, Last: now, Count: 1, Until: now.Add(time.Hour),
			}}}); err != nil {
				t.Error(err)
			}
		}
		why := func(want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			_, out, errs := tryCommand(t, "why", "203.0.113.9", "--state", dir)
			if took := time.Since(began); !strings.HasPrefix(out+errs, want) || took > within {
				t.Errorf("after %v: %q, %q; want %s within %v", took, out, errs, want, within)
			}
		}
		why("fairshare: no refusal of 203.0.113.9 is remembered", 0)
		lock, err := lockfile.Take(filepath.Join(dir, lockFile))
		if err != nil {
			t.Fatal(err)
		}
		if !lockfile.Held(filepath.Join(dir, lockFile)) {
			t.Skip("there are no locks")
		}
		time.AfterFunc(250*time.Millisecond, func() { write("7k3m9x2abc", "pages") })
		why("7k3m9x2abc: ", 300*time.Millisecond)
		why("7k3m9x2abc: ", 0) // it is of just now
		time.Sleep(time.Minute)
		time.AfterFunc(250*time.Millisecond, func() { write("7k3m9x2abd", "guesses") })
		why("7k3m9x2abd: ", 300*time.Millisecond)
		time.Sleep(time.Minute)
		why("7k3m9x2abd: ", newStoryWait)
		lock.Release()
		why("7k3m9x2abd: ", 0)
	})
}

// Two operators at once: both words are kept.
func TestCommandsAtOnce(t *testing.T) {
	dir := t.TempDir()
	const n = 8
	said := make(chan string, n)
	for i := range n {
		go func() {
			var out bytes.Buffer
			env := &environment{ctx: t.Context(), stdout: &out, stderr: &out}
			if exit := run([]string{"ban", fmt.Sprintf("203.0.113.%d", i), "--state", dir}, env); exit != exitOK {
				said <- fmt.Sprintf("exit %d: %s", exit, &out)
				return
			}
			said <- ""
		}()
	}
	for range n {
		if problem := <-said; problem != "" {
			t.Error(problem)
		}
	}
	_, out, _ := tryCommand(t, "bans", "--json", "--state", dir)
	if got := strings.Count(out, "\n"); got != n {
		t.Errorf("%d bans are kept, want %d:\n%s", got, n, out)
	}
}

func TestReference(t *testing.T) {
	for text, want := range map[string]string{
		"7k3m9x2abc":   "7k3m9x2abc",
		"7K3M9X2ABC":   "7k3m9x2abc",
		"oOiIlL2abc":   "0011112abc",
		"7k3m9-x2abc":  "7k3m9x2abc",
		"7k3m9x2ab":    "",
		"7k3m9x2abcd":  "",
		"7k3m9x2abu":   "", // no letter of Crockford's
		"203.0.113.9":  "",
		"semrushbot":   "",
		"\x1b[31m2abc": "",
	} {
		if got := reference(text); got != want {
			t.Errorf("reference(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMeantPrefix(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.*":               "203.0.113.0/24",
		"203.0.113.x":               "203.0.113.0/24",
		"203.0.*.*":                 "203.0.0.0/16",
		"203.0.*":                   "203.0.0.0/16",
		"203.0.113.0-255":           "203.0.113.0/24",
		"203.0.113.1-254":           "203.0.113.0/24",
		"203.0.113.64-95":           "203.0.113.64/27",
		"203.0.113.9-9":             "203.0.113.9/32",
		"10.0.0.0-10.0.3.255":       "10.0.0.0/22",
		"2001:db8::-2001:db8::ffff": "2001:db8::/112",
		"203.0.113.9-1":             "",
		"203.0.113.0-256":           "",
		"203.0.113.0-::1":           "",
		"fe80::1%a-fe80::2%b":       "",
		"203.0.113.2*":              "",
		"203.0.113.9":               "",
		"1.2.3.4.*":                 "",
		"*":                         "",
		"-":                         "",
		"":                          "",
	} {
		got := ""
		if p := meantPrefix(text); p.IsValid() {
			got = p.String()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func FuzzClientOfOperator(f *testing.F) {
	for _, text := range []string{"203.0.113.9", "2001:db8::1/64", "googlebot", "::", "1.2.3.4:80", "ai", "a.example", "\xff", "fe80::1%eth0", "203.0.113.0-255", "::ffff:1.2.3.4-::5", "203.0.*"} {
		f.Add(text)
	}
	o := &operator{}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := o.client(text)
		if err != nil {
			return
		}
		again, err := o.client(n.word)
		if err != nil || again.ClientID != n.ClientID {
			t.Errorf("%q is %v, written %q is %v, %v", text, n.ClientID, n.word, again.ClientID, err)
		}
	})
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"plain \"quoted\" é": "plain \"quoted\" é",
		"\x1b[2J":            `\x1b[2J`,
		"\xff":               `\xff`,
		"a\u202eb":           `a\u202eb`,
		"\u009b31m":          `\u009b31m`,
		"two\nlines":         `two\nlines`,
	} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestJSONDoesNotSteerATerminal(t *testing.T) {
	const text = "\x1b[2J \u009b31m \u202e \U000e0001 \x7f é <&>"
	var out bytes.Buffer
	if err := writeJSON(&out, text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b\u202e\U000e0001\x7f") || !strings.Contains(out.String(), "é <&>") {
		t.Errorf("%q", &out)
	}
	var back string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back != text {
		t.Errorf("read again: %q, %v", back, err)
	}
}

// Each command on the page about the registry is one, and its policy has no
// faults.
func TestRegistryPageShowsCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	parser, err := kong.New(&commands{}, kong.Vars{"version": "", "behind": ""})
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?:(?m:^)    (?:\$ )?|take it back: |let them in: |hint: |`+"`"+`)fairshare ([a-z]+ [^\n`+"`"+`|,]*)`).FindAllSubmatch(page, -1)
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

func TestOwnText(t *testing.T) {
	for text, fine := range map[string]bool{
		"":                       true,
		"Herr Öl, 5 €":           true,
		"two\nlines":             false,
		"\x1b[2J":                false,
		"\xff":                   false,
		strings.Repeat("a", 500): true,
		strings.Repeat("a", 501): false,
	} {
		if err := ownText("--reason", text); (err == nil) != fine {
			t.Errorf("ownText(%.20q): %v", text, err)
		}
	}
}

// Whoever interrupts a command hears nothing more of it.
func TestInterruptedCommandIsSilent(t *testing.T) {
	dir := t.TempDir()
	if exit, _, errs := tryCommand(t, "ban", "203.0.113.9", "--state", dir); exit != exitOK {
		t.Fatal(errs)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"bans", "bans --json", "clients", "client 203.0.113.9", "why 7k3m9x2abc", "unban 203.0.113.9", "forget 203.0.113.9"} {
		var out bytes.Buffer
		if exit := run(append(strings.Fields(args), "--state", dir), &environment{ctx: ctx, stdout: &out, stderr: &out}); exit != exitFailed || out.Len() > 0 {
			t.Errorf("%s: exit %d, %q", args, exit, &out)
		}
	}
	if _, out, _ := tryCommand(t, "bans", "--json", "--state", dir); strings.Count(out, "\n") != 1 {
		t.Errorf("the ban is gone: %q", out)
	}
}

// full is a disk on which there is no space left.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// What could not be told is no success.
func TestResultThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{
		"ban 203.0.113.9", "label 203.0.113.9 x", "note 203.0.113.9 x", "allow 198.51.100.7", "clients", "clients --json", "client 203.0.113.9", "client 203.0.113.9 --json",
		"why 203.0.113.9", "bans", "bans --json", "unlabel 203.0.113.9 x", "unban 203.0.113.9", "bans", "unallow 198.51.100.7", "forget 203.0.113.9",
	} {
		var errs bytes.Buffer
		exit := run(append(strings.Fields(args), "--state", dir), &environment{ctx: t.Context(), stdout: full{}, stderr: &errs})
		if exit != exitFailed || !strings.HasSuffix(errs.String(), "fairshare: no space left on device\n") {
			t.Errorf("%s: exit %d, %q", args, exit, &errs)
		}
	}
}

// A table of any length is written in pieces, each as wide as the one before
// at least.
func TestTableInPieces(t *testing.T) {
	var out bytes.Buffer
	table := (&operator{environment: &environment{ctx: t.Context(), stdout: &out}}).newTable("name", ">n")
	for i := range 2*tablePiece + 1 {
		if err := table.row(strings.Repeat("x", 1+i/tablePiece), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 2*tablePiece+3 || lines[0] != "name    n" || lines[1] != "x       0" || lines[tablePiece] != "x     999" || lines[2*tablePiece+1] != "xxx   2000" {
		t.Errorf("%d lines, %q, %q, %q, %q", len(lines), lines[0], lines[1], lines[tablePiece], lines[2*tablePiece+1])
	}
}
