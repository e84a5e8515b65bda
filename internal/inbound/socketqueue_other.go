//go:build !linux

package inbound

import "syscall"

func unacknowledged(syscall.RawConn) (int, bool) { return 0, false }
func unread(syscall.RawConn) (int, bool)         { return 0, false }
