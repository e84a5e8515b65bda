package fleets

import (
	"math"
	"math/bits"
)

// A sketch estimates how many different values it has seen: HyperLogLog (Flajolet
// et al. 2007) with 256 registers, a standard error of 6.5 %.
type sketch [256]uint8

func (s *sketch) add(hash uint64) {
	r := &s[hash>>56]
	*r = max(*r, uint8(bits.LeadingZeros64(hash<<8|1<<7))+1)
}

func (s *sketch) join(other *sketch) {
	for i, r := range other {
		s[i] = max(s[i], r)
	}
}

// estimate returns the number of different values; with few of them, by linear
// counting.
func (s *sketch) estimate() int64 {
	const m = float64(len(s))
	sum, empty := 0.0, 0
	for _, r := range s {
		sum += math.Ldexp(1, -int(r))
		if r == 0 {
			empty++
		}
	}
	estimate := 0.7213 / (1 + 1.079/m) * m * m / sum
	if estimate <= 2.5*m && empty > 0 {
		estimate = m * math.Log(m/float64(empty))
	}
	return int64(math.Round(estimate))
}
