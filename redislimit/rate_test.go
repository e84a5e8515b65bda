package redislimit

import (
	"testing"
	"time"
)

// All members together send a master at most mostReports a second that no request waits for, in
// the order in which they are due, and none is lost.
func TestReportsKeepARate(t *testing.T) {
	for _, members := range []int64{1, 3, 50} {
		c := &core{start: time.Now()}
		c.members.Store(members)
		k := &carrier{core: c, master: &master{core: c}, wake: make(chan struct{}, 1)}
		const lazy, notes = 60_000, 500
		for i := range lazy {
			k.lazy.add(delayed{ref(i), int64(i)})
		}
		for i := range notes {
			k.notes.add(delayed{ref(lazy + i), int64(lazy + i)})
		}
		const step = int64(time.Millisecond)
		perSecond := int(mostReports / carriersEach / members)
		next, inSecond, seconds := ref(0), 0, 0
		for mono := int64(lazy + notes); next < lazy+notes; mono += step {
			if mono > int64(time.Hour) {
				t.Fatalf("%d members: only %d reports were sent", members, next)
			}
			k.batch.refs = k.batch.refs[:0]
			k.takeDue(mono)
			for _, r := range k.batch.refs {
				if r != next {
					t.Fatalf("%d members: report %d was sent when %d was due", members, r, next)
				}
				next++
			}
			if inSecond += len(k.batch.refs); (mono-lazy-notes+step)%int64(time.Second) == 0 {
				if most := perSecond + perSecond/50 + 1; inSecond > most { // with a burst
					t.Errorf("%d members: %d reports of a carrier in a second; %d are allowed", members, inSecond, most)
				}
				if next < lazy+notes && inSecond < perSecond-1 {
					t.Errorf("%d members: %d reports of a carrier in a second, of %d", members, inSecond, perSecond)
				}
				inSecond, seconds = 0, seconds+1
			}
		}
		if want := (lazy + notes) / (perSecond + 1); seconds < want-1 {
			t.Errorf("%d members: all reports were sent in %d s; that takes %d", members, seconds, want)
		}
	}
}

// Slots and held amounts are reported at once although other reports have used the rate: other
// members forget them after five seconds without a report.
func TestSlotsAreReportedWithoutARate(t *testing.T) {
	c := &core{start: time.Now()}
	c.members.Store(1)
	m := &master{core: c}
	m.init()
	c.routes.Store(&routes{only: m})
	k := m.carriers[0]
	for i := range ref(4 * batchStates) {
		k.lazy.add(delayed{i, 0})
	}
	e := entry{tracked: true}
	const slot = ref(1 << 20)
	c.queue(slot, &e, false)
	k.paid = c.mono() + int64(time.Hour)
	if d := k.pause(); d > time.Second {
		t.Errorf("the carrier waits for %v", d)
	}
	k.takeDue(c.mono() + lazyDelay)
	if len(k.batch.refs) != 1 || k.batch.refs[0] != slot {
		t.Errorf("%d reports were sent, without that of the slot", len(k.batch.refs))
	}
	if len(k.held.waiting()) != 0 || len(k.lazy.waiting()) != 4*batchStates {
		t.Errorf("%d of slots and %d others wait", len(k.held.waiting()), len(k.lazy.waiting()))
	}
}

// A carrier that has used its rate waits until it has some again, and does not spin.
func TestCarrierWaitsForItsRate(t *testing.T) {
	c := &core{start: time.Now()}
	c.members.Store(1)
	k := &carrier{core: c, master: &master{core: c}, wake: make(chan struct{}, 1)}
	for i := range 4 * batchStates {
		k.lazy.add(delayed{ref(i), 0})
	}
	k.takeDue(c.mono())
	if len(k.lazy.waiting()) == 0 {
		t.Fatal("all reports were sent at once")
	}
	k.paid = c.mono() + int64(time.Hour/2)
	if d := k.pause(); d < 20*time.Minute {
		t.Errorf("it waits for %v", d)
	}
}
