package livepolicy

import (
	"fmt"
	"time"

	"fairshare/internal/prose"
)

// sameClock is how far two clocks may differ that count as equal.
const sameClock = 5 * time.Second

// sharedWall turns a time of the guard into the time of day that all servers of a group
// share, also if the clock of this machine is wrong. It is that of the shared database or,
// without one, that of the store. Cookies, challenges and pages for clients have it.
func (rt *Runtime) sharedWall(p *Policy, t time.Time) time.Time {
	if g, ok := p.state.store.(*group); ok {
		if ahead := g.clockAhead.Load(); ahead != nil {
			return p.Wall(t).Add(-*ahead)
		}
	}
	if rt.Group != nil {
		if by := rt.Group.Correction(); by.Abs() > sameClock {
			return t.Add(by.Round(time.Second))
		}
	}
	return p.Wall(t)
}

// A clock that is corrected gradually differs a bit more each time. Then all is read again once in
// convertEach, or when it differs by farClock.
const (
	convertEach = 10 * time.Minute
	farClock    = time.Minute
)

// mustConvert reports whether the records of this server have to be read again, since the clock of
// this machine has changed by so much against the shared one. It is used by run.
func (g *group) mustConvert(by time.Duration) bool {
	return by.Abs() >= farClock || by.Abs() >= sameClock && time.Since(g.convertedAt) >= convertEach
}

// reportClock logs when the clock of this machine is wrong, and when it is right again. If the
// clock of the database was set, only that is logged: a clock that agrees with the database now,
// or did before, is not wrong. It is used by run.
func (g *group) reportClock() {
	if (g.clockWrong != 0) != g.clockReported {
		g.clockReported = !g.clockReported
		g.log(clockLine(g.clockWrong))
	}
}

// clockLine says whether a clock is wrong that is ahead by a time, and what follows from it.
func clockLine(ahead time.Duration) string {
	side := "ahead of"
	switch {
	case ahead == 0:
		return "the clock of this machine agrees with that of the shared database again"
	case ahead < 0:
		side = "behind"
	}
	return fmt.Sprintf("warning: the clock of this machine is %s %s the shared database's: bans and decisions end at "+
		"the right moment, but the log and the times that commands print are wrong here; synchronize it",
		prose.Duration(ahead.Abs()), side)
}
