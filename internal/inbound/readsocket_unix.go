//go:build unix

package inbound

import "syscall"

// canReadSockets reports whether readSocket works.
const canReadSockets = true

// readSocket reads from a socket and does not block.
func readSocket(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
