package capacity

import "testing"

// in returns a function with one value in a period and another outside of it.
func in(from, to, then, else_ float64) func(float64) float64 {
	return func(now float64) float64 {
		if now >= from && now < to {
			return then
		}
		return else_
	}
}

// For a minute every page takes four times as long. This is not a queue, so the slots stay as
// before.
func TestSlowsAndRecovers(t *testing.T) {
	for _, w := range []*world{
		{workers: 8, clients: greedy(100, 20, 30, always(0.02))},
		{workers: 8, clients: greedy(100, 20, 30, exponential(0.02))},
	} {
		w.speed = in(60, 120, 0.25, 1)
		w.run(1, 180)
		slow, later := w.between(90, 120), w.between(130, 180)
		t.Logf("%+.3v, then %+.3v", slow, later)
		if slow.work < 0.85*8*0.25 || slow.took > 2*0.08 {
			t.Errorf("while slow: %+.3v", slow)
		}
		if later.work < 0.93*8 || later.took > 2*0.02 || later.high > 20 {
			t.Errorf("later: %+.3v", later)
		}
	}
}

// Three quarters of the workers are missing for a minute. The slots follow them down and up.
func TestSlotsFollowTheWorkers(t *testing.T) {
	for _, w := range []*world{
		{workers: 8, clients: greedy(100, 20, 30, always(0.02))},
		{workers: 8, clients: greedy(100, 20, 30, exponential(0.02))},
		{cores: 8, clients: greedy(100, 20, 30, exponential(0.02))},
	} {
		crew := in(60, 120, 2, 8)
		w.crew = func(now float64) int { return int(crew(now)) }
		w.run(1, 200)
		few, later := w.between(90, 120), w.between(160, 200)
		t.Logf("%+.3v, then %+.3v", few, later)
		if few.work < 0.75*2 || few.slots > 7.5 {
			t.Errorf("with two: %+.3v", few)
		}
		if later.work < 0.9*8 || later.took > 2.5*0.02 {
			t.Errorf("with eight again: %+.3v", later)
		}
	}
}

// A lock in the database stops the upstream almost completely for a while.
func TestRecoversAfterALock(t *testing.T) {
	for _, lock := range []struct{ to, speed float64 }{{65, 0}, {80, 0.05}} {
		w := &world{workers: 8, clients: greedy(100, 20, 30, exponential(0.02)), speed: in(60, lock.to, lock.speed, 1)}
		w.run(1, 140)
		later := w.between(int(lock.to)+20, 140)
		t.Logf("%+.3v", later)
		if later.work < 0.9*8 || later.took > 2*0.02 {
			t.Errorf("after a lock till %v: %+.3v", lock.to, later)
		}
	}
}

// A sudden burst follows a quiet night.
func TestBurstAfterAQuietNight(t *testing.T) {
	cs := greedy(200, 50, 30, exponential(0.02))
	for _, c := range cs {
		c.from = 300
	}
	w := &world{workers: 8, clients: append(polite(5, 5, 5, exponential(0.02)), cs...)}
	w.run(1, 450)
	got := w.between(330, 450)
	t.Logf("%+.3v", got)
	if got.work < 0.85*8 || got.took > 2*0.02 {
		t.Errorf("%+.3v", got)
	}
}

// Above twelve requests the upstream fails at once. Quick failures do not count as quick answers.
func TestFailsWhenFull(t *testing.T) {
	w := &world{workers: 8, room: 12, clients: greedy(100, 20, 30, exponential(0.02))}
	w.run(1, 120)
	got := w.between(30, 120)
	t.Logf("%+.3v", got)
	if got.work < 0.9*8 || got.failed > 0.1 {
		t.Errorf("%+.3v", got)
	}
}

// A site with errors in half of its answers keeps enough slots.
func TestFailingSiteKeepsItsSlots(t *testing.T) {
	work := exponential(0.02)
	cs := greedy(100, 20, 30, nil)
	for _, c := range cs {
		c.page = func(w *world) (uint64, demand) {
			return uint64(w.rng.IntN(30)), demand{work: work(w.rng), fails: w.rng.IntN(2) == 0}
		}
	}
	w := &world{workers: 8, clients: cs}
	w.run(1, 120)
	got := w.between(45, 120)
	t.Logf("%+.3v", got)
	if got.work < 0.9*8 || got.took > 2*0.02 {
		t.Errorf("%+.3v", got)
	}
}

// A policy that is loaded again and again with the same bounds does not disturb the search.
func TestReplaceWithTheSameBoundsChangesNothing(t *testing.T) {
	loaded := func(again bool) summary {
		w := &world{workers: 4, clients: greedy(100, 20, 60, exponential(0.02))}
		last := 0.0
		w.speed = func(now float64) float64 {
			if again && now-last >= 0.3 {
				last = now
				w.c.Replace(w.opts)
			}
			return 1
		}
		w.run(1, 30)
		return w.between(5, 30)
	}
	if again, once := loaded(true), loaded(false); again != once {
		t.Errorf("loaded again %+.3v, loaded once %+.3v", again, once)
	}
}
