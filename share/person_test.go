package share

import (
	"net/netip"
	"time"

	"fairshare"
)

// A person is a reader with a browser: it loads a page, then its six parts over parallel connections,
// reads for a while, and continues. Its claims are those of real requests.
type person struct {
	caller
	addr    netip.Addr
	owner   uint32
	browser fairshare.Browser
	cookie  bool // it keeps the cookie that comes with the waiting room
	visitor fairshare.Visitor
	pages   []time.Duration // the times that pages took
}

const (
	navigationWaits = 3 * time.Second // for a turn, then comes the waiting room
	roomReloads     = 2 * time.Second // after which the waiting room loads the page again
)

func newPerson(addr netip.Addr, owner uint32) *person {
	p := &person{addr: addr, owner: owner, cookie: true, caller: caller{costs: about(20 * ms)}}
	p.request = func() fairshare.Request {
		return fairshare.Request{Addr: p.addr, Owner: fairshare.Owner{ASN: p.owner}, Visitor: p.visitor,
			Browser: p.browser}
	}
	return p
}

// visit loads pages until the simulation ends.
func (p *person) visit(sim *simulation, reads time.Duration) {
	began := sim.now
	p.navigate(sim, func() {
		parts := 6
		for range parts {
			sim.send(&p.caller, func() { // after a refusal, too
				if parts--; parts == 0 {
					p.pages = append(p.pages, time.Duration(sim.now-began))
					sim.after(reads, func() { p.visit(sim, reads) })
				}
			})
		}
	})
}

// navigate requests a page until it comes. After a refusal the person gets the waiting room, and a
// cookie that keeps its place.
func (p *person) navigate(sim *simulation, over func()) {
	came := noon.Add(time.Duration(sim.now))
	var again func()
	away := func() {
		if p.cookie {
			if p.visitor.ID == 0 {
				p.visitor = cookieOf(sim.rand.Uint64(), p.addr, p.owner, noon.Add(time.Duration(sim.now)))
			}
			if p.visitor.Waits.IsZero() {
				p.visitor.Waits = came
			}
		}
		sim.after(roomReloads, again)
	}
	again = func() {
		sim.sendOr(&p.caller, func() {
			p.visitor.Waits = time.Time{}
			over()
		}, away, navigationWaits)
	}
	again()
}

// cookieOf returns the visitor of a cookie that was issued to an address.
func cookieOf(id uint64, addr netip.Addr, owner uint32, since time.Time) fairshare.Visitor {
	b := addr.As4()
	return fairshare.Visitor{ID: id, Network: uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]),
		Wider: uint16(owner), Since: since}
}

// netOf returns an address in the /24 with that number, of those below first.0.0.0.
func netOf(first byte, network, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{first + byte(network>>16), byte(network >> 8), byte(network), byte(1 + host%254)})
}

// A crowd is the people of one simulation: readers, who have been there for 30 seconds when a swarm
// comes, and newcomers, whose first visit falls into it.
type crowd struct{ readers, newcomers []*person }

// swarmed runs the swarm for a minute among people of one provider, whose addresses are in four /16s.
func swarmed(sim *simulation, swarm ...*caller) *crowd {
	people := func(n, at int, begin, each time.Duration) []*person {
		of := make([]*person, n)
		for i := range of {
			of[i] = newPerson(netOf(7, i%4<<8|at+i/4, 1), 64500)
			sim.after(begin+time.Duration(i)*each, func() { of[i].visit(sim, 10*time.Second) })
		}
		return of
	}
	c := &crowd{readers: people(40, 0, 0, 75*ms)}
	sim.run(30 * time.Second)
	for _, p := range c.readers {
		p.pages = nil
	}
	c.newcomers = people(100, 100, 2*time.Second, 200*ms)
	sim.busy, sim.began = 0, sim.now
	sim.run(time.Minute, swarm...)
	return c
}

// want tests the p99 of readers' pages, first pages and later ones.
func (c *crowd) want(sim *simulation, name string, readers, first, page time.Duration) {
	t := sim.t
	t.Helper()
	var old, firsts, later []time.Duration
	for _, p := range c.readers {
		old = append(old, p.pages...)
	}
	for _, p := range c.newcomers {
		if len(p.pages) == 0 {
			t.Errorf("%s: a person has no page", name)
			continue
		}
		firsts = append(firsts, p.pages[0])
		later = append(later, p.pages[1:]...)
	}
	for _, of := range []struct {
		name  string
		pages []time.Duration
		most  time.Duration
	}{{"readers'", old, readers}, {"first", firsts, first}, {"later", later, page}} {
		if got := quantile(of.pages, 0.99); got > of.most || len(of.pages) < 100 {
			t.Errorf("%s: the p99 of %d %s pages is %v, want at most %v", name, len(of.pages), of.name, got, of.most)
		}
		t.Logf("%s: %s pages p50 %v, p99 %v", name, of.name, quantile(of.pages, 0.5).Round(ms),
			quantile(of.pages, 0.99).Round(ms))
	}
	if part := sim.busy / float64(sim.s.slots) / float64(sim.now-sim.began); part < 0.95 {
		t.Errorf("%s: the upstream is busy %.1f%% of the time", name, 100*part)
	}
	check(t, sim.s)
}
