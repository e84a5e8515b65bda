package cputime

import "slices"

// workers handles upstreams in which each process serves one request at a time, such as PHP-FPM,
// Gunicorn or a preforking Apache. A request in progress during the whole sample has a process of
// its own, so its cost is the CPU time of that process. Short requests share the rest, independent
// of the load of the machine.
type workers struct {
	whole []*request
	parts []int64 // ns, largest first
}

// claim removes the requests that were processed during the whole sample, and charges each the time
// of one process: among the largest, the one nearest to the request's previous use. It returns the
// CPU time of the others; false if the upstream does not work like this, or no request lasted the
// whole sample.
func (w *workers) claim(open []*request, u *usage, used, length float64) (rest float64, ok bool) {
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
	rest = used
	for i, r := range w.whole {
		if len(w.parts) == 0 {
			break
		}
		// Each of the following requests needs one process; one more may belong to the others.
		best, near := 0, abs(float64(w.parts[0])-r.foreseen*length)
		for k := 1; k <= len(w.whole)-i && k < len(w.parts); k++ {
			if d := abs(float64(w.parts[k]) - r.foreseen*length); d < near {
				best, near = k, d
			}
		}
		r.share = min(float64(w.parts[best]), float64(r.own))
		rest -= r.share
		w.parts = slices.Delete(w.parts, best, best+1)
	}
	return max(0, rest), true
}

func abs(x float64) float64 { return max(x, -x) }
