package offheap

import (
	"runtime"
	"testing"
)

func TestSliceIsEmptyAndWritable(t *testing.T) {
	type pair struct{ a, b uint64 }
	owner := new(int)
	all := Slice[pair](owner, 10_000)
	if len(all) != 10_000 || cap(all) != 10_000 {
		t.Fatalf("length %d, capacity %d", len(all), cap(all))
	}
	for i := range all {
		if all[i] != (pair{}) {
			t.Fatalf("element %d is %v at first", i, all[i])
		}
		all[i] = pair{uint64(i), ^uint64(i)}
	}
	runtime.GC()
	for i := range all {
		if all[i] != (pair{uint64(i), ^uint64(i)}) {
			t.Fatalf("element %d is %v", i, all[i])
		}
	}
	runtime.KeepAlive(owner)
}
