//go:build (linux || darwin || freebsd || netbsd || openbsd || dragonfly) && !race

package memlimit

import (
	"fmt"
	"syscall"
	"unsafe"
)

// takeMemory returns n empty sets, and their memory to be handed to
// returnMemory. The memory does not lie on the collected heap: the garbage
// collector does not count it, and the system provides each page when it is
// first written.
func takeMemory(n int) (sets []set, mapped []byte, err error) {
	mapped, err = syscall.Mmap(-1, 0, n*setBytes, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("memory of %d bytes: %w", n*setBytes, err)
	}
	return unsafe.Slice((*set)(unsafe.Pointer(&mapped[0])), n), mapped, nil
}

// returnMemory gives the memory back to the system. No goroutine may use its
// sets any more.
func returnMemory(mapped []byte) { _ = syscall.Munmap(mapped) }
