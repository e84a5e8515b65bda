package limittest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// A preparedRequest is a request in progress whose limits were taken together.
type preparedRequest struct {
	takes    []fairshare.Take
	prepared fairshare.PreparedTakes // nil: Take has taken them
	names    fairshare.KeyNames
	released fairshare.ResourceSet
}

// runPrepared checks that prepared takes are those of Take, and what is given back that
// of Settle. Other requests use Take and Settle.
func runPrepared(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	ctx := context.Background()
	passed, all := 0, 0
	for seed := range uint64(60) {
		s := newScript(seed, fairshare.Requests, fairshare.Requests, fairshare.Concurrent, fairshare.Errors,
			fairshare.Failures)
		for i := range s.limits {
			l := &s.limits[i]
			if l.DryRun, l.N = false, min(l.N, 9); l.Window > 0 && seed%2 == 0 {
				l.Window = time.Minute // the same for all
			}
		}
		s.limits = slices.DeleteFunc(s.limits, func(l fairshare.Limit) bool { return l.CrawlDelay })
		if len(s.limits) == 0 {
			continue
		}
		subject, model := open(t, s.limits), NewModel(s.limits)
		preparer, ok := subject.(fairshare.Preparer)
		if !ok {
			t.Skip("the limiter prepares nothing")
		}
		if !preparer.PreparesFor(subject) || preparer.PreparesFor(embeds{subject}) {
			t.Fatal("PreparesFor does not tell the limiter from a type that embeds it")
		}
		var open []*preparedRequest
		for step := range 150 {
			s.step()
			r := &preparedRequest{}
			var limits, numbers []int
			var keys [][]byte
			for _, i := range s.rand.Perm(len(s.limits))[:1+s.rand.IntN(len(s.limits))] {
				n := s.rand.IntN(min(len(s.keys), fairshare.MaxPreparedKeys))
				key := []byte(s.keys[n])
				if n = slices.IndexFunc(keys, func(k []byte) bool { return string(k) == string(key) }); n < 0 {
					n, keys = len(keys), append(keys, key)
				}
				limits, numbers = append(limits, i), append(numbers, n)
				r.takes = append(r.takes, fairshare.Take{Limit: i, Key: keys[n], Cost: 1})
			}
			want, got := make([]fairshare.Tally, len(r.takes)), make([]fairshare.Tally, len(r.takes))
			if err := model.Take(ctx, s.now, r.takes, want); err != nil {
				t.Fatal(err)
			}
			over := slices.ContainsFunc(want, func(t fairshare.Tally) bool { return t.Over })
			if s.rand.IntN(5) > 0 {
				r.prepared = preparer.Prepare(limits, numbers)
			}
			switch {
			case r.prepared != nil && r.prepared.Take(s.now, keys, &r.names):
				if passed++; over {
					t.Fatalf("seed %d, step %d: prepared takes have passed, the model has %+v", seed, step, want)
				}
			default:
				r.prepared = nil
				if err := subject.Take(ctx, s.now, r.takes, got); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: tallies %+v, %v; want %+v", seed, step, got, err, want)
				}
			}
			if all++; !over {
				open = append(open, r)
			}
			for len(open) > 0 && s.rand.IntN(3) > 0 {
				i := s.rand.IntN(len(open))
				if open[i].settle(t, s, subject, model) {
					open = slices.Delete(open, i, i+1)
				}
			}
			if step%8 == 0 {
				s.comparePeeks(t, subject.(fairshare.Peeker), model, seed, step)
			}
		}
	}
	if passed < all/20 {
		t.Errorf("%d of %d requests used prepared takes", passed, all)
	}
}

// embeds is a limiter that embeds another one.
type embeds struct{ fairshare.Limiter }

// settle settles some resources of a request, or charges the rest, and reports whether
// nothing is left.
func (r *preparedRequest) settle(t *testing.T, s *script, subject fairshare.Limiter, model *Model) (done bool) {
	set := fairshare.ResourceSet(s.rand.Uint32()) &^ r.released
	charge := r.prepared == nil || s.rand.IntN(4) == 0
	if charge {
		set = ^r.released
	}
	var charges []fairshare.Charge
	for i := range r.takes {
		take := &r.takes[i]
		c := fairshare.Charge{Limit: take.Limit, Key: take.Key}
		switch resource := s.limits[take.Limit].Resource; {
		case !set.Has(resource):
			continue
		case resource == fairshare.Concurrent:
			c.Cost = -1
		case resource == fairshare.Requests:
			if c.Cost, c.At = -1, s.now; !charge || s.rand.IntN(2) == 0 {
				continue
			}
		default:
			c.Held, c.Ends = 1, true
			if charge {
				c.Cost = int64(s.rand.IntN(2))
			}
		}
		charges = append(charges, c)
	}
	if err := model.Settle(context.Background(), s.now, charges); err != nil {
		t.Fatal(err)
	}
	if charge {
		if err := subject.Settle(context.Background(), s.now, charges); err != nil {
			t.Fatal(err)
		}
		return true
	}
	r.prepared.Release(&r.names, set)
	r.released |= set
	return false
}

// comparePeeks compares the figures of all limits and keys.
func (s *script) comparePeeks(t *testing.T, subject fairshare.Peeker, model *Model, seed uint64, step int) {
	var takes []fairshare.Take
	for i := range s.limits {
		for _, key := range s.keys {
			takes = append(takes, fairshare.Take{Limit: i, Key: []byte(key), Cost: 1})
		}
	}
	got, want := make([]fairshare.Tally, len(takes)), make([]fairshare.Tally, len(takes))
	if err := subject.Peek(context.Background(), s.now, takes, got); err != nil {
		t.Fatal(err)
	}
	if err := model.Peek(context.Background(), s.now, takes, want); err != nil {
		t.Fatal(err)
	}
	for i := range takes {
		if got[i] != want[i] {
			t.Fatalf("seed %d, step %d: limit %+v has %+v, want %+v", seed, step, s.limits[takes[i].Limit],
				got[i], want[i])
		}
	}
}

// runPreparedAtOnce checks that prepared takes from many goroutines never exceed a limit,
// and that all is given back.
func runPreparedAtOnce(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	limits := []fairshare.Limit{
		{Name: "slots", Resource: fairshare.Concurrent, N: 3},
		{Name: "requests", Resource: fairshare.Requests, N: 2000, Window: time.Hour},
		{Name: "errors", Resource: fairshare.Errors, N: 5, Window: time.Hour},
		{Name: "more requests", Resource: fairshare.Requests, N: 2000, Window: time.Hour},
	}
	limiter := open(t, limits)
	preparer, ok := limiter.(fairshare.Preparer)
	if !ok {
		t.Skip("the limiter prepares nothing")
	}
	at := time.Date(2026, 11, 20, 19, 0, 0, 0, time.UTC)
	var inProgress, passed atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		prepared := preparer.Prepare([]int{0, 1, 2, 3}, []int{0, g % 2, 0, 1})
		if prepared == nil {
			t.Skip("these limits are not prepared")
		}
		keys := [][]byte{[]byte("one"), []byte("two")}
		all.Go(func() {
			var names fairshare.KeyNames
			for range 1000 {
				if !prepared.Take(at, keys, &names) {
					continue
				}
				if n := inProgress.Add(1); n > 3 {
					t.Errorf("%d requests have one of 3 slots", n)
				}
				passed.Add(1)
				inProgress.Add(-1)
				prepared.Release(&names, 1<<fairshare.Errors)
				prepared.Release(&names, ^fairshare.ResourceSet(0)&^(1<<fairshare.Errors))
			}
		})
	}
	all.Wait()
	takes := []fairshare.Take{{Limit: 0, Key: []byte("one"), Cost: 1}, {Limit: 2, Key: []byte("one"), Cost: 1},
		{Limit: 3, Key: []byte("two"), Cost: 1}, {Limit: 1, Key: []byte("one"), Cost: 1},
		{Limit: 1, Key: []byte("two"), Cost: 1}}
	tallies := make([]fairshare.Tally, len(takes))
	if err := limiter.(fairshare.Peeker).Peek(context.Background(), at, takes, tallies); err != nil {
		t.Fatal(err)
	}
	n := min(passed.Load(), 2000)
	if tallies[0].Used != 0 || tallies[1].Used != 0 || tallies[2].Used != n || tallies[3].Used+tallies[4].Used != n ||
		passed.Load() > 2000 {
		t.Errorf("%d requests have passed; tallies %+v", passed.Load(), tallies)
	}
}
