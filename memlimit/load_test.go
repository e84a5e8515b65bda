package memlimit

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"
)

func snapshotOf(t testing.TB, l *Limiter, now time.Time) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.Save(&b, now); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLoadGoesOn(t *testing.T) {
	l := opened(t, 1<<20, perMinute(100))
	for i := range 10_000 {
		take(t, l, 0, number(i), int64(1+i%50), start)
	}
	snapshot := snapshotOf(t, l, start)
	for _, memory := range []int64{1 << 20, 1<<20 + 5*setBytes, 2 << 20, 3 << 20, 1 << 19} {
		after := opened(t, memory, perMinute(100))
		loaded, err := after.Load(bytes.NewReader(snapshot), start)
		if err != nil {
			t.Fatal(err)
		}
		if loaded.States != 10_000 || !slices.Equal(loaded.Limits, []string{"requests"}) || loaded.Fresh != nil || !loaded.At.Equal(start) {
			t.Errorf("%d bytes: %+v", memory, loaded)
		}
		for i := range 10_000 {
			if got := used(t, after, 0, number(i), start); got != int64(1+i%50) {
				t.Fatalf("%d bytes: client %d: %d", memory, i, got)
			}
		}
		check(t, after.table)
		t.Logf("%+v", after.Stats(start))
	}
	for i := range snapshot {
		if i > 500 && i%97 != 0 {
			continue
		}
		bad := slices.Clone(snapshot)
		bad[i] ^= 0x10
		for _, b := range [][]byte{bad, snapshot[:i]} {
			if _, err := opened(t, 1<<20, perMinute(100)).Load(bytes.NewReader(b), start); !errors.Is(err, ErrUnusable) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}
