package share

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/share/capacity"
)

// parts returns the levels of a share.
func parts(names ...string) (by []fairshare.KeyPart) {
	of := map[string]fairshare.KeyPart{
		"asn": {Kind: fairshare.ByASN}, "network/16": {Kind: fairshare.ByNetwork, Bits4: 16, Bits6: 32},
		"network": {Kind: fairshare.ByNetwork}, "addr": {Kind: fairshare.ByAddr},
	}
	for _, name := range names {
		by = append(by, of[name])
	}
	return by
}

// newSwarmed returns a simulation of an upstream that answers 400 requests a second.
func newSwarmed(t *testing.T, by ...string) *simulation {
	sim := newSimulation(t, 8, 1024)
	sim.queue = New(Options{Capacity: 8, Ages: true, By: parts(by...), Remember: 1 << 16})
	return sim
}

// A fleet sends each request from another address, in networks that belong in turn to that many owners.
func fleetOf(open, networks, owners int, cost time.Duration) *caller {
	c := &caller{open: open, costs: about(cost)}
	n := 0
	c.request = func() fairshare.Request {
		n++
		network := n % networks
		return fairshare.Request{Addr: netOf(20, network, n/networks),
			Owner: fairshare.Owner{ASN: uint32(1000 + network%owners)}}
	}
	return c
}

// People who have been reading for 30 seconds hardly notice a swarm. People whose first visit falls
// into a swarm wait at most about twice as long as in order of arrival for their first page, and
// hardly for later ones.
func TestPeopleInASwarm(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	stays := func(n, open int, networks uint64) (callers []*caller) {
		for i := range n {
			callers = append(callers, &caller{network: uint64(i) % networks, addr: uint64(i), open: open, ages: true,
				costs: about(20 * ms)})
		}
		return callers
	}
	for _, c := range []struct {
		name                 string
		swarm                []*caller
		readers, first, page time.Duration // longest p99 of readers' pages, of first pages and of later ones
	}{
		{"addresses never seen, 2,000 networks", []*caller{fleetOf(400, 2000, 2000, 20*ms)}, 120 * ms, 2 * time.Second,
			150 * ms},
		{"networks never seen", []*caller{{open: 400, fresh: true, class: newest, costs: about(20 * ms)}}, 120 * ms,
			3 * time.Second, 150 * ms},
		{"more than the queue holds", []*caller{fleetOf(2000, 2000, 2000, 20*ms)}, 180 * ms, 6 * time.Second, 400 * ms},
		{"expensive pages", []*caller{fleetOf(100, 2000, 2000, 200*ms)}, 400 * ms, 6 * time.Second, 500 * ms},
		{"400 addresses that stay, in four networks", stays(400, 1, 4), 150 * ms, 150 * ms, 150 * ms},
		{"400 networks that stay", stays(400, 1, 400), 4 * time.Second, 4 * time.Second, 3 * time.Second},
		{"100 networks with 50 open requests each", stays(100, 50, 100), 5 * time.Second, 4 * time.Second,
			2 * time.Second},
	} {
		sim := newSwarmed(t, "network", "addr")
		swarmed(sim, c.swarm...).want(sim, c.name, c.readers, c.first, c.page)
	}
}

// The people of a large provider, who share one owner and four /16s, have their turns next to a fleet in
// a thousand networks of one owner, and next to one with a thousand owners. The first has one share.
func TestPeopleOfOneProviderInASwarm(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, c := range []struct {
		name                 string
		by                   []string
		swarm                *caller
		readers, first, page time.Duration
	}{
		{"a thousand networks of one owner", []string{"asn", "network/16", "network", "addr"},
			fleetOf(400, 1000, 1, 20*ms), 120 * ms, 200 * ms, 200 * ms},
		{"a thousand owners", []string{"asn", "network/16", "network", "addr"},
			fleetOf(400, 1000, 1000, 20*ms), 120 * ms, 2200 * ms, 200 * ms},
		{"a thousand networks, no table of owners", []string{"network/16", "network", "addr"},
			fleetOf(400, 1000, 1000, 20*ms), 180 * ms, 3 * time.Second, 300 * ms},
		{"a thousand owners, 2,000 open", []string{"asn", "network/16", "network", "addr"},
			fleetOf(2000, 1000, 1000, 20*ms), 180 * ms, 6 * time.Second, 500 * ms},
	} {
		sim := newSwarmed(t, c.by...)
		swarmed(sim, c.swarm).want(sim, c.name, c.readers, c.first, c.page)
	}
}

// cookies returns a swarm that sends its requests with cookies, in turn, each from another address. The
// cookies were issued in that many networks of owners of their own.
func cookies(open, n, issuedIn int, age, waits time.Duration, sim *simulation) *caller {
	c := fleetOf(open, 2000, 2000, 20*ms)
	bare, i := c.request, 0
	c.request = func() fairshare.Request {
		req := bare()
		i++
		now := noon.Add(time.Duration(sim.now))
		network := i % n % issuedIn
		req.Visitor = cookieOf(1+uint64(i%n), netOf(50, network, 1), uint32(5000+network), now.Add(-age))
		if waits > 0 {
			req.Visitor.Waits = noon.Add(30*time.Second - waits) // before the swarm comes
		}
		return req
	}
	return c
}

// A swarm gains little by cookies: copies of a cookie have the part of one client, and many cookies
// that of the networks in which they were issued.
func TestCookiesInASwarm(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	for _, c := range []struct {
		name                 string
		cookies, networks    int
		age, waits           time.Duration
		readers, first, page time.Duration
	}{
		{"copies of a new cookie", 1, 1, 0, 0, 120 * ms, 150 * ms, 150 * ms},
		{"copies of a cookie of a day", 1, 1, 24 * time.Hour, 0, 150 * ms, 150 * ms, 150 * ms},
		{"copies of a cookie that waits", 1, 1, time.Minute, 50 * time.Second, 150 * ms, 200 * ms, 150 * ms},
		{"a thousand new cookies of ten networks", 1000, 10, 0, 0, 150 * ms, 400 * ms, 150 * ms},
		{"a thousand cookies of a day, of ten networks", 1000, 10, 24 * time.Hour, 0, 300 * ms, 300 * ms, 300 * ms},
		{"a thousand cookies that wait, of ten networks", 1000, 10, time.Minute, 50 * time.Second, 300 * ms, 300 * ms,
			300 * ms},
		{"a thousand cookies of a day, of a thousand networks", 1000, 1000, 24 * time.Hour, 0, 600 * ms, 600 * ms,
			600 * ms},
	} {
		sim := newSwarmed(t, "asn", "network/16", "network", "addr")
		swarm := cookies(400, c.cookies, c.networks, c.age, c.waits, sim)
		swarmed(sim, swarm).want(sim, c.name, c.readers, c.first, c.page)
		t.Logf("%s: %.0f of 400 requests a second", c.name, float64(swarm.served)/60)
	}
}

// A fleet that never comes back requests pages that are ten times as expensive as those of readers. With
// a capacity that must be found, the readers' p99 is at most four times that without the fleet, in the
// mean of several runs, which differ much, and the upstream is busy.
func TestExpensiveFleetAndAFoundCapacity(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const runs = 12
	costs := about(200 * ms)
	n := 0
	for _, c := range []struct {
		name    string
		path    uint64 // readers have 1
		workers int
		swarmed bool // another swarm has just been there
		costs   func(*rand.Rand) time.Duration
		busy    float64 // in the mean
		late    time.Duration
	}{
		{"their pages", 1, 8, false, costs, 0.88, 0},
		{"other pages", 2, 8, false, costs, 0.88, 0},
		{"their pages, after a swarm", 1, 8, true, costs, 0.8, 0},
		{"other pages, after a swarm", 2, 8, true, costs, 0.8, 0},
		{"64 workers, after three minutes", 1, 64, false, costs, 0.8, 3 * time.Minute},
		{"cheap ones between them", 1, 8, false, func(r *rand.Rand) time.Duration {
			if n++; n%64 < 32 {
				return about(20 * ms)(r)
			}
			return costs(r)
		}, 0.88, 0},
	} {
		times, busy := 0.0, 0.0
		for seed := range uint64(runs) {
			sim := newSimulation(t, 0, 1024)
			sim.rand = rand.New(rand.NewPCG(seed, 2))
			sim.found, sim.workers = capacity.New(capacity.Options{}), c.workers
			sim.s.set(sim.found.Slots(), 1024, false, 0)
			readers := polite(20)
			for _, r := range readers {
				r.ages, r.poisson, r.path = true, true, 1
			}
			fleet := func(path uint64, costs func(*rand.Rand) time.Duration) *caller {
				return &caller{open: 400, fresh: true, networks: 2000, class: newest, costs: costs, path: path}
			}
			visitors := &caller{every: 200 * ms, fresh: true, class: newest, costs: about(20 * ms), path: 1, page: 7}
			sim.run(30*time.Second, append(slices.Clone(readers), visitors)...)
			quiet := quantile(together(readers).latency, 0.99)
			if c.swarmed {
				sim.run(30*time.Second, append(readers, fleet(1, about(20*ms)))...)
				sim.run(3*time.Second, readers...)
			}
			swarm := fleet(c.path, c.costs)
			sim.run(c.late, append(readers, swarm)...)
			for _, r := range readers {
				r.latency = nil
			}
			sim.busy = 0
			sim.run(15*time.Second, append(readers, swarm)...)
			answered(t, readers)
			p99 := quantile(together(readers).latency, 0.99)
			times += float64(p99) / float64(quiet) / runs
			busy += sim.busy / float64(c.workers) / float64(15*time.Second) / runs
			if p99 > 8*quiet {
				t.Errorf("%s: p99 %v, quiet %v", c.name, p99, quiet)
			}
		}
		t.Logf("%s: p99 %.2f times the quiet p99; busy %.0f%% of the time", c.name, times, 100*busy)
		if times > 4 || busy < c.busy {
			t.Errorf("%s: p99 %.2f times the quiet p99; busy %.0f%% of the time", c.name, times, 100*busy)
		}
	}
}

// People whose browsers seem contradicted, since they protect their privacy, have at least four fifths
// of the turns of others, while all of them always send requests.
func TestPrivacyBrowsersInASwarm(t *testing.T) {
	for _, browser := range []fairshare.Browser{fairshare.BrowserContradicted, fairshare.BrowserLikely} {
		sim := newSwarmed(t, "network", "addr")
		var all []*person
		for i := range 200 {
			p := newPerson(netOf(7, i, 1), 64500)
			if i%2 == 0 {
				p.browser = browser
			}
			p.open = 2
			all = append(all, p)
		}
		var callers []*caller
		for _, p := range all {
			callers = append(callers, &p.caller)
		}
		sim.run(2*time.Minute, callers...)
		var took [2]float64
		var slowest [2]time.Duration
		for i, p := range all {
			took[i%2] += p.took
			slowest[i%2] = max(slowest[i%2], quantile(p.latency, 0.99))
		}
		most := 1.27
		if ratio := took[0] / took[1]; ratio < 1/most || ratio > most {
			t.Errorf("%s: %.3f times the turns of others", browser, ratio)
		}
		if slowest[0] > slowest[1]*2 {
			t.Errorf("%s: the p99 is %v, of others %v", browser, slowest[0], slowest[1])
		}
		t.Logf("%s: %.3f times the turns of others; p99 %v, of others %v", browser, took[0]/took[1],
			slowest[0].Round(ms), slowest[1].Round(ms))
	}
}
