package toplist

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A model counts all keys exactly.
type model struct {
	at   []time.Time
	adds []added
}

type added struct {
	key     string
	amounts Amounts
}

func (m *model) add(l *Lists, at time.Time, key string, amounts Amounts) {
	l.Lock()
	l.Add(0, l.HashString(key), nil, key, &amounts)
	l.Unlock()
	m.at, m.adds = append(m.at, at), append(m.adds, added{key, amounts})
}

// sums returns the exact sums of all keys from a time on.
func (m *model) sums(from time.Time) (all map[string]Amounts, total Amounts) {
	all = map[string]Amounts{}
	for i, a := range m.adds {
		if m.at[i].Before(from) {
			continue
		}
		sum := all[a.key]
		for k := range sum {
			sum[k] += a.amounts[k]
			total[k] += a.amounts[k]
		}
		all[a.key] = sum
	}
	return all, total
}

// check compares a window with the exact sums.
func (m *model) check(t *testing.T, l *Lists, length time.Duration, now time.Time) {
	t.Helper()
	w := l.Window(0, length, now)
	exact, total := m.sums(w.From)
	if w.From.After(now.Add(-length)) && w.From.After(start) {
		t.Errorf("%v: the window begins at %v, too late for %v", length, w.From, now)
	}
	for k := range Measures {
		if w.Total(k) != total[k] {
			t.Errorf("%v: total %d of measure %d, want %d", length, w.Total(k), k, total[k])
		}
		listed := map[string]bool{}
		for _, row := range w.Top(k, 1<<20) {
			listed[row.Key] = true
			for j := range Measures {
				if sum := exact[row.Key][j]; sum < row.Low[j] || sum > row.High[j] {
					t.Errorf("%v: %s has %d of measure %d, not %d to %d", length, row.Key, sum, j, row.Low[j],
						row.High[j])
				}
			}
		}
		for key, sum := range exact {
			if sum[k] > w.Error(k) && !listed[key] {
				t.Errorf("%v: %s with %d of measure %d is missing; the error is %d", length, key, sum[k], k,
					w.Error(k))
			}
			if row := w.Find(l.HashString(key)); row.Low[k] > sum[k] || row.High[k] < sum[k] {
				t.Errorf("%v: found %s with %d to %d, want %d", length, key, row.Low[k], row.High[k], sum[k])
			}
		}
	}
}

func TestSumsAreWithinTheirBounds(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		zipf := rand.NewZipf(random, 1.1, 1, 1<<14)
		l, m, now := New(1, start), new(model), start
		for range 70 {
			for range 300 {
				m.add(l, now, fmt.Sprintf("key %d", zipf.Uint64()),
					Amounts{1, int64(random.IntN(2)), 0, int64(random.IntN(1 << 20)), int64(random.IntN(1000))})
			}
			if random.IntN(8) > 0 {
				now = now.Add(Period)
				l.Rotate(now, nil)
			}
			if random.IntN(10) == 0 {
				m.check(t, l, time.Minute, now)
				m.check(t, l, 15*time.Minute, now)
				m.check(t, l, time.Hour, now)
			}
		}
	}
}

func TestSprayedKeysDoNotHideHeavyOnes(t *testing.T) {
	l, m, now := New(1, start), new(model), start
	for i := range 30_000 {
		m.add(l, now, fmt.Sprintf("made up %d", i), Amounts{1, 0, 0, 1 << 20, 1})
		if i%50 == 0 {
			m.add(l, now, "heavy", Amounts{1, 1, 0, 1, 1})
		}
		if i%3000 == 2999 {
			now = now.Add(Period)
			l.Rotate(now, nil)
		}
	}
	w := l.Window(0, time.Minute, now)
	if top := w.Top(0, 1); top[0].Key != "heavy" || top[0].Low[0] < 350 {
		t.Errorf("the first of all is %q with at least %d requests, want heavy with 360 to 420", top[0].Key,
			top[0].Low[0])
	}
	if top := w.Top(1, 2); len(top) != 1 || top[0].Low[1] != top[0].High[1] {
		t.Errorf("of refusals: %v, want one exact row", top)
	}
	if w.Error(0) > w.Total(0)/100 {
		t.Errorf("the error is %d of %d requests, want at most 1 %%", w.Error(0), w.Total(0))
	}
	m.check(t, l, time.Minute, now)
}

func TestWindowsOfAQuietYear(t *testing.T) {
	l, m, now := New(1, start), new(model), start
	for range 2000 { // the timer was late each time
		now = now.Add(Period + 3*time.Second)
		l.Rotate(now, nil)
	}
	m.add(l, now, "a", Amounts{1, 1, 1, 1, 1})
	for _, length := range []time.Duration{time.Minute, 15 * time.Minute, time.Hour} {
		w := l.Window(0, length, now)
		if got := now.Sub(w.From); got < length || got > length*5/4+7*time.Minute {
			t.Errorf("the window of %v has %v", length, got)
		}
		m.check(t, l, length, now)
	}
	periods := 0
	for level := range l.levels {
		periods += len(l.levels[level])
	}
	if periods > 45 {
		t.Errorf("%d periods are kept", periods)
	}
	l.Rotate(now.Add(-time.Hour), nil) // ignored
	m.check(t, l, time.Minute, now)
}

func TestLongKeysAreCut(t *testing.T) {
	l := New(2, start)
	long := string(slices.Repeat([]byte("x"), 500))
	l.Lock()
	l.Add(1, l.HashString(long), []byte("head:"), long, &Amounts{2})
	l.Unlock()
	rows := l.Window(1, time.Minute, start).Top(0, 5)
	if len(rows) != 1 || rows[0].Key != "head:"+long[:maxKey-5] || rows[0].Low[0] != 2 {
		t.Errorf("rows: %v", rows)
	}
	if rows := l.Window(0, time.Minute, start).Top(0, 5); len(rows) != 0 {
		t.Errorf("rows of another dimension: %v", rows)
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, keys := range []uint64{20, 500, 1 << 40} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			l := New(7, start)
			var key [8]byte
			random := rand.New(rand.NewPCG(1, 2))
			amounts := Amounts{0: 1, 3: 1000, 4: 1000}
			b.ReportAllocs()
			for b.Loop() {
				binary.LittleEndian.PutUint64(key[:], random.Uint64N(keys))
				hash := l.HashBytes(key[:])
				l.Lock()
				for d := range 7 {
					l.Add(d, hash, key[:], "", &amounts)
				}
				l.Unlock()
			}
		})
	}
}
