package registrar_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

// A million clients from random networks are refused, each with another user agent.
func TestFloodIsBounded(t *testing.T) {
	n := 1_000_000
	if raceEnabled {
		n = 200_000
	}
	store := newFakeStore()
	g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client})
	all, at := addrs(n), time.Now()
	memory := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := memory()
	agent := make([]byte, 400)
	for i, a := range all {
		copy(agent, fmt.Sprint(i))
		p := registrar.Request{Addr: a, At: at, UserAgent: string(agent)}
		if i%2 == 0 {
			g.Passed(p)
			continue
		}
		g.Refused(registrar.Refusal{Request: p, Story: registry.Story{ID: fmt.Sprintf("%010d", i), Rule: "rule",
			Action: fairshare.Refuse, Path: "/" + string(agent[:100])}})
	}
	grown := memory() - before
	s := g.Stats()
	t.Logf("%d clients: %d in memory, %d stories, %d requests left out; %.1f MB", n, s.Clients, s.Stories, s.DroppedRequests,
		float64(grown)/1e6)
	if s.Clients > 1<<16 || s.Clients < 1<<16*9/10 || s.Stories > 1<<14 || s.Stories < 1<<14*9/10 {
		t.Errorf("%+v", s)
	}
	if grown > 64<<20 {
		t.Errorf("%d MB are in use", grown>>20)
	}
	runtime.KeepAlive(g)
	runtime.KeepAlive(all)
}

func TestNetworkHasAtMostATenth(t *testing.T) {
	for _, networks := range [][]string{{"10.1.0.0", "10.2.0.0", "192.0.2.1"},
		{"2001:db8::", "2001:db9::", "2001:dba::"}} {
		g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client, Clients: 1 << 14})
		pass := func(network string, n int) {
			a := netip.MustParseAddr(network)
			for i := range n {
				b := a.AsSlice()
				at := len(b) - 2
				if a.Is6() {
					at = 6
				}
				b[at], b[at+1] = byte(i>>8), byte(i)
				addr, _ := netip.AddrFromSlice(b)
				g.Refused(registrar.Refusal{Request: registrar.Request{Addr: addr, At: time.Now()}})
			}
		}
		pass(networks[0], 10_000)
		if n := g.Stats().Clients; n > 1<<14/10 || n < 1<<14/11 {
			t.Errorf("%d clients of one network", n)
		}
		before := g.Stats().Clients
		pass(networks[1], 10_000)
		if n := g.Stats().Clients - before; n != before {
			t.Errorf("%d clients of another, %d of the first", n, before)
		}
		before = g.Stats().Clients
		pass(networks[2], 1)
		if n := g.Stats().Clients - before; n != 1 {
			t.Error("a third finds no place")
		}
	}
}

// Clients of passed requests leave places for refused clients.
func TestRefusedClientsFindAPlace(t *testing.T) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	all := addrs(200_000)
	for _, a := range all[:100_000] {
		g.Passed(registrar.Request{Addr: a, At: time.Now()})
	}
	before := g.Stats().Clients
	for _, a := range all[100_000:106_000] {
		g.Refused(registrar.Refusal{Request: registrar.Request{Addr: a, At: time.Now()}})
	}
	if n := g.Stats().Clients - before; n < 5900 {
		t.Errorf("%d of 6000 refused clients are recorded", n)
	}
}

func TestIdleClientsLeaveFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{Clients: 400})
		all := addrs(1200)
		pass := func(from, to int) {
			for _, a := range all[from:to] {
				r.Passed(registrar.Request{Addr: a, At: time.Now()})
			}
		}
		pass(0, 350)
		sleep(6 * time.Second)
		if s := r.Stats(); s.Clients != 350 || s.DirtyClients != 0 {
			t.Errorf("%+v", s)
		}
		pass(0, 100) // again: 250 are idle
		pass(350, 600)
		if s := r.Stats(); s.DroppedRequests != 0 || s.DirtyClients != 350 {
			t.Errorf("%+v", s)
		}
		pass(600, 601)
		if s := r.Stats(); s.DroppedRequests != 1 {
			t.Errorf("%+v", s)
		}
		sleep(6 * time.Second)
		if store.seen().clients != 600 {
			t.Errorf("%d clients are written", store.seen().clients)
		}
		sleep(10 * time.Minute)
		if s := r.Stats(); s.Clients != 0 {
			t.Errorf("%d clients are remembered for ten minutes", s.Clients)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The places of a network at its bound are free as soon as its records were written.
func TestPlacesOfANetworkAreFreedByWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		r := run(t, store, registrar.Options{Clients: 400}) // at most 40 of a network, 35 without refusals
		for round := range 5 {
			for i := range 35 {
				r.pass(fmt.Sprintf("192.0.2.%d", round*35+i), 1)
			}
			sleep(6 * time.Second)
		}
		if n := store.seen().clients; n < 100 {
			t.Errorf("%d clients are written", n)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A flood of refused clients from a hundred networks exceeds the speed of writing. It
// leaves places for clients that arrive during the flood or just after.
func TestFloodLeavesPlacesForStories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore()
		store.take = 30 * time.Millisecond
		r := run(t, store, registrar.Options{})
		refuse := func(addr, id string) {
			r.Refused(registrar.Refusal{
				Request: registrar.Request{Addr: netip.MustParseAddr(addr), At: time.Now()},
				Story:   registry.Story{ID: id, Rule: "rule", Action: fairshare.Refuse},
			})
		}
		var customers []string
		for i := range 120_000 { // a minute
			time.Sleep(500 * time.Microsecond)
			refuse(fmt.Sprintf("10.%d.%d.%d", i%100, i/100>>8, i/100&255), fmt.Sprint("flood", i))
			if i%10_000 == 9_999 {
				customers = append(customers, fmt.Sprintf("192.%d.2.1", len(customers)))
				refuse(customers[len(customers)-1], customers[len(customers)-1])
			}
		}
		sleep(3 * time.Minute)
		for _, c := range customers {
			if store.story(c).Count != 1 {
				t.Errorf("the story of %s is lost", c)
			}
		}
		if n := store.seen().stories; n > 100_000 {
			t.Errorf("%d stories were written: want more in a flood", n)
		}
		store.set(func() { store.take = 0 })
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}
