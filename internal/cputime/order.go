package cputime

import "math"

// order finds out how many requests an upstream works on at once, from how they
// overtake each other: one that works on n at a time ends each request while at
// most n−1 are in progress that began before it.
//
// For some n it keeps how likely what was seen is, if that many are worked on:
// each of them, or of all in progress if those are fewer, ends next with the
// same chance, and once in a thousand times a clock or an answer that is slow to
// take misleads.
type order struct {
	likely [len(servers)]float64 // log of the likelihood; old requests fade
	n      int                   // index in servers
	set    bool
	hinted bool
}

// servers are the numbers that are told apart; the last one stands for any.
var servers = [...]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, math.MaxInt32}

const (
	misled    = 0.001
	fade      = 0.998     // a request counts for half after some 350 others
	overtaken = 1_000_000 // ns that an earlier request goes on for at least
	certain   = 3.0       // log likelihood by which a bound must be the better one
	unlikely  = 5.0       // log likelihood by which more are less likely than there are threads
	counted   = 32        // ended requests looked at in one sample
)

// bound returns how many are worked on at most.
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

// hint is told how many processes an upstream has, each of one thread: at first
// it is taken to work on no more requests at once.
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

// note looks at the requests that ended before now, in open, which is sorted as
// they began.
func (o *order) note(open []*request, now int64) {
	left := counted
	for i, r := range open {
		if r.end == 0 || r.end > now || left == 0 {
			continue
		}
		left--
		earlier, all := 1, 1 // in progress when it ended, itself too
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
	if left == counted {
		return
	}
	o.choose()
}

// used notes how many cores a sample used, with so many requests in progress.
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
	// The largest number that is nearly as likely as the best.
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
