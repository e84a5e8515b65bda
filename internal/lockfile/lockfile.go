// Package lockfile keeps two processes from writing the same files.
package lockfile

import (
	"errors"
	"os"
)

// ErrHeld is what Take answers when another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// A Lock is held until it is released, or the process ends.
type Lock struct{ file *os.File }

// Take takes the lock that a file stands for, and makes the file if there is
// none. It does not wait. Some file systems have no locks; there everybody
// gets it.
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

// Held reports whether somebody holds the lock that a file stands for. It makes
// no file; where that cannot be told, nobody does.
func Held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !TryLock(f)
}

// Release lets others have the lock. The file stays: whoever waits for it
// holds it open.
func (l *Lock) Release() {
	if l != nil {
		l.file.Close()
	}
}
