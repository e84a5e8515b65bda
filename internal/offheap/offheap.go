// Package offheap has memory for large tables that are mostly empty. On Unix it is not part of the
// garbage-collected heap: the system provides each page when it is first written, and the garbage collector
// does not count it. Elsewhere, and with the race detector, it is ordinary memory. Start with [Slice].
package offheap

import (
	"runtime"
	"unsafe"
)

// Slice returns n zero elements, at least one. E must contain no pointers. The memory is returned to the
// system when owner is garbage. So a function that uses the elements must keep the owner alive meanwhile:
// with a lock that is part of the owner, or with [runtime.KeepAlive].
func Slice[E, T any](owner *T, n int) []E {
	var element E
	mapped, err := Take(n * int(unsafe.Sizeof(element)))
	if err != nil || mapped == nil {
		return make([]E, n) // it takes more memory, and does the same
	}
	runtime.AddCleanup(owner, Return, mapped)
	return unsafe.Slice((*E)(unsafe.Pointer(&mapped[0])), n)
}
