package share

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A wait without a bound lasts until the turn.
func TestWaitWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Capacity: 1, Wait: math.MaxInt64})
		time.Sleep(time.Second)
		turn := take(t, q, "192.0.2.1")
		next := waitFor(t.Context(), q, "192.0.2.2")
		time.Sleep(time.Minute)
		turn.Done()
		if got := <-next; got.err != nil || got.waited != time.Minute {
			t.Errorf("%+v, want a turn after a minute", got)
		}
	})
}

// Waits of many goroutines end by a turn, a refusal, a hang-up or the longest wait, whatever comes together.
func TestWaitsEndInAnyOrder(t *testing.T) {
	opts := func(i int) Options {
		return Options{Capacity: (i % 4), Queue: 8 + i%40,
			Wait: time.Duration(1+i%5) * time.Millisecond, Max: 1 + i%8, Ages: i%2 == 0}
	}
	q := New(opts(1))
	var turns, gone, busy atomic.Int64
	var wg sync.WaitGroup
	for g := range 48 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range 300 {
				addr := netip.AddrFrom4([4]byte{10, byte(g % 8), byte(g), byte(i % 3)})
				claim := q.Claim(request(addr.String(), noon))
				if r.IntN(4) == 0 {
					claim.WaitAtMost(time.Duration(r.IntN(2000)) * time.Microsecond)
				}
				var ctx context.Context
				var end func()
				if r.IntN(2) == 0 {
					c := &endableContext{Context: context.Background(), t: t}
					ctx, end = c, c.end
				} else {
					ctx, end = context.WithCancel(context.Background())
				}
				after := []time.Duration{0, 1, time.Duration(r.IntN(3000)) * time.Microsecond, time.Hour}[r.IntN(4)]
				if after == 0 {
					end()
				} else {
					defer time.AfterFunc(after, end).Stop()
				}
				turn, err := q.Wait(ctx, &claim)
				var b *Busy
				switch {
				case err == nil:
					turns.Add(1)
					switch r.IntN(8) {
					case 0:
						time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
					case 1:
						turn.Failed()
					case 2:
						turn.Headed()
					}
					if r.IntN(3) == 0 {
						wg.Go(turn.Done)
					} else {
						turn.Done()
					}
				case errors.As(err, &b):
					busy.Add(1)
				case err == context.Canceled && ctx.Err() != nil:
					gone.Add(1)
				default:
					t.Error("wrong error", err, ctx.Err())
				}
				if g == 0 && i%64 == 0 {
					if r.IntN(3) == 0 {
						q.RefuseWaiting()
					}
					q.Replace(opts(r.IntN(1000)))
				}
			}
		})
	}
	wg.Wait()
	if s := q.Stats(); s.Inside != 0 || s.Waiting != 0 || turns.Load() == 0 || gone.Load() == 0 || busy.Load() == 0 {
		t.Errorf("%+v after %d turns, %d hang-ups and %d refusals", s, turns.Load(), gone.Load(), busy.Load())
	}
	q.mu.Lock() // a timer may still look for stalls
	defer q.mu.Unlock()
	check(t, q.schedule)
}
