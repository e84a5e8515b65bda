package registrar

import (
	"slices"
	"time"

	"fairshare/registry"
)

// The registry records the system's time: operators' commands compare it with their
// own, and Write compares the times of lifts and bans. Memory holds the server's
// time, which steps of the system's clock do not change. The writer converts one to
// the other.

// sameTime is how far the difference of the clocks may drift until it is updated. So
// a ban that is written twice has the same start.
const sameTime = time.Second

// measureClocks measures by how much the system's clock is ahead of the server's.
func (w *writer) measureClocks() {
	now := w.now()
	if ahead := w.wall(now).Sub(now); (ahead - w.clockAhead).Abs() >= sameTime {
		w.clockAhead = ahead
	}
}

// onSystemClock returns a copy of a batch with the system's times. now is the
// server's time.
func onSystemClock(b registry.Batch, now time.Time, ahead time.Duration) registry.Batch {
	b.At = now.Add(ahead)
	if ahead == 0 {
		return b
	}
	b.Clients, b.Stories, b.Bans = slices.Clone(b.Clients), slices.Clone(b.Stories), slices.Clone(b.Bans)
	for i := range b.Clients {
		c := &b.Clients[i]
		shift(ahead, &c.FirstSeen, &c.LastSeen)
	}
	for i := range b.Stories {
		shiftStory(&b.Stories[i], ahead)
	}
	for i := range b.Bans {
		ban := &b.Bans[i]
		shift(ahead, &ban.Began, &ban.Until, &ban.Since)
	}
	return b
}

func shiftStory(s *registry.Story, by time.Duration) {
	shift(by, &s.First, &s.Last, &s.Until, &s.BanBegan)
}

// shift adds a duration to each time that is not zero.
func shift(by time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
}
