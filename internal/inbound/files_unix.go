//go:build unix

package inbound

import "syscall"

// openFiles returns how many file descriptors the process may have, 0 if that
// is unknown.
func openFiles() uint64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return uint64(r.Cur)
}
