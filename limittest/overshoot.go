package limittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"fairshare"
)

// An attacker tries to have expensive requests admitted beyond what a limit
// allows. It knows all rules, chooses when each request settles and its
// cost, and acts under as many keys as it likes.
type attacker struct {
	*testing.T
	rand    *rand.Rand
	limiter fairshare.Limiter
	limit   *fairshare.Limit
	now     time.Time
	dearest int64                         // that a request may cost
	open    map[string][]fairshare.Charge // in progress, by key
	charged map[string]int64              // since all counters were fresh
}

// begin sends a request and reports whether it passed.
func (a *attacker) begin(key string, page fairshare.Page) bool {
	a.Helper()
	tallies := make([]fairshare.Tally, 1)
	take := fairshare.Take{Key: []byte(key), Cost: 1, Page: page}
	if err := a.limiter.Take(context.Background(), a.now, []fairshare.Take{take}, tallies); err != nil {
		a.Fatal(err)
	}
	if tallies[0].Over {
		return false
	}
	a.open[key] = append(a.open[key], fairshare.Charge{Key: take.Key, Held: tallies[0].Held, Page: page})
	if _, most := a.limit.AtOnce(); int64(len(a.open[key])) > most {
		a.Fatalf("%d requests of %s are in progress", len(a.open[key]), key)
	}
	return true
}

// end has the request i of a key cost that.
func (a *attacker) end(key string, i int, cost int64) {
	a.Helper()
	open := a.open[key]
	c := open[i]
	a.open[key] = append(open[:i], open[i+1:]...)
	if c.Cost, c.Ends, c.Total = cost, true, cost; a.rand.IntN(20) == 0 { // it never reached the upstream
		c.Cost, c.Ends, c.Total = 0, false, 0
	}
	if err := a.limiter.Settle(context.Background(), a.now, []fairshare.Charge{c}); err != nil {
		a.Fatal(err)
	}
	a.charged[key] += c.Cost
}

// prime sends requests one after another, as far as they pass.
func (a *attacker) prime(key string, page fairshare.Page, times int, cost int64) {
	a.Helper()
	for range times {
		if !a.begin(key, page) {
			return
		}
		a.end(key, len(a.open[key])-1, cost)
	}
}

// burst sends as many requests as pass, and has some of those in progress
// settle in between.
func (a *attacker) burst(key string, page func() fairshare.Page) {
	a.Helper()
	for range 200 {
		if a.begin(key, page()) && a.rand.IntN(4) > 0 {
			continue
		}
		if n := len(a.open[key]); n > 0 && a.rand.IntN(3) == 0 {
			a.end(key, a.rand.IntN(n), pick(a.rand, a.dearest, a.dearest, 0, 1))
		}
	}
}

// runOvershoot attacks a limiter in many ways and checks that no key gets more
// than the allowance and the cost of as many requests as may be in progress.
func runOvershoot(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	cases := []struct{ n, dearest int64 }{{1000, 100}, {1000, 7}, {1000, 5000}, {10, 1}, {4_200_000, 500_000}}
	seed := uint64(0)
	for _, by := range []fairshare.KeyKind{fairshare.ByAddr, fairshare.ByNetwork} {
		for _, resource := range costly {
			for _, algorithm := range []fairshare.Algorithm{fairshare.Window, fairshare.GCRA} {
				for range 2 {
					if seed++; testing.Short() && seed%4 != 0 {
						continue
					}
					c := cases[seed%uint64(len(cases))]
					l := fairshare.Limit{Resource: resource, N: c.n, Window: 10 * s, Algorithm: algorithm,
						By: []fairshare.KeyPart{{Kind: by}}}
					name := fmt.Sprintf("%v %v %v %d of %d", resource, algorithm, by, c.n, c.dearest)
					t.Run(name, func(t *testing.T) {
						a := &attacker{
							T: t, rand: rand.New(rand.NewPCG(seed, 5)), limiter: open(t, []fairshare.Limit{l}),
							limit: &l,
							now:   start, dearest: c.dearest, open: map[string][]fairshare.Charge{},
						}
						for range 4 {
							a.round()
						}
					})
				}
			}
		}
	}
}

// round attacks once, when nothing that was charged counts any more; but
// requests of the rounds before may still be in progress.
func (a *attacker) round() {
	a.now = a.now.Add(time.Duration(pick(a.rand, 2, 2, 30, 1000)) * a.limit.Window)
	a.charged = map[string]int64{}
	r, page := a.rand, fairshare.Page{Path: 1, Folder: 2}
	cheap := func() fairshare.Page { return pick(r, fairshare.Page{}, page, fairshare.Page{Path: 3, Folder: 2}) }
	const key, helper, bystander = "attacker", "helper", "bystander"
	for range r.IntN(8) {
		switch r.IntN(5) {
		case 0: // lower the key's mean
			a.prime(key, cheap(), 1+r.IntN(300), pick(r, int64(0), 1))
		case 1: // lower the page's mean with another key
			a.prime(helper, page, 1+r.IntN(300), 0)
		case 2: // raise it
			a.prime(helper, page, 1+r.IntN(30), a.dearest)
		case 3: // requests that last
			for range r.IntN(40) {
				a.begin(key, cheap())
			}
		case 4: // and end as cheap ones
			for len(a.open[key]) > r.IntN(10) {
				a.end(key, r.IntN(len(a.open[key])), 0)
			}
		}
	}
	a.burst(key, func() fairshare.Page {
		return pick(r, page, page, fairshare.Page{Path: r.Uint64(), Folder: 2}, fairshare.Page{Path: r.Uint64()})
	})
	if r.IntN(3) > 0 { // else they go on to the next round
		for len(a.open[key]) > 0 {
			a.end(key, r.IntN(len(a.open[key])), a.dearest)
		}
		a.burst(key, cheap)
	}
	_, most := a.limit.AtOnce()
	if n, bound := a.charged[key], a.limit.Allowed()+most*a.dearest; n > bound {
		a.Errorf("%d were charged, above the bound of %d", n, bound)
	}
	for len(a.open[helper]) > 0 {
		a.end(helper, 0, 0)
	}
	// Whatever others did to the page, a new client may have some requests in
	// progress.
	for i := range min(4, a.limit.Allowed()) {
		if !a.begin(bystander, page) {
			a.Errorf("request %d of a new client does not pass", i)
		}
	}
	for len(a.open[bystander]) > 0 {
		a.end(bystander, 0, 0)
	}
}
