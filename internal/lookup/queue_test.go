package lookup

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// After random arrivals, look-ups, failures and drops the counts are right and the bounds hold. One
// address of a network runs at a time, and no waiting address is lost.
func TestQueueInvariants(t *testing.T) {
	limits := [lanes]int{proven: 4, untried: 8, doubtful: 4}
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 4))
		q := newQueue(limits)
		var running []*item
		wides, networks := 1+rng.IntN(600), 1+rng.IntN(40)
		address := func() netip.Addr {
			if rng.IntN(2) == 0 {
				return v4(rng.IntN(100*wides), wides, min(networks, 250))
			}
			return v6(rng.IntN(100*wides), wides, networks)
		}
		begin := func() {
			for k := range lanes {
				for it := q.next(k); it != nil; it = q.next(k) {
					it.cancel = func() {}
					running = append(running, it)
				}
			}
		}
		end := func() {
			i := rng.IntN(len(running))
			it := running[i]
			if rng.IntN(20) == 0 && it.lane != doubtful && q.moveOver(it) {
				return
			}
			running = slices.Delete(running, i, i+1)
			q.ended(it)
			switch rng.IntN(5) {
			case 0:
				q.requeue(it)
			case 1:
				q.finished(it, unconfirmed, false, rng.IntN(2) == 0)
			default:
				q.finished(it, rank(rng.IntN(3)), true, true)
			}
		}
		check := func() {
			t.Helper()
			byLane := [lanes]int{}
			busy := map[netip.Prefix]bool{}
			for _, it := range running {
				byLane[it.lane]++
				if busy[it.network.prefix] || !it.network.running || q.items[it.addr] != it ||
					q.networks[it.network.prefix] != it.network {
					t.Fatalf("seed %d: %+v runs", seed, it)
				}
				busy[it.network.prefix] = true
			}
			inWides, listed := 0, 0
			for _, w := range q.wides {
				inWides += w.waiting
				for k := range lanes {
					live := 0
					for _, n := range w.ready[k] {
						if !n.ready || n.running || n.wide != w {
							t.Fatalf("seed %d: %+v is ready", seed, n)
						}
						if n.load() > 0 {
							if live++; n.lane() != k {
								t.Fatalf("seed %d: %+v is in lane %d", seed, n, k)
							}
						}
					}
					listed += live
					if live > 0 && (!w.inRing[k] || !slices.Contains(q.lanes[k].ring, w)) {
						t.Fatalf("seed %d: %v is not in the ring of its lane", seed, w.prefix)
					}
					if len(w.ready[k]) > 2*maxWaiting+8 {
						t.Fatalf("seed %d: a list has %d networks", seed, len(w.ready[k]))
					}
				}
			}
			loads, ready := 0, 0
			for _, n := range q.networks {
				loads += n.load()
				if n.load() > 0 && !n.running {
					ready++
				}
			}
			for k := range lanes {
				if l := &q.lanes[k]; l.running != byLane[k] || l.running > l.limit || len(l.ring) > 2*maxWaiting+65 {
					t.Fatalf("seed %d: lane %d: %d run, the ring has %d prefixes", seed, k, l.running, len(l.ring))
				}
			}
			for i, it := range q.waiting {
				if it.all != i || it.network.waiting[it.turn][it.at] != it || q.items[it.addr] != it {
					t.Fatalf("seed %d: %+v waits", seed, it)
				}
			}
			if n := len(q.waiting); n > maxWaiting+maxCalls || inWides != n || loads != n ||
				len(q.items) != n+len(running) || listed != ready {
				t.Fatalf(
					"seed %d: %d wait, %d in wide prefixes, %d in networks, %d and %d are known, %d of %d networks have a turn",
					seed, n, inWides, loads, len(q.items), len(running), listed, ready)
			}
			if n := len(q.networks); n > maxNetworks {
				t.Fatalf("seed %d: %d networks", seed, n)
			}
		}
		for step := range 60_000 {
			if addr := address(); q.items[addr] == nil {
				q.push(addr, turn(rng.IntN(int(turns))), false)
			}
			if rng.IntN(3) > 0 {
				begin()
			}
			if len(running) > 0 && rng.IntN(1+int(seed)) == 0 {
				end()
			}
			if step%2000 == 0 {
				check()
			}
		}
		for begin(); len(running) > 0; begin() {
			end()
		}
		check()
		if len(q.items) != 0 || len(q.wides) != 0 {
			t.Errorf("seed %d: %d are left, in %d wide prefixes", seed, len(q.items), len(q.wides))
		}
	}
}

// Renewals come first, and replace new addresses in a full queue. Otherwise addresses of the prefix
// with the most waiting addresses are dropped.
func TestFullQueueDropsFromTheLargestPrefix(t *testing.T) {
	q := newQueue([lanes]int{})
	for n := range maxWaiting {
		if q.push(v6(n, 4, 1), fresh, false) == nil {
			t.Fatalf("no room for number %d", n)
		}
	}
	if q.push(v6(maxWaiting+1, 4, 1), fresh, false) != nil {
		t.Error("an address of the large prefix replaced another one of it")
	}
	lonely := netip.MustParseAddr("66.249.66.1")
	if q.push(lonely, fresh, false) == nil {
		t.Error("no room for an address alone in its prefix")
	}
	for n := range 3000 {
		if n == 500 && q.items[lonely] == nil {
			t.Error("an address alone in its prefix was dropped while a large prefix had many")
		}
		q.push(v4(n, 2, 250), renewal, false)
	}
	if len(q.waiting) != maxWaiting {
		t.Errorf("%d wait", len(q.waiting))
	}
	renewals := 0
	for _, it := range q.waiting {
		if it.turn == renewal {
			renewals++
		}
	}
	if renewals < 2900 {
		t.Errorf("%d of 3000 renewals found room", renewals)
	}
}

// The state after many dropped addresses is bounded by that of waiting addresses.
func TestDroppedAddressesLeaveLittleState(t *testing.T) {
	q := newQueue([lanes]int{})
	for n := range 60_000 {
		q.push(v6(n, 60_000, 1), fresh, false)
		q.push(v6(n, 1, 60_000), fresh, false)
	}
	stand := 0
	for _, w := range q.wides {
		for k := range lanes {
			stand += len(w.ready[k])
		}
	}
	if ring := len(q.lanes[untried].ring); len(q.waiting) != maxWaiting || ring > 2*len(q.wides)+65 ||
		stand > 7*maxWaiting || len(q.networks) > maxNetworks {
		t.Errorf("%d wait, %d in the ring, %d in lists, %d networks", len(q.waiting), ring, stand, len(q.networks))
	}
}
