package memlimit_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"fairshare"
)

// crowd returns the keys of 4 M requests of n clients, 16 bytes each: by
// Zipf's law, or evenly if s is 0.
func crowd(n int, s float64) []byte {
	keys := make([]byte, 16<<22)
	r := rand.New(rand.NewSource(1))
	next := func() uint64 { return uint64(r.Intn(n)) }
	if s > 0 {
		next = rand.NewZipf(r, s, 1, uint64(n-1)).Uint64
	}
	for i := 0; i < len(keys); i += 16 {
		binary.LittleEndian.PutUint64(keys[i:], next()*0x9E3779B97F4A7C15)
	}
	return keys
}

// BenchmarkTake measures one limit: with the clock that is read for it, and
// with one that somebody else keeps.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name   string
		n      int
		zipf   float64
		memory int64
	}{
		{"1k", 1000, 0, 64 << 20},
		{"1M zipf", 1e6, 1.1, 64 << 20},
		{"10M uniform", 1e7, 0, 320e6},
	} {
		keys := crowd(c.n, c.zipf)
		for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
			for _, coarse := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/%s/coarse=%v", c.name, algorithm, coarse), func(b *testing.B) {
					limits := []fairshare.Limit{{Name: "rate", Resource: fairshare.Requests, N: 10,
						Window: time.Second, Algorithm: algorithm}}
					if algorithm == fairshare.GCRA {
						limits[0].Burst = 20
					}
					l := open(b, limits, c.memory)
					ctx, start := context.Background(), time.Now()
					takes, tallies := []fairshare.Take{{Cost: 1}}, make([]fairshare.Tally, 1)
					over, n := 0, 0
					now := start
					take := func() {
						at := n * 16 & (len(keys) - 1)
						if n++; !coarse || n&1023 == 0 {
							now = start.Add(time.Since(start))
						}
						takes[0].Key = keys[at : at+16]
						if err := l.Take(ctx, now, takes, tallies); err != nil {
							b.Fatal(err)
						}
						if tallies[0].Over {
							over++
						}
					}
					for range 1 << 20 {
						take()
					}
					b.ReportAllocs()
					for b.Loop() {
						take()
					}
					b.ReportMetric(100*float64(over)/float64(n), "%over")
					if c.n == 1000 && over == 0 {
						b.Fatal("nobody was refused")
					}
				})
			}
		}
	}
}

// BenchmarkTakeThree measures a request under three limits by one key.
func BenchmarkTakeThree(b *testing.B) {
	limits := []fairshare.Limit{
		{Name: "second", Resource: fairshare.Requests, N: 1000, Window: time.Second},
		{Name: "minute", Resource: fairshare.Requests, N: 10_000, Window: time.Minute},
		{Name: "burst", Resource: fairshare.Requests, N: 1000, Window: time.Second, Algorithm: fairshare.GCRA},
	}
	l := open(b, limits, 64<<20)
	keys := crowd(1000, 0)
	ctx, now := context.Background(), time.Now()
	takes, tallies := make([]fairshare.Take, len(limits)), make([]fairshare.Tally, len(limits))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		at := n * 16 & (len(keys) - 1)
		n++
		now = now.Add(10 * time.Microsecond)
		for i := range takes {
			takes[i] = fairshare.Take{Limit: i, Key: keys[at : at+16], Cost: 1}
		}
		if err := l.Take(ctx, now, takes, tallies); err != nil || tallies[0].Over {
			b.Fatal(tallies, err)
		}
	}
}
