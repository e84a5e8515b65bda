package memlimit

import (
	"slices"
	"time"
)

// A pacedLimit is a GCRA limit with the rate of a take's Every. Its states are those
// of the limit.
type pacedLimit struct {
	of    int
	every time.Duration
	limit *limit
}

// mostPaced is how many pacedLimits are kept: a robots.txt has few different delays.
const mostPaced = 64

// limit returns a limit by its place, with the rate of a take or charge.
func (l *Limiter) limit(i int, every time.Duration) *limit {
	if every == 0 {
		return &l.limits[i]
	}
	return l.pace(i, every)
}

func (l *Limiter) pace(i int, every time.Duration) *limit {
	old := l.paced.Load()
	if old != nil {
		for j := range *old {
			if p := &(*old)[j]; p.of == i && p.every == every {
				return p.limit
			}
		}
	}
	lim := &l.limits[i]
	if lim.kind != gcraNarrow && lim.kind != gcraWide {
		return lim
	}
	given := l.given[i].Paced(every)
	c := *lim
	c.allowed, c.w = uint64(given.Burst), uint64(every)
	c.far = c.w + clockDrift
	c.compileGCRA(1)
	c.layout = lim.layout // its states are read with any rate
	var kept []pacedLimit
	if old != nil {
		kept = (*old)[max(0, len(*old)-mostPaced+1):]
	}
	kept = append(slices.Clone(kept), pacedLimit{i, every, &c})
	l.paced.CompareAndSwap(old, &kept) // if another was faster, this one is made again
	return &c
}
