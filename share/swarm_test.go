package share

import (
	"testing"
	"time"
)

// A visitor is a person with a browser: it loads a page, then its six parts over parallel
// connections, reads for a while, and continues. A refused request is sent again after a second.
type visitor struct {
	caller
	pages []time.Duration // the times that pages took
}

func (v *visitor) visit(sim *simulation, reads time.Duration) {
	began, parts := sim.now, 6
	sim.send(&v.caller, func() { // after a refusal, too
		for range parts {
			sim.send(&v.caller, func() {
				if parts--; parts == 0 {
					v.pages = append(v.pages, time.Duration(sim.now-began))
					sim.after(reads, func() { v.visit(sim, reads) })
				}
			})
		}
	})
}

// Swarms keep an upstream busy that answers 400 requests a second. People who have been reading for
// 30 seconds hardly notice them. People whose first visit falls into a swarm wait at most about
// twice as long as in order of arrival for their first page, and hardly for later ones.
func TestPeopleInASwarm(t *testing.T) {
	const slots = 8
	swarm := func(n int, of caller) (callers []*caller) {
		for i := range n {
			c := of
			c.network, c.addr = uint64(i), uint64(i)
			callers = append(callers, &c)
		}
		return callers
	}
	inFour := swarm(400, caller{open: 1, ages: true, costs: about(20 * ms)})
	for _, c := range inFour {
		c.network %= 4
	}
	for _, c := range []struct {
		name                 string
		swarm                []*caller
		readers, first, page time.Duration // longest p99 of readers' pages, of first pages and of later ones
	}{
		{"addresses never seen, 2,000 networks", swarm(1, caller{open: 400, fresh: true, networks: 2000, class: newest,
			costs: about(20 * ms)}), 120 * ms, 2 * time.Second, 150 * ms},
		{"networks never seen", swarm(1, caller{open: 400, fresh: true, class: newest,
			costs: about(20 * ms)}), 120 * ms, 4 * time.Second, 150 * ms},
		{"more than the queue holds", swarm(1, caller{open: 2000, fresh: true, networks: 2000, class: newest,
			costs: about(20 * ms)}), 180 * ms, 3 * time.Second, 300 * ms},
		{"expensive pages", swarm(1, caller{open: 100, fresh: true, networks: 2000, class: newest,
			costs: about(200 * ms)}), 400 * ms, 5 * time.Second, 500 * ms},
		{"400 addresses that stay, in four networks", inFour, 150 * ms, 150 * ms, 150 * ms},
		{"400 networks that stay", swarm(400, caller{open: 1, ages: true, costs: about(20 * ms)}), 4 * time.Second,
			4 * time.Second, 3 * time.Second},
		{"100 networks with 50 open requests each", swarm(100, caller{open: 50, ages: true, costs: about(20 * ms)}),
			5 * time.Second, 4 * time.Second, 2 * time.Second},
	} {
		sim := newSimulation(t, slots, 1024)
		visitors := func(n int, network uint64, begin, each time.Duration) []*visitor {
			of := make([]*visitor, n)
			for i := range of {
				of[i] = &visitor{caller: caller{network: network + uint64(i), ages: true, costs: about(20 * ms)}}
				sim.after(begin+time.Duration(i)*each, func() { of[i].visit(sim, 10*time.Second) })
			}
			return of
		}
		readers := visitors(40, 1<<20, 0, 75*ms)
		sim.run(30 * time.Second)
		for _, v := range readers {
			v.pages = nil
		}
		newcomers := visitors(100, 1<<21, 2*time.Second, 200*ms)
		before := sim.busy
		sim.run(time.Minute, c.swarm...)

		var old, first, later []time.Duration
		refused := 0
		for _, v := range readers {
			old = append(old, v.pages...)
			refused += v.refused + v.late
		}
		if refused > 0 {
			t.Errorf("%s: %d requests of readers were refused", c.name, refused)
		}
		for _, v := range newcomers {
			if len(v.pages) == 0 {
				t.Errorf("%s: a person has no page", c.name)
				continue
			}
			first = append(first, v.pages[0])
			later = append(later, v.pages[1:]...)
		}
		for _, p := range []struct {
			name  string
			pages []time.Duration
			most  time.Duration
		}{{"readers'", old, c.readers}, {"first", first, c.first}, {"later", later, c.page}} {
			if got := quantile(p.pages, 0.99); got > p.most || len(p.pages) < 100 {
				t.Errorf("%s: the p99 of %d %s pages is %v, want at most %v", c.name, len(p.pages), p.name, got, p.most)
			}
			t.Logf("%s: %s pages p50 %v, p99 %v", c.name, p.name, quantile(p.pages, 0.5), quantile(p.pages, 0.99))
		}
		if part := (sim.busy - before) / slots / float64(time.Minute); part < 0.95 {
			t.Errorf("%s: the upstream is busy %.1f%% of the time", c.name, 100*part)
		}
		check(t, sim.s)
	}
}
