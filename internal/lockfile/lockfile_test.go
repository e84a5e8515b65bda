//go:build unix && !solaris && !aix

package lockfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairshare/internal/lockfile"
)

// The lock is held until its process ends, in any way.
func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if os.Getenv("LOCK") != "" {
		if _, err := lockfile.Take(os.Getenv("LOCK")); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("held\n")
		io.ReadAll(os.Stdin)
		return
	}
	held := func(want bool) {
		t.Helper()
		if got := lockfile.Held(path); got != want {
			t.Errorf("held: %t, want %t", got, want)
		}
	}
	held(false)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking made a file: %v", err)
	}
	mine, err := lockfile.Take(path)
	if err != nil {
		t.Fatal(err)
	}
	held(true)
	if _, err := lockfile.Take(path); !errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("a second time: %v, want ErrHeld", err)
	}
	mine.Release()
	held(false)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command(self, "-test.run=^TestTake$")
	other.Env = append(os.Environ(), "LOCK="+path)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 5)
	if _, err := io.ReadFull(out, word); err != nil || string(word) != "held\n" {
		t.Fatalf("the other process printed %q, %v", word, err)
	}
	if _, err := lockfile.Take(path); !errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("while another process holds it: %v, want ErrHeld", err)
	}
	held(true)
	other.Process.Kill()
	other.Wait()
	again, err := lockfile.Take(path)
	if err != nil {
		t.Errorf("after that was killed: %v", err)
	}
	again.Release()
	if _, err := lockfile.Take(filepath.Join(path, "no folder")); err == nil || errors.Is(err, lockfile.ErrHeld) {
		t.Errorf("where no file can be: %v", err)
	}
}
