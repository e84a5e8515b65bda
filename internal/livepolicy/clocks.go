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

// reportClock logs when the clock of this machine is wrong by that of the database, and when
// it is right again. It is used by run.
func (g *group) reportClock() {
	if ahead := g.clockAhead.Load(); ahead != nil && (*ahead != 0) != g.clockWrong {
		g.clockWrong = !g.clockWrong
		g.log(clockLine(*ahead))
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
