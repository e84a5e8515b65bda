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
