package cputime

import "slices"

// A segment is a part of a sample in which the same requests are in progress.
type segment struct {
	from, to int64
	demand   float64 // cores that its requests would use if each had one
}

// An active is a request that the upstream works on in a segment.
type active struct {
	r    *request
	part float64 // of the segment, in (0, 1]
}

// divide sets the share of each request in used ns of CPU time.
//
// It replays what the upstream must have done. A server of n threads or
// processes works on the n requests that began first (order finds n). Each uses
// the part of a core that its path is known to use (paths), as long as all
// together use no more cores than there were: then all are slowed down alike,
// as the kernel's scheduler does (processor sharing; Kleinrock, 1967). How many
// cores there were is what explains used: other programs take some. If even
// with every core there is more used than foreseen, requests used more of their
// time than their paths did before, up to all of it; the rest is nobody's.
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
	if left, ok := l.workers.claim(l.open, u, used, length); ok {
		l.beside(left, length, !learned)
	} else if used >= foreseen {
		l.raise(used)
	} else {
		l.slow(used)
	}
}

// learn corrects what is known of the paths by this sample, if the cores were
// not all in use: then requests slow each other down, and what is used tells
// nothing.
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

// foresee cuts the sample into spans, and returns what would be used if there
// were cores enough.
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

// beside shares out what requests used that came or went, beside those that
// have been claimed.
func (l *ledger) beside(left, length float64, compare bool) {
	speed := 0.0 // of one that waits for nothing
	for _, r := range l.workers.whole {
		r.whole = true
		speed = max(speed, r.share/length)
	}
	foreseen := l.foresee()
	if left >= foreseen {
		l.raise(left)
	} else {
		l.slow(left)
	}
	if compare {
		l.paths.compare(l.open, speed, length)
	}
}

// room returns how many cores the upstream can use: all, if it has several
// processes at work, else what it was seen to use, as a lock in it may keep its
// threads from more.
func (l *ledger) room(u *usage, cores float64) float64 {
	l.peak = max(l.peak*0.9998, cores)
	if len(u.parts) > 1 {
		return l.cores
	}
	return min(l.peak, l.cores)
}

// serve returns the requests that the upstream works on in a segment.
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

// slow finds the number of cores that explains used, and shares out.
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
	rest := 0.0 // time of the segments not yet looked at
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

// raise shares out more than was foreseen: in proportion to what was, up to the
// time that each was served, and then up to its own.
func (l *ledger) raise(used float64) {
	used = l.fill(used, func(r *request) (float64, float64) { return r.served * float64(r.known.rate), r.served })
	if used > 0 {
		used = l.fill(used, func(r *request) (float64, float64) { return float64(r.own) - r.share, float64(r.own) })
	}
	if used > 0 { // a child that ended may be told of late
		l.fill(used, func(r *request) (float64, float64) {
			late := float64(r.before + r.own - r.spent.Load())
			return late - r.share, late
		})
	}
}

// fill adds used to the shares by weight, none above its bound, and returns
// what nobody could take.
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
