//go:build unix

package systemd

import (
	"os"

	"golang.org/x/sys/unix"
)

// isListening reports whether a socket takes connections.
func isListening(file *os.File) (bool, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return false, err
	}
	n := 0
	if failed := raw.Control(func(fd uintptr) {
		n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	}); failed != nil {
		return false, failed
	}
	return n != 0, err
}
