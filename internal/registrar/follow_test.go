package registrar_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

func TestOperatorsChangesTakeEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.overrides = []registry.OverrideRecord{{Client: id("192.0.2.1"), Action: fairshare.Block}}
		r := run(t, store, registrar.Options{})
		action := func(addr string) fairshare.Action {
			return r.Override(netip.MustParseAddr(addr), fairshare.Bot{}, time.Now()).Action
		}
		if action("192.0.2.1") != fairshare.Block {
			t.Error("the override from before the start is ignored")
		}
		override := func(records ...registry.OverrideRecord) {
			store.set(func() { store.overrides, store.changes = records, registry.Changes{Overrides: true} })
		}
		override(registry.OverrideRecord{Client: id("192.0.2.2"), Action: fairshare.Allow})
		sleep(pollTime)
		if action("192.0.2.1") != fairshare.Undecided || action("192.0.2.2") != fairshare.Allow {
			t.Error("a new override is ignored after a second")
		}

		// While the registry cannot be read, the last known overrides stay in force.
		store.set(func() { store.readFault = errDisk })
		override()
		sleep(10 * time.Minute)
		if action("192.0.2.2") != fairshare.Allow {
			t.Error("the overrides are gone")
		}
		if n := r.Stats().ReadErrors; n < 15 || n > 30 {
			t.Errorf("%d errors in ten minutes", n)
		}
		store.set(func() { store.readFault = nil })
		sleep(31 * time.Second)
		if action("192.0.2.2") != fairshare.Undecided {
			t.Error("a removed override is in force")
		}
		r.log.holds(t, "the registry cannot be read: disk on fire (make room)", "the registry can be read again")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// After an error in the middle of a change, the whole change is read again.
func TestOverridesAreReadAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &halfStore{fakeStore: newFakeStore()}
		g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client})
		if err := g.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- g.Run(ctx) }()
		store.set(func() {
			store.readFault, store.overrides = errDisk, []registry.OverrideRecord{{Client: id("192.0.2.2"),
				Action: fairshare.Allow}}
		})
		sleep(time.Second)
		store.set(func() { store.readFault = nil })
		sleep(2 * time.Second)
		if g.Override(netip.MustParseAddr("192.0.2.2"), fairshare.Bot{}, time.Now()).Action != fairshare.Allow {
			t.Error("the override is ignored")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A halfStore always reports new overrides, and may fail to return them.
type halfStore struct{ *fakeStore }

func (s *halfStore) Changes(context.Context, registry.Version) (registry.Changes, error) {
	return registry.Changes{Overrides: true}, nil
}

func TestStartFailsWithoutOverrides(t *testing.T) {
	store := newFakeStore()
	store.readFault = errDisk
	g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client})
	if err := g.Start(t.Context()); !errors.Is(err, errDisk) {
		t.Errorf("Start returns %v, want %v", err, errDisk)
	}
}

func TestForgottenClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		for _, a := range []string{"192.0.2.1", "192.0.2.2", "198.51.100.1"} {
			r.pass(a, 1)
			r.refuse(a, "ref-"+a)
		}
		r.Passed(registrar.Request{Addr: netip.MustParseAddr("198.51.100.1"), At: time.Now(),
			Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Verified}})
		synctest.Wait()
		store.set(func() {
			store.changes = registry.Changes{Lifted: []registry.LiftedClient{
				{Client: id("192.0.2.0/24"), At: time.Now(), Forget: true},
				{Client: id("googlebot"), At: time.Now(), Forget: true},
				{Client: id("198.51.100.1"), At: time.Now()}, // only its bans
			}}
			store.take = time.Second // its stories are being written
		})
		sleep(pollTime)
		if s := r.Stats(); s.Clients != 1 || s.Stories != 1 {
			t.Errorf("%+v", s)
		}
		store.set(func() { store.take, store.fault = 0, errDisk })
		sleep(10 * time.Second)
		store.set(func() { store.fault = nil })
		r.pass("192.0.2.1", 1) // again
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if store.seen().clients != 2 || store.client("192.0.2.1").Spent.Requests != 1 ||
			store.client("198.51.100.1").Spent.Requests != 2 {
			t.Errorf("written: %+v", store.clients)
		}
	})
}

// A client is forgotten while an operator's ban still holds, not after it: else its
// next refusals, which count nothing while that holds, could ban it once more.
func TestClientIsForgottenBeforeItsBanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, forgot := newFakeStore(), fairshare.Undecided
		store.overrides = []registry.OverrideRecord{{Client: id("192.0.2.1"), Action: fairshare.Block}}
		var r *running
		action := func() fairshare.Action {
			return r.Override(netip.MustParseAddr("192.0.2.1"), fairshare.Bot{}, time.Now()).Action
		}
		r = run(t, store, registrar.Options{
			Forget: func(fairshare.ClientID, time.Time, time.Time) { forgot = action() },
		})
		synctest.Wait()
		store.set(func() {
			store.overrides = nil
			store.changes = registry.Changes{Overrides: true, Lifted: []registry.LiftedClient{
				{Client: id("192.0.2.1"), At: time.Now(), Forget: true}}}
		})
		sleep(pollTime)
		if forgot != fairshare.Block || action() != fairshare.Undecided {
			t.Errorf("%v when it was forgotten, %v after it", forgot, action())
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Options.Forget gets the recorded time, whatever the difference of the clocks.
func TestForgetGetsTheRecordedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, recorded := newFakeStore(), time.Now().Add(-time.Hour)
		var calls [][2]time.Time
		stored := recorded.Add(-24 * time.Hour) // the registry's clock is right, and that of the system is not
		r := run(t, store, registrar.Options{
			FromWall: func(at time.Time) time.Time { return at.Add(time.Hour) },
			Forget: func(_ fairshare.ClientID, at, stored time.Time) {
				calls = append(calls,
					[2]time.Time{at, stored})
			},
		})
		synctest.Wait()
		store.set(func() {
			store.changes = registry.Changes{Lifted: []registry.LiftedClient{
				{Client: id("192.0.2.1"), At: recorded, Forget: true, Stored: stored}}}
		})
		sleep(pollTime)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if len(calls) == 0 || !calls[0][0].Equal(recorded.Add(time.Hour)) || !calls[0][1].Equal(stored) {
			t.Errorf("called with %v, want %v and %v", calls, recorded.Add(time.Hour), stored)
		}
	})
}

// A read that hangs does not stop Run from writing.
func TestHangingReadDoesNotStopWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{fakeStore: newFakeStore(), hang: make(chan struct{})}
		log := &logged{}
		g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client, Log: log.add})
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- g.Run(ctx) }()
		g.Passed(registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: time.Now()})
		sleep(time.Minute)
		if store.client("192.0.2.1").Spent.Requests != 1 {
			t.Error("nothing is written")
		}
		log.holds(t, "the registry cannot be read: it does not answer")
		begin := time.Now()
		cancel()
		if err := <-ended; err != nil || time.Since(begin) > time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		close(store.hang)
	})
}

type hangingStore struct {
	*fakeStore
	hang chan struct{}
}

func (s *hangingStore) Changes(context.Context, registry.Version) (registry.Changes, error) {
	<-s.hang
	return registry.Changes{}, nil
}
