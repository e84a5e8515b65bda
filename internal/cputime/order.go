package cputime

import "math"

// order estimates how many requests an upstream processes at once, from how they overtake each
// other. An upstream that processes n at a time ends each request while at most n−1 earlier ones
// are in progress.
//
// For some values of n it stores the likelihood of the observations. Each request in progress, at
// most n of them, is equally likely to end next. Once in a thousand times an inexact clock or a
// slow reader of the answer causes a wrong observation.
type order struct {
	likely [len(servers)]float64 // log of the likelihood, with less weight for old requests
	n      int                   // index in servers
	set    bool
	hinted bool
}

// servers are the candidates for n; the last one means no bound.
var servers = [...]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, math.MaxInt32}

const (
	misled    = 0.001
	fade      = 0.998     // a request has half its weight after some 350 others
	overtaken = 1_000_000 // ns that an earlier request must continue to count as overtaken
	certain   = 3.0       // log likelihood by which a bound must be better
	unlikely  = 5.0       // subtracted from the log likelihood of more requests at once than threads
	counted   = 32        // most ended requests used in one sample
)

// bound returns the most requests that are processed at once.
func (o *order) bound() int {
	if !o.set {
		return servers[len(servers)-1]
	}
	return servers[o.n]
}

// servers returns bound, 0 for none.
func (o *order) servers() int {
	if n := o.bound(); n < math.MaxInt32 {
		return n
	}
	return 0
}

// hint sets the number of the upstream's single-threaded processes, which is the first estimate of
// n.
func (o *order) hint(processes int) {
	if o.hinted {
		return
	}
	o.hinted = true
	for i, n := range servers {
		if n > processes {
			o.likely[i] -= unlikely
		}
	}
	o.choose()
}

// note evaluates the requests in open that ended before now; open is sorted by beginning.
func (o *order) note(open []*request, now int64) {
	rest := counted
	for i, r := range open {
		if r.end == 0 || r.end > now || rest == 0 {
			continue
		}
		rest--
		earlier, all := 1, 1 // in progress when it ended, including itself
		for k, other := range open {
			if k == i || other.end != 0 && other.end < r.end+overtaken || other.began >= r.end {
				continue
			}
			all++
			if k < i {
				earlier++
			}
		}
		if all > 1 {
			o.add(earlier, all)
		}
	}
	if rest == counted {
		return
	}
	o.choose()
}

// used records how many cores a sample used, with that many requests in progress.
func (o *order) used(cores float64, inside int) {
	for i, n := range servers {
		if float64(n) < cores-0.1 && n < inside {
			o.likely[i] += math.Log(misled)
		}
	}
}

func (o *order) choose() {
	best := 0.0
	for i, l := range o.likely {
		if i == 0 || l > best {
			best = l
		}
	}
	// The largest number with almost the best likelihood.
	for i := len(o.likely) - 1; i >= 0; i-- {
		if o.likely[i] >= best-certain {
			o.n, o.set = i, true
			return
		}
	}
}

func (o *order) add(earlier, all int) {
	for i, n := range servers {
		chance := misled
		if n := min(n, all); earlier <= n {
			chance = (1 - misled) / float64(n)
		}
		o.likely[i] = o.likely[i]*fade + math.Log(chance)
	}
}
