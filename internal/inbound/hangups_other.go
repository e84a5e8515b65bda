//go:build !linux

package inbound

import "syscall"

// canSeeHangups reports whether hangups work.
const canSeeHangups = false

// hangups does nothing on this system.
type hangups struct{}

func (*hangups) add(*fastConn, syscall.RawConn) uint64 { return 0 }
func (*hangups) remove(uint64)                         {}
func (*hangups) close()                                {}
