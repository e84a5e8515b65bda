package redislimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

var groups atomic.Int64

// connect returns a store of a server that lasts as long as the test.
func connect(t testing.TB, url string) *redislimit.Store {
	t.Helper()
	store, err := redislimit.Connect(redislimit.Connection{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// open returns a member of a group of its own unless opts names one.
func open(t testing.TB, store *redislimit.Store, limits []fairshare.Limit,
	opts redislimit.Options) *redislimit.Limiter {
	t.Helper()
	opts.Store = store
	if opts.Name == "" {
		opts.Name = fmt.Sprint("group", groups.Add(1))
	}
	if opts.Memory == 0 {
		opts.Memory = 1 << 20
	}
	if opts.Report == nil {
		opts.Report = func(e redislimit.Event) {
			if e.Kind != redislimit.MemberJoined && e.Kind != redislimit.MemberLeft {
				t.Log(e)
			}
		}
	}
	l, err := redislimit.Open(t.Context(), limits, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func TestOneMemberKeepsWhatALimiterPromises(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	limittest.Run(t, func(t testing.TB, limits []fairshare.Limit) fairshare.Limiter {
		return open(t, store, limits, redislimit.Options{})
	})
}

// A program that only looks at a group counts there, and no member notices it.
func TestLookDoesNotJoin(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	limits := []fairshare.Limit{{Name: "all", Resource: fairshare.Requests, N: 3, Window: time.Hour}}
	name := fmt.Sprint("group", groups.Add(1))
	var joined atomic.Int64
	opts := redislimit.Patient(redislimit.Options{Name: name, Member: "a", Report: func(e redislimit.Event) {
		if e.Kind == redislimit.MemberJoined {
			joined.Add(1)
		}
	}})
	member := open(t, store, limits, opts)
	opts.Member, opts.Look = "b", true
	look := open(t, store, limits, opts)
	if all := look.Status().Members; len(all) != 1 || all[0].Name != "a" {
		t.Errorf("it sees %+v, want a alone", all)
	}
	take := func(l *redislimit.Limiter) bool {
		tallies := make([]fairshare.Tally, 1)
		if err := l.Take(t.Context(), time.Now(), []fairshare.Take{{Key: []byte("c"), Cost: 1}}, tallies); err != nil {
			t.Fatal(err)
		}
		return !tallies[0].Over
	}
	if !take(look) || !take(member) || !take(look) || take(member) {
		t.Error("they do not count together")
	}
	redislimit.Beat(member)
	if n := len(member.Status().Members); n != 1 || joined.Load() != 0 {
		t.Errorf("the member sees %d members, and %d joined", n, joined.Load())
	}
	if err := look.Close(t.Context()); err != nil {
		t.Error(err)
	}
	redislimit.Beat(member)
	if n := len(member.Status().Members); n != 1 {
		t.Errorf("after the look the member sees %d members", n)
	}
}

// openGroup returns members of a new group.
func openGroup(t testing.TB, store *redislimit.Store, limits []fairshare.Limit, n int,
	opts redislimit.Options) *limittest.Group {
	t.Helper()
	opts.Name = fmt.Sprint("group", groups.Add(1))
	g := &limittest.Group{Slack: redislimit.DefaultSlack}
	var members []*redislimit.Limiter
	for i := range n {
		opts.Member = fmt.Sprint("member ", i)
		l := open(t, store, limits, opts)
		members = append(members, l)
		g.Members = append(g.Members, l)
	}
	for _, l := range members {
		for len(l.Status().Members) != n {
			redislimit.Beat(l)
		}
	}
	g.Flush = func(ctx context.Context) error {
		for _, l := range members {
			if err := l.Flush(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	g.Join = func() fairshare.Limiter { return open(t, store, limits, opts) }
	g.Kill = func(i int) { redislimit.Kill(members[i]) }
	return g
}

func TestGroupKeepsItsBound(t *testing.T) {
	store := connect(t, redistest.Start(t).URL())
	limittest.RunGroup(t, func(t testing.TB, limits []fairshare.Limit, n int) *limittest.Group {
		return openGroup(t, store, limits, n, redislimit.Patient(redislimit.Options{}))
	})
}
