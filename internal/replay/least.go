package replay

import (
	"context"
	"hash/maphash"
	"math"
	"time"

	"fairshare"
)

// A LeastLimit says how much of a limit people needed.
type LeastLimit struct {
	Rule     string `json:"rule"`
	Resource string `json:"resource"`
	N        int64  `json:"now"` // the allowance in the policy, in the resource's unit
	// Least is the smallest allowance that would have refused nobody who looks like a person, if
	// nobody else had been refused either
	Least int64 `json:"least"`
	limit *fairshare.Limit
}

// Limit returns the limit as it is, and with the smallest allowance.
func (l *LeastLimit) Limit() (now, least *fairshare.Limit) {
	smallest := *l.limit
	smallest.N = l.Least
	return l.limit, &smallest
}

// A meter is a Limiter that refuses nothing and finds out how much of each limit some clients
// need. It is not safe for concurrent use.
type meter struct {
	limits []fairshare.Limit
	seed   maphash.Seed
	counts map[metered]*meterCount
	person bool    // the present request is of one of these clients
	most   []int64 // by limit: what these clients needed
	full   bool    // some keys were not counted
	keys   int     // how many keys are counted at most
}

type metered struct {
	limit int
	key   uint64
}

type meterCount struct {
	window    int64 // number of the present window since the Unix epoch; Quiet: time of the last request
	prev, cur int64
}

// mostMetered bounds the keys that are counted: about 80 MB.
const mostMetered = 1 << 20

func newMeter(limits []fairshare.Limit) *meter {
	return &meter{limits: limits, seed: maphash.MakeSeed(), counts: map[metered]*meterCount{},
		most: make([]int64, len(limits)), keys: mostMetered}
}

// Reset deletes the counts, and keeps what clients needed.
func (m *meter) Reset() { clear(m.counts) }

func (m *meter) count(limit int, key []byte) *meterCount {
	k := metered{limit, maphash.Bytes(m.seed, key)}
	c := m.counts[k]
	if c == nil {
		if len(m.counts) >= m.keys {
			m.full = true
			return nil
		}
		c = &meterCount{window: math.MinInt64}
		m.counts[k] = c
	}
	return c
}

// roll returns the part of a window that has gone by.
func (c *meterCount) roll(l *fairshare.Limit, now int64) float64 {
	w := max(int64(l.Window), 1)
	if l.Resource == fairshare.Concurrent {
		return 0
	}
	if l.Algorithm == fairshare.Quiet {
		if c.window == math.MinInt64 || now-c.window >= w {
			c.cur = 0
		}
		return 0
	}
	window := floorDiv(now, w)
	switch {
	case window == c.window:
	case window == c.window+1:
		c.prev, c.cur = c.cur, 0
	default:
		c.prev, c.cur = 0, 0
	}
	c.window = window
	return float64(now-window*w) / float64(w)
}

// Take implements fairshare.Limiter: everything passes.
func (m *meter) Take(_ context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	at := now.UnixNano()
	for i := range takes {
		tallies[i] = fairshare.Tally{}
		l := &m.limits[takes[i].Limit]
		c := m.count(takes[i].Limit, takes[i].Key)
		if c == nil {
			continue
		}
		gone := c.roll(l, at)
		used := float64(c.prev)*(1-gone) + float64(c.cur)
		if m.person {
			// A request passes if used + 1 ≤ N; one whose cost is known later if used < N.
			needed := int64(math.Ceil(used)) + 1
			if l.Resource != fairshare.Requests && l.Resource != fairshare.Concurrent {
				needed = int64(math.Floor(used)) + 1
				if used == 0 {
					needed = 0 // any limit
				}
			}
			m.most[takes[i].Limit] = max(m.most[takes[i].Limit], needed)
		}
		if l.Resource == fairshare.Requests || l.Resource == fairshare.Concurrent {
			c.cur++
		}
		if l.Algorithm == fairshare.Quiet {
			c.window = at
		}
	}
	return nil
}

// Settle implements fairshare.Limiter.
func (m *meter) Settle(_ context.Context, now time.Time, charges []fairshare.Charge) error {
	for i := range charges {
		l := &m.limits[charges[i].Limit]
		if c := m.count(charges[i].Limit, charges[i].Key); c != nil {
			if l.Algorithm != fairshare.Quiet {
				c.roll(l, now.UnixNano())
			}
			c.cur = addBytes(max(0, c.cur+min(charges[i].Cost, 0)), charges[i].Cost)
		}
	}
	return nil
}

// meters makes a meter the limiter of a run.
func (o *Options) meters(limits []fairshare.Limit) (fairshare.Limiter, error) {
	return newMeter(limits), nil
}

// isMetered reports whether the meter knows what a limit needs: not if it pays back steadily,
// counts different things, shares a key with newcomers or holds at busy times only.
func isMetered(l *fairshare.Limit) bool {
	return l.Algorithm != fairshare.GCRA && l.Distinct == 0 && l.Newcomers == nil && l.When == fairshare.Always &&
		!l.DryRun
}

// addLeast adds what people needed of each limit.
func (j *judge) addLeast(r *Report) {
	m, ok := j.limiter.(*meter)
	if !ok || m.full {
		return
	}
	for i := range j.opts.Policy.Rules {
		rule := &j.opts.Policy.Rules[i]
		if rule.Limit == nil || rule.DryRun || !isMetered(rule.Limit) {
			continue
		}
		for k := range m.limits {
			if m.limits[k].Name == rule.Name && m.limits[k].Newcomers == nil && m.most[k] > 0 {
				r.Least = append(r.Least, LeastLimit{Rule: rule.Name, Resource: rule.Limit.Resource.String(),
					N: rule.Limit.N, Least: m.most[k], limit: rule.Limit})
				break
			}
		}
	}
}

// addPersons reports the clients that look like people.
func (rec *recorder) addPersons() {
	if rec.opts.Person == nil {
		return
	}
	for i := range rec.clients.n {
		if cl := rec.clients.at(i); rec.person(cl) {
			rec.opts.Person(cl.facts.address())
		}
	}
}
