//go:build (linux || darwin || freebsd || netbsd || openbsd || dragonfly) && !race

package offheap

import (
	"fmt"
	"syscall"
)

// Available says that Take takes memory that the garbage collector does not count.
const Available = true

// Take returns size zero bytes, which begin at a page. It returns nil if there is only ordinary memory.
func Take(size int) ([]byte, error) {
	mapped, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", size, err)
	}
	return mapped, nil
}

// Return gives the bytes of Take back to the system. No goroutine may use them any more.
func Return(mapped []byte) { _ = syscall.Munmap(mapped) }
