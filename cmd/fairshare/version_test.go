package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestVersionInACloneNamesTheCommit builds the program in a clone of this
// repository.
func TestVersionInACloneNamesTheCommit(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
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
	head, err := command(clone, "git", "rev-parse", "HEAD").Output() // the original may have a new one by now
	if err != nil {
		t.Fatal(err)
	}
	if out, err := command(clone, "go", "build", "-buildvcs=true", "-o", program, "./cmd/fairshare").
		CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "development-" + string(head[:12]); !strings.Contains(string(out), want) {
		t.Errorf("fairshare version: %q, want %q in it", out, want)
	}
}
