package redislimit

import (
	"math/rand/v2"
	"testing"
)

// The index finds what a map finds, also where hashes collide.
func TestIndexIsLikeAMap(t *testing.T) {
	for _, differ := range []uint32{3, 0xff, 0xffff, 1<<32 - 1} {
		r := rand.New(rand.NewPCG(uint64(differ), 1))
		var x index
		x.init()
		has, hashes := map[int32]bool{}, map[int32]uint32{}
		found := func(place int32) bool {
			for at := x.home(hashes[place]); ; at = x.next(at) {
				got, ok := x.get(at, hashes[place])
				if got < 0 || ok && got == place {
					return got >= 0
				}
			}
		}
		for range 5000 {
			place := r.Int32N(300)
			if has[place] {
				x.remove(hashes[place], place)
			} else {
				hashes[place] = r.Uint32() & differ
				x.add(hashes[place], place)
			}
			has[place] = !has[place]
			for range 5 {
				if p := r.Int32N(300); found(p) != has[p] {
					t.Fatalf("entry %d with the hash %x: found %t, want %t", p, hashes[p], found(p), has[p])
				}
			}
		}
		count := 0
		for _, there := range has {
			if there {
				count++
			}
		}
		if x.count != count {
			t.Errorf("it counts %d entries, want %d", x.count, count)
		}
	}
}
