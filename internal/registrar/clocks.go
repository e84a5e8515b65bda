package registrar

import (
	"slices"
	"time"

	"fairshare"
	"fairshare/sqlregistry"
)

// The registry holds the system's time: operators' commands compare what they
// read with it, and the times of lifts are compared with those of bans. Memory
// holds the server's time, which no step of the system's clock changes. The
// writer converts one to the other.

// sameTime is how far the difference of the clocks may drift before it is
// measured again: a ban that is written twice keeps the time of its begin.
const sameTime = time.Second

// measureClocks measures by how much the system's clock is ahead of the server's.
func (w *writer) measureClocks() {
	now := w.now()
	if ahead := w.wall(now).Sub(now); (ahead - w.ahead).Abs() >= sameTime {
		w.ahead = ahead
	}
}

// onSystemClock returns a batch of server times, written at now, with the
// system's times.
func onSystemClock(b sqlregistry.Batch, now time.Time, ahead time.Duration) sqlregistry.Batch {
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

func shiftStory(s *fairshare.Story, by time.Duration) {
	shift(by, &s.First, &s.Last, &s.Until, &s.BanBegan)
}

// shift adds to each time that is not zero.
func shift(by time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
}
