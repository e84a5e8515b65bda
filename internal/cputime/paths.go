package cputime

// A path describes the requests for one path.
type path struct {
	hash     uint64
	uses     int32   // ended requests, minus uses taken by other paths; 0: the entry is free
	rate     float32 // cores that one request uses while it is processed, in (0, 1]
	variance float32 // of rate

	served float64 // ns of requests in this sample
	before float64
	listed bool
	next   *path // next path of this sample
}

const (
	sets     = 1024
	ways     = 4
	familiar = 3 // requests until a path has its own rate
	minRate  = 1.0 / 4096
	doubt    = 0.08 // variance of a new path's rate
	drift    = 2e-4 // variance that a sample adds, because paths change
	noise    = 0.03 // share of a sample's CPU time that no rate explains
)

// paths is a bounded table of paths by hash. A path with few requests counts as unknown, and all
// unknown paths share one entry. When a set is full, each new path takes one use from the least
// used path. So a flood of paths with one request each mostly replaces its own paths.
type paths struct {
	sets     [][ways]path
	unknown  path
	known    int
	last     []*path
	lastUsed float64
}

func newPaths() paths {
	return paths{sets: make([][ways]path, sets), unknown: path{rate: 1, variance: doubt}, lastUsed: -1}
}

// find returns the entry of a path.
func (p *paths) find(hash uint64) *path {
	set := &p.sets[hash%sets]
	for i := range set {
		if set[i].hash == hash && set[i].uses >= familiar {
			return &set[i]
		}
	}
	return &p.unknown
}

// use counts a request that ended.
func (p *paths) use(hash uint64) {
	set := &p.sets[hash%sets]
	least := &set[0]
	for i := range set {
		if set[i].hash == hash && set[i].uses > 0 {
			set[i].uses = min(set[i].uses+1, 1<<16)
			if set[i].uses == familiar {
				set[i].rate, set[i].variance = p.unknown.rate, doubt
			}
			return
		}
		if set[i].uses < least.uses {
			least = &set[i]
		}
	}
	if least.uses > 0 {
		least.uses--
		return
	}
	if least.hash == 0 {
		p.known++
	}
	*least = path{hash: hash, uses: 1}
}

// learn corrects the rates of the paths of this sample by the difference between used and foreseen.
// Paths that are least known and were served most are corrected most (a Kalman filter with
// independent states; normalised LMS with its own step for each path). It does so for the whole
// sample, and also for the change since the last sample. Requests in progress all the time, and
// work in the background, have no effect on the change.
func (p *paths) learn(open []*request, used, foreseen, length float64) {
	var first *path
	touch := func(q *path) {
		if !q.listed {
			q.listed = true
			q.next, first = first, q
		}
	}
	for _, r := range open {
		if r.effect > 0 {
			touch(r.known)
			r.known.served += r.effect / length
		}
	}
	used, foreseen = used/length, foreseen/length
	p.correct(first, used-foreseen, noise*used+0.01, func(q *path) float64 { return q.served })
	for _, q := range p.last {
		touch(q)
	}
	if p.lastUsed >= 0 {
		err := used - p.lastUsed
		for q := first; q != nil; q = q.next {
			err -= float64(q.rate) * (q.served - q.before)
		}
		p.correct(first, err, noise*used+0.01, func(q *path) float64 { return q.served - q.before })
	}
	p.last = p.last[:0]
	for q := first; q != nil; {
		q.variance = min(q.variance+drift, doubt)
		q.listed = false
		q.before, q.served = q.served, 0
		if q.before != 0 {
			p.last = append(p.last, q)
		}
		q, q.next = q.next, nil
	}
	p.lastUsed = used
}

// skip records a sample that is not used.
func (p *paths) skip() { p.lastUsed = -1 }

func (p *paths) correct(first *path, err, noise float64, of func(*path) float64) {
	sum := noise * noise
	for q := first; q != nil; q = q.next {
		d := of(q)
		sum += float64(q.variance) * d * d
	}
	for q := first; q != nil; q = q.next {
		d := of(q)
		gain := float64(q.variance) * d / sum
		q.rate = float32(min(1, max(minRate, float64(q.rate)+gain*err)))
		q.variance = float32(float64(q.variance) * (1 - gain*d))
	}
}

// compare corrects rates if the cost of some requests is known from their processes. speed is that
// of the fastest request, which never waited.
func (p *paths) compare(open []*request, speed, length float64) {
	if speed < 0.05 {
		return
	}
	for _, r := range open {
		if r.own <= 0 || r.served <= 0 {
			continue
		}
		q := r.known
		seen := min(1, r.share/(float64(r.served)*speed))
		q.rate = float32(max(minRate, float64(q.rate)+0.1*min(1, r.served/length)*(seen-float64(q.rate))))
	}
}
