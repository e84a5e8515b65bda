//go:build unix && !solaris && !aix

package lockfile

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks a file, unless another process has. Some file systems have no
// locks; there it does nothing.
func TryLock(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK)
}

// Unlock lets others lock the file.
func Unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
