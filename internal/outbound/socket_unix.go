//go:build unix

package outbound

import "golang.org/x/sys/unix"

// Supported reports whether a Pool is safe on this system.
const Supported = true

// errAgain is the error of readSocket and writeSocket if they would have to wait.
const errAgain = unix.EAGAIN

// readSocket reads from a socket and does not wait. At the end of what the peer sends, it returns 0.
func readSocket(fd uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// writeSocket writes as much to a socket as the kernel takes at once.
func writeSocket(fd uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Write(int(fd), b)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
