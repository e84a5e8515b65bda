package remote

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"fairshare/internal/cli"
)

// The socket of another user leads to an error that says what to do.
func TestSocketOfAnotherUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "fs")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "admin.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(path, 0o600), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		_, err := find([]string{path}, false)
		result <- err
	}()
	err = <-result
	var hint *cli.HintError
	if !errors.As(err, &hint) || !strings.Contains(hint.Hint, "root") ||
		!strings.Contains(err.Error(), "another user") {
		t.Errorf("%v", err)
	}
	if addr, err := find([]string{filepath.Join(dir, "none"), path}, false); addr != "unix:"+path || err != nil {
		t.Errorf("the own socket: %s, %v", addr, err)
	}
}
