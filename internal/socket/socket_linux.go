//go:build !race

// Package socket reads and writes the sockets of connections whose waiting their caller does, such as in the
// callbacks of a [syscall.RawConn].
package socket

import (
	"syscall"
	"unsafe"
)

// Supported reports whether Read and Write work on this system.
const Supported = true

// ErrAgain is the error of Read and Write if they would have to wait.
const ErrAgain = syscall.EAGAIN

// Read reads from a socket that never blocks, and does not wait. It returns 0 without an error at the end of what
// the peer sends.
//
// The scheduler does not learn of the call, which is much shorter than the time after which it would start
// another thread.
func Read(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

// Write writes as much to a socket that never blocks as the kernel takes at once. It works as Read does.
func Write(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

func call(number, fd uintptr, b []byte) (int, error) {
	for {
		n, _, err := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch err {
		case 0:
			return int(n), nil
		case syscall.EAGAIN: // without memory for the error
			return 0, ErrAgain
		case syscall.EINTR:
		default:
			return 0, err
		}
	}
}
