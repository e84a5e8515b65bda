//go:build unix && !solaris && !aix

package lockfile

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks a file unless another process has locked it. It also succeeds on file systems
// without locks.
func TryLock(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK)
}

// Unlock releases the lock of TryLock.
func Unlock(f *os.File) { syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
