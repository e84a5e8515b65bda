package httpguard

import (
	"syscall"
	"time"
	"unsafe"
)

// clockThread is CLOCK_THREAD_CPUTIME_ID: the calling thread's CPU time.
const clockThread = 3

// threadID returns the calling thread's number.
func threadID() int { return syscall.Gettid() }

// ownThreadClock returns the CPU time of the calling thread since its start.
func ownThreadClock() (time.Duration, bool) { return readClock(clockThread) }

// threadClock returns the CPU time of another thread of this process, which must
// exist.
func threadClock(tid int) (time.Duration, bool) {
	// CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, linux/posix-timers.h
	return readClock(^tid<<3 | 4 | 2)
}

func readClock(id int) (time.Duration, bool) {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano()), errno == 0
}
