package registrar_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
	"fairshare/sqlregistry"
)

func TestClientsAreWrittenInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newFakeStore(), registrar.Options{})
		begin := time.Now()
		r.pass("192.0.2.1", 2)
		sleep(time.Second)
		r.Passed(registrar.Request{Addr: netip.MustParseAddr("::ffff:192.0.2.1"), At: time.Now(), UserAgent: "newer",
			Errors: 1,
			Took:   2 * time.Second, CPU: time.Second, Bytes: 1000,
			Bot: fairshare.Bot{Name: "bingbot", State: fairshare.Forged}})
		r.Refused(registrar.Refusal{Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: begin},
			Story: registry.Story{Action: fairshare.Refuse}})
		r.Refused(registrar.Refusal{Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: begin},
			Story: registry.Story{Action: fairshare.Block}})
		r.Refused(registrar.Refusal{Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: begin},
			Story: registry.Story{Action: fairshare.Block, DryRun: true}})
		if n := len(r.store.seen().batches); n > 0 {
			t.Errorf("%d batches at once", n)
		}
		sleep(5 * time.Second)
		got := r.store.client("192.0.2.1")
		want := registry.ClientRecord{
			Client: id("192.0.2.1"), FirstSeen: begin, LastSeen: begin.Add(time.Second), UserAgent: "newer",
			Bot: "bingbot", BotState: fairshare.Forged,
			Spent: registry.Spent{Requests: 5, Refused: 1, Blocked: 1, DryRun: 1, CPU: time.Second,
				Time: 2*time.Second + 2*time.Millisecond, Bytes: 1020, Errors: 1},
		}
		if !got.FirstSeen.Equal(want.FirstSeen) || !got.LastSeen.Equal(want.LastSeen) || got.Spent != want.Spent ||
			got.UserAgent != want.UserAgent || got.Bot != want.Bot || got.BotState != want.BotState {
			t.Errorf("written: %+v\nwant:    %+v", got, want)
		}
		r.pass("192.0.2.1", 2)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := r.store.client("192.0.2.1").Spent.Requests; got != 7 {
			t.Errorf("%d requests are written at the end, want 7", got)
		}
		r.log.holds(t)
	})
}

func TestClientIsAPrefixOrAVerifiedBot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newFakeStore(), registrar.Options{})
		for _, p := range []registrar.Request{
			{Addr: netip.MustParseAddr("2001:db8::1")},
			{Addr: netip.MustParseAddr("2001:db8::2")},
			{Addr: netip.MustParseAddr("fe80::1%eth0")},
			{Addr: netip.MustParseAddr("192.0.2.1"), Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Verified}},
			{Addr: netip.MustParseAddr("192.0.2.2"), Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Verified}},
			{Addr: netip.MustParseAddr("192.0.2.3"), Bot: fairshare.Bot{Name: "googlebot", State: fairshare.Claimed}},
			{Addr: netip.MustParseAddr("192.0.2.4"), Bot: fairshare.Bot{Name: "preview", State: fairshare.Verified,
				UserTriggered: true}},
			{Bot: fairshare.Bot{Name: "nobody", State: fairshare.Claimed}}, // no address
			{Addr: netip.MustParseAddr("192.0.2.5"), UserAgent: strings.Repeat("é", 200), At: time.Now()},
			{Addr: netip.MustParseAddr("192.0.2.6"), UserAgent: "a\xffb" + strings.Repeat("x", 300)},
		} {
			p.At = time.Now()
			r.Passed(p)
		}
		r.Replace((&fairshare.Policy{IPv4Prefix: 24}).Client)
		r.pass("203.0.113.9", 1)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		var got []string
		for id, c := range r.store.clients {
			got = append(got, fmt.Sprintf("%s %d", id, c.Spent.Requests))
		}
		want := map[string]bool{"2001:db8::/64 2": true, "fe80::/64 1": true, "googlebot 2": true,
			"192.0.2.3 1": true, "192.0.2.4 1": true, "192.0.2.5 1": true, "192.0.2.6 1": true,
			"203.0.113.0/24 1": true}
		if len(got) != len(want) {
			t.Errorf("clients %q", got)
		}
		for _, c := range got {
			if !want[c] {
				t.Errorf("client %q", c)
			}
		}
		if got := r.store.client("192.0.2.5").UserAgent; got != strings.Repeat("é", 128) {
			t.Errorf("a user agent of %d bytes: %q", len(got), got)
		}
		if got := r.store.client("192.0.2.6").UserAgent; len(got) != 256 || !strings.HasPrefix(got, "a?bx") {
			t.Errorf("a user agent of %d bytes: %q", len(got), got)
		}
	})
}

// On a disk that fails, hangs or is slow, all counts are written in the end, and none
// twice.
func TestNoCountIsLostOrDoubled(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			store := newFakeStore()
			r := run(t, store, registrar.Options{})
			clients, stories, bans := map[string]registry.Spent{}, map[string]int64{}, map[string]time.Time{}
			for range 2000 {
				a := addr(rnd.IntN(300) * 7919)
				switch rnd.IntN(12) {
				case 0:
					ref := "ref-" + a
					r.refuse(a, ref)
					stories[ref]++
					s := clients[a]
					s.Add(registry.Spent{Requests: 1, Refused: 1})
					clients[a] = s
				case 1:
					r.ban(a)
					bans[a] = time.Now()
				case 2:
					sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
					if rnd.IntN(30) == 0 { // written records leave memory
						sleep(6 * time.Minute)
					}
				case 3:
					store.set(func() {
						store.fault, store.take = nil, time.Duration(rnd.IntN(300))*time.Millisecond
						if rnd.IntN(3) == 0 {
							store.fault = errDisk
						}
						if store.hang != nil {
							close(store.hang)
							store.hang = nil
						} else if rnd.IntN(20) == 0 {
							store.hang = make(chan struct{})
						}
					})
				default:
					r.pass(a, 1)
					s := clients[a]
					s.Add(registry.Spent{Requests: 1, Time: time.Millisecond, Bytes: 10})
					clients[a] = s
				}
			}
			store.set(func() {
				store.fault, store.take = nil, 0
				if store.hang != nil {
					close(store.hang)
				}
				store.hang = nil
			})
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			for a, want := range clients {
				if got := store.client(a).Spent; got != want {
					t.Errorf("seed %d: the record of %s is %+v, want %+v", seed, a, got, want)
				}
			}
			for ref, want := range stories {
				if got := store.story(ref).Count; got != want {
					t.Errorf("seed %d: story %s has %d refusals, want %d", seed, ref, got, want)
				}
			}
			for a, want := range bans {
				if got := store.ban(a).Began; !got.Equal(want) {
					t.Errorf("seed %d: the ban of %s began at %v, want %v", seed, a, got, want)
				}
			}
			if store.seen().clients != len(clients) || store.seen().stories != len(stories) ||
				store.seen().bans != len(bans) {
				t.Errorf("seed %d: %d clients, %d stories, %d bans; want %d, %d, %d", seed,
					store.seen().clients, store.seen().stories, store.seen().bans, len(clients), len(stories),
					len(bans))
			}
			if s := r.Stats(); s.DirtyClients+s.DirtyStories+s.QueuedBans > 0 ||
				s.DroppedRequests+s.DroppedRefusals+s.DroppedBans > 0 {
				t.Errorf("seed %d: %+v", seed, s)
			}
		})
	}
}

func TestNewStoryIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		for i := range 200 { // their write starts a pause
			r.pass(addr(i*7919), 1)
		}
		store.set(func() { store.take = 10 * time.Millisecond })
		sleep(5010 * time.Millisecond)
		begin := time.Now()
		r.Refused(registrar.Refusal{
			Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), UserAgent: "curl/8", At: begin,
				Bot: fairshare.Bot{Name: "curl", State: fairshare.Claimed}},
			Story: registry.Story{ID: "0123456789", Rule: "rapid", Action: fairshare.Refuse,
				Ban: fairshare.BanStarted, Status: 429, Until: begin.Add(time.Hour),
				By: "addr", Resource: "requests", Used: 10, Allowed: 10, Window: time.Minute,
				Method: strings.Repeat("M", 100), Host: "example.org", Path: "/" + strings.Repeat("p", 1000)},
		})
		sleep(200 * time.Millisecond)
		want := registry.Story{
			ID: "0123456789", Client: id("192.0.2.1"), Addr: netip.MustParseAddr("192.0.2.1"), Bot: "curl",
			BotState: fairshare.Claimed,
			Rule:     "rapid", Action: fairshare.Refuse, Ban: fairshare.BanStarted, Status: 429, First: begin,
			Last: begin, Count: 1, Until: begin.Add(time.Hour),
			By: "addr", Resource: "requests", Used: 10, Allowed: 10, Window: time.Minute,
			Method: strings.Repeat("M", 32), Host: "example.org", Path: "/" + strings.Repeat("p", 511),
			UserAgent: "curl/8",
			BanBegan:  begin, BanMethod: strings.Repeat("M", 32), BanPath: "/" + strings.Repeat("p", 511),
		}
		if got := store.story("0123456789"); got != want {
			t.Errorf("written: %+v\nwant:    %+v", got, want)
		}

		// Repeated refusals are written with the batches, and add up.
		tries := store.seen().tries
		for range 40 {
			sleep(100 * time.Millisecond)
			r.refuse("192.0.2.1", "0123456789")
		}
		if store.seen().tries > tries+2 {
			t.Errorf("%d transactions for repeats", store.seen().tries-tries)
		}
		last := time.Now()
		sleep(6 * time.Second)
		if got := store.story("0123456789"); got.Count != 41 || !got.First.Equal(begin) || !got.Last.Equal(last) ||
			got.Path != "/" || got.UserAgent != "ua" {
			t.Errorf("written: %+v", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWritingTakesAHundredthOfOneCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.take = 10 * time.Millisecond
		r := run(t, store, registrar.Options{})
		for i := range 5000 {
			r.pass(addr(i*7919), 1)
		}
		sleep(30 * time.Second)
		rows := 0
		for i, b := range store.seen().batches {
			n := len(b.Clients) + len(b.Stories) + len(b.Bans)
			rows += n
			if n > 250 {
				t.Errorf("batch %d has %d rows", i, n)
			}
			if i > 0 && store.seen().ends[i].Sub(store.seen().ends[i-1]) < 101*store.take {
				t.Errorf("batch %d ended %v after the last", i, store.seen().ends[i].Sub(store.seen().ends[i-1]))
			}
		}
		if rows != 5000 {
			t.Errorf("%d rows after half a minute", rows)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Floods of new stories or bans do not prevent the writing of other records.
func TestFloodsDoNotStopOtherWrites(t *testing.T) {
	for _, flood := range []string{"stories", "bans"} {
		synctest.Test(t, func(t *testing.T) {
			store := newFakeStore()
			store.take = 2 * time.Millisecond
			r := run(t, store, registrar.Options{})
			for i := range 500 {
				r.pass(addr(i*7919), 1)
			}
			for i := range 30_000 { // a minute
				time.Sleep(2 * time.Millisecond)
				if a := addr(i * 104_729); flood == "bans" {
					r.ban(a)
				} else {
					r.Refused(registrar.Refusal{
						Request: registrar.Request{Addr: netip.MustParseAddr(a), At: time.Now()},
						Story:   registry.Story{ID: a, Rule: "rule", Action: fairshare.Refuse},
					})
				}
			}
			seen, writing := store.seen(), time.Duration(0)
			for _, b := range seen.batches {
				if len(b.Bans) == 0 {
					writing += store.take
				}
			}
			old := 0
			for i := range 500 {
				if store.client(addr(i*7919)).Spent.Requests > 0 {
					old++
				}
			}
			if old != 500 {
				t.Errorf("in a flood of %s, %d of 500 clients are written after a minute", flood, old)
			}
			if flood == "stories" && seen.stories < 10_000 || flood == "bans" && seen.bans < 29_000 {
				t.Errorf("%d stories, %d bans", seen.stories, seen.bans)
			}
			if writing > time.Minute/90 {
				t.Errorf("in a flood of %s, writing takes %v of a minute", flood, writing)
			}
			store.set(func() { store.take = 0 })
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A long transaction on a slow disk delays bans, so the next ones are smaller.
func TestBatchesAreSmallOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.take = 80 * time.Millisecond
		r := run(t, store, registrar.Options{})
		for i := range 1000 {
			r.pass(addr(i*7919), 1)
		}
		sleep(time.Minute)
		last := len(store.seen().batches[len(store.seen().batches)-1].Clients)
		if last != 16 {
			t.Errorf("the last batch has %d rows", last)
		}
		store.set(func() { store.take = time.Millisecond })
		sleep(time.Minute)
		r.stop()
		if store.seen().clients != 1000 {
			t.Errorf("%d clients", store.seen().clients)
		}
	})
}

// Without a place, all requests of a group are dropped, not one.
func TestDroppedGroupsAreCountedByRequests(t *testing.T) {
	r := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client, Clients: 1, Stories: 1})
	for i := range 3 {
		of := registrar.Request{Addr: netip.MustParseAddr(addr(i * 7919)), At: time.Now(), N: 10}
		r.Refused(registrar.Refusal{Request: of, Story: registry.Story{ID: "0123456789", Action: fairshare.Block}})
	}
	r.Passed(registrar.Request{Addr: netip.MustParseAddr("198.51.100.1"), At: time.Now(), N: 5})
	r.Passed(registrar.Request{Addr: netip.MustParseAddr("198.51.100.2"), At: time.Now()})
	if s := r.Stats(); s.Clients != 1 || s.DroppedRequests != 2*10+5+1 || s.DroppedRefusals != 2*10 {
		t.Errorf("%+v", s)
	}
}

func TestDiskFailsAndWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = errDisk
		r := run(t, store, registrar.Options{Clients: 64})
		for i := range 200 {
			r.pass(addr(i*7919), 1)
		}
		r.ban("192.0.2.1")
		r.ban("192.0.2.2")
		sleep(10*time.Minute + time.Second)
		if store.seen().tries < 20 || store.seen().tries > 30 {
			t.Errorf("%d tries in ten minutes", store.seen().tries)
		}
		s := r.Stats()
		if !s.Failing || s.QueuedBans != 2 || s.DirtyClients != 56 || s.DroppedRequests != 144 ||
			int(s.WriteErrors) != store.seen().tries+store.seen().prunes {
			t.Errorf("%+v", s)
		}
		r.pass("198.51.100.1", 3) // one more, which is dropped
		store.set(func() { store.fault = nil })
		sleep(2 * time.Minute)
		if store.seen().clients != 56 || store.nBans() != 2 || r.Stats().Failing {
			t.Errorf("%d clients and %d bans are written: %+v", store.seen().clients, store.nBans(), r.Stats())
		}
		r.log.holds(t,
			"the registry cannot be written: disk on fire (make room); unwritten data stays in memory, and writing is retried",
			"144 requests and the stories of 0 refusals were not recorded",
			"the registry can be written again: 56 clients, 0 stories and 2 bans are still to be written, 3 requests, stories and bans were lost",
			"3 requests and the stories of 0 refusals were not recorded",
		)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The store of a database logs itself that it is away and back. What was not written meanwhile is written then.
func TestAbsenceOfADatabaseIsNotLoggedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = fmt.Errorf("the database %w", registry.ErrAway)
		r := run(t, store, registrar.Options{})
		for i := range 20 {
			r.pass(addr(i*7919), 1)
		}
		sleep(time.Minute)
		if !r.Stats().Failing {
			t.Error("it is not failing")
		}
		store.set(func() { store.fault = nil })
		sleep(2 * time.Minute)
		if store.seen().clients != 20 || r.Stats().Failing {
			t.Errorf("%d clients are written: %+v", store.seen().clients, r.Stats())
		}
		r.log.holds(t)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestDamagedRegistryIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = fmt.Errorf("page 7: %w", registry.ErrDamaged)
		r := run(t, store, registrar.Options{})
		r.ban("192.0.2.1")
		r.pass("192.0.2.1", 1)
		sleep(59 * time.Minute)
		if n := store.seen().tries + store.seen().prunes; n > 6 {
			t.Errorf("%d tries in an hour", n)
		}
		tries := store.seen().tries
		err := r.stop()
		if !errors.Is(err, registry.ErrDamaged) || !strings.Contains(err.Error(),
			"1 bans, 0 stories and the counts of 1 clients") || store.seen().tries != tries {
			t.Errorf("at the end after %d tries more: %v", store.seen().tries-tries, err)
		}
		r.log.holds(t, "THE REGISTRY IS DAMAGED")
	})
}

func TestHangingStoreDoesNotDelayRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		hang := make(chan struct{})
		store.set(func() { store.hang = hang })
		begin := time.Now()
		r.ban("192.0.2.1")
		r.Settle(t.Context())
		if took := time.Since(begin); took != 500*time.Millisecond {
			t.Errorf("the first waits %v", took)
		}
		begin = time.Now()
		for i := range 1000 {
			a := addr(i * 7919)
			r.ban(a)
			r.pass(a, 1)
			r.refuse(a, a)
			r.Settle(t.Context())
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("the others wait %v", took)
		}
		sleep(time.Minute)
		if store.seen().tries != 1 {
			t.Errorf("%d calls while the first hangs", store.seen().tries)
		}
		begin = time.Now()
		err := r.stop()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("Run ends after %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "1001 bans") {
			t.Errorf("at the end: %v", err)
		}
		r.log.holds(t, "the registry cannot be written: it does not answer")
		close(hang) // the abandoned call ends
	})
}

// A write that hangs and then succeeds is not repeated.
func TestHangingWriteCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		hang := make(chan struct{})
		store.hang = hang
		r := run(t, store, registrar.Options{})
		r.pass("192.0.2.1", 5)
		sleep(time.Minute)
		r.pass("192.0.2.1", 5)
		store.set(func() { store.hang = nil })
		close(hang)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := store.client("192.0.2.1").Spent.Requests; got != 10 {
			t.Errorf("%d requests are written, want 10", got)
		}
		r.log.holds(t, "the registry cannot be written: it does not answer", "the registry can be written again")
	})
}

// At the end, Run returns the error of the store, not that the time is over.
func TestRunReturnsTheErrorOfTheLastWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.fault = &sqlregistry.Error{Path: "registry.db", Kind: sqlregistry.ErrFull}
		r := run(t, store, registrar.Options{})
		r.ban("192.0.2.1")
		sleep(time.Minute)
		if err := r.stop(); !errors.Is(err, sqlregistry.ErrFull) || !strings.Contains(err.Error(), "1 bans") {
			t.Errorf("at the end: %v", err)
		}
	})
}

func TestLastWritesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		for i := range 10_000 {
			r.pass(addr(i*7919), 1)
		}
		r.refuse("192.0.2.1", "0123456789")
		r.ban("192.0.2.1")
		synctest.Wait()
		store.set(func() { store.take = time.Second })
		begin := time.Now()
		err := r.stop()
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if err == nil || !strings.Contains(err.Error(), "0 bans, 0 stories and the counts of ") {
			t.Errorf("at the end: %v", err)
		}
		if n := store.seen().clients; n < 500 || n > 1250 {
			t.Errorf("%d clients are written", n)
		}
	})
}

// If a command holds the lock when the server ends, nothing is lost.
func TestLastWritesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		r.pass("192.0.2.1", 1)
		store.set(func() { store.fault = sqlregistry.ErrBusy })
		time.AfterFunc(3*time.Second, func() { store.set(func() { store.fault = nil }) })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := store.client("192.0.2.1").Spent.Requests; got != 1 {
			t.Errorf("%d requests are written", got)
		}
	})
}

func TestRegistryIsPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.morePrune = 10
		r := run(t, store, registrar.Options{})
		sleep(59 * time.Second)
		if store.seen().prunes != 0 {
			t.Errorf("pruned %d times in the first minute", store.seen().prunes)
		}
		sleep(2 * time.Second)
		if store.seen().prunes != 11 {
			t.Errorf("pruned %d times, want 11", store.seen().prunes)
		}
		sleep(time.Minute)
		if store.seen().prunes != 12 {
			t.Errorf("pruned %d times, want 12", store.seen().prunes)
		}

		// In a flood, rows and pruning alternate.
		store.set(func() { store.take, store.morePrune = 10*time.Millisecond, 1<<20 })
		for i := range 60_000 {
			r.pass(addr(i*7919), 1)
		}
		sleep(90 * time.Second)
		prunes, batches := store.seen().prunes-12, len(store.seen().batches)
		if batches < 50 || prunes < batches/3 {
			t.Errorf("pruned %d times and wrote %d batches", prunes, batches)
		}
		store.set(func() { store.take = 0 })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Requests run on all cores while batches fail and overrides change.
func TestRegistrarIsSafeForConcurrentUse(t *testing.T) {
	store := newFakeStore()
	r := run(t, store, registrar.Options{Lift: func(fairshare.ClientID, time.Time) {}})
	var wg sync.WaitGroup
	const n, each = 8, 2000
	for w := range n {
		wg.Go(func() {
			for i := range each {
				a := addr(i % 100 * 7919)
				switch i % 4 {
				case 0:
					r.refuse(a, a)
				case 1:
					r.ban(a)
					r.Settle(context.Background())
				default:
					r.pass(a, 1)
				}
				r.Override(netip.MustParseAddr(a), fairshare.Bot{}, time.Now())
				if i%100 == 0 {
					r.Stats()
					store.set(func() {
						store.fault = nil
						if i%200 == 0 && w == 0 {
							store.fault = errDisk
						}
						store.changes = registry.Changes{Overrides: true,
							Lifted: []registry.LiftedClient{{Client: id("192.0.2.0/24"), Forget: true}}}
					})
				}
			}
		})
	}
	wg.Wait()
	store.set(func() { store.fault = nil })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	var sum registry.Spent
	for _, c := range store.clients {
		sum.Add(c.Spent)
	}
	if sum.Requests != n*each*3/4 || sum.Refused != n*each/4 || store.nBans() != 25 {
		t.Errorf("written: %+v, %d bans", sum, store.nBans())
	}
}

// A ban in force has no counters, so its story keeps those of the refusal that started
// it. The start of a ban is written as soon as a new story.
func TestStoryOfABanKeepsTheCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		refuse := func(s registry.Story) {
			s.ID, s.Rule, s.Action = "0123456789", "rapid", fairshare.Refuse
			r.Refused(registrar.Refusal{Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"),
				At: time.Now()}, Story: s})
		}
		counted := registry.Story{By: "addr", Resource: "requests", Used: 10, Allowed: 10, Window: time.Minute}
		refuse(counted)
		sleep(6 * time.Second)
		counted.Ban, counted.Used = fairshare.BanStarted, 11
		refuse(counted)
		refuse(registry.Story{Ban: fairshare.BanInForce})
		sleep(200 * time.Millisecond)
		got := store.story("0123456789")
		if got.Ban != fairshare.BanInForce || got.Count != 3 || got.Used != 11 || got.Allowed != 10 ||
			got.By != "addr" || got.Window != time.Minute || got.Resource != "requests" {
			t.Errorf("written: %+v", got)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The story keeps the request that started the latest ban, through later
// refusals, a restart, and when requests are recorded out of order.
func TestStoryKeepsTheRequestThatStartedTheBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		refuse := func(at time.Time, ban fairshare.BanState, method, path string) {
			s := registry.Story{ID: "0123456789", Rule: "dead links", Action: fairshare.Refuse, Ban: ban,
				Method: method, Path: path}
			if ban != fairshare.BanInForce {
				s.By, s.Resource, s.Used, s.Allowed = "addr", "errors", 13, 12
			}
			r.Refused(registrar.Refusal{Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: at},
				Story: s})
		}
		expect := func(name string, began time.Time, method, path, latest string) {
			t.Helper()
			sleep(6 * time.Second)
			got := store.story("0123456789")
			if !got.BanBegan.Equal(began) || got.BanMethod != method || got.BanPath != path || got.Path != latest ||
				got.By != "addr" || got.Used != 13 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		refuse(time.Now(), fairshare.NotBanned, "GET", "/before")
		expect("no ban yet", time.Time{}, "", "", "/before")
		first := time.Now()
		refuse(first, fairshare.BanStarted, "HEAD", "/dead")
		refuse(first.Add(time.Second), fairshare.BanInForce, "GET", "/later")
		expect("during the ban", first, "HEAD", "/dead", "/later")
		for range 1000 {
			refuse(first.Add(time.Minute), fairshare.BanInForce, "GET", "/much-later")
		}
		expect("after many refusals", first, "HEAD", "/dead", "/much-later")
		if err := r.stop(); err != nil {
			t.Error(err)
		}

		r = run(t, store, registrar.Options{})
		refuse(first.Add(2*time.Minute), fairshare.BanInForce, "GET", "/restarted")
		expect("after a restart", first, "HEAD", "/dead", "/restarted")
		second := first.Add(time.Hour)
		refuse(second.Add(time.Second), fairshare.BanInForce, "GET", "/recorded-first")
		refuse(second, fairshare.BanStarted, "POST", "/login"+strings.Repeat("x", 1000))
		expect("out of order", second, "POST", "/login"+strings.Repeat("x", 506), "/recorded-first")
		refuse(first, fairshare.BanStarted, "GET", "/old")
		expect("an earlier ban, recorded late", second, "POST", "/login"+strings.Repeat("x", 506), "/recorded-first")
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A story keeps the line of robots.txt while the ban is in force that it led to, in valid UTF-8.
func TestStoryKeepsTheLineOfRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{})
		refuse := func(ban fairshare.BanState, robots string) string {
			r.Refused(registrar.Refusal{
				Request: registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: time.Now()},
				Story: registry.Story{ID: "0123456789", Rule: "robots", Action: fairshare.Block, Ban: ban,
					Robots: robots}})
			sleep(6 * time.Second)
			return store.story("0123456789").Robots
		}
		for _, c := range []struct {
			ban          fairshare.BanState
			robots, want string
		}{
			{fairshare.NotBanned, "line 2, Disallow: /\xff", "line 2, Disallow: /?"},
			{fairshare.BanStarted, "line 3, Disallow: /b", "line 3, Disallow: /b"},
			{fairshare.BanInForce, "", "line 3, Disallow: /b"},
			{fairshare.NotBanned, "", ""},
		} {
			if got := refuse(c.ban, c.robots); got != c.want {
				t.Errorf("%v, %q: the story has %q, want %q", c.ban, c.robots, got, c.want)
			}
		}
	})
}
