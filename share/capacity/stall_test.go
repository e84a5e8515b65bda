package capacity

import (
	"testing"
	"time"
)

func TestStallAddsSlotsUntilSomethingFinishes(t *testing.T) {
	c := New(Options{Max: 40})
	c.slots = 4
	c.begin(0, 0)
	now := int64(time.Second)
	var got []int
	for range 12 {
		c.Stall(now)
		now += int64(c.StallAfter())
		got = append(got, c.Slots())
	}
	want := []int{5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 40}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("slots %v, want %v", got, want)
		}
	}
	if c.Stall(now); c.Slots() != 40 {
		t.Errorf("%d slots, want at most 40", c.Slots())
	}
}

// Until a first request has finished, the slots grow faster.
func TestStallsBeforeAnythingFinishes(t *testing.T) {
	c := New(Options{Max: 150})
	now := int64(0)
	for i, want := range []struct {
		after time.Duration
		slots int
	}{{250 * time.Millisecond, 64}, {time.Second, 96}, {time.Second, 144}, {time.Second, 150}} {
		if got := c.StallAfter(); got != want.after {
			t.Errorf("stall %d comes after %v, want %v", i, got, want.after)
		}
		now += int64(want.after)
		if c.Stall(now); c.Slots() != want.slots {
			t.Errorf("%d slots after stall %d, want %d", c.Slots(), i, want.slots)
		}
	}
}

// A stall is eight times the usual time between two requests that finish, and 250 ms at least.
func TestStallAfterFollowsTheUsualTime(t *testing.T) {
	for _, step := range []struct {
		typical time.Duration
		slots   int
		want    time.Duration
	}{
		{0, 4, 250 * time.Millisecond},
		{20 * time.Millisecond, 4, 250 * time.Millisecond},
		{time.Second, 4, 2 * time.Second},
		{time.Second, 8, time.Second},
	} {
		c := New(Options{Min: step.slots})
		c.begin(0, 0)
		c.cold, c.slots = false, step.slots
		c.typical = float64(step.typical)
		if got := c.StallAfter(); got != step.want {
			t.Errorf("typical %v, %d slots: %v, want %v", step.typical, step.slots, got, step.want)
		}
	}
}

func TestStallAddsNoSlotsToASlowUpstream(t *testing.T) {
	c := New(Options{})
	c.begin(0, 0)
	c.scored, c.floor, c.score.value = true, 0.1, 0.1+growBelow+0.01
	if c.Stall(1e9); c.Slots() != Start {
		t.Errorf("the last score shows a queue: %d slots, want %d", c.Slots(), Start)
	}
	c.score.value = 0.1
	c.slots = 10
	c.bar(1e9, 11)
	if c.Stall(2e9); c.Slots() != 10 {
		t.Errorf("11 slots were too many a second ago: now %d, want 10", c.Slots())
	}
	if c.Stall(1e9 + int64(barMost)); c.Slots() != 12 {
		t.Errorf("20 s later: %d slots, want 12", c.Slots())
	}
}

// While more requests are in progress than a probe has slots, nothing would finish.
func TestStallEndsAProbe(t *testing.T) {
	c := New(Options{})
	c.slots = 20
	c.begin(0, 0)
	c.probe(0.5)
	if c.Slots() >= 20 || c.phase != probing {
		t.Fatalf("no probe: %d slots", c.Slots())
	}
	if c.Stall(1e9); c.Slots() != 20 || c.phase != watching {
		t.Errorf("%d slots, phase %d, want 20 and no probe", c.Slots(), c.phase)
	}
}
