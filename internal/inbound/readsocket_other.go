//go:build !unix

package inbound

import "syscall"

const canReadSockets = false

func readSocket(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
