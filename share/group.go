package share

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"fairshare/share/capacity"
)

// Several programs with one upstream are the members of a group. They have one capacity together,
// and a client has one share at all of them. Each member exchanges reports with the others a few
// times a second, by way of a store: no request waits for that.
//
//	for {
//		r := q.Report()
//		// Store r for the others. The store computes what this member gets: at least 1, and
//		// otherwise at most r.Wants and what is left of r.Capacity. Others have what they were
//		// given or what they still use, whichever is more.
//		q.Merge(lease)
//		// Wait for LeaseEvery, or, if q.IsShort(), for LeaseSoon after Pressed.
//	}

const (
	// LeaseEvery is the time between two reports of a member.
	LeaseEvery = 250 * time.Millisecond
	// LeaseSoon is the same while the member has fewer slots than it wants, or more in use than it
	// may keep.
	LeaseSoon = 50 * time.Millisecond
	// LeaseFor is how long slots are given to a member. A member that ends without notice gives
	// them back after that.
	LeaseFor = time.Second

	// leaseLag is how long changes of the capacity may take to reach all members.
	leaseLag = LeaseEvery + 3*LeaseSoon
)

const (
	peersMost     = 256     // members that a member listens to
	capacityMost  = 1 << 16 // requests at once that a leader may report: the most of any policy
	absentMost    = 16      // members without a lease that a member remembers
	heavyMost     = 256     // nodes in a report, with a few members
	heavyAll      = 2048    // nodes in all reports together
	heavyFor      = 2e9     // ns since its last charge for which a node is reported
	candidateMost = 1024    // nodes that may be among the heaviest of the next report
	appliedMost   = 2048    // nodes remembered for each member
	appliedFor    = 300e9   // ns since a node was last in a member's report
	firstMost     = 1e9     // ns for each slot: bound of what a node's first report charges
	laterMost     = 120e9   // ns for each slot: the same for a later report, which may contain long requests
	refundMost    = 0.1     // of what was charged before: bound of a refund, since a restart is none
	demandFades   = 0.75    // in LeaseEvery
	leastPart     = 1. / 16
	leastNetworks = 1. / 64
	samplesFor    = 5e9 // ns since the last request that finished, in which a member may lead
)

// A Report is what a member shows the others.
type Report struct {
	Capacity int // requests that the upstream may process at once, of all members together
	InUse    int // requests of this member that the upstream processes
	Has      int // requests that this member may let in now; at least InUse or less if it has to shrink
	Wants    int // requests that this member should let in
	Data     []byte
}

// A Lease is an answer to a Report.
type Lease struct {
	ID    string // of this member; each member has another
	Slots int    // requests that this member may let in
	Since int64  // when it joined: a number that is lower for older members
	Peers []Peer // the other members
}

// A Peer is another member of the group.
type Peer struct {
	ID    string
	Since int64  // see Lease
	Data  []byte // of its last report
}

// GroupStats describe the part of a Queue in its group.
type GroupStats struct {
	Members  int  // that have leases, with this one; 0: there is no group
	Capacity int  // of the upstream
	Leads    bool // this member finds the capacity
	Away     bool // there is no lease: this member has an equal part of the capacity
}

// Report returns what to show the other members. A member that should have fewer slots lets no more
// requests in from now on.
func (q *Queue) Report() Report {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	s.pass(q.now())
	if s.group == nil {
		return Report{}
	}
	r := s.group.report(s)
	q.useSlots()
	return r
}

// Merge takes the answer to the last Report. Slots are valid until Alone: call it if there is no
// other answer within LeaseFor after that Report.
func (q *Queue) Merge(l Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	if s.group != nil {
		s.pass(q.now())
		s.group.merge(s, &l)
		q.leased()
	}
}

// Alone ends the lease: the other members cannot be heard. Of so many members, each then has an
// equal part of the capacity, at least 1. 0 means as many as there were at most in five minutes.
func (q *Queue) Alone(members int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	if s.group != nil {
		s.pass(q.now())
		s.group.alone(s, members)
		q.leased()
	}
}

// IsShort reports whether the next Report should follow soon.
func (q *Queue) IsShort() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.schedule
	return s.group != nil && s.group.isShort(s)
}

// Pressed receives a value when requests begin to wait or the capacity changes.
func (q *Queue) Pressed() <-chan struct{} { return q.pressed }

// press makes the next report of a member follow soon.
func (q *Queue) press() {
	select {
	case q.pressed <- struct{}{}:
	default:
	}
}

// leased puts other slots in force. It is called with the lock held.
func (q *Queue) leased() {
	s := q.schedule
	q.useSlots()
	s.dispatch()
	q.noteBusy()
}

// A group is what a member knows of the others. Like the scheduler, it only computes.
type group struct {
	of slots // the capacity of the upstream, as this member found it, or as an operator set it

	total    int  // capacity as of the leader's last report
	reported int  // capacity in this member's last report
	mine     int  // slots of this member
	wants    int  // slots that it should have
	leads    bool // this member finds the capacity

	isAway  bool
	counts  []countedMembers // of the last five minutes
	lasts   int              // members in the last lease
	id      string
	since   int64
	peers   map[string]*peer // those of the last lease, and some that were there before
	order   []*peer          // those of the last lease
	demand  demands          // of this member
	at      int64            // when demand was last computed
	sampled int64            // when a request last finished; -1: none has
	active  int              // the activity in the last report, as the others know it

	spread map[uint64]int // how many other members serve a node below a class now

	heavy []uint64 // keys of nodes that may be among the heaviest
	least float64  // ns that others must have used

	// Of the classes: their virtual time as far as requests of this member have moved it, at the last
	// lease, and what other members have added to it.
	earned, added [len(ages)]float64
}

// A peer is another member.
type peer struct {
	message
	id      string
	since   int64
	seen    int64 // when it last had a lease
	applied map[uint64]applied
}

// applied is what a member has used at a node as far as it is charged here.
type applied struct {
	used float64
	at   int64
}

type countedMembers struct {
	at int64
	n  int
}

// demands are those of the classes, oldest first.
type demands [len(ages)]demand

// A demand is that of a class at a member.
type demand struct {
	slots    float64 // requests that wait or are in progress
	networks float64 // weights of those below the class that have requests; of one at several members a part
}

func newGroup(of slots) *group {
	g := &group{peers: map[string]*peer{}, sampled: -1, isAway: true, lasts: 1, leads: true}
	g.use(of)
	return g
}

// use gives the member another capacity.
func (g *group) use(of slots) {
	g.of = of
	if _, ok := of.(fixed); ok || g.leads {
		g.total = of.Slots()
	}
	if g.isAway {
		g.mine = g.part()
	}
}

// stats describes the group. g may be nil.
func (g *group) stats() GroupStats {
	if g == nil {
		return GroupStats{}
	}
	return GroupStats{Members: g.lasts, Capacity: g.total, Leads: g.leads, Away: g.isAway}
}

// Slots returns the slots of this member.
func (g *group) Slots() int { return g.mine }

// Workers returns its part of the workers.
func (g *group) Workers() int {
	workers := g.of.Workers()
	if !g.leads || workers >= g.total {
		return g.mine
	}
	return min(g.mine, (g.mine*workers+g.total-1)/max(g.total, 1))
}

// Sample adds a finished request of this member. Only one member finds the capacity: several would
// take each other's requests for a slow upstream.
func (g *group) Sample(s capacity.Sample) {
	g.sampled = s.Now
	if !g.leads {
		return
	}
	own := s.Inside
	for _, p := range g.order {
		s.Inside += p.inside
		s.Waiting = s.Waiting || p.waiting > 0
	}
	s.Part = float64(own) / float64(max(s.Inside, 1))
	g.of.Sample(s)
	g.found()
}

// found takes the capacity that this member has found.
func (g *group) found() {
	g.total = g.of.Slots()
	if g.isAway {
		g.mine = g.part()
	}
}

// part returns the slots of a member that does not hear the others.
func (g *group) part() int { return max(1, g.total/g.most()) }

func (g *group) most() int {
	if len(g.counts) == 0 {
		return 1
	}
	return max(1, g.counts[0].n)
}

// count notes the number of members.
func (g *group) count(now int64, n int) {
	for len(g.counts) > 0 && now-g.counts[0].at > 300e9 {
		g.counts = g.counts[1:]
	}
	for len(g.counts) > 0 && g.counts[len(g.counts)-1].n <= n {
		g.counts = g.counts[:len(g.counts)-1]
	}
	g.counts = append(g.counts, countedMembers{now, n})
}

// alone ends the lease.
func (g *group) alone(s *scheduler, members int) {
	if members > 0 {
		g.counts = []countedMembers{{s.now, members}}
	}
	g.isAway, g.order = true, nil
	g.lead(g.most() == 1) // several members that do not hear each other keep the last capacity
	g.mine = g.part()
	for i := range s.parts {
		s.setPart(i, half)
	}
}

// lead begins or ends the search for the capacity.
func (g *group) lead(leads bool) {
	if leads && !g.leads {
		if found, ok := g.of.(*capacity.Capacity); ok {
			found.Resume(g.total)
		}
	}
	g.leads = leads
}

// isShort reports whether the next report should follow soon.
func (g *group) isShort(s *scheduler) bool {
	return !g.isAway && (g.wants > g.mine || s.inside > g.mine)
}

// merge takes a lease.
func (g *group) merge(s *scheduler, l *Lease) {
	g.id, g.since, g.isAway = l.ID, l.Since, false
	g.lasts = 1 + min(len(l.Peers), peersMost)
	g.count(s.now, g.lasts)
	g.order = g.order[:0]
	var passed [len(ages)]float64 // of the virtual time of the classes, at the fastest member
	for i := range l.Peers[:g.lasts-1] {
		from := &l.Peers[i]
		p := g.peers[from.ID]
		if p == nil {
			p = &peer{id: from.ID, applied: map[uint64]applied{}}
		}
		p.since, p.seen = from.Since, s.now
		was := p.message
		if !p.parse(from.Data) {
			p.message = message{}
		}
		g.order = append(g.order, p)
		for c := range passed {
			if was.capacity > 0 { // not the first report
				passed[c] = max(passed[c], min(p.virtual[c]-was.virtual[c], laterMost*float64(max(g.total, 1))))
			}
		}
		g.apply(s, p)
	}
	g.pass(s, &passed)
	g.keepAbsent(s.now)
	g.spread = map[uint64]int{}
	for _, p := range g.order {
		g.peers[p.id] = p
		for i := range p.heavy {
			if h := &p.heavy[i]; h.parent >= topOf {
				g.spread[h.key]++
			}
		}
	}
	slices.SortFunc(g.order, func(a, b *peer) int { return compareMembers(a.since, a.id, b.since, b.id) })
	g.elect()
	g.divide(s)
	g.mine = min(max(l.Slots, 1), g.wants) // fewer at once, more with the next lease
}

// keepAbsent remembers some members without a lease for a while. After an outage of the store, not all
// members come back at the same moment, and what they have reported before must not be charged again.
func (g *group) keepAbsent(now int64) {
	absent := 0
	for id, p := range g.peers {
		if p.seen == now {
			continue
		}
		p.message = message{} // its next report is like a first one, except for what is applied
		if absent++; now-p.seen > appliedFor || absent > absentMost {
			delete(g.peers, id)
		}
	}
}

// pass has the virtual time of classes go on as at other members where nothing waits here. Otherwise
// clients that used no more than their share there would be in debt here.
func (g *group) pass(s *scheduler, passed *[len(ages)]float64) {
	for i := range s.classes {
		c := &s.classes[i]
		earned := c.virtual - g.added[i]
		if more := passed[i] - (earned - g.earned[i]); more > 0 && c.waiting == 0 {
			c.virtual += more
			g.added[i] += more
		}
		g.earned[i] = earned
	}
}

func compareMembers(since int64, id string, since2 int64, id2 string) int {
	return cmp.Or(cmp.Compare(since, since2), strings.Compare(id, id2))
}

// elect determines the member that finds the capacity: the oldest of those with requests that
// finished recently. If none has any, it is the oldest of those where requests wait, which notices
// that the upstream has stopped, or else the oldest. All members take the same one.
func (g *group) elect() {
	var leader *peer // nil: this member
	best := g.active
	for _, p := range g.order { // the oldest first
		is := activity(p.samples, p.waiting > 0)
		if is > best || leader == nil && is == best && compareMembers(p.since, p.id, g.since, g.id) < 0 {
			leader, best = p, is
		}
	}
	if _, ok := g.of.(fixed); ok {
		g.leads = leader == nil
		return
	}
	if leader != nil && leader.capacity > 0 {
		g.total = min(leader.capacity, capacityMost)
	}
	if g.lead(leader == nil); g.leads {
		g.total = g.of.Slots()
	}
}

// activity is larger for members that can say more about the upstream.
func activity(samples, waits bool) int {
	switch {
	case samples:
		return 2
	case waits:
		return 1
	}
	return 0
}

// samples reports whether requests finished recently.
func (g *group) samples(now int64) bool { return g.sampled >= 0 && now-g.sampled < samplesFor }

// report returns what to show the others.
func (g *group) report(s *scheduler) Report {
	g.want(s)
	if !g.isAway {
		g.divide(s)
		g.mine = min(g.mine, g.wants)
	}
	m := message{capacity: g.total, inside: s.inside, waiting: s.waiting, samples: g.samples(s.now), demand: g.demand}
	for i := range s.classes {
		m.virtual[i] = s.classes[i].virtual - g.added[i]
	}
	m.heavy = g.heaviest(s)
	g.reported, g.active = g.total, activity(m.samples, m.waiting > 0)
	return Report{Capacity: g.total, InUse: s.inside, Has: g.mine, Wants: g.wants, Data: m.append(nil)}
}

// want updates the demand of this member. It rises at once and fades, because single looks miss
// requests that are quick.
func (g *group) want(s *scheduler) {
	fades := math.Pow(demandFades, float64(s.now-g.at)/float64(LeaseEvery))
	g.at = s.now
	var now demands
	for i := range s.classes {
		c := &s.classes[i]
		now[i].slots = float64(c.waiting)
		for _, e := range c.least {
			now[i].networks += e.node.weight / float64(1+g.spread[e.node.key])
		}
	}
	for t := s.running.oldest; t != nil; t = t.next { // in a calm time the classes have no requests
		now[t.class].slots++
	}
	for i := range now {
		d := &g.demand[i]
		d.slots = max(now[i].slots, d.slots*fades)
		d.networks = max(now[i].networks, d.networks*fades, leastNetworks)
		if d.slots < 0.5 {
			*d = demand{}
		}
	}
}

// divide computes the slots that this member should have.
func (g *group) divide(s *scheduler) {
	all := make([]demands, 0, 1+len(g.order))
	own := -1
	for _, p := range g.order {
		if own < 0 && compareMembers(g.since, g.id, p.since, p.id) < 0 {
			own = len(all)
			all = append(all, g.demand)
		}
		all = append(all, p.demand)
	}
	if own < 0 {
		own = len(all)
		all = append(all, g.demand)
	}
	slots, classes := partsOf(g.total, all)
	g.wants = slots[own]
	var newer float64
	for i := newest; ; i-- {
		if i < newest {
			part := half
			if get := classes[own][i]; get > 0 && newer > 0 {
				part = min(max(get/(get+newer), leastPart), 1-leastPart)
			}
			s.setPart(int(i), part)
		}
		newer += classes[own][i]
		if i == 0 {
			break
		}
	}
}

// setPart sets what a class is guaranteed of what older classes leave.
func (s *scheduler) setPart(class int, part float64) {
	s.parts[class] = part
	s.classes[class].weight, s.newer[class].weight = part/half, (1-part)/half
}

// partsOf divides a capacity between members: each gets at least 1, and otherwise all together get
// the capacity. It gives each class what it would get at one member with all requests, see
// scheduler.class. Within a class, members have parts in proportion to their networks that wait, but
// not more than they need. What nobody needs is divided equally, so that bursts begin at once.
// partsOf also returns what the classes of each member get.
func partsOf(capacity int, of []demands) (slots []int, classes [][len(ages)]float64) {
	var total demands
	for i := range of {
		for c := range total {
			total[c].slots += of[i][c].slots
		}
	}
	var newer float64
	for c := range total {
		newer += total[c].slots
	}
	classes = make([][len(ages)]float64, len(of))
	left := float64(capacity)
	for c := range total {
		newer -= total[c].slots
		get := min(total[c].slots, max(left/2, left-newer))
		if c == len(total)-1 {
			get = min(total[c].slots, left)
		}
		left -= get
		divideClass(classes, of, c, get)
	}
	exact := make([]float64, len(of))
	for i := range exact {
		exact[i] = left / float64(len(of))
		for _, get := range classes[i] {
			exact[i] += get
		}
	}
	return whole(capacity, exact), classes
}

// divideClass divides between the members what a class gets.
func divideClass(classes [][len(ages)]float64, of []demands, class int, get float64) {
	open := make([]int, 0, len(of)) // members that need more
	var networks float64
	for i := range of {
		if d := &of[i][class]; d.slots > 0 {
			open = append(open, i)
			networks += d.networks
		}
	}
	// Those that need least for a network are served first: they leave the rest to the others.
	need := func(i int) float64 { return of[i][class].slots / of[i][class].networks }
	slices.SortStableFunc(open, func(a, b int) int { return cmp.Compare(need(a), need(b)) })
	for _, i := range open {
		d := &of[i][class]
		gets := min(d.slots, get*d.networks/networks)
		classes[i][class] = gets
		get -= gets
		networks -= d.networks
	}
}

// whole rounds parts to whole numbers of at least 1. Their sum is the capacity, or the number of
// members if that is more.
func whole(capacity int, exact []float64) []int {
	n := make([]int, len(exact))
	order := make([]int, len(exact))
	sum := 0
	for i, x := range exact {
		n[i], order[i] = max(1, int(x+1e-6)), i
		sum += n[i]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(exact[b]-float64(n[b]), exact[a]-float64(n[a]))
	})
	for _, i := range order {
		if sum < capacity {
			n[i]++
			sum++
		}
	}
	for i := len(order) - 1; sum > capacity; {
		most := 0
		for j := range n {
			if n[j] > n[most] {
				most = j
			}
		}
		if n[most] == 1 {
			break
		}
		if j := order[i]; i > 0 && n[j] > 1 && n[j] == n[most] {
			most = j
		}
		i = max(i-1, 0)
		n[most]--
		sum--
	}
	return n
}

// note notes that a request has charged its nodes.
func (g *group) note(leaf *node) {
	for n := leaf; !n.fixed; n = n.parent {
		if !n.heavy && n.used > g.least && len(g.heavy) < candidateMost {
			n.heavy = true
			g.heavy = append(g.heavy, n.key)
		}
	}
}

// heaviest returns the nodes that used most and were charged recently, each after its parent.
func (g *group) heaviest(s *scheduler) []heavyNode {
	type candidate struct {
		*node
		used  float64
		depth int
	}
	all := make([]candidate, 0, len(g.heavy))
	for _, key := range g.heavy {
		n := s.nodes[key]
		if n == nil || !n.heavy { // forgotten meanwhile, or listed twice
			continue
		}
		n.heavy = false
		if s.now-n.touched > heavyFor || n.used <= 0 {
			continue
		}
		c := candidate{node: n, used: faded(n.used, s.now-n.touched)}
		for p := n.parent; !p.fixed; p = p.parent {
			c.depth++
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.depth, b.depth), cmp.Compare(a.key, b.key))
	})
	g.least = 0
	if most := min(heavyMost, heavyAll/max(g.lasts, 1)); len(all) > most {
		all = all[:most]
		g.least = all[most-1].used
	}
	g.heavy = g.heavy[:0]
	heavy := make([]heavyNode, 0, len(all))
	places := make(map[*node]uint16, len(all))
	for _, c := range all {
		c.heavy = true
		g.heavy = append(g.heavy, c.key)
		h := heavyNode{key: c.key, used: c.used, weight: c.weight, unit: c.unit}
		if c.parent.fixed {
			h.parent = topOf + uint16(s.classOf(c.parent))
		} else if at, ok := places[c.parent]; ok {
			h.parent = at
		} else { // a parent uses at least as much, unless it has just got a place elsewhere
			continue
		}
		places[c.node] = uint16(len(heavy))
		heavy = append(heavy, h)
	}
	return heavy
}

// classOf returns the class of a node above its networks.
func (s *scheduler) classOf(n *node) int {
	for i := range s.classes {
		if n == &s.classes[i].node {
			return i
		}
	}
	return int(newest)
}

// faded returns what is left of a use after some time in ns.
func faded(used float64, passed int64) float64 { return used * math.Exp2(-float64(passed)/halfLife) }

// apply charges what a client has used at another member.
func (g *group) apply(s *scheduler, p *peer) {
	nodes := make([]*node, len(p.heavy))
	var grown []*node
	for i := range p.heavy {
		h := &p.heavy[i]
		var parent *node
		if h.parent >= topOf {
			parent = &s.classes[h.parent-topOf].node
		} else {
			parent = nodes[h.parent]
		}
		n := s.nodes[h.key]
		if n == nil && parent != nil {
			n = s.grow(parent, h.key)
			n.unit, n.weight = h.unit, 1
			if parent.fixed {
				n.weight = h.weight
			}
			grown = append(grown, n)
		}
		if n == nil || n.fixed {
			continue
		}
		nodes[i] = n
		last, known := p.applied[h.key]
		cost := min(h.used, firstMost*float64(max(g.total, 1)))
		if known {
			before := faded(last.used, s.now-last.at)
			cost = min(max(h.used-before, -refundMost*before), laterMost*float64(max(g.total, 1)))
		}
		if n.resting { // its place depends on its lag
			s.idle.remove(n)
			grown = append(grown, n)
		}
		n.chargeElsewhere(cost, s.now)
		p.applied[h.key] = applied{h.used, s.now}
	}
	for _, n := range grown {
		s.rest(n)
	}
	for s.idle.n > maxIdle {
		s.forget(s.idle.stale(s.now))
	}
	for key, a := range p.applied {
		if s.now-a.at > appliedFor || len(p.applied) > appliedMost && a.at < s.now {
			delete(p.applied, key)
		}
	}
}
