//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"unsafe"
)

// columns asks the terminal for its width; 0 when f is none.
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
