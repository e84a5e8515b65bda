//go:build !unix || solaris || aix

package lockfile

import "os"

// TryLock always succeeds, because this system has no file locks.
func TryLock(*os.File) bool { return true }

// Unlock releases the lock of TryLock.
func Unlock(*os.File) {}
