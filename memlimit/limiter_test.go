package memlimit_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/memlimit"
)

func open(t testing.TB, limits []fairshare.Limit, memory int64) *memlimit.Limiter {
	t.Helper()
	l, err := memlimit.New(limits, memlimit.Options{Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimiter(t *testing.T) {
	limittest.Run(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return open(t, limits, 1<<20)
	})
}

// A restart forgives nobody, whether the table is of the same size or not.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory []int64
	}{{"same memory", []int64{1 << 20}}, {"other memory", []int64{1 << 23, 1 << 21, 3 << 21, 3<<21 + 128}}} {
		t.Run(c.name, func(t *testing.T) {
			restarts := 0
			limittest.RunRestart(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
				return open(t, limits, c.memory[0])
			}, func(t testing.TB, before fairshare.Limiter, limits []fairshare.Limit, saved,
				loaded time.Time) fairshare.Limiter {
				var snapshot bytes.Buffer
				if err := before.(*memlimit.Limiter).Save(&snapshot, saved); err != nil {
					t.Fatal(err)
				}
				restarts++
				after := open(t, limits, c.memory[restarts%len(c.memory)])
				if _, err := after.Load(&snapshot, loaded); err != nil {
					t.Fatal(err)
				}
				return after
			})
		})
	}
}

var start = time.Unix(1_800_000_000, 0)

func take(t *testing.T, l *memlimit.Limiter, limit int, cost int64) fairshare.Tally {
	t.Helper()
	var tallies [1]fairshare.Tally
	takes := []fairshare.Take{{Limit: limit, Key: []byte("k"), Cost: cost}}
	if err := l.Take(context.Background(), start, takes, tallies[:]); err != nil {
		t.Fatal(err)
	}
	return tallies[0]
}

// A state that a wrong clock left far ahead continues as of now after a restart, too.
func TestRestartAfterAWrongClock(t *testing.T) {
	for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA, fairshare.Quiet} {
		limits := []fairshare.Limit{{Name: "a", Resource: fairshare.Requests, N: 2, Window: 10 * time.Second,
			Algorithm: algorithm}}
		l := open(t, limits, 1<<20)
		takeAt := func(after time.Duration) bool {
			var tallies [1]fairshare.Tally
			takes := []fairshare.Take{{Key: []byte("k"), Cost: 1}}
			if err := l.Take(t.Context(), start.Add(after), takes, tallies[:]); err != nil {
				t.Fatal(err)
			}
			return !tallies[0].Over
		}
		for range 2 {
			if !takeAt(24 * time.Hour) {
				t.Fatalf("%v: one of two requests is refused", algorithm)
			}
		}
		var snapshot bytes.Buffer
		if err := l.Save(&snapshot, start); err != nil {
			t.Fatal(err)
		}
		l = open(t, limits, 1<<20)
		if _, err := l.Load(&snapshot, start.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if takeAt(time.Minute) {
			t.Errorf("%v: a request passes after a restart", algorithm)
		}
		if !takeAt(time.Minute + 21*time.Second) {
			t.Errorf("%v: a request is refused after two windows", algorithm)
		}
	}
}

func TestWithKeepsCounters(t *testing.T) {
	old := []fairshare.Limit{
		{Name: "rate", Resource: fairshare.Requests, N: 10, Window: time.Minute},
		{Name: "slots", Resource: fairshare.Concurrent, N: 2},
		{Name: "bytes", Resource: fairshare.Bytes, N: 1000, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Name: "large", Resource: fairshare.Bytes, N: 1 << 40, Window: time.Minute},
	}
	before := open(t, old, 1<<20)
	take(t, before, 0, 7)
	take(t, before, 1, 1)
	take(t, before, 1, 1)
	after, err := before.With([]fairshare.Limit{
		{Name: "large", Resource: fairshare.Bytes, N: 100, Window: time.Minute}, // 32 bytes a state before
		{Name: "bytes", Resource: fairshare.Bytes, N: 4000, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Name: "slots", Resource: fairshare.Concurrent, N: 2, DryRun: true},
		{Name: "rate", Resource: fairshare.Requests, N: 8, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}},
		{Name: "rate", Resource: fairshare.Requests, N: 8, Window: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := take(t, after, 3, 2); !got.Over || got.Used != 7 {
		t.Errorf("after the reload: %+v, 7 of 8 were spent", got)
	}
	if got := take(t, after, 4, 8); got.Over {
		t.Errorf("another window is another limit: %+v", got)
	}
	// Requests in progress settle through the policy that judged them.
	if err := before.Settle(context.Background(), start, []fairshare.Charge{
		{Limit: 0, Key: []byte("k"), Cost: -3, At: start},
		{Limit: 1, Key: []byte("k"), Cost: -1},
		{Limit: 2, Key: []byte("k"), Cost: 1000},
		{Limit: 3, Key: []byte("k"), Cost: 300},
	}); err != nil {
		t.Fatal(err)
	}
	if got := take(t, after, 3, 5); !got.Over || got.Used != 4 {
		t.Errorf("after the refund: %+v, 4 of 8 are spent", got)
	}
	if got := take(t, after, 2, 2); !got.Over || got.Used != 1 {
		t.Errorf("after a slot came back: %+v, 1 of 2 is taken", got)
	}
	if got := take(t, after, 0, 1); !got.Over || got.Used != 300 {
		t.Errorf("after the answer: %+v, 300 bytes of 100 are spent", got)
	}
	if got := take(t, after, 1, 1); !got.Over || got.Wait != 1 {
		t.Errorf("gcra remembers a time, and this one is a minute ahead: %+v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	good := fairshare.Limit{Name: "a", Resource: fairshare.Requests, N: 1, Window: time.Second}
	twin := good
	twin.N, twin.By = 2, []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	for name, limits := range map[string][]fairshare.Limit{
		"no resource": {{Name: "a", N: 1, Window: time.Second}},
		"no window":   {{Name: "a", Resource: fairshare.Requests, N: 1}},
		"twins":       {good, twin},
	} {
		if _, err := memlimit.New(limits, memlimit.Options{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := memlimit.New(nil, memlimit.Options{Memory: -1}); err == nil {
		t.Error("negative memory: no error")
	}
	l, err := memlimit.New(nil, memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Stats(start); got != (memlimit.Stats{Memory: memlimit.DefaultMemory}) {
		t.Errorf("no limits: %+v", got)
	}
	if err := l.Take(context.Background(), start, nil, make([]fairshare.Tally, 1)); err == nil {
		t.Error("more tallies than takes: no error")
	}
}

func TestResetForgetsEverything(t *testing.T) {
	limits := []fairshare.Limit{
		{Name: "rate", Resource: fairshare.Requests, N: 10, Window: time.Minute},
		{Name: "steady", Resource: fairshare.Requests, N: 10, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Name: "pause", Resource: fairshare.Requests, N: 10, Window: time.Minute, Algorithm: fairshare.Quiet},
		{Name: "slots", Resource: fairshare.Concurrent, N: 10},
	}
	l := open(t, limits, 0)
	for range 2 {
		for i := range limits {
			if tally := take(t, l, i, 10); tally.Over {
				t.Errorf("%s: %+v at first", limits[i].Name, tally)
			}
			if tally := take(t, l, i, 1); !tally.Over {
				t.Errorf("%s: all was taken, one more fits", limits[i].Name)
			}
		}
		if s := l.Stats(start); s.InProgress != 10 {
			t.Errorf("%d slots in progress, want 10", s.InProgress)
		}
		l.Reset()
		if s := l.Stats(start); s.InProgress != 0 {
			t.Errorf("after a reset %d slots are in progress", s.InProgress)
		}
	}
}

// Whatever layout its states have, a limit counts after N has changed.
func TestWithGoesOnLimiting(t *testing.T) {
	for _, lim := range []fairshare.Limit{
		{Resource: fairshare.Bytes, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Resource: fairshare.Bytes, Window: time.Minute},
		{Resource: fairshare.Requests, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Resource: fairshare.Requests, Window: time.Minute},
		{Resource: fairshare.Requests, Window: time.Minute, Algorithm: fairshare.Quiet},
	} {
		for _, ns := range [][2]int64{{1234567891, 1000}, {1000, 1234567891}, {7, 1000}, {1 << 43, 1000},
			{1000, 1 << 43}} {
			lim.Name = "of " + lim.Resource.String()
			most := int64(fairshare.MaxN)
			if lim.Resource == fairshare.Bytes {
				most = fairshare.MaxBytes
			}
			lim.N = min(ns[0], most)
			before := open(t, []fairshare.Limit{lim}, 1<<20)
			lim.N = min(ns[1], most)
			after, err := before.With([]fairshare.Limit{lim})
			if err != nil {
				t.Fatal(err)
			}
			if lim.Resource.Settled() {
				if err := after.Settle(t.Context(), start,
					[]fairshare.Charge{{Key: []byte("k"), Cost: lim.N}}); err != nil {
					t.Fatal(err)
				}
			} else if tally := take(t, after, 0, lim.N); tally.Over {
				t.Errorf("%s %s, N from %d to %d: %+v", lim.Algorithm, lim.Resource, ns[0], ns[1], tally)
			}
			if tally := take(t, after, 0, 1); !tally.Over {
				t.Errorf("%s %s, N from %d to %d: all is spent, and more passes", lim.Algorithm, lim.Resource, ns[0],
					ns[1])
			}
		}
	}
}

func TestTooManyLimitsAreRefusedEachTime(t *testing.T) {
	limits := make([]fairshare.Limit, 5000)
	for i := range limits {
		limits[i] = fairshare.Limit{Name: fmt.Sprint("rule ", i), Resource: fairshare.Requests, N: 1,
			Window: time.Second}
	}
	l := open(t, limits[:1], 1<<20)
	for range 2 {
		if _, err := l.With(limits); err == nil {
			t.Error("5000 limits are taken")
		}
	}
	if _, err := l.With(limits[:4000]); err != nil {
		t.Errorf("4000 limits after that: %v", err)
	}
}

func TestFreshLimits(t *testing.T) {
	pages := fairshare.Limit{Name: "pages", Resource: fairshare.Requests, N: 10, Window: time.Minute}
	ban := fairshare.Limit{Name: "pages", Resource: fairshare.Refusals, N: 3, Window: time.Minute}
	l := open(t, []fairshare.Limit{pages, ban}, 1<<20)
	wider, renamed := pages, pages
	wider.N, renamed.Name = 20, "articles"
	next, err := l.With([]fairshare.Limit{wider, renamed, ban})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Fresh(); !slices.Equal(got, []string{"pages"}) {
		t.Errorf("at first: %q", got)
	}
	if got := next.Fresh(); !slices.Equal(got, []string{"articles"}) {
		t.Errorf("after the change: %q", got)
	}
}
