//go:build unix

package redistest

import (
	"os"
	"syscall"
)

func signalStop(p *os.Process)     { p.Signal(syscall.SIGSTOP) }
func signalContinue(p *os.Process) { p.Signal(syscall.SIGCONT) }
