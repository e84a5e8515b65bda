package capacity

import (
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkSample: 4,000 samples a second of 1,000 networks (or 10,000, of
// which most are new each time) and 2,000 paths.
func BenchmarkSample(b *testing.B) {
	for name, networks := range map[string]uint64{"networks=1000": 1000, "networks=10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			samples := make([]Sample, 1<<16)
			for i := range samples {
				samples[i] = Sample{
					Path: rng.Uint64N(2000) * 0x9e3779b97f4a7c15, Network: rng.Uint64N(networks) * 0x9e3779b97f4a7c15,
					Took: time.Duration(rng.ExpFloat64() * 2e7), Inside: 1000, Waiting: true, Known: rng.IntN(2) == 0,
				}
			}
			c := New(Options{})
			now := int64(0)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				now += 250_000
				s := samples[i&(len(samples)-1)]
				s.Now = now
				c.Sample(s)
				i++
			}
			if c.Slots() < 1 {
				b.Fatal("no slots")
			}
		})
	}
}

// Sample allocates nothing in the steady state.
func TestNoAllocations(t *testing.T) {
	c := New(Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	now := int64(0)
	sample := func() {
		now += 250_000
		c.Sample(Sample{Now: now, Path: rng.Uint64N(5000), Network: rng.Uint64N(5000),
			Took: time.Duration(rng.ExpFloat64() * 2e7), Inside: 1000, Waiting: true})
	}
	if n := testing.AllocsPerRun(100_000, sample); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
