package httpguard

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockIsExactWithFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		start := c.Now()
		for i := range 5 * coarseAfter {
			time.Sleep(10 * time.Microsecond)
			if got, want := c.Now().Sub(start), time.Duration(i+1)*10*time.Microsecond; got != want {
				t.Fatalf("after %v: %v", want, got)
			}
		}
	})
}

func TestClockIsCoarseWithManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		start := c.Now()
		for range coarseAfter { // at once
			c.Now()
		}
		if c.coarse.Load() == 0 {
			t.Fatal("the clock is read for each of many calls")
		}
		for range coarseFor - 1 {
			time.Sleep(700 * time.Microsecond)
			if behind := time.Since(start) - c.Now().Sub(start); behind < 0 || behind > coarseTick {
				t.Fatalf("the time is %v behind", behind)
			}
		}
		time.Sleep(time.Second) // nobody asks any more: the timer ends
		synctest.Wait()
		if c.coarse.Load() != 0 {
			t.Error("the clock stays coarse")
		}
		if got, want := c.Now().Sub(start), time.Since(start); got != want {
			t.Errorf("exact again: %v, want %v", got, want)
		}
	})
}

func BenchmarkClock(b *testing.B) {
	c := NewClock()
	b.ReportAllocs()
	last := c.Now()
	for b.Loop() {
		last = c.Now()
	}
	if last.IsZero() {
		b.Fatal("no time")
	}
}

func TestClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, -2 * time.Second, 2 * time.Second, time.Hour,
		24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ahead := time.Duration(0)
			c := NewClockOf(func() time.Time { return time.Now().Add(ahead) })
			start := c.Now()
			time.Sleep(time.Minute)
			if got := c.Wall(c.Now()); !got.Equal(time.Now()) {
				t.Errorf("before a step: %v, want %v", got, time.Now())
			}
			ahead = step
			time.Sleep(time.Minute)
			if passed := c.Now().Sub(start); passed != 2*time.Minute {
				t.Errorf("%v passed, want 2m", passed)
			}
			wall := time.Now().Add(step)
			if got := c.Wall(c.Now()); !got.Equal(wall) {
				t.Errorf("after a step of %v: %v, want %v", step, got, wall)
			}
			if got := c.FromWall(wall); !got.Equal(c.Now()) {
				t.Errorf("after a step of %v: %v, want %v", step, got, c.Now())
			}
		})
	}
}

func TestClockStartsNoEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		now := c.Now()
		if c.StartAt(now.Add(-time.Hour)); !c.Now().Equal(now) {
			t.Errorf("set to an earlier time: %v, want %v", c.Now(), now)
		}
		c.StartAt(now.Add(time.Hour))
		time.Sleep(time.Minute)
		if want := now.Add(time.Hour + time.Minute); !c.Now().Equal(want) || !c.Wall(want).Equal(time.Now()) {
			t.Errorf("set to a later time: %v, as wall time %v", c.Now(), c.Wall(want))
		}
	})
}
