package redislimit_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// A decision on credit asks nobody and allocates nothing.
func BenchmarkCredit(b *testing.B) {
	limits := []fairshare.Limit{{Name: "l", Resource: fairshare.Requests, N: fairshare.MaxN, Window: time.Minute}}
	l := open(b, connect(b, redistest.Start(b).URL()), limits, redislimit.Patient(redislimit.Options{Memory: 8 << 20}))
	keys := make([][]byte, 1000)
	takes, tallies := make([]fairshare.Take, 1), make([]fairshare.Tally, 1)
	at := time.Now()
	take := func(i int) {
		takes[0] = fairshare.Take{Key: keys[i%len(keys)], Cost: 1}
		if err := l.Take(context.Background(), at, takes, tallies); err != nil {
			b.Fatal(err)
		}
	}
	for i := range keys {
		keys[i] = append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255}, strconv.Itoa(1000+i)...)
		take(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		take(i)
	}
}

// All is asked, by 64 at once.
func BenchmarkAsk(b *testing.B) {
	limits := []fairshare.Limit{{Name: "l", Resource: fairshare.Requests, N: 1000, Window: time.Minute,
		Algorithm: fairshare.GCRA, Exact: true}}
	l := open(b, connect(b, redistest.Start(b).URL()), limits, redislimit.Patient(redislimit.Options{}))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		takes, tallies := make([]fairshare.Take, 1), make([]fairshare.Tally, 1)
		for pb.Next() {
			takes[0] = fairshare.Take{Key: []byte("client " + strconv.Itoa(rand.IntN(100_000))), Cost: 1}
			if err := l.Take(context.Background(), time.Now(), takes, tallies); err != nil {
				b.Error(err)
			}
		}
	})
}
