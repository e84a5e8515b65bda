package memlimit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare"
)

// keysOfOneShard returns keys that share a shard of slots, and so a few sets of the table.
func keysOfOneShard(l *Limiter, n int) (keys [][]byte) {
	for i := 0; len(keys) < n; i++ {
		if key := number(i); shardOf(l.table.secret.hash(key)) == 7 {
			keys = append(keys, key)
		}
	}
	return keys
}

// smallAndLarge are two limiters that decide the same, as long as the table of the first one has room. Only the
// first one prepares takes.
type smallAndLarge struct {
	t            *testing.T
	r            *rand.Rand
	now          time.Time
	limits       []fairshare.Limit
	small, large *Limiter
	keys         [][]byte
	open         []prepareds
	passed, all  int
}

// prepareds is a request in progress.
type prepareds struct {
	takes    []fairshare.Take
	prepared fairshare.PreparedTakes // nil: they were taken by Take
	names    fairshare.KeyNames
}

// take takes some limits under one or two keys, which may be the same memory.
func (p *smallAndLarge) take() {
	p.t.Helper()
	keys := [][]byte{p.keys[p.r.IntN(len(p.keys))], p.keys[p.r.IntN(len(p.keys))]}
	if p.r.IntN(4) == 0 {
		keys[1] = keys[0]
	}
	var req prepareds
	var limits, of []int
	for i := range len(p.limits) - 1 {
		limits, of = append(limits, i), append(of, i%2)
		req.takes = append(req.takes, fairshare.Take{Limit: i, Key: keys[i%2], Cost: 1})
	}
	tallies := make([]fairshare.Tally, len(req.takes))
	over := func(l *Limiter) bool {
		if err := l.Take(ctx, p.now, req.takes, tallies); err != nil {
			p.t.Fatal(err)
		}
		return slices.ContainsFunc(tallies, func(t fairshare.Tally) bool { return t.Over })
	}
	want := !over(p.large)
	pass := false
	if req.prepared = p.small.Prepare(limits, of); req.prepared.Take(p.now, keys, &req.names) {
		pass = true
		if p.passed++; p.small.HasLost() {
			p.t.Fatal("prepared takes have displaced a state")
		}
	} else {
		req.prepared = nil
		pass = !over(p.small)
	}
	if pass != want {
		p.t.Fatalf("the takes pass: %v, and %v in a large table: %+v", pass, want, tallies)
	}
	if p.all++; pass {
		p.open = append(p.open, req)
	}
}

// settle settles a request in progress.
func (p *smallAndLarge) settle() {
	p.t.Helper()
	n := p.r.IntN(len(p.open))
	req := &p.open[n]
	var charges []fairshare.Charge
	failed := p.r.IntN(3) == 0
	for _, take := range req.takes {
		switch p.limits[take.Limit].Resource {
		case fairshare.Concurrent:
			charges = append(charges, fairshare.Charge{Limit: take.Limit, Key: take.Key, Cost: -1})
		case fairshare.Errors, fairshare.Failures:
			c := fairshare.Charge{Limit: take.Limit, Key: take.Key, Held: 1, Ends: true}
			if failed {
				c.Cost = 1
			}
			charges = append(charges, c)
		}
	}
	if err := p.large.Settle(ctx, p.now, charges); err != nil {
		p.t.Fatal(err)
	}
	if req.prepared != nil && !failed {
		req.prepared.Release(&req.names, ^fairshare.ResourceSet(0))
	} else if err := p.small.Settle(ctx, p.now, charges); err != nil {
		p.t.Fatal(err)
	}
	p.open = slices.Delete(p.open, n, n+1)
}

// compare compares all states.
func (p *smallAndLarge) compare() {
	p.t.Helper()
	for limit := range p.limits {
		for _, key := range p.keys {
			a, b := p.small.State(limit, key, 0, p.now), p.large.State(limit, key, 0, p.now)
			if a != b {
				p.t.Fatalf("limit %d: the state is %+v, and %+v in a large table", limit, a, b)
			}
		}
	}
}

// Prepared takes decide as other takes where sets overflow, and where keys are the same.
func TestPreparedTakesInASmallTable(t *testing.T) {
	limits := []fairshare.Limit{
		{Name: "a", Resource: fairshare.Requests, N: 12, Window: time.Minute},
		{Name: "b", Resource: fairshare.Requests, N: 40, Window: 10 * time.Minute},
		{Name: "c", Resource: fairshare.Requests, N: 30, Window: 5 * time.Minute, Algorithm: fairshare.GCRA},
		{Name: "d", Resource: fairshare.Concurrent, N: 5},
		{Name: "e", Resource: fairshare.Errors, N: 4, Window: time.Minute},
		{Name: "f", Resource: fairshare.Failures, N: 6, Window: time.Hour},
		{Name: "g", Resource: fairshare.Errors, N: 9, Window: time.Hour, Algorithm: fairshare.GCRA},
		{Name: "wide", Resource: fairshare.Requests, N: 9, Window: 2 * time.Millisecond}, // not prepared
	}
	passed, all := 0, 0
	for round := range 60 {
		p := &smallAndLarge{t: t, r: rand.New(rand.NewPCG(uint64(round), 5)), now: start, limits: limits}
		p.small, p.large = opened(t, int64(64*(2+round%12))*setBytes, limits...), opened(t, 4<<20, limits...)
		for _, l := range []*Limiter{p.small, p.large} {
			l.table.plant(seed{byte(round)})
		}
		p.keys = keysOfOneShard(p.small, 30)
		most := 0 // requests in progress
		for range 1500 {
			p.now = p.now.Add(time.Duration(p.r.ExpFloat64() * []float64{1e6, 1e9, 1e11}[p.r.IntN(3)]))
			p.take()
			key := p.keys[p.r.IntN(len(p.keys))]
			take(t, p.small, len(limits)-1, key, 1, p.now)
			take(t, p.large, len(limits)-1, key, 1, p.now)
			if p.r.IntN(40) == 0 {
				most = p.r.IntN(60)
			}
			for len(p.open) > most {
				p.settle()
			}
			if p.small.HasLost() || p.large.HasLost() {
				break
			}
			if p.all%16 == 0 {
				p.compare()
				check(t, p.small.table)
			}
		}
		passed, all = passed+p.passed, all+p.all
	}
	if passed < all/10 || all < 10_000 {
		t.Errorf("%d of %d requests used prepared takes", passed, all)
	}
	t.Logf("%d of %d requests used prepared takes", passed, all)
}
