//go:build unix

package outbound

import "golang.org/x/sys/unix"

// Supported reports whether a Pool is safe on this system.
const Supported = true

// isQuiet reports whether a socket is open and has nothing to read.
func isQuiet(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return err == unix.EAGAIN
		}
	}
}
