package redislimit_test

import (
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// A request that passed without the store and has ended has no slot any more if the store refuses it later.
func TestSlotIsGivenBackBeforeALateAnswer(t *testing.T) {
	for name, limit := range map[string]fairshare.Limit{
		"concurrent": {Name: "l", Resource: fairshare.Concurrent, N: 2},
		"errors":     {Name: "l", Resource: fairshare.Errors, N: 2, Window: time.Hour, Exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			a, b, _ := pair(t, server.URL(), []fairshare.Limit{limit}, redislimit.Options{Wait: 10 * time.Millisecond})
			end := func(l *redislimit.Limiter, n int) {
				for range n {
					c := fairshare.Charge{Key: []byte("k"), Held: 1, Ends: true}
					if limit.Resource == fairshare.Concurrent {
						c = fairshare.Charge{Key: []byte("k"), Cost: -1}
					}
					if err := l.Settle(t.Context(), now, []fairshare.Charge{c}); err != nil {
						t.Fatal(err)
					}
				}
			}
			await(t, "two requests in progress", func() bool {
				n, _ := admit(t, b, "k", 2)
				if n < 2 {
					end(b, n)
				}
				return n == 2
			})
			flush(t, b)
			server.Stop()
			n, _ := admit(t, a, "k", 1)
			end(a, n)
			server.Continue()
			flush(t, a)
			end(b, 2)
			flush(t, b)
			await(t, "two slots are free", func() bool {
				n, _ := admit(t, b, "k", 2)
				end(b, n)
				return n == 2
			})
		})
	}
}

// A dry run that asks the store while many questions wait stops no request.
func TestDryRunWhileQuestionsWait(t *testing.T) {
	server := redistest.Start(t)
	limits := []fairshare.Limit{
		{Name: "exact", Resource: fairshare.Requests, N: 1000, Window: time.Hour, Exact: true},
		{Name: "dry", Resource: fairshare.Concurrent, N: 1},
	}
	l := open(t, connect(t, server.URL()), limits, redislimit.Patient(redislimit.Options{}))
	take := func(takes ...fairshare.Take) {
		if err := l.Take(t.Context(), now, takes, make([]fairshare.Tally, len(takes))); err != nil {
			t.Error(err)
		}
	}
	exact := fairshare.Take{Limit: 0, Key: []byte("k"), Cost: 1}
	dry := fairshare.Take{Limit: 1, Key: []byte("k"), Cost: 1, DryRun: true}
	take(dry)
	time.Sleep(50 * time.Millisecond) // what the view knows of slots is old
	server.Stop()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { take(exact) })
	}
	await(t, "too many questions wait", func() bool { return l.Status().Crowded > 0 })
	wg.Go(func() { take(exact, dry) })
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	time.Sleep(20 * time.Millisecond)
	server.Continue()
	await(t, "all requests end", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}
