//go:build !race

package memlimit

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"

	"fairshare"
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

// A limiter with few states takes little of the memory that it may use: not for
// its figures, not for a snapshot, not when it is reset.
func TestTableIsNotTouchedBeforeItIsNeeded(t *testing.T) {
	_, before := memory(t)
	l := opened(t, 256<<20, perMinute(100))
	for i := range 100 {
		take(t, l, 0, number(i), 1, start)
	}
	l.Stats(start)
	var snapshot bytes.Buffer
	if err := l.Save(&snapshot, start); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Load(&snapshot, start); err != nil {
		t.Fatal(err)
	}
	l.Reset()
	if _, after := memory(t); after-before > 16<<20 {
		t.Errorf("100 states take %d MiB", (after-before)>>20)
	}
	runtime.KeepAlive(l)
}

// The memory of a table is returned when its last limiter is garbage, and not
// while a goroutine counts with it.
func TestTableMemoryIsReturned(t *testing.T) {
	const size = 1 << 30
	before, _ := memory(t)
	for range 40 {
		l := opened(t, size, perMinute(100))
		next, err := l.With([]fairshare.Limit{perMinute(200)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func(l *Limiter) { // with the only reference
			defer close(done)
			takes, tallies := make([]fairshare.Take, 1), make([]fairshare.Tally, 1)
			takes[0] = fairshare.Take{Key: []byte("a client's key"), Cost: 1}
			for range 1000 {
				_ = l.Take(t.Context(), start, takes, tallies)
			}
		}(next)
		l, next = nil, nil
		runtime.GC()
		<-done
	}
	for range 100 { // cleanups run in a goroutine of the runtime
		runtime.GC()
		if after, _ := memory(t); after-before < 4*size {
			return
		}
		runtime.Gosched()
	}
	after, _ := memory(t)
	t.Errorf("40 tables of 1 GiB that are garbage: %d GiB more than before", (after-before)>>30)
}
