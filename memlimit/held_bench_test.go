package memlimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// BenchmarkHeld measures a request under one limit that holds: taken, and
// settled when so many others of its key or of other keys have been taken.
func BenchmarkHeld(b *testing.B) {
	limits := []fairshare.Limit{{
		Name: "cpu", Resource: fairshare.CPU, N: 1 << 40, Window: 15 * time.Second,
		By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}, // which may have 128 at once
	}}
	keys := crowd(1e6, 1.1)
	for _, c := range []struct {
		name     string
		parallel bool
		mask     int // of what tells the keys apart
	}{
		{"1M zipf", false, len(keys) - 1},
		{"1M zipf, at once", true, len(keys) - 1},
		{"everyone", false, 0},
		{"everyone, at once", true, 0},
	} {
		for _, inProgress := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d in progress", c.name, inProgress), func(b *testing.B) {
				l := open(b, limits, 64<<20)
				ctx, start := context.Background(), time.Now()
				for range 128 {
					if err := l.Settle(ctx, start, []fairshare.Charge{{Key: keys[:16], Ends: true,
						Total: 40}}); err != nil {
						b.Fatal(err)
					}
				}
				var next atomic.Int64
				run := func(more func() bool) {
					takes, tallies := []fairshare.Take{{Cost: 1}}, make([]fairshare.Tally, 1)
					charges := make([]fairshare.Charge, inProgress)
					n := int(next.Add(1)) << 16
					for i := 0; more(); i++ {
						at := (n + i) * 16 & c.mask
						now := start.Add(time.Duration(i) * time.Microsecond)
						if open := &charges[i%inProgress]; open.Ends {
							if err := l.Settle(ctx, now, charges[i%inProgress:][:1]); err != nil {
								b.Error(err)
							}
						}
						takes[0].Key = keys[at : at+16]
						if err := l.Take(ctx, now, takes, tallies); err != nil || tallies[0].Over {
							b.Error(tallies, err)
						}
						charges[i%inProgress] = fairshare.Charge{Key: takes[0].Key, Cost: 40, Held: tallies[0].Held,
							Ends: true, Total: 40}
					}
				}
				b.ReportAllocs()
				if c.parallel {
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) { run(pb.Next) })
					return
				}
				n := 0
				run(func() bool { n++; return n < 1<<18 })
				run(b.Loop)
			})
		}
	}
}
