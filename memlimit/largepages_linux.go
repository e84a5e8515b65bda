package memlimit

import "syscall"

const (
	largePage    = 2 << 20
	madvCollapse = 25 // MADV_COLLAPSE of <linux/mman.h>, since Linux 6.1
)

// useLargePages has the system put memory into large pages, which avoids most
// misses of the address translation. Errors make it slower and nothing else.
func useLargePages(mapped []byte) {
	if syscall.Madvise(mapped, syscall.MADV_HUGEPAGE) != nil {
		return
	}
	for len(mapped) > 0 { // in steps: each one holds up page faults of requests
		n := min(len(mapped), largePage)
		if syscall.Madvise(mapped[:n], madvCollapse) == syscall.EINVAL && n == largePage {
			return // an old system, which collapses pages by itself after some time
		}
		mapped = mapped[n:]
	}
}
