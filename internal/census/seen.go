package census

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// A seen counts the clients of all requests by linear counting (Whang, Vander-Zanden,
// Taylor 1990). Each client sets one bit; the share of unset bits gives the number of
// clients. The standard error is under 1 % up to 1.3 million clients and 5 % at 3
// million, the largest number that it can count. It takes 32 KiB.
type seen [seenBits / 64]atomic.Uint64

const seenBits = 1 << 18

// add adds a client by its hash. Most clients are already there; then it only reads.
func (s *seen) add(hash uint64) {
	word, bit := &s[hash%uint64(len(s))], uint64(1)<<(hash>>58)
	if word.Load()&bit == 0 {
		word.Or(bit)
	}
}

// join adds the clients of another.
func (s *seen) join(other *seen) {
	for i := range s {
		s[i].Or(other[i].Load())
	}
}

// estimate returns the approximate number of different clients in several seen.
func estimate(of ...*seen) int64 {
	unset := seenBits
	for i := range seenBits / 64 {
		var word uint64
		for _, s := range of {
			word |= s[i].Load()
		}
		unset -= bits.OnesCount64(word)
	}
	return int64(math.Round(-seenBits * math.Log(float64(max(unset, 1))/seenBits)))
}
