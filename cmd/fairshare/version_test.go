package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The version of a program that is built in a clone of this repository names the
// commit.
func TestVersionInACloneNamesTheCommit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	// A hook of git sets variables that name another repository.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	command := func(dir, name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, env
		return cmd
	}
	root, err := command("", "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("not a git working copy")
	}
	clone, program := filepath.Join(t.TempDir(), "clone"), filepath.Join(t.TempDir(), "fairshare")
	// Without tags: the version of a tagged commit is the tag.
	if out, err := command("", "git", "clone", "-q", "--no-tags", strings.TrimSpace(string(root)), clone).
		CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, out)
	}
	// A program of cli alone is built in seconds, the whole of fairshare in half a minute.
	const source = "package main\n\nimport \"fairshare/internal/cli\"\n\nfunc main() { println(cli.VersionText()) }\n"
	if err := os.Mkdir(filepath.Join(clone, "version"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(clone, "version", "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"add", "version"}, {"-c", "user.name=test", "-c", "user.email=test@example.org",
		"-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "version"}} {
		if out, err := command(clone, "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
	head, err := command(clone, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(clone, "go", "build", "-buildvcs=true", "-o", program, "./version").
		CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if want := "development-" + string(head[:12]); !strings.Contains(string(out), want+" ") {
		t.Errorf("the version is %q, want %q in it", out, want)
	}
}
