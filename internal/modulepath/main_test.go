package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMoved(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"fairshare", "example.org/fs"},
		{"fairshare/memlimit", "example.org/fs/memlimit"},
		{"fairshares/memlimit", "fairshares/memlimit"},
		{"net/http", "net/http"},
	} {
		if got := moved(c.path, "fairshare", "example.org/fs"); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
}

// Under another path each import of each package and test is found, the root
// compiles and its tests of imports pass; the way back restores each file. A path
// is used in imports only, so all other packages compile as before.
func TestWholeTreeMovesToAnotherPath(t *testing.T) {
	if testing.Short() || os.Getenv("FAIRSHARE_REQUIRE_SERVICES") != "1" {
		t.Skip("compiles the root again: set FAIRSHARE_REQUIRE_SERVICES=1")
	}
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("../..")); err != nil {
		t.Fatal(err)
	}
	old, err := modulePath(root)
	if err != nil {
		t.Fatal(err)
	}
	before := sources(t, root)
	if err := change(root, "example.org/moved/fairshare"); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{root, filepath.Join(root, "bench")} {
		cmd := exec.Command("go", "list", "-deps", "-test", "./...")
		cmd.Dir = folder
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go list in %s: %v\n%s", folder, err, out)
		}
		if !strings.Contains(string(out), "\nexample.org/moved/fairshare\n") ||
			strings.Contains("\n"+string(out), "\nfairshare") {
			t.Errorf("%s uses these packages:\n%s", folder, out)
		}
	}
	cmd := exec.Command("go", "test", "-run", "TestImport", ".")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("import directions: %v\n%s", err, out)
	}
	if err := change(root, old); err != nil {
		t.Fatal(err)
	}
	for file, text := range sources(t, root) {
		if before[file] != text {
			t.Errorf("%s is not as before", file)
		}
	}
}

// sources returns the Go and module files of a tree.
func sources(t *testing.T, root string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.Walk(root, func(file string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || !strings.HasSuffix(file, ".go") && info.Name() != "go.mod" &&
			info.Name() != "README.md" {
			return err
		}
		text, err := os.ReadFile(file)
		lines := strings.Split(string(text), "\n")
		if info.Name() == "go.mod" {
			// Neither the order of requirements nor their blocks say anything.
			for i, line := range lines {
				lines[i] = strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "require"), " ()")
			}
			slices.Sort(lines)
			lines = slices.Compact(lines)
		}
		texts[file] = strings.Join(lines, "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestWrongPathChangesNothing(t *testing.T) {
	root := t.TempDir()
	files := map[string]string{"go.mod": "module fairshare\n\ngo 1.26\n",
		"a.go": "package a\n\nimport _ \"fairshare/b\"\n"}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(root, "a path with blanks"); err == nil {
		t.Error("no error")
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}
