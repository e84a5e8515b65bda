//go:build !linux

package redistest

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
