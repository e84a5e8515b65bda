package cputime

import "slices"

// A segment is a part of a sample with the same requests in progress.
type segment struct {
	from, to int64
	demand   float64 // cores that its requests would use if each had its own core
}

// An active is a request that the upstream processes in a segment.
type active struct {
	r    *request
	part float64 // of the segment, in (0, 1]
}

// divide sets the share of each request in used ns of CPU time.
//
// It simulates the upstream. A server with n workers (threads or processes) handles the n requests
// that began first (order finds n). Each uses the part of a core that is known for its path (paths).
// If there are not enough cores, all are slowed down equally, as by the kernel's scheduler
// (processor sharing; Kleinrock, 1967). Other programs use some cores, so the number of cores is
// the one that explains used. If used is more than expected even with every core, the requests used
// more than their paths did before, up to all of their time. No request is charged the rest.
func (l *ledger) divide(from, to int64, used float64, u *usage) {
	if len(l.open) == 0 || to <= from {
		return
	}
	for _, r := range l.open {
		r.known = l.paths.find(r.hash)
	}
	length := float64(to - from)
	if u.processes > 0 && u.threads == u.processes {
		l.order.hint(u.processes)
	}
	l.order.used(used/length, len(l.open))
	l.order.note(l.open, to)
	l.cut(from, to)
	l.foresee()
	learned := l.learn(used, length, u)
	foreseen := l.foresee()
	if rest, ok := l.workers.claim(l.open, u, used, length); ok {
		l.divideRest(rest, length, !learned)
	} else if used >= foreseen {
		l.raise(used)
	} else {
		l.slow(used)
	}
}

// learn updates the paths with this sample, unless all cores were in use: then requests slow each
// other down, and the sample says nothing about them.
func (l *ledger) learn(used, length float64, u *usage) bool {
	room := l.room(u, used/length)
	expect := 0.0
	for _, s := range l.spans {
		speed := min(1, max(room, 1)/s.demand) * float64(s.to-s.from)
		expect += s.demand * speed
		for _, a := range l.serve(s) {
			a.r.effect += a.part * speed
		}
	}
	if used >= expect || used < 0.75*room*length {
		l.paths.learn(l.open, used, expect, length)
		return true
	}
	l.paths.skip()
	return false
}

// foresee cuts the sample into spans, and returns the expected CPU time with enough cores.
func (l *ledger) foresee() float64 {
	l.spans = l.spans[:0]
	for _, r := range l.open {
		r.served = 0
	}
	foreseen := 0.0
	for i := range len(l.cuts) - 1 {
		s := segment{from: l.cuts[i], to: l.cuts[i+1]}
		length := float64(s.to - s.from)
		for _, a := range l.serve(s) {
			s.demand += a.part * float64(a.r.known.rate)
			a.r.served += a.part * length
		}
		foreseen += s.demand * length
		l.spans = append(l.spans, s)
	}
	return foreseen
}

// divideRest divides the CPU time of requests that began or ended in the sample, without the
// claimed ones.
func (l *ledger) divideRest(rest, length float64, compare bool) {
	speed := 0.0 // of a request that never waits
	for _, r := range l.workers.whole {
		r.whole = true
		speed = max(speed, r.share/length)
	}
	foreseen := l.foresee()
	if rest >= foreseen {
		l.raise(rest)
	} else {
		l.slow(rest)
	}
	if compare {
		l.paths.compare(l.open, speed, length)
	}
}

// room returns how many cores the upstream can use: all, if several of its processes work.
// Otherwise it is the most that the upstream has used so far, because a lock may limit its threads.
func (l *ledger) room(u *usage, cores float64) float64 {
	l.peak = max(l.peak*0.9998, cores)
	if len(u.parts) > 1 {
		return l.cores
	}
	return min(l.peak, l.cores)
}

// serve returns the requests that the upstream processes in a segment.
func (l *ledger) serve(s segment) []active {
	l.queue = l.queue[:0]
	length, room := float64(s.to-s.from), float64(l.order.bound())
	for _, r := range l.open {
		if r.began >= s.to || room <= 0 {
			break
		}
		end := s.to
		if r.end != 0 {
			end = min(end, r.end)
		}
		if part := float64(end-max(s.from, r.began)) / length; part > 0 {
			if !r.whole {
				l.queue = append(l.queue, active{r, min(part, room)})
			}
			room -= part
		}
	}
	return l.queue
}

// slow finds the number of cores that explains used, and divides used.
func (l *ledger) slow(used float64) {
	slices.SortFunc(l.spans, func(a, b segment) int {
		switch {
		case a.demand < b.demand:
			return -1
		case a.demand > b.demand:
			return 1
		}
		return 0
	})
	rest := 0.0 // time of the remaining segments
	for _, s := range l.spans {
		rest += float64(s.to - s.from)
	}
	cores := 0.0
	for _, s := range l.spans { // the sum of min(demand, cores) · time is used
		if s.demand*rest >= used {
			cores = used / rest
			break
		}
		used -= s.demand * float64(s.to-s.from)
		rest -= float64(s.to - s.from)
		cores = s.demand
	}
	for _, s := range l.spans {
		speed := 1.0
		if s.demand > cores {
			speed = cores / s.demand
		}
		speed *= float64(s.to - s.from)
		for _, a := range l.serve(s) {
			a.r.share += a.part * float64(a.r.known.rate) * speed
		}
	}
}

// raise divides more than was expected: in proportion to the expected amounts, up to the time that
// each request was served, and then up to its own time.
func (l *ledger) raise(used float64) {
	used = l.fill(used, func(r *request) (float64, float64) { return r.served * float64(r.known.rate), r.served })
	if used > 0 {
		used = l.fill(used, func(r *request) (float64, float64) { return float64(r.own) - r.share, float64(r.own) })
	}
	if used > 0 { // the CPU time of an ended child may be reported late
		l.fill(used, func(r *request) (float64, float64) {
			late := float64(r.before + r.own - r.spent.Load())
			return late - r.share, late
		})
	}
}

// fill adds used to the shares by weight, each up to its bound, and returns the rest.
func (l *ledger) fill(used float64, of func(*request) (weight, bound float64)) float64 {
	for range 8 {
		sum := 0.0
		for _, r := range l.open {
			if w, bound := of(r); !r.whole && r.share < bound {
				sum += w
			}
		}
		if sum <= 0 || used < 1 {
			break
		}
		each, given := used/sum, 0.0
		for _, r := range l.open {
			w, bound := of(r)
			if !r.whole && r.share < bound {
				add := min(w*each, bound-r.share)
				r.share += add
				given += add
			}
		}
		used -= given
	}
	return used
}
