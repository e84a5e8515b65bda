package memlimit

import (
	"hash/maphash"
	"testing"
)

// BenchmarkHash measures the hash beside hash/maphash, whose seed cannot be
// kept over a restart.
func BenchmarkHash(b *testing.B) {
	k, other := newSeed().secret(), maphash.MakeSeed()
	for _, c := range []struct {
		name string
		n    int
	}{{"8 bytes", 8}, {"16 bytes", 16}, {"17 bytes", 17}, {"64 bytes", 64}} {
		key := make([]byte, c.n)
		var sum uint64
		b.Run(c.name+"/ours", func(b *testing.B) {
			for b.Loop() {
				key[0] = byte(sum) // one after the other
				sum += k.hash(key)
			}
		})
		b.Run(c.name+"/maphash", func(b *testing.B) {
			for b.Loop() {
				key[0] = byte(sum)
				sum += maphash.Bytes(other, key)
			}
		})
	}
}
