package cputime

import "slices"

// A ledger divides the CPU time of an upstream among requests. It has no clock: times are in ns,
// and the least is 1. It is used by one goroutine.
type ledger struct {
	cores float64 // most cores of the upstream; 0: no bound
	last  int64   // time of the last sample; 0 before the first
	open  []*request
	peak  float64

	paths   paths
	order   order
	cuts    []int64   // limits of the segments of the sample
	spans   []segment // of the sample
	queue   []active  // of one segment
	workers workers

	charged, background, own int64 // ns; see Stats
}

func newLedger(cores float64) ledger {
	return ledger{cores: cores, paths: newPaths()}
}

// sample divides u among the requests in progress since the last sample, and appends the ended ones
// to settled.
func (l *ledger) sample(now int64, u *usage, settled []*request) []*request {
	if l.last == 0 {
		return l.unsampled(now, settled)
	}
	l.measure(now)
	length := now - l.last
	l.last = now
	l.divide(now-length, now, float64(l.possible(u.used, length)), u)
	var charged int64
	for _, r := range l.open {
		share := max(0, min(int64(r.share+0.5), r.before+r.own-r.spent.Load()))
		r.spent.Add(share)
		charged += share
	}
	l.charged += charged
	l.background += u.used - charged
	return l.settle(now, settled)
}

// possible returns the part of used that the cores can have worked since the last sample. More
// comes from a process that was found late.
func (l *ledger) possible(used, length int64) int64 {
	if l.cores <= 0 {
		return used
	}
	return min(used, int64(l.cores*float64(length)))
}

// unsampled charges requests their own time since the last sample, reduced to the part in which
// their paths work. All together are charged at most the time of all cores, because many requests
// may wait for a few.
func (l *ledger) unsampled(now int64, settled []*request) []*request {
	l.measure(now)
	length := now - l.last
	l.last = now
	var sum, part float64
	for _, r := range l.open {
		sum += float64(r.own) * float64(l.paths.find(r.hash).rate)
	}
	if part = 1; l.cores > 0 && sum > l.cores*float64(length) {
		part = l.cores * float64(length) / sum
	}
	for _, r := range l.open {
		share := min(int64(float64(r.own)*float64(l.paths.find(r.hash).rate)*part+0.5), r.own)
		r.spent.Add(share)
		l.own += share
	}
	return l.settle(now, settled)
}

// measure computes the own time of each request in this sample, and sorts the requests by their
// beginning.
func (l *ledger) measure(now int64) {
	for i, r := range l.open {
		end := now
		if r.end != 0 {
			end = min(end, r.end)
		}
		r.before += r.own
		r.own, r.served, r.effect, r.share, r.whole = max(0, end-max(r.began, l.last)), 0, 0, 0, false
		for ; i > 0 && l.open[i-1].began > r.began; i-- { // nearly sorted
			l.open[i-1], l.open[i] = l.open[i], l.open[i-1]
		}
	}
}

// settle removes the requests that ended before now.
func (l *ledger) settle(now int64, settled []*request) []*request {
	open := l.open[:0]
	for _, r := range l.open {
		if r.end != 0 && r.end <= now {
			settled = append(settled, r)
			l.paths.use(r.hash)
		} else {
			open = append(open, r)
		}
	}
	clear(l.open[len(open):])
	l.open = open
	return settled
}

// maxSegments is the most segments of a sample.
const maxSegments = 64

// cut cuts a sample where requests begin and end, or evenly if there are too many.
func (l *ledger) cut(from, to int64) {
	l.cuts = append(l.cuts[:0], from, to)
	for _, r := range l.open {
		if r.began > from && r.began < to {
			l.cuts = append(l.cuts, r.began)
		}
		if r.end > from && r.end < to {
			l.cuts = append(l.cuts, r.end)
		}
		if len(l.cuts) > maxSegments {
			break
		}
	}
	if len(l.cuts) > maxSegments {
		l.cuts = l.cuts[:0]
		for i := range int64(maxSegments) {
			l.cuts = append(l.cuts, from+(to-from)*i/maxSegments)
		}
		l.cuts = append(l.cuts, to)
	}
	slices.Sort(l.cuts)
	l.cuts = slices.Compact(l.cuts)
}
