//go:build unix && (!linux || race)

package socket

// With the race detector, Linux has these functions, too: it learns from those of package syscall that what is read
// was written before.

import "syscall"

const supported = true

// ErrAgain is the error of Read and Write if they would have to wait.
const ErrAgain = syscall.EAGAIN

func read(fd uintptr, b []byte) (int, error) { return repeat(syscall.Read, fd, b) }

func write(fd uintptr, b []byte) (int, error) { return repeat(syscall.Write, fd, b) }

func repeat(call func(int, []byte) (int, error), fd uintptr, b []byte) (int, error) {
	for {
		n, err := call(int(fd), b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
