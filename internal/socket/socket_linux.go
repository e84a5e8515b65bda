//go:build !race

package socket

import (
	"syscall"
	"unsafe"
)

const supported = true

// ErrAgain is the error of Read and Write if they would have to wait.
const ErrAgain = syscall.EAGAIN

func read(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

func write(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

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
