package memlimit

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// marked counts the keys that have a mark.
func marked(m *answerMarks, keys []uint64, now time.Time) (n int) {
	for _, key := range keys {
		if m.has(key, now.UnixNano()) {
			n++
		}
	}
	return n
}

// Marks end with the states that they are for, at most two epochs later, and make room for others.
func TestMarksFade(t *testing.T) {
	var m answerMarks
	m.make(1<<12, shortEpoch)
	epoch := time.Duration(1) << shortEpoch
	r := rand.New(rand.NewPCG(1, 2))
	now := start
	for range 20 {
		keys := make([]uint64, 300)
		for i := range keys {
			keys[i] = r.Uint64()
			m.add(keys[i], now.UnixNano(), now.Add(20*time.Minute).UnixNano())
		}
		if n := marked(&m, keys, now.Add(20*time.Minute)); n != len(keys) {
			t.Fatalf("%d of %d keys are marked while their states live", n, len(keys))
		}
		if n := marked(&m, keys, now.Add(20*time.Minute+2*epoch)); n > 0 {
			t.Fatalf("%d keys are marked two epochs later", n)
		}
		now = now.Add(time.Duration(r.Float64() * float64(2*epoch)))
	}
	others := make([]uint64, 10_000)
	for i := range others {
		others[i] = r.Uint64()
	}
	if n := marked(&m, others, now); n > 8000 { // of 1024 marks, 300 in each round
		t.Errorf("%d of %d other keys are marked", n, len(others))
	}
	if n := marked(&m, others, now.Add(3*epoch)); n > 0 {
		t.Errorf("%d of %d other keys are marked at the end", n, len(others))
	}
}

// A state is fresh from the time on at which its mark may end, and not before, unless the clock is set back by more
// than clocks may differ.
func TestMarksEndWithTheirStates(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		given := fairshare.Limit{Name: "errors", Resource: fairshare.Errors, N: 1 + r.Int64N(50),
			Window: fairshare.MinWindow + time.Duration(r.ExpFloat64()*[]float64{1e6, 1e9, 1e12, 1e15}[r.IntN(4)])}
		given.Window = min(given.Window, fairshare.MaxWindow)
		if r.IntN(2) == 0 {
			given.Algorithm = fairshare.GCRA
		}
		l, err := newLimit(&given)
		if err != nil {
			t.Fatal(err)
		}
		var s set
		at, early := start.UnixNano(), int64(0)
		for range 1 + r.IntN(8) {
			v := l.load(&s, 0, at-early)
			l.settle(&v, uint64(1+r.IntN(5)))
			if r.IntN(4) == 0 {
				l.refund(&v, 1, at)
			}
			l.store(&s, 0, 0, &v)
			end := l.freshAt(&v, at-early)
			for _, later := range []int64{0, 1, r.Int64N(int64(l.w)), int64(l.w), r.Int64N(int64(3 * l.w))} {
				if now := l.load(&s, 0, end+later); !l.fresh(&now) {
					t.Fatalf("%+v: %+v is not fresh %d ns after its end: %+v", given, v, later, now)
				}
			}
			if now := l.load(&s, 0, max(at-early, end-1)); end > at-early && l.fresh(&now) {
				t.Fatalf("%+v: %+v is fresh before its end", given, v)
			}
			at += int64(r.ExpFloat64() * float64(l.w))
			early = r.Int64N(2) * r.Int64N(clockDrift)
		}
	}
}

// A markedKey has a state that is fresh at a time end.
type markedKey struct {
	hash uint64
	end  int64
}

// missing returns a key that has no mark at a time at which its state is not fresh.
func missing(m *answerMarks, keys []markedKey, at int64) (key markedKey, found bool) {
	for _, key := range keys {
		if key.end > at && !m.has(key.hash, at) {
			return key, true
		}
	}
	return markedKey{}, false
}

// A key has a mark at all times before its state is fresh, whatever is marked meanwhile, and whether times advance,
// go back or are far ahead for a while.
func TestMarksAgreeWithAList(t *testing.T) {
	rounds := 200
	if raceEnabled || testing.Short() {
		rounds = 40
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 3))
		var m answerMarks
		m.make(64+r.IntN(200), shortEpoch)
		jump := func() int64 { return int64(r.ExpFloat64() * []float64{1e9, 1e12, 1e13, 1e16}[r.IntN(4)]) }
		now, ahead, wrong := start.UnixNano(), int64(0), 0
		var keys []markedKey
		for range 400 {
			now += int64(r.ExpFloat64() * []float64{1e9, 1e12, 1e13}[r.IntN(3)])
			switch {
			case wrong > 0:
				wrong--
			case r.IntN(20) == 0:
				ahead, wrong = jump(), r.IntN(10)
				if r.IntN(4) == 0 {
					ahead = -ahead
				}
			default:
				ahead = 0
			}
			key := markedKey{r.Uint64(), now + ahead + r.Int64N(int64(4*time.Hour)) - r.Int64N(2)*jump()}
			m.add(key.hash, now+ahead, key.end)
			keys = append(keys, key)
			for _, at := range []int64{now, now + ahead, now - jump(), key.end - 1, keys[r.IntN(len(keys))].end - 1} {
				if key, found := missing(&m, keys, at); found {
					t.Fatalf("seed %d: a key whose state lives for %v has no mark", seed, time.Duration(key.end-at))
				}
			}
		}
	}
}

// The same holds while many goroutines mark keys, some of them at a time that is a little earlier.
func TestMarksOfManyGoroutinesFade(t *testing.T) {
	var m answerMarks
	m.make(300, shortEpoch)
	var clock atomic.Int64
	clock.Store(start.UnixNano())
	var wg sync.WaitGroup
	for g := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 4))
			var keys []markedKey
			for range 500 {
				now := clock.Add(int64(r.ExpFloat64()*1e12)) - r.Int64N(2)*int64(r.ExpFloat64()*1e12)
				key := markedKey{r.Uint64(), now + r.Int64N(int64(4*time.Hour))}
				m.add(key.hash, now, key.end)
				keys = append(keys, key)
				if _, found := missing(&m, keys, now); found {
					t.Error("a key whose state is not fresh has no mark")
					return
				}
			}
			for at := clock.Load(); at > start.UnixNano(); at -= int64(time.Hour) {
				if _, found := missing(&m, keys, at); found {
					t.Error("a key has no mark at an earlier time")
					return
				}
			}
		})
	}
	wg.Wait()
}

// Errors count again when the clock comes back from a wrong time, whatever was counted there.
func TestErrorsAfterAWrongTime(t *testing.T) {
	for round := range byte(20) {
		for _, ahead := range []time.Duration{2 * time.Hour, 3 * time.Hour, 24 * time.Hour, 200 * 24 * time.Hour} {
			l := opened(t, 10_000*setBytes, fairshare.Limit{Name: "errors", Resource: fairshare.Errors, N: 2,
				Window: time.Minute})
			l.table.plant(seed{round})
			l.table.answers[0].make(64, shortEpoch) // a single word
			charge := func(key int, now time.Time) {
				charges := []fairshare.Charge{{Limit: 0, Key: number(key), Cost: 1}}
				if err := l.Settle(ctx, now, charges); err != nil {
					t.Fatal(err)
				}
			}
			charge(0, start)
			charge(0, start)
			for key := range 3 {
				charge(1+key, start.Add(ahead))
			}
			if !take(t, l, 0, number(0), 1, start).Over {
				t.Errorf("errors are forgotten after a time %v ahead", ahead)
			}
		}
	}
}

// Errors are counted for a client whose earlier ones have faded.
func TestErrorsAfterMarksHaveFaded(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 10 * time.Minute, 24 * time.Hour, fairshare.MaxWindow} {
		l := opened(t, 100*setBytes, fairshare.Limit{Name: "errors", Resource: fairshare.Errors, N: 2, Window: window})
		now := start
		for range 5 {
			for i := range 20 {
				for range 2 {
					if take(t, l, 0, number(i), 1, now).Over {
						t.Fatalf("window %v: key %d is over the limit too early", window, i)
					}
					charges := []fairshare.Charge{{Limit: 0, Key: number(i), Cost: 1, Held: 1}}
					if err := l.Settle(ctx, now, charges); err != nil {
						t.Fatal(err)
					}
				}
				if !take(t, l, 0, number(i), 1, now).Over {
					t.Fatalf("window %v: key %d is not over the limit", window, i)
				}
			}
			now = now.Add(2*window + 9*time.Hour)
		}
	}
}
