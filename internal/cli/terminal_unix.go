//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cli

import (
	"os"
	"syscall"
	"unsafe"
)

// columns returns the width of the terminal, 0 if f is not a terminal.
func columns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	switch {
	case errno != 0:
		return 0
	case size.columns == 0:
		return 80
	}
	return int(size.columns)
}
