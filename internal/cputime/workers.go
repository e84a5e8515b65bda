package cputime

import "slices"

// workers is the work of processes that each work on one request at a time, as
// those of PHP-FPM, Gunicorn or a preforking Apache do. A request that such an
// upstream works on during the whole sample has a process to itself: what that
// process used is what the request cost, and short requests beside it have the
// rest, whatever else the machine does.
type workers struct {
	whole []*request
	parts []int64 // ns, largest first
}

// claim takes the requests out that were worked on during the whole sample, and
// gives each what one process used: the one that is nearest to what it used so
// far, among the largest. It returns what is left to the others; false if the
// upstream does not work so, or nobody was there all the time.
func (w *workers) claim(open []*request, u *usage, used, length float64) (left float64, ok bool) {
	w.whole = w.whole[:0]
	for _, r := range open {
		if r.served >= 0.95*length {
			w.whole = append(w.whole, r)
			r.foreseen = float64(r.known.rate)
			if r.before > 0 {
				r.foreseen = (r.foreseen + float64(r.spent.Load())/float64(r.before)) / 2
			}
		}
	}
	if len(w.whole) == 0 || u.processes < 2 || len(w.whole) > u.processes {
		return 0, false
	}
	w.parts = w.parts[:0]
	for _, p := range u.parts {
		if float64(p.used) > 1.2*length { // more than one thread
			return 0, false
		}
		w.parts = append(w.parts, p.used)
	}
	if len(w.parts) < 2 && len(open) > len(w.whole) {
		return 0, false // the others may be that one process's as well
	}
	slices.SortFunc(w.parts, func(a, b int64) int { return int(b - a) })
	slices.SortStableFunc(w.whole, func(a, b *request) int {
		switch {
		case a.foreseen > b.foreseen:
			return -1
		case a.foreseen < b.foreseen:
			return 1
		}
		return 0
	})
	left = used
	for i, r := range w.whole {
		if len(w.parts) == 0 {
			break
		}
		// Those that follow need one each; one more may be the others'.
		best, near := 0, abs(float64(w.parts[0])-r.foreseen*length)
		for k := 1; k <= len(w.whole)-i && k < len(w.parts); k++ {
			if d := abs(float64(w.parts[k]) - r.foreseen*length); d < near {
				best, near = k, d
			}
		}
		r.share = min(float64(w.parts[best]), float64(r.own))
		left -= r.share
		w.parts = slices.Delete(w.parts, best, best+1)
	}
	return max(0, left), true
}

func abs(x float64) float64 { return max(x, -x) }
