package membans

import (
	"math/rand/v2"
	"testing"
)

// A key that was added is found until it is removed. Most other keys are not
// found.
func TestFilterFindsAddedKeys(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const n = 10_000
	f := newFilter(n)
	in := map[uint64]int{}
	for range 5 * n {
		h := rnd.Uint64() % (3 * n) * 0x9E3779B97F4A7C15
		if len(in) < n && rnd.IntN(2) == 0 {
			f.add(h)
			in[h]++
		} else if in[h] > 0 {
			f.remove(h)
			if in[h]--; in[h] == 0 {
				delete(in, h)
			}
		}
	}
	if len(in) == 0 {
		t.Fatal("nothing is in the filter")
	}
	for h := range in {
		if !f.has(h) {
			t.Fatalf("%x was added and is not found", h)
		}
	}
	wrong := 0
	for range 100_000 {
		if h := rnd.Uint64(); in[h] == 0 && f.has(h) {
			wrong++
		}
	}
	if wrong > 200 { // 8 of 2^15 a look-up
		t.Errorf("%d of 100,000 other keys are found", wrong)
	}
}

func TestOverflowingFilterReportsEveryKey(t *testing.T) {
	f := newFilter(1)
	for i := range uint64(40) {
		f.add(i << 49)
	}
	for i := range uint64(40) {
		if !f.has(i << 49) {
			t.Errorf("%d was added to a full set and is not found", i)
		}
	}
}
