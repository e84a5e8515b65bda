package memlimit

import (
	"math/rand/v2"
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
	m := newAnswerMarks(1<<12, shortEpoch)
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

// A mark is there until the states of its key are fresh, whatever is marked meanwhile: by times that go back, too, and
// by single ones far ahead.
func TestMarksAgreeWithAMap(t *testing.T) {
	rounds := 200
	if raceEnabled || testing.Short() {
		rounds = 40
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := newAnswerMarks(64+r.IntN(200), shortEpoch)
		ends := map[uint64]int64{}
		now, wrong := start.UnixNano(), int64(0)
		for range 500 {
			now += int64(r.ExpFloat64() * []float64{1e9, 1e12, 1e13}[r.IntN(3)])
			at := now
			if r.IntN(20) == 0 {
				wrong += int64(200 * 24 * time.Hour)
				at += wrong
			}
			key := r.Uint64()
			end := at + r.Int64N(int64(4*time.Hour))
			m.add(key, at, end)
			ends[key] = max(ends[key], end)
			for key, end := range ends {
				switch {
				case end > now && !m.has(key, now):
					t.Fatalf("seed %d: a key whose state lives for %v has no mark", seed, time.Duration(end-now))
				case end <= now:
					delete(ends, key)
				}
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
