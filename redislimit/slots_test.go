package redislimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"fairshare/redislimit"
	"fairshare/redislimit/redistest"
)

// lease leases slots, with the name of the member as its report.
func lease(t *testing.T, l *redislimit.Limiter, r redislimit.SlotsRequest) *redislimit.SlotsLease {
	t.Helper()
	r.Upstream, r.Capacity = "shop", 30
	if r.For == 0 {
		r.For = time.Minute
	}
	r.Report = []byte("\x00report of " + l.Status().ID)
	got, err := l.LeaseSlots(t.Context(), &r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSlotsOfAllMembersAreTheCapacity(t *testing.T) {
	for _, server := range []struct {
		name string
		url  func() string
	}{
		{"single", func() string { return redistest.Start(t).URL() }},
		{"cluster", func() string { return redistest.StartCluster(t, 0).URL() }},
	} {
		t.Run(server.name, func(t *testing.T) {
			a, b, _ := pair(t, server.url(), hundred, redislimit.Patient(redislimit.Options{}))
			got := lease(t, a, redislimit.SlotsRequest{Has: 30, Wants: 30})
			if got.Slots != 30 || len(got.Others) != 0 {
				t.Errorf("the first member: %+v", got)
			}
			got = lease(t, b, redislimit.SlotsRequest{Has: 15, Wants: 15})
			if got.Slots != 1 || got.ID != b.Status().ID || len(got.Others) != 1 || got.Others[0].ID != a.Status().ID ||
				got.Others[0].Since > got.Since || string(got.Others[0].Report) != "\x00report of "+a.Status().ID {
				t.Errorf("the second member: %+v", got)
			}
			// What the first still uses is not given to the second.
			if got := lease(t, a, redislimit.SlotsRequest{InUse: 20, Has: 10, Wants: 10}); got.Slots != 10 {
				t.Errorf("the first member kept %d slots", got.Slots)
			}
			// Nothing grows for the time of one lease: none was in force at the start.
			if got := lease(t, b, redislimit.SlotsRequest{Has: 1, Wants: 20}); got.Slots != 1 {
				t.Errorf("the second member got %d slots at once", got.Slots)
			}
			time.Sleep(2 * time.Millisecond)
			if got := lease(t, b, redislimit.SlotsRequest{Has: 1, Wants: 20, For: time.Millisecond}); got.Slots != 10 {
				t.Errorf("the second member got %d slots", got.Slots)
			}
			lease(t, a, redislimit.SlotsRequest{InUse: 5, Has: 5, Wants: 5})
			if got := lease(t, b, redislimit.SlotsRequest{Has: 10, Wants: 20, For: time.Millisecond}); got.Slots != 20 {
				t.Errorf("the second member got %d slots", got.Slots)
			}
			time.Sleep(3 * time.Millisecond)
			got = lease(t, a, redislimit.SlotsRequest{InUse: 5, Has: 5, Wants: 30, For: time.Millisecond})
			if got.Slots != 30 || len(got.Others) != 0 {
				t.Errorf("after the lease of the second has ended, the first has %+v", got)
			}
			if err := a.ReleaseSlots(t.Context(), "shop"); err != nil {
				t.Error(err)
			}
			// Now no lease is in force, as after a loss.
			if got := lease(t, b, redislimit.SlotsRequest{Has: 15, Wants: 30}); got.Slots != 15 {
				t.Errorf("without any lease the second member got %d slots", got.Slots)
			}
		})
	}
}

func TestSlotsAreNotGivenTwiceAfterALoss(t *testing.T) {
	server := redistest.Start(t)
	a, b, _ := pair(t, server.URL(), hundred, redislimit.Patient(redislimit.Options{}))
	lease(t, a, redislimit.SlotsRequest{Has: 20, Wants: 20})
	if got := lease(t, b, redislimit.SlotsRequest{Has: 10, Wants: 10}); got.Slots != 10 {
		t.Fatalf("%d slots", got.Slots)
	}
	server.Do("FLUSHALL")
	if got := lease(t, b, redislimit.SlotsRequest{Has: 10, Wants: 30}); got.Slots != 10 {
		t.Errorf("after FLUSHALL the second member got %d slots", got.Slots)
	}
	if got := lease(t, a, redislimit.SlotsRequest{Has: 20, Wants: 20}); got.Slots != 20 {
		t.Errorf("after FLUSHALL the first member has %d slots", got.Slots)
	}
}

func TestSlotsOfAStoppedStore(t *testing.T) {
	server := redistest.Start(t)
	a, _, _ := pair(t, server.URL(), hundred, redislimit.Options{})
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, err := a.LeaseSlots(ctx, &redislimit.SlotsRequest{Upstream: "shop", Capacity: 9, Has: 9, Wants: 9,
		For: time.Second}); err == nil {
		t.Errorf("a stopped store gave %+v", got)
	}
	server.Continue()
	await(t, "back", func() bool { return !a.Status().Away })
	lease(t, a, redislimit.SlotsRequest{Has: 1, Wants: 1})
}

func TestSlotsIgnoreWhatMakesNoSense(t *testing.T) {
	server := redistest.Start(t)
	opts := redislimit.Options{Name: fmt.Sprint("group", groups.Add(1))}
	a := open(t, connect(t, server.URL()), hundred, opts)
	lease(t, a, redislimit.SlotsRequest{Has: 30, Wants: 30})
	key := strings.TrimSpace(server.Do("KEYS", "*slots:shop"))
	server.Do("HSET", key, "other", "nonsense", "begun", "never", "third", "99999999999999 1 30 report")
	if got := lease(t, a, redislimit.SlotsRequest{Has: 30, Wants: 30}); got.Slots != 30 || len(got.Others) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestMembersHashAlike(t *testing.T) {
	server := redistest.Start(t)
	a, b, _ := pair(t, server.URL(), hundred, redislimit.Options{})
	key := []byte("client")
	if a.GroupHash(key) != b.GroupHash(key) || a.GroupHash(key) == a.GroupHash([]byte("other")) {
		t.Error("members of a group hash differently")
	}
	other := open(t, connect(t, server.URL()), hundred, redislimit.Options{})
	if a.GroupHash(key) == other.GroupHash(key) {
		t.Error("two groups hash alike")
	}
}
