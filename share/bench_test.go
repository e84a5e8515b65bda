package share

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

func BenchmarkClaim(b *testing.B) {
	q := New(Options{Capacity: 32, Ages: true})
	req := &fairshare.Request{Time: time.Now(), Addr: netip.MustParseAddr("192.0.2.1"), Path: "/"}
	b.ReportAllocs()
	for b.Loop() {
		if c := q.Claim(req); c.depth != 3 {
			b.Fatal(c)
		}
	}
}

func BenchmarkTurnAtOnce(b *testing.B) {
	q := New(Options{Capacity: 32})
	var claims [1024]Claim
	for i := range claims {
		claims[i] = q.Claim(&fairshare.Request{Time: time.Now(),
			Addr: netip.AddrFrom4([4]byte{10, byte(i >> 4), byte(i), 1})})
	}
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		turn, err := q.Wait(ctx, &claims[i%len(claims)])
		if err != nil {
			b.Fatal(err)
		}
		turn.Done()
	}
	if s := q.Stats(); s.Inside != 0 || s.Classes[0].Waited != 0 {
		b.Fatal(s)
	}
}

// busyScheduler returns a scheduler with that many waiting clients and networks.
func busyScheduler(waiting, networks, queue int) (s *scheduler, now int64, claim func(i int) *Claim) {
	s = newScheduler()
	s.set(32, queue, false, 0)
	claims := make([]Claim, waiting)
	for i := range claims {
		claims[i] = Claim{keys: [MaxParts + 1]uint64{uint64(i%networks)<<32 | 1, uint64(i)<<32 | 2}, depth: 2,
			class: uint8(i % networks % len(ages)), weight: 1}
	}
	claim = func(i int) *Claim { return &claims[i%len(claims)] }
	for i := range waiting {
		now += 1000
		s.arrive(&Turn{}, claim(i), now)
	}
	return s, now, claim
}

// Each iteration ends one request, begins another and adds a new one.
func BenchmarkDispatchWith10000Waiting(b *testing.B) {
	s, now, claim := busyScheduler(10_000+32, 2_000, 20_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 625_000 // 32 slots of 20 ms
		s.done(s.running.oldest, now)
		s.arrive(&Turn{}, claim(i*7919), now)
	}
	if s.waiting != 10_000 || s.inside != 32 {
		b.Fatal(s.waiting, s.inside)
	}
}

func BenchmarkArrivalAtAFullQueue(b *testing.B) {
	s, now, claim := busyScheduler(10_000+32, 2_000, 10_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 1000
		s.arrive(&Turn{}, claim(i*7919), now)
	}
	if s.waiting != 10_000 {
		b.Fatal(s.waiting)
	}
}

// New addresses, each from its own network, arrive at a full queue.
func BenchmarkFreshArrivalAtAFullQueue(b *testing.B) {
	s, now, _ := busyScheduler(10_000+32, 2_000, 10_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 1000
		s.arrive(&Turn{}, &Claim{keys: [MaxParts + 1]uint64{uint64(i)<<32 | 3, uint64(i)<<32 | 4}, depth: 2,
			class: newest, weight: 1}, now)
	}
	if s.waiting != 10_000 {
		b.Fatal(s.waiting)
	}
}

func BenchmarkKnown(b *testing.B) {
	q := New(Options{Capacity: 32, Ages: true})
	first := time.Now().Add(-time.Hour)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Known(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), 32),
			first, first.Add(time.Hour))
	}
}

func BenchmarkTurnAtOnceParallel(b *testing.B) {
	q := New(Options{Capacity: 32})
	var n atomic.Uint32
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		claim := q.Claim(&fairshare.Request{Time: time.Now(), Addr: netip.AddrFrom4([4]byte{10, 0, byte(n.Add(1)), 1})})
		for pb.Next() {
			turn, err := q.Wait(context.Background(), &claim)
			if err != nil {
				b.Error(err)
				return
			}
			turn.Done()
		}
	})
}

// Goroutines wait for turns and wake each other.
func BenchmarkTurnAfterWaiting(b *testing.B) {
	q := New(Options{Capacity: 1})
	b.ReportAllocs()
	var n atomic.Uint32
	b.SetParallelism(2)
	b.RunParallel(func(pb *testing.PB) {
		claim := q.Claim(&fairshare.Request{Time: time.Now(), Addr: netip.AddrFrom4([4]byte{10, 0, byte(n.Add(1)), 1})})
		for pb.Next() {
			turn, err := q.Wait(context.Background(), &claim)
			if err != nil {
				b.Error(err)
				return
			}
			runtime.Gosched()
			turn.Done()
		}
	})
}

func BenchmarkIsBusy(b *testing.B) {
	for _, c := range []struct {
		name string
		busy bool
	}{{"calm", false}, {"busy", true}} {
		b.Run(c.name, func(b *testing.B) {
			q := New(Options{Capacity: 1})
			if c.busy {
				q.busyUntil.Store(math.MaxInt64)
			}
			b.ReportAllocs()
			for b.Loop() {
				if q.IsBusy() != c.busy {
					b.Fatal()
				}
			}
		})
	}
}

// BenchmarkCalmClients: requests of 10,000 clients in random order, none of which waits, with a capacity
// that is found.
func BenchmarkCalmClients(b *testing.B) {
	q := New(Options{Ages: true})
	q.base = q.base.Add(-busyFor) // no request has waited for so long
	rng := rand.New(rand.NewPCG(1, 2))
	reqs := make([]fairshare.Request, 10_000)
	for i := range reqs {
		reqs[i] = fairshare.Request{Time: time.Now(), Path: "/",
			Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})}
	}
	ctx := context.Background()
	b.ReportAllocs()
	claim := new(Claim)
	for b.Loop() {
		*claim = q.Claim(&reqs[rng.IntN(len(reqs))])
		turn, err := q.Wait(ctx, claim)
		if err != nil {
			b.Fatal(err)
		}
		turn.Done()
	}
}
