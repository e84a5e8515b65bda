package redistest

import "syscall"

// ownGroup has a server end with the test program, whatever ends that.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
