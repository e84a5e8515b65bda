package redislimit

import (
	"testing"
	"time"

	"fairshare/memlimit"
)

// A program that is stalled between the readings of its clock has no wrong offset then.
func TestStallIsNotAnOffset(t *testing.T) {
	base := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		name          string
		began, ended  time.Duration // when the clock was read
		at            time.Duration // the store's time
		before, after time.Duration // the offset
	}{
		{"near", 0, 2 * time.Millisecond, time.Millisecond, 0, 0},
		{"stalled before the reply", 0, 3 * time.Second, 3 * time.Second, 0, 0},
		{"stalled after the reply", 0, 3 * time.Second, 0, 0, 0},
		{"set back meanwhile", 0, -time.Hour, 0, 0, 0},
		{"an hour behind", 0, 2 * time.Millisecond, time.Hour + time.Millisecond, 0, time.Hour},
		{"right again", 0, 2 * time.Millisecond, time.Millisecond, time.Hour, 0},
	} {
		c := &core{events: events{report: func(Event) {}}}
		if tt.before != 0 {
			c.clock.sample(c, base.Add(tt.before), base, base)
		}
		c.clock.sample(c, base.Add(tt.at), base.Add(tt.began), base.Add(tt.ended))
		if got := c.clock.correction(); got != tt.after {
			t.Errorf("%s: the offset is %v, want %v", tt.name, got, tt.after)
		}
	}
}

// The end of a key is by the clock of the master that has it.
func TestSwapsUseTheClockOfTheirMaster(t *testing.T) {
	c := &core{start: time.Now()}
	c.members.Store(1)
	now := time.Now()
	for _, off := range []time.Duration{0, -time.Minute, time.Hour} {
		m := &master{core: c}
		mono := c.mono()
		m.setTime(now.Add(off), mono, mono)
		k := &carrier{core: c, master: m}
		s := &spec{kind: window, allowed: 10, w: int64(2 * time.Second)}
		st := &sent{stated: stated{spec: s, at: now.UnixNano()}, provisional: 1}
		k.batch.sorted, k.batch.second = []*sent{st}, m.second()
		sc := script{command: swapping}
		if !k.swaps(&sc, &unit{to: 1, keys: 1}) {
			t.Fatalf("%v: a new state needs a decision", off)
		}
		ends := time.Duration(int64(st.ends)-now.Add(off).Unix()) * time.Second
		if ends < 2*time.Second || ends > time.Minute {
			t.Errorf("%v: by the clock of its master, the key ends in %v", off, ends)
		}
	}
	m := &master{core: c}
	m.setTime(now, 0, int64(time.Minute))
	if at := m.second(); at != 0 {
		t.Errorf("a probe that took a minute says that it is %d", at)
	}
}

// Charges to a state that is ahead of its time are added by the script, see spend there.
func TestSwapLeavesStatesAhead(t *testing.T) {
	s := &spec{kind: window, allowed: 10, w: int64(time.Second), far: 61}
	now := time.Unix(1_800_000_000, 0)
	for ahead := range int64(5) {
		st := &sent{stated: stated{spec: s, base: [tokenBytes]byte{1}, at: now.UnixNano()}, provisional: 3,
			known: true, isKnown: true, offset: firstRecord, ends: uint32(now.Unix()) + 60,
			stored: memlimit.State{Num: now.Unix() + ahead, Cur: 2}}
		w, ok := st.plan(now.Unix(), 1)
		if ok != (ahead == 0) || ok && w.state.Cur != 5 {
			t.Errorf("%d windows ahead: %+v, %v", ahead, w.state, ok)
		}
	}
}
