package inbound

import (
	"net/netip"
	"sync"
	"testing"
	"time"
)

// Connections change their states while the table becomes strict and relaxes. No last
// change is lost.
func TestNoChangeOfAStateIsLost(t *testing.T) {
	const conns, rounds = 8, 200
	table := newConnTable(bounds{connections: conns, perAddr: conns, ipv4Bits: 32, ipv6Bits: 64})
	var mu sync.Mutex
	var entries [conns]entry
	for i := range entries {
		table.admit(&entries[i], netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	for round := range rounds {
		var all sync.WaitGroup
		for i := range entries {
			all.Go(func() {
				for n := range 50 + i {
					s := state(n+round+i) % states
					if table.note(&entries[i], s) {
						mu.Lock()
						table.setState(&entries[i], s)
						mu.Unlock()
					}
				}
			})
		}
		all.Go(func() {
			for range 20 {
				mu.Lock()
				table.settle()
				mu.Unlock()
				mu.Lock()
				table.needed = false
				table.relax(table.relaxedAt + calm)
				mu.Unlock()
			}
		})
		all.Wait()
		table.settle()
		for i := range entries {
			if want := state(49+i+round+i) % states; entries[i].state != want {
				t.Fatalf("round %d: connection %d has state %d, want %d", round, i, entries[i].state, want)
			}
		}
		if fault := table.fault(); fault != "" {
			t.Fatal(fault)
		}
		table.needed = false
		table.relax(table.relaxedAt + calm)
	}
}

// A table is strict from the first bound until none was met for 10 to 20 seconds.
func TestTableIsStrictAtABound(t *testing.T) {
	table := newConnTable(bounds{connections: 2, perAddr: 2, ipv4Bits: 32, ipv6Bits: 64})
	for _, step := range []struct {
		at     time.Duration
		admits bool
		strict bool
	}{
		{1 * time.Second, true, false},
		{2 * time.Second, true, false},
		{11 * time.Second, true, true},
		{20 * time.Second, false, true},
		{22 * time.Second, false, true},
		{30 * time.Second, false, true},
		{31 * time.Second, false, true},
		{33 * time.Second, false, false},
		{34 * time.Second, true, true},
	} {
		table.relax(step.at)
		if step.admits {
			table.admit(new(entry), netip.MustParseAddr("192.0.2.1"))
		}
		if got := table.strict.Load(); got != step.strict {
			t.Errorf("at %v: strict is %v", step.at, got)
		}
	}
}
