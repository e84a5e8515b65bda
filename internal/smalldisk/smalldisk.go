//go:build linux

// Package smalldisk gives tests a disk that is soon full.
package smalldisk

import (
	"fmt"
	"syscall"
	"testing"
)

// New mounts a file system of its own of that many bytes until the test ends,
// and returns its folder. Where that is not allowed the test is skipped: it
// takes the privilege to mount, which many containers do not have.
func New(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("fairshare", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
