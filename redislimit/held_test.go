package redislimit_test

import (
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// A dry run that asks the store while many questions wait hinders no request.
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
