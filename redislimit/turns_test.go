package redislimit_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// turns is a group whose members act in turn. With stay 1 the state was changed by another
// member before each decision, so the script take decides. If a member stays for several
// decisions, it replaces states by itself meanwhile.
type turns struct {
	t       testing.TB
	members []*redislimit.Limiter
	limits  []fairshare.Limit

	mu    sync.Mutex
	stay  int
	next  int
	slots []slot // that are taken or held
}

// A slot is what a request in progress has, and at which member.
type slot struct {
	limit  int
	key    []byte
	held   int64 // 1 of a concurrent limit
	member int
}

func openTurns(t testing.TB, store *redislimit.Store, limits []fairshare.Limit, n, stay int) *turns {
	g := openGroup(t, store, limits, n, redislimit.AlwaysAsk(redislimit.Options{}))
	s := &turns{t: t, limits: limits, stay: stay}
	for _, l := range g.Members {
		s.members = append(s.members, l.(*redislimit.Limiter))
	}
	return s
}

// turn returns the next member, when no member has anything to report.
func (s *turns) turn() int {
	for _, l := range s.members {
		if err := l.Flush(context.Background()); err != nil {
			s.t.Fatal(err)
		}
	}
	s.next++
	return s.next / s.stay % len(s.members)
}

func (s *turns) Take(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	member := s.turn()
	if err := s.members[member].Take(ctx, now, takes, tallies); err != nil {
		return err
	}
	over := map[bool]bool{}
	for i := range tallies {
		over[takes[i].DryRun] = over[takes[i].DryRun] || tallies[i].Over
	}
	for i, take := range takes {
		l := &s.limits[take.Limit]
		if over[false] || over[take.DryRun] || l.Resource != fairshare.Concurrent && tallies[i].Held == 0 {
			continue
		}
		s.slots = append(s.slots, slot{take.Limit, bytes.Clone(take.Key), max(1, tallies[i].Held), member})
	}
	return nil
}

func (s *turns) Peek(ctx context.Context, now time.Time, takes []fairshare.Take, tallies []fairshare.Tally) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[s.turn()].Peek(ctx, now, takes, tallies)
}

// Settle gives back what a request has where it was taken.
func (s *turns) Settle(ctx context.Context, now time.Time, charges []fairshare.Charge) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range charges {
		concurrent := s.limits[c.Limit].Resource == fairshare.Concurrent
		if concurrent && c.Cost < 0 {
			c.Held = 1
		}
		for i := range s.slots {
			of := &s.slots[i]
			if of.limit != c.Limit || !bytes.Equal(of.key, c.Key) || of.held == 0 || c.Held <= 0 {
				continue
			}
			back := fairshare.Charge{Limit: c.Limit, Key: c.Key, Held: min(c.Held, of.held)}
			if concurrent {
				back.Cost = -1
			}
			of.held -= back.Held
			c.Held -= back.Held
			if err := s.members[of.member].Settle(ctx, now, []fairshare.Charge{back}); err != nil {
				return err
			}
		}
		c.Held = 0
		if concurrent {
			continue
		}
		if err := s.members[s.turn()].Settle(ctx, now, []fairshare.Charge{c}); err != nil {
			return err
		}
	}
	s.slots = slices.DeleteFunc(s.slots, func(of slot) bool { return of.held == 0 })
	return nil
}

func TestMembersInTurnCountAsOne(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	limittest.RunScaled(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return openTurns(t, store, limits, 2, 1)
	})
	limittest.RunScaled(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return openTurns(t, store, limits, 2, 5)
	})
}

func TestMembersInTurnCountAsOneInACluster(t *testing.T) {
	store := connect(t, redistest.StartCluster(t, 0).URL())
	limittest.RunScaled(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return openTurns(t, store, limits, 3, 2)
	})
}

// The scripts next to the Model. Resources whose requests hold a mean cost are left
// out, since each member has its own means.
func TestScriptsCountAsTheModel(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	for name, as := range map[string]struct {
		members, stay int
		resources     []fairshare.Resource
		swaps         bool
	}{
		"in turn": {2, 1, []fairshare.Resource{fairshare.Requests, fairshare.Requests, fairshare.Concurrent,
			fairshare.Errors, fairshare.Failures}, false},
		"alone":         {1, 1, []fairshare.Resource{fairshare.Requests}, true},
		"for some time": {3, 4, []fairshare.Resource{fairshare.Requests}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*redislimit.Limiter
			limittest.RunRandom(t, 40, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
				s := openTurns(t, store, limits, as.members, as.stay)
				all = append(all, s.members...)
				return s
			}, as.resources...)
			swapped, stale := 0, 0
			for _, l := range all {
				a, b := redislimit.Swaps(l)
				swapped, stale = swapped+a, stale+b
			}
			t.Logf("%d states were replaced, and %d had been written by others", swapped, stale)
			if as.swaps && swapped < 1000 {
				t.Errorf("only %d states were replaced", swapped)
			}
		})
	}
}
