// Package lockfile prevents two processes from writing the same files. Start
// with [Take].
package lockfile

import (
	"errors"
	"os"
)

// ErrHeld is the error of Take when another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// A Lock is held until Release or the end of the process.
type Lock struct{ file *os.File }

// Take takes the lock of a file, and creates the file if needed. It does not wait. On file systems
// without locks it always succeeds.
func Take(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if !TryLock(f) {
		f.Close()
		return nil, ErrHeld
	}
	return &Lock{f}, nil
}

// Held reports whether a process holds the lock of a file. It does not create the file, and returns
// false if it cannot find out.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !TryLock(f)
}

// Release releases the lock. It keeps the file, because a waiting process has it open.
func (l *Lock) Release() {
	if l != nil {
		l.file.Close()
	}
}
