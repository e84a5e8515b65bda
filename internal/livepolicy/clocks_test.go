//go:build unix

package livepolicy

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare/httpguard"
	"fairshare/pgregistry/pgtest"
)

// A server with a wrong clock warns once, and says when the clock is right again.
func TestWrongClockIsReported(t *testing.T) {
	db := pgtest.Start(t)
	for _, tt := range []struct {
		off  time.Duration
		want string
	}{
		{0, ""},
		{time.Hour, "is 1 hour ahead of"},
		{-time.Hour, "is 1 hour behind"},
	} {
		var off atomic.Int64
		off.Store(int64(tt.off))
		clock := httpguard.NewClockOf(func() time.Time { return time.Now().Add(time.Duration(off.Load())) })
		m := openMember(t, db.URL("postgres"), parseFile(t, "rules: []\n"), t.TempDir(), clock)
		for range 3 {
			must(t, m.group().compareClocks(t.Context()))
		}
		lines := m.logged("the clock of this machine")
		if tt.want == "" {
			if len(lines) > 0 {
				t.Errorf("a right clock: %q", lines)
			}
			continue
		}
		if len(lines) != 1 || !strings.Contains(lines[0], tt.want) {
			t.Errorf("%v off: %q", tt.off, lines)
		}
		off.Store(0)
		must(t, m.group().compareClocks(t.Context()))
		if lines := m.logged("agrees"); len(lines) != 1 {
			t.Errorf("%v off, then set: %q", tt.off, lines)
		}
	}
}

// A clock that is off by about as much as is tolerated does not log both lines in turn.
func TestClockAtTheToleranceIsReportedOnce(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		was         bool
		ahead, trip time.Duration
		want        bool
	}{
		{false, 0, 0, false},
		{false, 5 * second, 0, false},
		{false, 5*second + 1, 0, true},
		{false, -5*second - 1, 0, true},
		{false, 6 * second, second, false}, // the trip may be the difference
		{false, 6*second + 1, second, true},
		{true, 4 * second, 0, true},
		{true, -3 * second, 0, true},
		{true, 3 * second, 9 * second, true},
		{true, 3*second - 1, 0, false},
		{true, 1 - 3*second, 0, false},
	} {
		if got := clockIsWrong(tt.was, tt.ahead, tt.trip); got != tt.want {
			t.Errorf("wrong %v, %v ahead, trip %v: wrong %v, want %v", tt.was, tt.ahead, tt.trip, got, tt.want)
		}
	}
	wrong, changes := false, 0
	for i := range 100 {
		ahead := 5*second + time.Duration(i%3-1)*900*time.Millisecond
		if now := clockIsWrong(wrong, ahead, time.Millisecond); now != wrong {
			wrong = now
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("a clock at 5 s: %d lines, want 1", changes)
	}
}

// Lines of a log are judged at their own time. That they are read late says nothing about the clock.
func TestLateLinesAreNotAWrongClock(t *testing.T) {
	db := pgtest.Start(t)
	clock := httpguard.NewClock()
	m := openMember(t, db.URL("postgres"), parseFile(t, "rules: []\n"), t.TempDir(), clock, func(o *Options) {
		o.Now = func() time.Time { return clock.Now().Add(-time.Hour) }
	})
	must(t, m.group().compareClocks(t.Context()))
	if lines := m.logged("the clock of this machine"); len(lines) > 0 {
		t.Errorf("lines that are an hour late: %q", lines)
	}
}
