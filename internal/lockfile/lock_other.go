//go:build !unix || solaris || aix

package lockfile

import "os"

// TryLock does nothing: there are no locks.
func TryLock(*os.File) bool { return true }

// Unlock lets others lock the file.
func Unlock(*os.File) {}
