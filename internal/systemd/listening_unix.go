//go:build unix

package systemd

import (
	"os"

	"golang.org/x/sys/unix"
)

// isListening reports whether a socket listens, and whether it is a stream socket.
func isListening(file *os.File) (listens, streams bool, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return false, false, err
	}
	ask := func(option int) (answer int) {
		failed := raw.Control(func(fd uintptr) {
			if err == nil {
				answer, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, option)
			}
		})
		if err == nil {
			err = failed
		}
		return answer
	}
	listens, streams = ask(unix.SO_ACCEPTCONN) != 0, ask(unix.SO_TYPE) == unix.SOCK_STREAM
	return listens, streams, err
}
