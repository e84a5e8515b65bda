package memlimit

import (
	"os"
	"syscall"
	"unsafe"
)

// warm asks for large pages, which spare most misses of the address
// translation, and touches every page, so that no request waits for the
// system to find memory.
func warm(sets []set) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&sets[0])), len(sets)*setBytes)
	page := os.Getpagesize()
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	if whole := (len(b) - skip) &^ (page - 1); whole > 0 {
		_ = syscall.Madvise(b[skip:skip+whole], syscall.MADV_HUGEPAGE) // without it, merely slower
	}
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
}
