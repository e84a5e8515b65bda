package memlimit

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// warm asks for large pages, which spare most misses of the address
// translation, and touches every page, so that no request waits for the
// system to find memory. All processors share the work.
func warm(sets []set) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&sets[0])), len(sets)*setBytes)
	page := os.Getpagesize()
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	if whole := (len(b) - skip) &^ (page - 1); whole > 0 {
		_ = syscall.Madvise(b[skip:skip+whole], syscall.MADV_HUGEPAGE) // without it, merely slower
	}
	var touched sync.WaitGroup
	part := (len(b)/runtime.GOMAXPROCS(0) + hugePage) &^ (hugePage - 1)
	for b := range slices.Chunk(b, part) {
		touched.Go(func() {
			for i := 0; i < len(b); i += page {
				b[i] = 0
			}
		})
	}
	touched.Wait()
}

const hugePage = 2 << 20
