package fairshare

import "time"

// farAhead is how far the time of a request may be ahead of the latest accepted
// time before the next request must confirm it.
const farAhead = time.Minute

// arrival returns the time at which a request that arrives at t is judged: t, or
// the latest time believed if that is later. Time never runs backwards in a
// guard.
//
// One request far ahead is judged at its own time, but only a second one in a
// row moves the latest time there: else one wrong time would stop the clock for
// all later requests.
func (g *Guard) arrival(t time.Time) time.Time {
	ns := t.UnixNano()
	for {
		latest := g.latest.Load()
		if ns < latest {
			return time.Unix(0, latest)
		}
		if !isFarAhead(ns, latest) {
			if g.claimed.Load() != minTime {
				g.claimed.Store(minTime)
			}
			if ns == latest || g.latest.CompareAndSwap(latest, ns) {
				return t
			}
			continue
		}
		claimed := g.claimed.Load()
		if claimed == minTime || isFarAhead(claimed, ns) {
			g.claimed.Store(ns)
			return t
		}
		judged, believed, next := max(ns, claimed), max(ns, claimed), int64(minTime)
		if isFarAhead(ns, claimed) { // as after each pause of a site with few requests
			believed, next = claimed, ns
		}
		if g.latest.CompareAndSwap(latest, believed) {
			g.claimed.Store(next)
			return time.Unix(0, judged)
		}
	}
}

// isFarAhead reports whether time a is far ahead of time b, both in Unix ns.
func isFarAhead(a, b int64) bool { return a > b && uint64(a)-uint64(b) > uint64(farAhead) }

// forward returns t, or the latest time believed if that is later. Unlike
// arrival it moves that time only if t is not far ahead.
func (g *Guard) forward(t time.Time) time.Time {
	ns := t.UnixNano()
	for {
		latest := g.latest.Load()
		switch {
		case ns < latest:
			return time.Unix(0, latest)
		case ns == latest || isFarAhead(ns, latest) || g.latest.CompareAndSwap(latest, ns):
			return t
		}
	}
}
