//go:build !race

package offheap

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// memory returns the virtual and the resident memory of the process in bytes.
func memory(t *testing.T) (virtual, resident int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(bytes.NewReader(b), &virtual, &resident); err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	return virtual * page, resident * page
}

func TestPagesAreProvidedWhenTheyAreWritten(t *testing.T) {
	_, before := memory(t)
	owner := new(int)
	all := Slice[uint64](owner, 32<<20)
	all[1<<20] = 1
	if _, after := memory(t); after-before > 16<<20 {
		t.Errorf("256 MiB with one element take %d MiB", (after-before)>>20)
	}
	runtime.KeepAlive(owner)
}

func TestMemoryOfGarbageIsReturned(t *testing.T) {
	const size = 1 << 30
	before, _ := memory(t)
	for range 40 {
		owner := new(int)
		Slice[byte](owner, size)[0] = 1
		runtime.KeepAlive(owner)
	}
	for range 100 { // cleanups run in a goroutine of the runtime
		runtime.GC()
		if after, _ := memory(t); after-before < 4*size {
			return
		}
		runtime.Gosched()
	}
	after, _ := memory(t)
	t.Errorf("40 slices of 1 GiB that are garbage: %d GiB more than before", (after-before)>>30)
}
