package census

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// A seen counts clients that all requests are noted of: linear counting
// (Whang, Vander-Zanden, Taylor 1990). Each client sets one bit; from the
// share of bits that nobody set follows how many there were. The standard
// error is under 1 % up to 1.3 million clients and 5 % at 3 million, which is
// as far as it counts. It takes 32 KiB.
type seen [seenBits / 64]atomic.Uint64

const seenBits = 1 << 18

// add notes a client by its hash. Most requests are of clients noted before
// and only read.
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

// estimate returns about how many different clients were noted in any of
// some.
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
