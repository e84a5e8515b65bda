package registrar_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

func TestBansAreWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		for i := range 1000 {
			r.pass(addr(i*7919), 1)
		}
		store.set(func() { store.take = 5 * time.Millisecond })
		sleep(5010 * time.Millisecond) // into the pause after a batch
		for i := range 2500 {
			r.ban(addr(i))
		}
		begin := time.Now()
		r.Settle(t.Context())
		if took := time.Since(begin); took > 30*time.Millisecond || store.nBans() != 2500 {
			t.Errorf("%d bans after %v", store.nBans(), took)
		}
		for _, b := range store.seen().batches[1:] {
			if len(b.Bans) > 1000 || len(b.Clients)+len(b.Stories) > 0 && len(b.Bans) > 0 {
				t.Errorf("a batch of %d bans, %d clients", len(b.Bans), len(b.Clients))
			}
		}
		begin = time.Now()
		r.Settle(t.Context()) // nothing is queued
		if took := time.Since(begin); took > 0 {
			t.Errorf("without bans, Settle waits %v", took)
		}
		r.stop()
	})
}

func TestSettleSkipsSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		step := func(name string, take time.Duration, fault error, want time.Duration) {
			t.Helper()
			store.set(func() { store.take, store.fault = take, fault })
			r.ban("192.0.2.1")
			begin := time.Now()
			r.Settle(t.Context())
			if took := time.Since(begin); took != want {
				t.Errorf("%s: Settle waits %v, want %v", name, took, want)
			}
			sleep(time.Minute)
		}
		step("a fast disk", 30*time.Millisecond, nil, 30*time.Millisecond)
		step("it becomes slow", 900*time.Millisecond, nil, 500*time.Millisecond)
		step("it is known to be slow", 900*time.Millisecond, nil, 0)
		step("it is fast again, which is not known", 10*time.Millisecond, nil, 0)
		step("it is known", 10*time.Millisecond, nil, 10*time.Millisecond)
		step("it fails", 20*time.Millisecond, errDisk, 20*time.Millisecond)
		step("it is known to fail", 20*time.Millisecond, errDisk, 0)
		step("it works, which is not known", 20*time.Millisecond, nil, 0)
		step("it is known to work", 20*time.Millisecond, nil, 20*time.Millisecond)

		// If the client disconnects, Settle does not wait.
		store.set(func() { store.take = 50 * time.Millisecond })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r.ban("192.0.2.1")
		begin := time.Now()
		r.Settle(ctx)
		if took := time.Since(begin); took != 10*time.Millisecond {
			t.Errorf("after a disconnect, Settle waits %v", took)
		}
		r.stop()
		r.ban("192.0.2.1")
		begin = time.Now()
		r.Settle(t.Context())
		if took := time.Since(begin); took > 0 {
			t.Errorf("after the end, Settle waits %v", took)
		}
	})
}

// Settle waits for bans that were queued before its call, not for later ones.
func TestSettleWaitsForQueuedBansOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.take = 20 * time.Millisecond
		r := run(t, store, registrar.Options{})
		r.ban("192.0.2.1")
		sleep(5 * time.Millisecond) // it is being written
		r.ban("192.0.2.2")
		begin := time.Now()
		go func() {
			for i := range 100 {
				time.Sleep(time.Millisecond)
				r.ban(addr(i))
			}
		}()
		r.Settle(t.Context())
		if took := time.Since(begin); took > 40*time.Millisecond || store.ban("192.0.2.2").Rule == "" {
			t.Errorf("Settle waits %v", took)
		}
		sleep(time.Second)
		r.stop()
	})
}

func TestOnlyLatestBanOfKeyAndRuleIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = errDisk
		r := run(t, store, registrar.Options{Bans: 3})
		ban := func(addr, rule string, number int) {
			r.Banned(fairshare.BanRecord{Client: id(addr), Rule: rule, Number: number, Began: time.Now()})
			synctest.Wait()
		}
		ban("192.0.2.1", "a", 1) // fails at once
		ban("192.0.2.1", "a", 2)
		ban("192.0.2.1", "b", 1)
		ban("192.0.2.1", "a", 3)
		ban("192.0.2.2", "a", 1)
		ban("192.0.2.3", "a", 1) // the queue is full
		ban("192.0.2.2", "a", 2) // replaces a queued one
		if s := r.Stats(); s.QueuedBans != 3 || s.DroppedBans != 1 {
			t.Errorf("%+v", s)
		}
		store.set(func() { store.fault, store.take = nil, time.Second })
		sleep(1500 * time.Millisecond) // being written
		ban("192.0.2.1", "a", 4)
		ban("192.0.2.1", "a", 5)
		sleep(time.Minute)
		var got []string
		for _, b := range store.seen().batches {
			for _, b := range b.Bans {
				got = append(got, fmt.Sprint(b.Client, b.Rule, b.Number))
			}
			got = append(got, "|")
		}
		if got, want := fmt.Sprint(got), "[192.0.2.1a3 192.0.2.1b1 192.0.2.2a2 | 192.0.2.1a5 |]"; got != want {
			t.Errorf("written: %s, want %s", got, want)
		}
		r.stop()
		r.log.holds(t, "cannot be written",
			"written again: 0 clients, 0 stories and 4 bans are still to be written, 1 requests, stories and bans were lost",
			"1 bans will be lost at a restart")
	})
}

// A ban that arrives while a write of the previous one fails replaces that one.
func TestBanReplacesOneWhoseWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault, store.take = errDisk, 100*time.Millisecond
		r := run(t, store, registrar.Options{})
		r.ban("192.0.2.1")
		r.ban("192.0.2.2")
		sleep(50 * time.Millisecond)
		r.ban("192.0.2.1")
		later := time.Now()
		sleep(100 * time.Millisecond)
		store.set(func() { store.fault = nil })
		sleep(time.Minute)
		if n := len(store.seen().batches[0].Bans); n != 2 || !store.ban("192.0.2.1").Began.Equal(later) {
			t.Errorf("%d bans: %v", n, store.ban("192.0.2.1"))
		}
		if s := r.Stats(); s.QueuedBans != 0 || s.WrittenBans != 2 {
			t.Errorf("%+v", s)
		}
		r.stop()
	})
}

func TestLiftedBansAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = errDisk
		var lifted []string
		r := run(t, store, registrar.Options{Lift: func(id fairshare.ClientID, at time.Time) {
			lifted = append(lifted, fmt.Sprint(id, at.Equal(time.Now())))
		}})
		for i := range 5000 {
			r.ban(addr(i)) // 10.0.0.0 to 10.0.19.135
		}
		r.Banned(fairshare.BanRecord{Client: id("googlebot"), Rule: "rule", Began: time.Now()})
		r.Banned(fairshare.BanRecord{Client: id("bingbot"), Rule: "rule", Began: time.Now()})
		sleep(10 * time.Second)
		store.set(func() {
			store.changes = registry.Changes{Lifted: []registry.LiftedClient{
				{Client: id("10.0.0.0/20"), At: time.Now()}, {Client: id("googlebot"), At: time.Now()},
				{Client: id("10.0.19.0/24"), At: time.Now().Add(-time.Minute)},
			}}
		})
		sleep(pollTime)
		r.ban("10.0.0.7") // again, later
		store.set(func() { store.fault = nil })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if n := store.nBans(); n != 5000-4096+1+1 || store.ban("10.0.0.7").Rule == "" ||
			store.ban("bingbot").Rule == "" {
			t.Errorf("%d bans are written", n)
		}
		if len(lifted) != 3 {
			t.Errorf("lifted: %v", lifted)
		}
	})
}

// A ban is lifted while a write of it fails; meanwhile another ban of the same client
// arrives.
func TestLiftDuringAFailingWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		for i := range 3000 {
			r.ban(addr(i))
		}
		r.Settle(t.Context())
		store.set(func() { store.fault, store.take = errDisk, time.Second })
		r.ban("192.0.2.1")
		sleep(10 * time.Millisecond)
		r.ban("192.0.2.1")
		store.set(func() {
			store.changes = registry.Changes{Lifted: []registry.LiftedClient{{Client: id("192.0.2.1"),
				At: time.Now()}}}
		})
		sleep(pollTime)
		store.set(func() { store.fault = nil })
		r.stop()
		if s := r.Stats(); s.QueuedBans != 0 || s.WrittenBans > 3001 {
			t.Errorf("%+v", s)
		}
	})
}

const pollTime = 300 * time.Millisecond
