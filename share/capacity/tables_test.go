package capacity

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// The quick median equals that of a sorted slice.
func TestMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.IntN(1 + n/2))
		}
		var want float32
		if n > 0 {
			s := slices.Clone(v)
			slices.Sort(s)
			want = s[(n-1)/2]
		}
		if got := median(slices.Clone(v)); got != want {
			t.Fatalf("median of %v: %v, want %v", v, got, want)
		}
	}
}

// A flood of paths does not replace paths in use. Paths without requests for long are replaced.
func TestPathsInUseAreKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var table paths
	ask := func(id uint64, now time.Duration) *path {
		p := table.find(id, int64(now))
		if p != nil {
			p.learn(float32(id%7), &Sample{Network: rng.Uint64()})
		}
		return p
	}
	known := make([]uint64, 500)
	for i := range known {
		known[i] = rng.Uint64()
		for range settledAfter {
			ask(known[i], 0)
		}
	}
	for i := range 100_000 {
		ask(rng.Uint64(), time.Duration(i)*time.Millisecond)
	}
	lost := 0
	for _, id := range known {
		if p := table.find(id, int64(100*time.Second)); p == nil || p.n < settledAfter {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d paths in use were lost", lost, len(known))
	}
	again := 0
	for range 500 {
		id := rng.Uint64()
		for range settledAfter {
			ask(id, time.Hour)
		}
		if p := table.find(id, int64(time.Hour)); p != nil && p.n >= settledAfter {
			again++
		}
	}
	if again < 490 {
		t.Errorf("of 500 new paths an hour later only %d are stored", again)
	}
}

// The usual time is the geometric mean, even if one network sends many more samples.
func TestPathLearns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var p path
	for i := range 20_000 {
		s := &Sample{Network: uint64(i%10 + 1)}
		p.learn(float32(rng.NormFloat64()), s)
		for range 10 { // a network with ten times as many samples, far from the mean
			p.learn(20, &Sample{Network: 99})
		}
	}
	if p.usual < -0.5 || p.usual > 2.5 {
		t.Errorf("usual %v, want about 0 and no more than 2 off", p.usual)
	}
}

// Networks with standing are kept, and each network counts once in a round.
func TestNetworksWithStandingAreKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var table networks
	table.begin()
	known := make([]uint64, 300)
	for i := range known {
		known[i] = rng.Uint64()
		table.find(&Sample{Network: known[i], Known: true})
	}
	for i := range 1000 {
		table.begin()
		for range 100 {
			table.find(&Sample{Network: rng.Uint64(), Now: int64(i) * 1e8})
		}
		seen := map[uint64]bool{}
		for _, index := range table.touched {
			id := table.all[index].id
			if seen[id] {
				t.Fatal("a network counts twice")
			}
			seen[id] = true
		}
		if len(table.touched) > 100 {
			t.Fatalf("%d networks of 100", len(table.touched))
		}
	}
	for _, id := range known {
		if n := table.find(&Sample{Network: id, Now: 1e11}); n == nil || !n.lasting {
			t.Fatal("a network with standing was pushed out")
		}
	}
}

// After a sample of a client with standing, other clients of its network do not count in that
// round.
func TestClientsWithStandingVoteForTheirNetwork(t *testing.T) {
	c := New(Options{})
	c.begin(0, 0)
	c.vote(&Sample{Network: 1, Took: 1}, 3)
	c.vote(&Sample{Network: 1, Took: 1, Known: true}, 0.5)
	c.vote(&Sample{Network: 1, Took: 1}, 3)
	n := c.networks.find(&Sample{Network: 1})
	if n.n != 1 || n.off != 0.5 || n.rank != 2 {
		t.Errorf("%+v", *n)
	}
}

// With three networks of clients with standing, other networks have at most half as many votes,
// however many they are.
func TestNewcomersVotes(t *testing.T) {
	c := New(Options{})
	c.begin(0, 0)
	for i := range 6 {
		c.vote(&Sample{Network: uint64(i + 1), Took: 1, Known: true}, 0)
	}
	for i := range 1000 {
		c.vote(&Sample{Network: uint64(i + 100), Took: 1}, 5)
	}
	if got := c.poll(); got.value != 0 || len(c.offs) != 9 {
		t.Errorf("score %v of %d votes, want 0 of 9", got.value, len(c.offs))
	}
}

// Random samples never break the bounds.
func TestRandomSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	c := New(Options{Min: 2, Max: 50})
	now := int64(0)
	for range 300_000 {
		now += rng.Int64N(int64(time.Millisecond))
		if rng.IntN(5000) == 0 {
			now += int64(time.Hour)
		}
		took := time.Duration(rng.Uint64() >> rng.IntN(64))
		if rng.IntN(10) == 0 {
			took = -took
		}
		c.Sample(Sample{
			Now: now, Path: rng.Uint64N(8), Network: rng.Uint64N(100), Took: took, Inside: rng.IntN(100) - 10,
			Waiting: rng.IntN(2) == 0, Failed: rng.IntN(3) == 0, Known: rng.IntN(2) == 0,
		})
		if n := c.Slots(); n < 2 || n > 50 || c.floor != c.floor || c.slow != c.slow {
			t.Fatalf("slots %d, floor %v, slow %v", n, c.floor, c.slow)
		}
	}
}

// A Capacity has the size that its comment says.
func TestSize(t *testing.T) {
	size := unsafe.Sizeof(Capacity{}) + networkSets*ways*(3*4+2)
	t.Logf("%d bytes", size)
	if size > 300<<10 {
		t.Errorf("%d bytes", size)
	}
}
