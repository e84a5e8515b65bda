package share

import (
	"math/rand/v2"
	"testing"
	"time"
)

// fill returns the max-min fair shares of an amount: no share exceeds its demand, and shares below
// their demand are equal by weight.
func fill(much float64, demands, weights []float64) []float64 {
	shares := make([]float64, len(demands))
	met := make([]bool, len(demands))
	for {
		var weight, least float64
		for i, w := range weights {
			if !met[i] {
				weight += w
			}
		}
		if weight == 0 || much <= 0 {
			return shares
		}
		least = much / weight // per unit of weight, unless a demand is less
		for i := range demands {
			if !met[i] {
				least = min(least, (demands[i]-shares[i])/weights[i])
			}
		}
		for i := range demands {
			if !met[i] {
				shares[i] += least * weights[i]
				much -= least * weights[i]
				met[i] = demands[i]-shares[i] < 1e-9
			}
		}
		if much < 1e-9 {
			return shares
		}
	}
}

// fairly returns the max-min fair share of each caller: between each class and all newer ones,
// between the networks of a class, between the clients of a network.
func fairly(slots float64, callers []*caller, demand func(*caller) float64) map[*caller]float64 {
	type group struct {
		of     []*caller
		demand float64
		weight float64
	}
	networks := map[[2]uint64]*group{}
	var keys [][2]uint64
	for _, c := range callers {
		key := [2]uint64{uint64(c.class), c.network}
		if networks[key] == nil {
			networks[key] = &group{weight: max(c.weight, 1)}
			if c.weight > 0 {
				networks[key].weight = c.weight
			}
			keys = append(keys, key)
		}
		networks[key].of = append(networks[key].of, c)
		networks[key].demand += demand(c)
	}
	var classes [len(ages) + 1]float64 // demands
	for _, key := range keys {
		classes[key[0]] += networks[key].demand
	}
	shares := map[*caller]float64{}
	for class, demand0 := range classes[:len(ages)] {
		newer := 0.
		for _, demand := range classes[class+1:] {
			newer += demand
		}
		parts := fill(slots, []float64{demand0, newer}, []float64{1, 1})
		much := parts[0]
		slots = parts[1]
		var demands, weights []float64
		var of []*group
		for _, key := range keys {
			if int(key[0]) == class {
				of = append(of, networks[key])
				demands = append(demands, networks[key].demand)
				weights = append(weights, networks[key].weight)
			}
		}
		for i, much := range fill(much, demands, weights) {
			var demands, weights []float64
			for _, c := range of[i].of {
				demands, weights = append(demands, demand(c)), append(weights, 1)
			}
			for j, share := range fill(much, demands, weights) {
				shares[of[i].of[j]] = share
			}
		}
	}
	return shares
}

// With random clients, pages and rates, the upstream's time is shared max-min fairly between classes,
// networks and clients. In the newest class it is shared by arrival, too.
func TestShareIsMaxMinFair(t *testing.T) {
	seeds := uint64(25)
	if raceDetector {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		slots := []int{1, 2, 3, 8, 20}[r.IntN(5)]
		sim := newSimulation(t, slots, 1<<20)
		sim.wait = time.Hour
		const long = 3 * time.Minute
		var callers []*caller
		demands := map[*caller]float64{}
		networks := 1 + r.IntN(6)
		for network := range networks {
			class := uint8(r.IntN(int(newest)))
			for addr := range 1 + r.IntN(4) {
				c := &caller{network: uint64(network), addr: uint64(addr), class: class}
				cost := time.Duration(5+r.IntN(100)) * ms
				c.costs = about(cost)
				if r.IntN(3) > 0 {
					c.open = 2 * slots // enough to use all slots
					demands[c] = float64(slots)
					if r.IntN(3) == 0 { // some pages are expensive
						c.costs = func(r *rand.Rand) time.Duration {
							if r.IntN(10) == 0 {
								return cost * 82 / 10
							}
							return cost / 5
						}
					}
				} else {
					part := 0.02 + 0.1*r.Float64()*float64(slots)/float64(networks)
					c.every = time.Duration(float64(cost) / part)
					demands[c] = part
				}
				callers = append(callers, c)
			}
		}
		sim.run(long, callers...)
		check(t, sim.s)
		for c, want := range fairly(float64(slots), callers, func(c *caller) float64 { return demands[c] }) {
			got := c.took / float64(long)
			// Requests in progress at the end, and a few others, may be missing.
			if !near(got, want, 0.04) && (got < want-0.03 || got > want+0.03) {
				t.Errorf("seed %d, %d slots: client %d of network %d, class %d, has %.3f slots, want %.3f of %.3f",
					seed, slots, c.addr, c.network, c.class, got, want, demands[c])
			}
		}
	}
}

func TestWeightsMultiplyTheShare(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, slots := range some(1, 4, 16) {
		sim := newSimulation(t, slots, 1<<16)
		sim.wait = time.Hour
		var callers []*caller
		for i, weight := range []float64{1, 4, 0.5, 2} {
			callers = append(callers, &caller{network: uint64(i), weight: weight, open: 2 * slots,
				costs: about(time.Duration(10+7*i) * ms)})
		}
		sim.run(4*time.Minute, callers...)
		for _, c := range callers {
			if got, want := c.took/float64(sim.now)/float64(slots), c.weight/7.5; !near(got, want, 0.03) {
				t.Errorf("%d slots: weight %v has %.3f, want %.3f", slots, c.weight, got, want)
			}
		}
	}
}

// 500 addresses in one network get together as much as the single client of another network.
func TestFleetInOneNetworkHasOneShare(t *testing.T) {
	for _, slots := range some(1, 8) {
		sim := newSimulation(t, slots, 1<<16)
		one := &caller{network: 1, open: 2 * slots, costs: about(20 * ms)}
		callers := []*caller{one}
		for i := range 500 {
			callers = append(callers, &caller{network: 2, addr: uint64(i), open: 1, costs: about(20 * ms)})
		}
		sim.run(2*time.Minute, callers...)
		if got := one.took / float64(sim.now) / float64(slots); !near(got, 0.5, 0.02) {
			t.Errorf("%d slots: the one client has %.3f of them", slots, got)
		}
	}
}

// Every request that waits is served soon: with one slot no client waits for much more than one
// request of each other flow at its level.
func TestEveryClientIsServed(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, slots := range some(1, 2, 8) {
		sim := newSimulation(t, slots, 1<<16)
		sim.wait = time.Hour
		var callers []*caller
		for i := range 60 {
			callers = append(callers, &caller{
				network: uint64(i / 3), addr: uint64(i), class: uint8(i/3%2) * newest, open: 1 + i%5,
				costs: about(time.Duration(2+i%17*i%17) * ms),
			})
		}
		sim.run(5*time.Minute, callers...)
		for i, c := range callers {
			if c.served < 20 {
				t.Errorf("%d slots: client %d has %d answers", slots, i, c.served)
			}
			// One round of all networks, of the clients in its own network, and of its own earlier
			// requests.
			if most := 60 * 100 * ms * time.Duration(c.open) / time.Duration(slots) * 2; quantile(c.waits, 1) > most {
				t.Errorf("%d slots: client %d waited %v", slots, i, quantile(c.waits, 1))
			}
		}
	}
}

// Each class gets half of what the older ones leave of a busy upstream, and all of it while the others
// are idle.
func TestClassesShareAndLend(t *testing.T) {
	for _, slots := range some(1, 2, 3, 8) {
		sim := newSimulation(t, slots, 1<<16)
		sim.wait = time.Hour
		old := &caller{network: 1, class: 0, open: 3 * slots, costs: about(20 * ms)}
		sim.run(time.Minute, old)
		if got := old.took / float64(sim.now) / float64(slots); got < 0.99 {
			t.Errorf("%d slots: the old client alone has %.3f of them", slots, got)
		}
		old.took = 0
		middle := &caller{network: 2, class: 3, open: 10 * slots, costs: about(30 * ms)}
		young := &caller{network: 3, class: newest, open: 30 * slots, costs: about(50 * ms)}
		began := sim.now
		sim.run(2*time.Minute, old, middle, young)
		for i, c := range []*caller{old, middle, young} {
			want, within := []float64{0.5, 0.25, 0.25}[i], 0.03
			if slots == 3 {
				within = 0.15 // one or two slots are left for the newer two
			}
			if got := c.took / float64(sim.now-began) / float64(slots); !near(got, want, within) {
				t.Errorf("%d slots: class %d has %.3f of them, want %v", slots, c.class, got, want)
			}
		}
	}
}

// A client below its fair share does not wait behind heavier clients, even in its own network.
func TestLightClientIsNotDelayedByHeavyNeighbor(t *testing.T) {
	sim := newSimulation(t, 8, 1024)
	light := &caller{network: 1, addr: 1, every: time.Second, costs: about(20 * ms)}
	callers := []*caller{light}
	for i := range 4 {
		callers = append(callers, &caller{network: uint64(1 + i), addr: 9, open: 100, costs: about(20 * ms)})
	}
	sim.run(time.Minute, callers...)
	if p99 := quantile(light.latency, 0.99); p99 > 60*ms {
		t.Errorf("the light client's p99 is %v", p99)
	}
}
