package share

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare/share/capacity"
)

const ms = time.Millisecond

// about returns random costs within a fifth of cost.
func about(cost time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return cost*4/5 + time.Duration(r.Int64N(int64(cost)*2/5)) }
}

// polite returns clients with standing that send one request a second, each from its own network.
func polite(n int) (out []*caller) {
	for i := range n {
		out = append(out, &caller{network: uint64(1000 + i), addr: 1, from: time.Duration(i) * 50 * ms,
			every: time.Second, costs: about(20 * ms)})
	}
	return out
}

func together(of []*caller) (all caller) {
	for _, c := range of {
		all.sent += c.sent
		all.served += c.served
		all.refused += c.refused
		all.late += c.late
		all.took += c.took
		all.latency = append(all.latency, c.latency...)
		all.waits = append(all.waits, c.waits...)
		all.retry = append(all.retry, c.retry...)
	}
	return all
}

// answered fails the test unless all requests were answered or are still open.
func answered(t *testing.T, of []*caller) {
	t.Helper()
	if all := together(of); all.refused+all.late > 0 || all.served < all.sent-len(of) {
		t.Errorf("%d of %d requests are answered, %d refused, %d waited too long", all.served, all.sent, all.refused,
			all.late)
	}
}

// alone returns the p99 of polite clients without other clients.
func alone(t *testing.T, slots int) time.Duration {
	sim := newSimulation(t, slots, 1024)
	p := polite(20)
	sim.run(time.Minute, p...)
	answered(t, p)
	all := together(p)
	return quantile(all.latency, 0.99)
}

// A greedy fleet of 200 addresses in four networks keeps 400 requests open. With and without
// standing, it does not delay the answers of 20 polite clients.
func TestGreedyFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, class := range []uint8{0, newest} {
		for _, slots := range some(1, 2, 8, 32) {
			sim := newSimulation(t, slots, 1024)
			p := polite(20)
			var fleet []*caller
			for i := range 200 {
				fleet = append(fleet, &caller{network: uint64(1 + i%4), addr: uint64(i), open: 2, class: class,
					costs: about(20 * ms)})
			}
			sim.run(time.Minute, append(p, fleet...)...)
			answered(t, p)
			all, base := together(p), alone(t, slots)
			if p99 := quantile(all.latency, 0.99); p99 > 3*base {
				t.Errorf("class %d, %d slots: the p99 is %v, without the fleet %v", class, slots, p99, base)
			}
			if part := sim.busy / float64(slots) / float64(sim.now); part < 0.999 {
				t.Errorf("class %d, %d slots: the upstream is busy %.1f%% of the time", class, slots, 100*part)
			}
			networks := make([]float64, 4)
			addrs := make([]float64, 200)
			for i, c := range fleet {
				networks[i%4] += c.took
				addrs[i] = c.took
			}
			if j := jain(networks); j < 0.999 {
				t.Errorf("class %d, %d slots: Jain's index of the networks is %v", class, slots, j)
			}
			if j := jain(addrs); j < 0.98 {
				t.Errorf("class %d, %d slots: Jain's index of the addresses is %v", class, slots, j)
			}
		}
	}
}

// 400 open requests, each from a new address and network, do not delay them either. Another
// newcomer is served as fast as the flood.
func TestFloodOfFreshNetworks(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, slots := range some(1, 2, 8, 32) {
		sim := newSimulation(t, slots, 1024)
		p := polite(20)
		flood := &caller{open: 400, class: newest, fresh: true, costs: about(20 * ms)}
		newcomer := &caller{network: 77, addr: 77, every: 20 * time.Second, class: newest, costs: about(20 * ms)}
		sim.run(time.Minute, append(p, flood, newcomer)...)
		answered(t, p)
		all, base := together(p), alone(t, slots)
		if p99 := quantile(all.latency, 0.99); p99 > 3*base {
			t.Errorf("%d slots: the p99 is %v, without the flood %v", slots, p99, base)
		}
		if part := sim.busy / float64(slots) / float64(sim.now); part < 0.999 {
			t.Errorf("%d slots: the upstream is busy %.1f%% of the time", slots, 100*part)
		}
		if got, theirs := quantile(newcomer.latency, 0.5),
			quantile(flood.latency, 0.5); slots > 1 && got > theirs+20*ms {
			t.Errorf("%d slots: a newcomer has its answer after %v, the flood after %v", slots, got, theirs)
		}
		if most := 2*(maxIdle+1024+slots) + 2; sim.largest > most {
			t.Errorf("%d nodes at once, want at most %d", sim.largest, most)
		}
	}
}

// A client of pages that cost a hundred times as much gets a hundredth as many.
func TestExpensivePages(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, slots := range some(1, 2, 8, 32) {
		sim := newSimulation(t, slots, 1024)
		expensive := &caller{network: 1, open: 2 * slots, costs: about(time.Second)}
		cheap := &caller{network: 2, open: 20 * slots, costs: about(10 * ms)}
		sim.run(5*time.Minute, expensive, cheap)
		if ratio := float64(cheap.served) / float64(expensive.served); !near(ratio, 100, 0.05) {
			t.Errorf("%d slots: %d cheap pages and %d expensive ones, ratio %.1f", slots, cheap.served,
				expensive.served, ratio)
		}
		if part := sim.busy / float64(slots) / float64(sim.now); part < 0.999 {
			t.Errorf("%d slots: the upstream is busy %.1f%% of the time", slots, 100*part)
		}
	}
}

// When ten thousand addresses arrive at once and fill the queue, clients with standing are still
// served.
func TestTenThousandAddressesAtOnce(t *testing.T) {
	for _, spread := range []uint64{100, 1, 10_000} {
		if raceDetector && spread != 100 {
			continue
		}
		sim := newSimulation(t, 8, 1024)
		p := polite(20)
		var crowd []*caller
		for i := range uint64(10_000) {
			crowd = append(crowd, &caller{network: 1 + i%spread, addr: i, open: 1, class: newest,
				costs: about(20 * ms)})
		}
		sim.run(30*time.Second, append(p, crowd...)...)
		answered(t, p)
		all, c := together(p), together(crowd)
		if p99 := quantile(all.latency, 0.99); p99 > 60*ms {
			t.Errorf("%d networks: the p99 is %v", spread, p99)
		}
		if c.refused == 0 || quantile(c.retry, 0.5) < 10*time.Second {
			t.Errorf("%d networks: %d are refused, with a retry after %v", spread, c.refused, quantile(c.retry, 0.5))
		}
		if part := sim.busy / 8 / float64(sim.now); part < 0.999 {
			t.Errorf("%d networks: the upstream is busy %.1f%% of the time", spread, 100*part)
		}
		check(t, sim.s)
	}
}

// The same with a capacity that must be found, and an upstream that is slow for two minutes.
func TestGreedyFleetAndAFoundCapacity(t *testing.T) {
	sim := newSimulation(t, 0, 1024)
	sim.found, sim.workers = capacity.New(capacity.Options{}), 8
	sim.s.set(sim.found.Slots(), 1024, false, 0)
	p := polite(20)
	callers := slices.Clone(p)
	for i := range 200 {
		callers = append(callers, &caller{network: uint64(1 + i%4), addr: uint64(i), open: 2, class: newest,
			costs: about(20 * ms)})
	}
	p99 := map[int64]time.Duration{} // by minute
	for minute := range int64(4) {
		sim.after(time.Duration(minute+1)*time.Minute-1, func() {
			p99[minute] = quantile(together(p).latency, 0.99)
			if minute == 0 || minute == 2 {
				sim.slower = float64(3 - minute) // three times as slow, then as before
			}
			for _, c := range p {
				c.latency = nil
			}
		})
	}
	sim.run(4*time.Minute, callers...)
	if all := together(p); all.refused+all.late > 0 || all.served < all.sent-20 {
		t.Errorf("%d of %d requests are answered", all.served, all.sent)
	}
	base := alone(t, 8)
	if p99[0] > 5*base || p99[1] > 10*base || p99[3] > 5*base {
		t.Errorf("the p99 is %v, when the upstream is slow %v, then %v and %v; without the fleet %v", p99[0], p99[1],
			p99[2], p99[3], base)
	}
	if part := sim.busy / 8 / float64(sim.now); part < 0.9 {
		t.Errorf("the upstream is busy %.1f%% of the time", 100*part)
	}
	t.Logf("the p99 is %v, when the upstream is slow %v, then %v and %v; %d slots at the end", p99[0], p99[1], p99[2],
		p99[3], sim.s.slots)
}

// Expensive requests leave some workers to clients with standing, even if their clients are of several classes:
// bots that come again after a second are.
func TestExpensiveFloodOfSeveralClassesLeavesAWorker(t *testing.T) {
	base := alone(t, 8)
	for _, classes := range [][]uint8{{newest}, {newest - 1, newest}, {3, newest - 1, newest}} {
		sim := newSimulation(t, 8, 1024)
		p := polite(20)
		all := slices.Clone(p)
		for i := range 60 {
			all = append(all, &caller{network: uint64(1 + i), addr: 1, class: classes[i%len(classes)], open: 4,
				from: 5 * time.Second, costs: about(2 * time.Second)})
		}
		sim.run(time.Minute, all...)
		answered(t, p)
		if p99 := quantile(together(p).latency, 0.99); p99 > 2*base {
			t.Errorf("classes %v: the p99 is %v, without the flood %v", classes, p99, base)
		}
	}
}
