package redislimit

import (
	"context"
	"testing"
	"time"

	"fairshare"
)

// openAlone returns a member of a group of two whose store is away.
func openAlone(t *testing.T, limits ...fairshare.Limit) *Limiter {
	t.Helper()
	store, err := Connect(Connection{URL: "redis://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := Open(ctx, limits, Options{Store: store, Memory: 1 << 16, Report: func(Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	l.core.most.Store(2)
	t.Cleanup(func() { _ = l.Close(ctx) })
	return l
}

// A concurrent limit in dry run whose share is taken lets no more requests pass other limits.
func TestDryRunOfSlotsWhileAway(t *testing.T) {
	l := openAlone(t, fairshare.Limit{Name: "slots", Resource: fairshare.Concurrent, N: 2},
		fairshare.Limit{Name: "hour", Resource: fairshare.Requests, N: 8, Window: time.Hour})
	takes := []fairshare.Take{
		{Limit: 0, Key: []byte("k"), Cost: 1, DryRun: true},
		{Limit: 1, Key: []byte("k"), Cost: 1},
	}
	passed := 0
	for i := range 8 {
		tallies := make([]fairshare.Tally, len(takes))
		if err := l.Take(t.Context(), pinNow, takes, tallies); err != nil {
			t.Fatal(err)
		}
		if !tallies[1].Over {
			passed++
		}
		if over := i >= 1 && i < 4; tallies[0].Over != over {
			t.Errorf("request %d: the dry run is over: %v", i+1, tallies[0].Over)
		}
	}
	if passed != 4 {
		t.Errorf("%d requests pass; half of the limit is 4", passed)
	}
}

// A dry run that the store refuses is over, although the store did not answer about other keys.
func TestDryRunRefusedWithoutAllAnswers(t *testing.T) {
	l := openAlone(t, fairshare.Limit{Name: "slots", Resource: fairshare.Concurrent, N: 1},
		fairshare.Limit{Name: "hour", Resource: fairshare.Requests, N: 8, Window: time.Hour})
	c := l.core
	r := newRequest(2)
	r.takes = []fairshare.Take{
		{Limit: 0, Key: []byte("k"), Cost: 1, DryRun: true},
		{Limit: 1, Key: []byte("l"), Cost: 1},
	}
	for i := range r.takes {
		r.takes[i].Key = r.add(c.secret.Load(), i, r.takes[i].Key)
	}
	c.book.lock(r.set)
	l.entries(r, pinNow.UnixNano(), true)
	q := newQuestion()
	q.at = pinNow
	for i := range r.takes {
		e := c.book.at(r.refs[i])
		q.parts = append(q.parts, part{ref: r.refs[i], key: e.key, tag: e.tag, take: int32(i), spec: l.specs[i],
			dry: r.takes[i].DryRun, cost: 1, amount: 1, verdict: [...]int32{dryRefused, noAnswer}[i]})
	}
	c.book.unlock(r.set)
	tallies := make([]fairshare.Tally, len(r.takes))
	if want := l.takeAway(r, q, pinNow, tallies); want != dryRefused {
		t.Errorf("the verdict is %d, want %d", want, dryRefused)
	}
	if !tallies[0].Over || tallies[1].Over {
		t.Errorf("the tallies are %+v, want that only the dry run is over", tallies)
	}
}
