package share

import (
	sorted "container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"fairshare/share/capacity"
)

// A groupSimulation is several members in front of one upstream, in virtual time.
type groupSimulation struct {
	t       *testing.T
	rand    *rand.Rand
	now     int64
	seq     int
	events  events
	members []*simMember
	store   simStore
	workers int // of the upstream; 0: each request takes its cost
	working int
	pending []func()
	inside  int // requests in progress, of all members together
	most    int
	mean    float64 // integral of inside
	over    func()  // is called after each event
	apart   bool    // members do not share anything
}

type simMember struct {
	sim     *groupSimulation
	id      string
	s       *scheduler
	ready   chan *Turn
	of      map[*Turn]simRequest
	dead    bool
	cutOff  bool // the store cannot be reached
	lease   int64
	next    int64 // when the next report is due
	last    int64
	pressed bool
}

type simRequest struct {
	*groupCaller
	over func()
}

// simStore does what the script of redislimit does.
type simStore struct {
	leases map[string]*simLease
	joined int64
	begun  int64
	// most is the largest sum of slots that were given or in use.
	most int
}

type simLease struct {
	until, since int64
	slots        int
	data         []byte
}

// A groupCaller has requests always open, or sends at a rate, at a member that it chooses.
type groupCaller struct {
	network, addr uint64
	class         uint8
	open          int
	every         time.Duration
	cost          time.Duration
	costs         func(*rand.Rand) time.Duration
	pick          func(r *rand.Rand, now int64) int
	from, until   time.Duration

	served, refused int
	took            float64
	waits           []time.Duration
}

func (c *groupCaller) claim() *Claim {
	return &Claim{keys: [MaxParts + 1]uint64{c.network<<8 | uint64(c.class),
		c.network<<32 ^ c.addr<<8 | uint64(c.class) | 1<<60}, depth: 2, class: c.class, weight: 1}
}

const simTrip = int64(time.Millisecond)

func newGroupSimulation(t *testing.T, seed uint64, members, slots int) *groupSimulation {
	sim := &groupSimulation{t: t, rand: rand.New(rand.NewPCG(seed, 7)), store: simStore{leases: map[string]*simLease{}}}
	for i := range members {
		sim.join(fmt.Sprint("member ", i), func() interface {
			Slots() int
			Workers() int
			Sample(capacity.Sample)
		} {
			if slots == 0 {
				return capacity.New(capacity.Options{Lag: leaseLag})
			}
			return fixed(slots)
		}())
	}
	return sim
}

func (sim *groupSimulation) join(id string, of slots) *simMember {
	m := &simMember{sim: sim, id: id, s: newScheduler(), ready: make(chan *Turn, 1<<16), of: map[*Turn]simRequest{}}
	m.s.now = sim.now
	m.s.group = newGroup(of)
	alive := 1
	for _, o := range sim.members {
		if !o.dead {
			alive++
		}
	}
	m.s.group.alone(m.s, alive)
	m.s.set(m.s.group.Slots(), 1024, false, sim.now)
	m.s.workers = m.s.group.Workers()
	sim.members = append(sim.members, m)
	m.exchange()
	return m
}

func (sim *groupSimulation) after(d time.Duration, do func()) {
	sim.seq++
	sorted.Push(&sim.events, event{sim.now + int64(d), sim.seq, do})
}

// exchange sends a report, and plans the next.
func (m *simMember) exchange() {
	sim := m.sim
	if m.dead {
		return
	}
	m.last, m.pressed = sim.now, false
	m.next = sim.now + int64(LeaseEvery) + sim.rand.Int64N(int64(20*time.Millisecond))
	if sim.apart {
		return
	}
	m.s.pass(sim.now)
	r := m.s.group.report(m.s)
	m.leased()
	sent := sim.now
	if !m.cutOff {
		sim.after(time.Duration(simTrip/2), func() {
			l := sim.store.give(m.id, &r, sim.now)
			sim.after(time.Duration(simTrip/2), func() {
				if m.dead {
					return
				}
				m.s.pass(sim.now)
				m.s.group.merge(m.s, l)
				m.leased()
				m.lease = sent + int64(LeaseFor)
				if m.s.group.isShort(m.s) {
					m.next = m.last + int64(LeaseSoon)
				}
			})
		})
	}
	m.plan()
}

// plan waits until the next report is due, or the lease has ended.
func (m *simMember) plan() {
	due := m.next
	if m.pressed {
		due = min(due, m.last+int64(LeaseSoon))
	}
	if m.lease > 0 {
		due = min(due, m.lease)
	}
	m.sim.after(time.Duration(min(max(due-m.sim.now, 0), int64(5*time.Millisecond))), func() {
		if m.dead {
			return
		}
		if m.lease > 0 && m.sim.now >= m.lease {
			m.lease = 0
			m.s.pass(m.sim.now)
			m.s.group.alone(m.s, 0)
			m.leased()
		}
		if m.sim.now >= m.next || m.pressed && m.sim.now >= m.last+int64(LeaseSoon) {
			m.exchange()
		} else {
			m.plan()
		}
	})
}

func (m *simMember) leased() {
	m.s.slots, m.s.workers = m.s.group.Slots(), m.s.group.Workers()
	m.s.dispatch()
	m.settle()
}

func (st *simStore) give(id string, r *Report, now int64) *Lease {
	taken, alive := 0, false
	l := &Lease{ID: id}
	for other, lease := range st.leases {
		if lease.until <= now {
			delete(st.leases, other)
			continue
		}
		alive = true
		if other != id {
			taken += lease.slots
			l.Peers = append(l.Peers, Peer{other, lease.since, lease.data})
		}
	}
	if !alive {
		st.begun = now
	}
	own := st.leases[id]
	if own == nil {
		st.joined++
		own = &simLease{since: st.joined}
		st.leases[id] = own
	}
	wants := r.Wants
	if now < st.begun+int64(LeaseFor) {
		wants = min(wants, r.Has)
	}
	l.Slots, l.Since = max(1, min(wants, r.Capacity-taken)), own.since
	own.slots, own.until, own.data = max(l.Slots, r.InUse), now+int64(LeaseFor), r.Data
	st.most = max(st.most, taken+own.slots)
	slices.SortFunc(l.Peers, func(a, b Peer) int { return int(a.Since - b.Since) })
	return l
}

// run lets the callers send requests for that long.
func (sim *groupSimulation) run(long time.Duration, callers ...*groupCaller) {
	if sim.now == 0 && len(callers) > 0 { // members have leases before they listen
		sim.run(10 * time.Millisecond)
	}
	end := sim.now + int64(long)
	for _, c := range callers {
		until := sim.now + int64(c.until)
		if c.until == 0 {
			until = end
		}
		var again func()
		again = func() {
			if sim.now < until {
				sim.send(c, again)
			}
		}
		if c.every > 0 {
			again = func() {
				if sim.now < until {
					sim.send(c, nil)
					sim.after(time.Duration(float64(c.every)*sim.rand.ExpFloat64()), again)
				}
			}
		}
		sim.after(c.from, func() {
			for range max(c.open, 1) {
				again()
			}
		})
	}
	for len(sim.events) > 0 && sim.events[0].at <= end {
		e := sorted.Pop(&sim.events).(event)
		sim.mean += float64(e.at-sim.now) * float64(sim.inside)
		sim.now = e.at
		e.do()
		for _, m := range sim.members {
			m.settle()
		}
		if sim.over != nil {
			sim.over()
		}
	}
	sim.now = end
}

func (sim *groupSimulation) send(c *groupCaller, over func()) {
	m := sim.members[c.pick(sim.rand, sim.now)]
	if m.dead { // the balancer notices
		sim.after(10*time.Millisecond, func() { sim.send(c, over) })
		return
	}
	t := &Turn{waiter: &waiter{ready: m.ready}, path: c.network % 5, network: c.network + 1}
	m.of[t] = simRequest{c, over}
	m.s.arrive(t, c.claim(), sim.now)
	switch t.state {
	case inside:
		m.begun(t)
	case waits:
		m.pressed = m.pressed || m.s.waiting == 1
		sim.after(10*time.Second, func() {
			if t.state == waits && !m.dead {
				m.s.expire(t, sim.now)
			}
		})
	}
}

func (m *simMember) settle() {
	for {
		select {
		case t := <-m.ready:
			if t.state == inside {
				m.begun(t)
				continue
			}
			r := m.of[t]
			delete(m.of, t)
			r.refused++
			if r.over != nil {
				m.sim.after(time.Second, r.over)
			}
		default:
			return
		}
	}
}

func (m *simMember) begun(t *Turn) {
	sim, r := m.sim, m.of[t]
	took := r.cost
	if r.costs != nil {
		took = r.costs(sim.rand)
	}
	r.waits = append(r.waits, time.Duration(sim.now-t.arrived))
	sim.inside++
	sim.most = max(sim.most, sim.inside)
	sim.work(took, func() {
		sim.inside--
		delete(m.of, t)
		r.served++
		r.took += float64(took)
		if !m.dead {
			m.s.pass(sim.now)
			total := m.s.group.total
			m.s.group.Sample(capacity.Sample{Now: sim.now, Path: t.path, Network: t.network,
				Took: time.Duration(sim.now - t.began), Inside: t.insideThen, Waiting: m.s.waited >= t.began,
				Known: t.class <= settled, Seen: t.class <= seenBefore})
			m.s.slots, m.s.workers = m.s.group.Slots(), m.s.group.Workers()
			m.pressed = m.pressed || m.s.group.total != total
			m.s.done(t, sim.now)
		}
		if r.over != nil {
			r.over()
		}
	})
}

func (sim *groupSimulation) work(took time.Duration, done func()) {
	if sim.workers == 0 {
		sim.after(took, done)
		return
	}
	start := func() {
		sim.working++
		sim.after(took, func() {
			sim.working--
			if len(sim.pending) > 0 {
				next := sim.pending[0]
				sim.pending = sim.pending[1:]
				next()
			}
			done()
		})
	}
	if sim.working < sim.workers {
		start()
	} else {
		sim.pending = append(sim.pending, start)
	}
}

// anywhere picks a member at random, of so many.
func anywhere(n int) func(*rand.Rand, int64) int {
	return func(r *rand.Rand, _ int64) int { return r.IntN(n) }
}

// at picks one member.
func at(i int) func(*rand.Rand, int64) int { return func(*rand.Rand, int64) int { return i } }

// roams picks the next member after each period.
func roams(n int, each time.Duration) func(*rand.Rand, int64) int {
	return func(_ *rand.Rand, now int64) int { return int(now/int64(each)) % n }
}

func TestClientAtAllMembersHasOneShare(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const members, slots, long = 3, 24, 40 * time.Second
	for _, test := range []struct {
		name string
		pick func(*rand.Rand, int64) int
	}{
		{"at all at once", anywhere(members)},
		{"another each second", roams(members, time.Second)},
		{"another each 10 seconds", roams(members, 10*time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(2) {
				part := func(apart bool) float64 {
					sim := newGroupSimulation(t, seed, members, slots)
					sim.apart = apart
					greedy := &groupCaller{network: 1, open: 30, cost: 50 * time.Millisecond, pick: test.pick}
					callers := []*groupCaller{greedy}
					for i := range uint64(11) {
						callers = append(callers, &groupCaller{network: 10 + i, open: 6, cost: 50 * time.Millisecond,
							pick: at(int(i) % members)})
					}
					sim.run(long, callers...)
					var rest float64
					for _, c := range callers[1:] {
						rest += c.took
					}
					return greedy.took / (rest / 11)
				}
				if got := part(false); got > 1.2 {
					t.Errorf("seed %d: the client got %.2f times what the others got", seed, got)
				} else if testing.Verbose() {
					t.Logf("seed %d: %.2f; without a group %.2f", seed, got, part(true))
				}
			}
		})
	}
}

// TestGroupSharesAsOneMemberWould compares random groups with one member that has all their traffic.
func TestGroupSharesAsOneMemberWould(t *testing.T) {
	const more, less, work = 1.75, 0.5, 0.8
	seeds := uint64(24)
	if raceDetector || testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		members := 2 + r.IntN(4)
		slots := members * (2 + r.IntN(10))
		group, one := newGroupSimulation(t, seed, members, slots), newGroupSimulation(t, seed, 1, slots)
		got, want := randomCallers(seed, members, slots), randomCallers(seed, members, slots)
		for _, c := range want {
			c.pick = at(0)
		}
		group.run(40*time.Second, got...)
		one.run(40*time.Second, want...)
		var all, allWant float64
		for i := range got {
			all, allWant = all+got[i].took, allWant+want[i].took
			if part := got[i].took / want[i].took; part > more || part < less {
				t.Errorf("seed %d, %d members, %d slots: client %d (class %d, %d open) got %.2f of its turns at one member",
					seed, members, slots, i, got[i].class, got[i].open, part)
			}
		}
		if all < work*allWant {
			t.Errorf("seed %d: the group did %.2f of the work of one member", seed, all/allWant)
		}
		if group.most > slots || group.store.most > slots {
			t.Errorf("seed %d: %d requests were in progress, %d slots given, of %d", seed, group.most, group.store.most, slots)
		}
	}
}

func randomCallers(seed uint64, members, slots int) (all []*groupCaller) {
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range uint64(4 + r.IntN(20)) {
		c := &groupCaller{network: i, open: 1 + r.IntN(3), cost: time.Duration(10+r.IntN(90)) * time.Millisecond}
		if r.IntN(3) == 0 {
			c.open = slots + r.IntN(slots)
		}
		if r.IntN(3) == 0 {
			c.class = uint8(2 * r.IntN(4))
		}
		switch r.IntN(4) {
		case 0:
			c.pick = anywhere(members)
		case 1:
			c.pick = roams(members, time.Duration(1+r.IntN(20))*time.Second)
		default:
			c.pick = at(r.IntN(members))
		}
		all = append(all, c)
	}
	return all
}

func TestDeadMemberGivesItsSlotsBack(t *testing.T) {
	const slots = 30
	sim := newGroupSimulation(t, 1, 3, slots)
	callers := func(i int) *groupCaller {
		return &groupCaller{network: uint64(i), open: 40, cost: 20 * time.Millisecond, pick: at(i)}
	}
	a, b, c := callers(0), callers(1), callers(2)
	sim.run(5*time.Second, a, b, c)
	for _, m := range sim.members {
		if m.s.slots != slots/3 {
			t.Errorf("%s has %d slots", m.id, m.s.slots)
		}
	}
	dead := sim.members[2]
	dead.dead = true
	sim.run(LeaseFor+LeaseEvery+100*time.Millisecond, callers(0), callers(1))
	if one, two := sim.members[0].s.slots, sim.members[1].s.slots; one+two != slots {
		t.Errorf("after the death of a member, the others have %d and %d of %d slots", one, two, slots)
	}
	sim.join("member 3", fixed(slots))
	sim.members[2] = sim.members[3]
	sim.run(2*time.Second, callers(0), callers(1), callers(2))
	if n := sim.members[2].s.slots; n != slots/3 {
		t.Errorf("a member that joined has %d slots", n)
	}
	if sim.store.most > slots+1 { // a member that joins has 1 at once
		t.Errorf("%d slots were given of %d", sim.store.most, slots)
	}
}

func TestMembersWithoutStoreHaveEqualParts(t *testing.T) {
	const slots = 30
	sim := newGroupSimulation(t, 1, 3, slots)
	busy := func(i, open int) *groupCaller {
		return &groupCaller{network: uint64(i), open: open, cost: 20 * time.Millisecond, pick: at(i)}
	}
	all := []*groupCaller{busy(0, 100), busy(1, 5), busy(2, 5)}
	sim.run(5*time.Second, all...)
	if n := sim.members[0].s.slots; n < 16 || n > 20 {
		t.Errorf("the busy member has %d slots", n)
	}
	for _, m := range sim.members {
		m.cutOff = true
	}
	all = append(all, busy(0, 100), busy(1, 5), busy(2, 5))
	sim.run(LeaseFor+100*time.Millisecond, all[3:]...)
	for _, m := range sim.members {
		if m.s.slots != slots/3 || !m.s.group.stats().Away {
			t.Errorf("without the store, %s has %d slots: %+v", m.id, m.s.slots, m.s.group.stats())
		}
	}
	for _, m := range sim.members {
		m.cutOff = false
	}
	// The store has lost the leases: nobody gets more than it has until all have come again.
	sim.store.leases, sim.store.most = map[string]*simLease{}, 0
	all = append(all, busy(0, 100), busy(1, 5), busy(2, 5))
	sim.run(5*time.Second, all[6:]...)
	if n := sim.members[0].s.slots; n < 16 || n > 20 {
		t.Errorf("with the store again, the busy member has %d slots", n)
	}
	if sim.store.most > slots || sim.most > slots {
		t.Errorf("%d slots were given, %d requests in progress, of %d", sim.store.most, sim.most, slots)
	}
	for i, c := range all {
		if c.refused > 0 {
			t.Errorf("caller %d: %d requests were refused", i, c.refused)
		}
	}
}

func TestBurstAtOneMemberGetsIdleSlotsSoon(t *testing.T) {
	const slots = 30
	sim := newGroupSimulation(t, 1, 3, slots)
	sim.run(3 * time.Second)
	burst := &groupCaller{network: 1, open: slots, cost: time.Second, pick: at(0), until: time.Millisecond}
	sim.run(4*time.Second, burst)
	slices.Sort(burst.waits)
	if n := len(burst.waits); n != slots || burst.waits[slots/3-1] != 0 || burst.waits[slots-3] > 500*time.Millisecond {
		t.Errorf("%d requests waited %v", n, burst.waits)
	}
}

func TestPartsOfMembers(t *testing.T) {
	of := func(class int, slots, networks float64) (d demands) {
		d[class] = demand{slots, networks}
		return d
	}
	for _, test := range []struct {
		name     string
		capacity int
		of       []demands
		want     []int
	}{
		{"alone", 7, []demands{{}}, []int{7}},
		{"idle", 30, []demands{{}, {}, {}}, []int{10, 10, 10}},
		{"one busy", 30, []demands{of(0, 100, 1), {}, {}}, []int{28, 1, 1}},
		{"by networks", 30, []demands{of(0, 100, 4), of(0, 100, 1)}, []int{24, 6}},
		{"no more than needed", 30, []demands{of(0, 3, 4), of(0, 100, 1)}, []int{3, 27}},
		{"a flood of new clients", 30, []demands{of(0, 20, 2), of(6, 1000, 900)}, []int{15, 15}},
		{"an old client needs little", 30, []demands{of(0, 2, 2), of(6, 1000, 900)}, []int{2, 28}},
		{"fewer than members", 2, []demands{of(0, 9, 1), {}, {}}, []int{1, 1, 1}},
	} {
		if got, _ := partsOf(test.capacity, test.of); !slices.Equal(got, test.want) {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	// The sum is the capacity, whatever the demands.
	r := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		capacity, all := 1+r.IntN(200), make([]demands, 1+r.IntN(9))
		for i := range all {
			for c := range all[i] {
				if r.IntN(2) == 0 {
					all[i][c] = demand{r.ExpFloat64() * 50, max(r.ExpFloat64()*5, leastNetworks)}
				}
			}
		}
		got, _ := partsOf(capacity, all)
		sum := 0
		for _, n := range got {
			if sum += n; n < 1 {
				t.Fatalf("%d of %d slots for %v", got, capacity, all)
			}
		}
		if sum != max(capacity, len(all)) {
			t.Fatalf("%d of %d slots for %v", got, capacity, all)
		}
	}
}

func TestMessages(t *testing.T) {
	m := message{capacity: 30, inside: 4, waiting: 2, samples: true, heavy: []heavyNode{
		{key: 5, used: 2e9, weight: 4, parent: topOf + 3, unit: true}, {key: 6, used: 1e9, weight: 1, parent: 0}}}
	m.demand[3], m.virtual[3] = demand{6, 2}, 1e10
	b := m.append(nil)
	var got message
	if !got.parse(b) || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
		t.Errorf("%+v, want %+v", got, m)
	}
	for i := range b {
		if got.parse(b[:i]) {
			t.Errorf("the first %d bytes were read", i)
		}
	}
	m.heavy[1].parent = 1 // its own parent
	if got.parse(m.append(nil)) {
		t.Error("a node above itself was read")
	}
}

func FuzzMessage(f *testing.F) {
	m := message{capacity: 3, heavy: []heavyNode{{key: 5, used: 2e9, weight: 4, parent: topOf + 3}}}
	f.Add(m.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Whatever the store has, a member stays usable.
		s := newScheduler()
		s.group = newGroup(fixed(8))
		s.set(8, 10, false, 0)
		s.group.merge(s, &Lease{ID: "a", Slots: 4, Since: 1, Peers: []Peer{{"b", 2, b}}})
		r := s.group.report(s)
		if r.Capacity != 8 || r.Wants < 1 || r.Wants > 8 || !new(message).parse(r.Data) {
			t.Errorf("%+v", r)
		}
	})
}

// Other members report ever new clients. What this one keeps of them is bounded, although it has no
// requests of its own.
func TestReportedClientsAreBounded(t *testing.T) {
	sim := newGroupSimulation(t, 1, 1, 8)
	s := sim.members[0].s
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := &peer{applied: map[uint64]applied{}}
		for range 256 {
			p.heavy = append(p.heavy, heavyNode{key: random.Uint64(), used: 1e6, weight: 1, parent: topOf})
		}
		s.group.apply(s, p)
		if s.idle.n > maxIdle || len(s.nodes) > maxIdle+16 {
			t.Fatalf("%d nodes, %d of them idle", len(s.nodes), s.idle.n)
		}
	}
}

// TestMembersFindOneCapacity has members find the capacity of an upstream with some workers, while
// requests wait.
func TestMembersFindOneCapacity(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	const members, workers = 3, 16
	for seed := range uint64(2) {
		sim := newGroupSimulation(t, seed, members, 0)
		sim.workers = workers
		var callers []*groupCaller
		for i := range uint64(30) {
			callers = append(callers, &groupCaller{network: i, class: uint8(i % 2), open: 2,
				costs: func(r *rand.Rand) time.Duration {
					return time.Duration(float64(15*time.Millisecond) + 10e6*r.ExpFloat64())
				}, pick: anywhere(members)})
		}
		busiest, usual, looks := 0, 0.0, 0.0
		sim.over = func() {
			if sim.now < 20e9 { // it begins with 32
				return
			}
			busiest = max(busiest, sim.inside)
			usual += float64(sim.inside)
			looks++
		}
		sim.run(90*time.Second, callers...)
		if mean := usual / looks; busiest > 2*workers || mean < workers || mean > 1.6*workers {
			t.Errorf("seed %d: of %d workers, %.1f had a request, %d at most", seed, workers, mean, busiest)
		}
		for i, m := range sim.members {
			if leads := i == 0; m.s.group.leads != leads {
				t.Errorf("seed %d: %s leads: %v", seed, m.id, !leads)
			}
		}
		// The next leader goes on from there.
		sim.members[0].dead = true
		busiest, usual, looks = 0, 0, 0
		sim.run(30*time.Second, callers...)
		if mean := usual / looks; busiest > 2*workers || mean < workers-2 || mean > 1.6*workers {
			t.Errorf("seed %d: after the death of the leader, %.1f had a request, %d at most", seed, mean, busiest)
		}
		one, two := sim.members[1].s.group, sim.members[2].s.group
		if !one.leads || two.leads || one.total-two.total > 4 || two.total-one.total > 4 {
			t.Errorf("seed %d: the others think of %d and %d slots; they lead: %v, %v", seed, one.total, two.total, one.leads,
				two.leads)
		}
	}
}

// Without finished requests, a member where requests wait is asked about the upstream, even if an idle
// one is older: only the first can notice that the upstream has stopped.
func TestMemberWithWaitingRequestsLeads(t *testing.T) {
	t.Parallel()
	member := func(id string, samples bool, waiting int) Peer {
		m := message{capacity: 8, samples: samples, waiting: waiting}
		return Peer{ID: id, Since: int64(id[0]), Data: m.append(nil)}
	}
	for _, tt := range []struct {
		name          string
		waited        bool // at this member, "m"
		sampled       int64
		older, newer  Peer
		leads         bool
		leadsAlsoElse bool // if this member is the older one
	}{
		{"all idle", false, -1, member("a", false, 0), member("z", false, 0), false, true},
		{"requests wait here", true, -1, member("a", false, 0), member("z", false, 0), true, true},
		{"requests wait at all", true, -1, member("a", false, 3), member("z", false, 3), false, true},
		{"requests wait at the newer one", false, -1, member("a", false, 0), member("z", false, 3), false, false},
		{"waiting here, ending at the newer one", true, -1, member("a", false, 0), member("z", true, 0), false, false},
		{"ending here, waiting at the older one", false, 9e9, member("a", false, 3), member("z", false, 0), true, true},
	} {
		for _, older := range []bool{true, false} {
			s := newScheduler()
			s.now = 10e9
			s.group = newGroup(capacity.New(capacity.Options{}))
			s.group.sampled = tt.sampled
			s.group.active = activity(s.group.samples(s.now), tt.waited)
			peers, want := []Peer{tt.newer}, tt.leadsAlsoElse
			if older {
				peers, want = []Peer{tt.older, tt.newer}, tt.leads
			}
			s.group.merge(s, &Lease{ID: "m", Slots: 4, Since: 'm', Peers: peers})
			if s.group.leads != want {
				t.Errorf("%s, with an older one: %v: leads %v", tt.name, older, s.group.leads)
			}
		}
	}
}

// One report from a store whose data somebody changes charges a client at most laterMost for each slot, and
// moves the virtual time by as much at most.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	s := newScheduler()
	s.group = newGroup(fixed(8))
	s.set(8, 10, false, 0)
	const key, most = 77, laterMost * 8
	tag, virtual := 0.0, s.classes[0].virtual
	for i := range 3 {
		s.now = int64(i+1) * 1e9
		m := message{capacity: 8, heavy: []heavyNode{{key: key, used: float64(i) * 1e17, weight: 1, parent: topOf}}}
		m.virtual[0] = float64(i+1) * 1e19
		s.group.merge(s, &Lease{ID: "a", Slots: 4, Since: 1, Peers: []Peer{{ID: "b", Since: 2, Data: m.append(nil)}}})
		if n := s.nodes[key]; n.tag-tag > most*1.001+1 {
			t.Errorf("report %d charged %.3g ns, at most %.3g are possible", i, n.tag-tag, float64(most))
		} else {
			tag = n.tag
		}
		if v := s.classes[0].virtual; v-virtual > most*1.001 {
			t.Errorf("report %d moved the virtual time by %.3g ns", i, v-virtual)
		} else {
			virtual = v
		}
	}
}

// A member whose lease ended for some seconds reports what it had reported before. That is not charged
// again; what it adds is.
func TestReturningMemberIsNotChargedTwice(t *testing.T) {
	t.Parallel()
	s := newScheduler()
	s.group = newGroup(fixed(8))
	s.set(8, 10, false, 0)
	const key = 77
	lease := func(at int64, used float64) float64 {
		s.now = at
		l := Lease{ID: "a", Slots: 4, Since: 1}
		if used > 0 {
			m := message{capacity: 8, heavy: []heavyNode{{key: key, used: used, weight: 1, parent: topOf}}}
			l.Peers = []Peer{{ID: "b", Since: 2, Data: m.append(nil)}}
		}
		s.group.merge(s, &l)
		if n := s.nodes[key]; n != nil {
			return n.tag
		}
		return 0
	}
	first := lease(1e9, 4e9)
	lease(3e9, 0) // b has no lease
	lease(4e9, 0)
	again := lease(5e9, faded(4e9, 4e9))
	if cost := again - first; cost > 1e6 {
		t.Errorf("%.0f ns were charged again, after %.0f", cost, first)
	}
	if cost := lease(6e9, faded(4e9, 5e9)+2e9) - again; cost < 1.9e9 || cost > 2.1e9 {
		t.Errorf("%.0f of 2e9 ns were charged", cost)
	}
	for i := range int64(100) { // others come and go
		s.now = 7e9 + i
		s.group.merge(s, &Lease{ID: "a", Slots: 4, Since: 1, Peers: []Peer{{ID: fmt.Sprint(i), Since: 3}}})
	}
	if n := len(s.group.peers); n > 1+absentMost {
		t.Errorf("%d members are remembered", n)
	}
	s.now = 400e9
	s.group.merge(s, &Lease{ID: "a", Slots: 8, Since: 1})
	if n := len(s.group.peers); n > 0 {
		t.Errorf("%d members are still remembered", n)
	}
}
