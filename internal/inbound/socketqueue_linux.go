package inbound

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged returns how many bytes the peer has not confirmed yet.
func unacknowledged(raw syscall.RawConn) (n int, ok bool) {
	if raw == nil {
		return 0, false
	}
	var err error
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }) != nil || err != nil {
		return 0, false
	}
	return n, true
}

// unread returns how many bytes of the peer wait to be read.
func unread(raw syscall.RawConn) (n int, ok bool) {
	if raw == nil {
		return 0, false
	}
	var err error
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }) != nil || err != nil {
		return 0, false
	}
	return n, true
}
