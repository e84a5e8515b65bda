package share

import (
	"math"
	"time"
)

// A scheduler decides which request the upstream processes next. It only computes: time is an
// argument of every call, in ns, and no call blocks. It is not safe for concurrent use.
//
// The root divides the slots between the oldest class of clients and all newer classes, which
// divide theirs in the same way: see class. Below each class are the levels of Options.By. A
// client's requests are served in order of arrival. At each level the waiting child with the least
// start tag is next. But every second turn of a class goes by arrival: see class.next. A request is
// charged on each level: its expected cost when it begins, more while it runs longer, and a
// correction to the measured time at its end.
//
// The virtual time of a node is the least start tag of its waiting children at the latest turn below
// it, and never decreases. In a turn by arrival it is less than the tag of the child that is served:
// otherwise children that always wait would fall behind it, and be served before children that begin
// to wait. In the newest class, whose clients rarely come again, it is the tag of the served child.
//
// A child without waiting requests starts again at its parent's virtual time, or at its own finish
// tag if that is later. The lead of the finish tag fades, so that old use is forgotten. The end of a
// busy period changes nothing.
//
// While it is calm, requests get their turns without nodes: they harm nobody, so they are not charged.
// Those that are still in progress when the calm ends are charged for all that they have taken.
type scheduler struct {
	slots   int
	workers int // of the slots: see usable; 0: all
	queue   int
	dry     bool // no request waits

	now     int64
	root    node
	classes [len(ages)]class       // oldest first
	newer   [len(ages) - 1]node    // newer[i] holds all classes after i
	parts   [len(ages) - 1]float64 // the part that class i is guaranteed of what older ones leave: see group.divide
	nodes   map[uint64]*node
	spare   []*node
	idle    idle
	order   uint64
	inside  int
	calm    int // of inside: requests without a node
	waiting int
	waited  int64 // when a request last waited; -1: never

	running struct{ oldest, youngest *Turn } // in order of their next charge

	group *group // nil: no other program has the same upstream

	tally  [len(ages)]Class
	recent struct {
		at              int64
		served, refused float64
	}
	placed struct { // turns that went to visitors by their places
		at     int64   // the latest
		waited float64 // ns that these visitors had waited in all, smoothed
	}
	longest struct {
		minute    int64
		this, ago int64
	}
}

// A class holds clients of about the same age. Below it are the levels of Options.By. Every second
// turn of a class goes by arrival: to the unit or visitor that has waited longest. A unit is a
// network, or what else is next above the clients; without such a level, a client.
type class struct {
	node
	arrivals heap // units and visitors that wait and may have turns by arrival, the longest wait first
	listings uint64
	came     int64   // when a request last arrived
	cost     float64 // usual ns of its requests: see learn; 0: not known
	learned  int64   // when a request last changed it
	ended    int     // requests that did, at most meanOf
	proven   int     // requests that ended since the last expensive one: see held
	recent   int     // the last requests that ended, at most recentMost,
	took     float64 // ns of all of them,
	spent    float64 // and of the expensive ones
	inOrder  *node   // the last turn went to this first of arrivals; nil: it did not go by arrival
}

const (
	chargeEvery  = 125e6 // ns between charges of a running request
	aheadPages   = 8     // pages for which visitors of a network use their places: see class.first
	aheadMost    = 5e9   // ns of use for each slot: see class.first. In a half-life, 1/16 above the fair share
	chargeAtOnce = 64    // most requests charged in one call
	pageTurns    = 8     // turns by arrival that a network or a visitor gets in a row: a page and its parts
	half         = 0.5
	keepFrom     = 4    // slots: see held
	keepFor      = 2e9  // ns since the last request of an older class
	expensive    = 4    // times the usual cost of its requests
	usualFor     = 30e9 // ns: memory of usual costs
	recentMost   = 64
	recentStep   = 1e9  // ns
	recentHalf   = 10e9 // ns: half-life of recent
)

func newScheduler() *scheduler {
	s := &scheduler{nodes: map[uint64]*node{}, waited: -1}
	s.root = node{weight: 1, fixed: true}
	above := &s.root
	for i := range s.classes {
		s.tally[i].Age = ages[i]
		s.classes[i].node = node{parent: above, weight: 1, fixed: true}
		if i < len(s.newer) {
			s.newer[i] = node{parent: above, weight: 1, fixed: true}
			above = &s.newer[i]
			s.parts[i] = half
		}
	}
	return s
}

// arrive adds a request. It may begin or be refused at once: see t.state.
func (s *scheduler) arrive(t *Turn, c *Claim, now int64) {
	s.pass(now)
	if s.isCalm() {
		t.claim, t.class, t.arrived, t.factor = c, c.class, s.now, c.factor()
		t.expected = s.root.expected()
		s.classes[c.class].came = s.now
		s.calm++
		s.begin(t)
		return
	}
	s.endCalm()
	leaf := s.find(c)
	for n := leaf; n != &s.root; n = n.parent {
		n.fade(s.now)
	}
	t.leaf, t.class, t.arrived, t.factor = leaf, c.class, s.now, c.factor()
	t.expected = leaf.expected()
	if s.dry {
		over := s.inside - s.slots
		if over >= s.queue {
			s.tally[c.class].Refused++
		} else if over >= 0 {
			s.tally[c.class].Waited++
		}
		if over >= 0 {
			s.waited = s.now
		}
	}
	s.classes[c.class].came = s.now
	atOnce := s.dry || s.waiting == 0 && s.inside < s.slots && !s.held(int(c.class))
	s.classes[c.class].arrive(leaf, c, !atOnce, s.now)
	if atOnce {
		for n := leaf; n != &s.root; n = n.parent {
			n.tag = max(n.tag, n.parent.virtual)
			n.parent.virtual = n.tag
			n.noteBegin(t.expected*t.factor, s.now)
		}
		s.begin(t)
		return
	}
	t.state = waits
	s.order++
	s.append(t)
	for n := leaf; n != &s.root; n = n.parent {
		n.noteWait(t.expected, s.order)
	}
	s.waiting++
	s.waited = s.now
	s.dispatch() // it may be the first for which there is room
	t.waited = t.state == waits
	s.bound()
	s.dispatch() // without a request that was refused, its class may no longer be held
}

// isCalm reports whether no request has waited for a while, nor since the start, and half of the workers
// are free.
func (s *scheduler) isCalm() bool {
	return !s.dry && s.waiting == 0 && 2*s.inside < s.usable() && s.now-max(s.waited, 0) >= busyFor
}

// endCalm gives requests in progress their nodes, and charges them.
func (s *scheduler) endCalm() {
	for t := s.running.oldest; s.calm > 0; t = t.next {
		if t.leaf != nil {
			continue
		}
		t.leaf, t.claim = s.find(t.claim), nil
		for n := t.leaf; n != &s.root; n = n.parent {
			n.fade(s.now)
			n.tag = max(n.tag, n.parent.virtual)
			n.noteBegin(t.charged*t.factor, s.now)
		}
		s.calm--
	}
}

// done ends a request that the upstream has processed.
func (s *scheduler) done(t *Turn, now int64) {
	s.pass(now)
	cost, of := float64(s.now-t.began), meanOf
	c := &s.classes[t.class]
	c.learn(cost, s.now)
	if c.recent++; c.recent > recentMost {
		c.recent, c.took, c.spent = recentMost/2, c.took/2, c.spent/2
	}
	c.took += cost
	if s.isExpensive(t.class, cost) {
		c.proven = 0
		c.spent += cost
	} else if t.leaf != nil && 2*c.spent <= c.took {
		c.proven = min(c.proven+1, s.slots)
	}
	for n := t.leaf; n != nil && n != &s.root; n = n.parent {
		n.charge((cost-t.charged)*t.factor, s.now)
		n.learn(cost, of)
		of = meanAbove
	}
	s.root.learn(cost, meanAbove)
	if s.group != nil && t.leaf != nil {
		s.group.note(t.leaf)
	}
	s.end(t)
}

// leave ends a request without cost because its client hung up. The request waits, or its turn has
// just come.
func (s *scheduler) leave(t *Turn, now int64) {
	s.pass(now)
	s.tally[t.class].Gone++
	switch t.state {
	case waits:
		s.withdraw(t)
		t.state = ended
		s.dispatch() // meanwhile a class may no longer be held
	case inside:
		for n := t.leaf; n != nil && n != &s.root; n = n.parent {
			n.charge(-t.charged*t.factor, s.now)
		}
		s.end(t)
	}
}

// expire refuses a request that has waited for the longest allowed time.
func (s *scheduler) expire(t *Turn, now int64) {
	s.pass(now)
	s.withdraw(t)
	s.refuse(t, true)
	s.dispatch()
}

// set changes the bounds.
func (s *scheduler) set(slots, queue int, dry bool, now int64) {
	s.pass(now)
	s.slots, s.queue, s.dry = slots, queue, dry
	s.dispatch()
	s.bound()
	s.dispatch()
}

// pass sets the time, and charges requests that have been running for long.
func (s *scheduler) pass(now int64) {
	s.now = max(s.now, now)
	for range chargeAtOnce {
		t := s.running.oldest
		if t == nil || t.due > s.now {
			break
		}
		if so := float64(s.now - t.began); so > t.charged {
			for n := t.leaf; n != nil && n != &s.root; n = n.parent {
				n.charge((so-t.charged)*t.factor, s.now)
			}
			t.charged = so
			if s.isExpensive(t.class, so) {
				s.classes[t.class].proven = 0
			}
			if s.group != nil && t.leaf != nil {
				s.group.note(t.leaf)
			}
		}
		s.unlist(t)
		s.list(t)
	}
	for range MaxParts + 1 { // more than a request adds
		n := s.idle.stale(s.now)
		if n == nil {
			break
		}
		s.forget(n)
	}
	if passed := s.now - s.recent.at; passed >= recentStep {
		decay := math.Exp2(-float64(passed) / recentHalf)
		s.recent.served *= decay
		s.recent.refused *= decay
		s.recent.at = s.now
	}
	if s.waiting > 0 {
		s.waited = s.now
	}
}

// dispatch gives free slots to the next requests.
func (s *scheduler) dispatch() {
	for s.waiting > 0 && (s.dry || s.inside < s.slots) {
		i := s.class()
		if !s.dry && s.held(i) {
			if i = s.older(i); i < 0 {
				return
			}
		}
		c := &s.classes[i]
		n := c.next(s.slots)
		t := n.head
		s.remove(t)
		s.order++
		c.served(n, s.now)
		cost := n.expected()
		for ; n != &s.root; n = n.parent {
			start := n.tag
			if !n.fixed && t.class != newest {
				start = n.parent.least[0].key // less than n.tag in a turn by arrival
			}
			n.parent.virtual = max(n.parent.virtual, start)
			n.noteBegin(cost*t.factor, s.now)
			if n.unit && c.inOrder == t.leaf && n != t.leaf {
				n.visits += cost
			}
			n.order = s.order
			n.noteLeave(t.expected)
		}
		if c.inOrder == t.leaf && t.leaf.since == t.leaf.placeAt {
			s.placed.at = s.now
			s.placed.waited += (float64(s.now-t.leaf.placeAt) - s.placed.waited) / meanOf
		}
		s.waiting--
		t.expected = cost
		s.begin(t)
	}
}

// arrive gives a unit a page's worth of turns by arrival if it has used at most one request more than
// its siblings. A unit that begins to wait enters the order of arrival if it has such turns left,
// and has not used more than a page's worth more.
//
// A visitor that has been waiting since its last turn gets a page's worth of turns by its place: it
// enters the order of arrival as if it had waited here all the time. Copies of its cookie share these
// turns, and a cookie that it used before gives no new ones.
func (c *class) arrive(leaf *node, claim *Claim, waits bool, now int64) {
	unit, one := leaf.unitOf(), c.expected()
	if unit.waiting == 0 && unit.lag() <= one {
		unit.page = pageTurns
	}
	place := now - int64(claim.waited)
	if claim.waited > 0 && place > leaf.turned {
		leaf.placed, leaf.placeAt = pageTurns, place
	}
	if !waits {
		unit.page, leaf.placed, leaf.turned = max(unit.page-1, 0), max(leaf.placed-1, 0), now
		return
	}
	if leaf.placed > 0 {
		c.list(leaf, leaf.placeAt)
	}
	if unit.waiting == 0 && unit.page > 0 && unit.lag() <= pageTurns*one {
		c.list(unit, now)
	}
}

// list adds a node to the order of arrival.
func (c *class) list(n *node, since int64) {
	if !n.listed {
		c.listings++
		n.since, n.number, n.listed = since, c.listings, true
		c.arrivals.push(n, sinceFirst)
	}
}

// next returns the client whose request is next. Every second turn goes by arrival.
func (c *class) next(slots int) *node {
	n := &c.node
	if c.inOrder != nil {
		c.inOrder = nil
	} else if c.inOrder = c.first(slots); c.inOrder != nil {
		n = c.inOrder
	}
	for n.head == nil {
		n = n.least[0].node
	}
	return n
}

// first returns the first node in the order of arrival, or nil. It removes nodes below one that has
// used too much: many clients below one node must not get much more than its part by arrival.
func (c *class) first(slots int) *node {
	pages := aheadPages * pageTurns * c.expected()
	most := max(aheadMost*float64(slots), pages) // at least some requests, however slow they are
next:
	for len(c.arrivals) > 0 {
		first := c.arrivals[0].node
		for n := first.parent; !n.fixed; n = n.parent {
			if n.lag() > most || n.unit && n.visits > pages {
				c.leave(first)
				continue next
			}
		}
		return first
	}
	return nil
}

// served updates the order of arrival when a client gets a turn.
func (c *class) served(leaf *node, now int64) {
	unit := leaf.unitOf()
	unit.page, leaf.placed, leaf.turned = max(unit.page-1, 0), max(leaf.placed-1, 0), now
	if leaf.placed == 0 && (leaf != unit || leaf.page == 0) || leaf.waiting == 1 {
		c.leave(leaf)
	}
	if unit != leaf && (unit.page == 0 || unit.waiting == 1) {
		c.leave(unit)
	}
}

// leave removes a node from the order of arrival.
func (c *class) leave(n *node) {
	if n.listed {
		c.arrivals.remove(n, sinceFirst)
		n.listed = false
	}
}

// class returns the class whose request is next. It compares each class with all newer ones
// together. If only one side uses less than its part of the slots, it is next; otherwise the side
// with the lower start tag. So each class is guaranteed half of what the older classes leave, and
// uses what the others do not. In a group these are halves of all members together: see group.divide.
func (s *scheduler) class() int {
	slots := s.slots
	for i := range s.newer {
		older, newer := &s.classes[i], &s.newer[i]
		part := s.parts[i] * float64(slots)
		less, newerLess := float64(older.inside) < part, float64(newer.inside) < float64(slots)-part
		switch {
		case older.waiting == 0:
		case newer.waiting == 0, less && !newerLess:
			return i
		case newerLess && !less:
		case older.tag <= newer.tag:
			return i
		}
		slots -= older.inside
	}
	return int(newest)
}

// usable returns how many requests may be in progress without a queue inside the upstream.
func (s *scheduler) usable() int {
	if s.workers > 0 {
		return min(s.slots, s.workers)
	}
	return s.slots
}

// held reports whether a class must leave the free slots to older ones. While clients of an older class
// come, it and the newer classes may use seven eighths of the workers. Each of their requests that ended
// since the last expensive one gives them one slot more, unless expensive ones take most of their time. So
// a flood of cheap requests uses all slots soon, and one of expensive requests never does. A turn is never
// taken back, so cheap requests would wait for an expensive one to end. (The slow start of TCP, RFC 5681,
// counts in the same way.) If an older class is held, newer ones are, too: a flood is of several classes.
func (s *scheduler) held(of int) bool {
	if s.usable() < keepFrom {
		return false
	}
	oldest := 0 // of those whose clients come now
	for oldest < of && !s.comes(oldest) {
		oldest++
	}
	room := s.room()
	for i := int(newest); i > oldest; i-- {
		if room += s.classes[i].proven - s.classes[i].inside; room <= 0 && i <= of {
			return true
		}
	}
	return false
}

// comes reports whether clients of a class come now, and what their requests cost is known.
func (s *scheduler) comes(class int) bool {
	c := &s.classes[class]
	return c.cost > 0 && s.now-c.came < keepFor
}

// room returns how many of the workers a class may use if nothing is proven.
func (s *scheduler) room() int { return s.usable() - max(s.usable()/8, 1) }

// learn updates the usual cost of a class: a moving mean whose steps are bounded (Huber 1964). It is slow,
// because a queue inside the upstream must not make expensive requests look usual.
func (c *class) learn(cost float64, now int64) {
	part := min(float64(now-c.learned)/usualFor, 1.0/meanOf)
	if c.ended < meanOf {
		c.ended++
		part = 1 / float64(c.ended)
	}
	if c.cost == 0 {
		c.cost = cost
	}
	c.cost += part * min(cost-c.cost, c.cost)
	c.learned = now
}

// unprove forgets what is proven of classes that have no requests inside, or, with all newer ones, less
// than half of the room.
func (s *scheduler) unprove() {
	room := s.room()
	inside := 0
	for i := newest; ; i-- {
		c := &s.classes[i]
		if inside += c.inside; 2*inside < room || c.inside == 0 {
			c.proven = 0
		}
		if i == 0 {
			return
		}
	}
}

// isExpensive reports whether a request of a class with that cost is expensive for clients of older
// classes that come now.
func (s *scheduler) isExpensive(of uint8, cost float64) bool {
	cheapest := s.cheapest(int(of))
	return cheapest > 0 && cost > expensive*cheapest
}

// cheapest returns the least mean cost of the older classes whose clients come now; 0 if there is none.
func (s *scheduler) cheapest(of int) (cost float64) {
	for i := range of {
		if c := &s.classes[i]; s.comes(i) && (cost == 0 || c.cost < cost) {
			cost = c.cost
		}
	}
	return cost
}

// older returns the oldest class older than next that has waiting requests and is not held; -1 if
// there is none.
func (s *scheduler) older(next int) int {
	for i := range next {
		if s.classes[i].waiting > 0 && !s.held(i) {
			return i
		}
	}
	return -1
}

// bound refuses requests beyond the length of the queue. An older class loses a request only if it
// has more than half of the queue that the classes before it leave, and all newer ones together do
// not. Otherwise the newest class loses one. It is the newest request of the heaviest client in its
// heaviest network.
func (s *scheduler) bound() {
	for s.waiting > s.queue {
		n := &s.classes[newest].node
		left := s.queue
		for i := range s.newer {
			if 2*s.newer[i].waiting <= left && 2*s.classes[i].waiting > left {
				n = &s.classes[i].node
				break
			}
			left = max(left-s.classes[i].waiting, 0)
		}
		for n.tail == nil {
			n = n.heaviest[0].node
		}
		t := n.tail
		s.withdraw(t)
		s.refuse(t, false)
	}
}

// begin starts a request that the nodes above it have already recorded.
func (s *scheduler) begin(t *Turn) {
	s.inside++
	t.began, t.charged, t.state = s.now, t.expected, inside
	t.insideThen = s.inside
	s.list(t)
	tally := &s.tally[t.class]
	tally.Turns++
	s.recent.served++
	if t.waited {
		tally.Waited++
		s.waitedFor(t)
		t.wake()
	}
}

// end removes a request that was in progress.
func (s *scheduler) end(t *Turn) {
	s.unlist(t)
	t.state = ended
	s.inside--
	if t.leaf == nil {
		s.calm--
		return // nothing waits
	}
	for n := t.leaf; n != &s.root; n = n.parent {
		n.inside--
	}
	s.unprove()
	s.rest(t.leaf)
	s.dispatch()
}

// withdraw removes a request from the queue.
func (s *scheduler) withdraw(t *Turn) {
	s.remove(t)
	for n := t.leaf; n != &s.root; n = n.parent {
		if n.waiting == 1 && n.listed {
			s.classes[t.class].leave(n)
		}
		n.noteLeave(t.expected)
	}
	s.waiting--
	s.waitedFor(t)
	s.rest(t.leaf)
}

// refuse refuses a request that was withdrawn.
func (s *scheduler) refuse(t *Turn, late bool) {
	tally := &s.tally[t.class]
	if late {
		tally.Expired++
	} else {
		tally.Refused++
	}
	s.recent.refused++
	t.state = refused
	t.busy = &Busy{RetryAfter: s.retryAfter(t), Waited: late, Expected: s.expectedWait(t)}
	t.wake()
}

// Bounds of Busy.RetryAfter, without the spread, and of Busy.Expected.
const (
	minRetry     = 1e9   // ns
	placedFor    = 60e9  // ns for which the waits of visitors say how long others wait
	maxPlaceWait = 600e9 // ns: bound of Busy.Expected
	maxRetry     = 60e9  // ns; with a greater bound, clients that retry without pause could keep others out for long
)

// retryAfter returns the time that the queue and one more request need, multiplied by the recent
// ratio of arrivals to served requests. Each client has its own spread of up to a quarter plus a
// second, so that not all return at once.
func (s *scheduler) retryAfter(t *Turn) time.Duration {
	backlog := s.classes[0].backlog + s.newer[0].backlog + t.expected
	overload := 1 + s.recent.refused/max(s.recent.served, 1)
	after := min(max(backlog/float64(max(s.slots, 1))*overload, minRetry), maxRetry)
	spread := float64(t.leaf.key>>48) / (1 << 16)
	return time.Duration(after + spread*(after/4+1e9))
}

// expectedWait returns about how long a client still has to wait if it keeps its place. That is as long
// as the latest visitors with a place had waited in all, less what it has waited itself (the delay of
// the last to enter service: Ibrahim and Whitt 2009). It is at least as long as the present queue needs.
func (s *scheduler) expectedWait(t *Turn) time.Duration {
	backlog := s.classes[0].backlog + s.newer[0].backlog + t.expected
	left := backlog / float64(max(s.slots, 1))
	if s.placed.at > 0 && s.now-s.placed.at < placedFor {
		since := t.arrived
		if t.leaf.placed > 0 {
			since = t.leaf.placeAt
		}
		left = max(left, s.placed.waited-float64(s.now-since))
	}
	return time.Duration(min(max(left, minRetry), maxPlaceWait))
}

// waitedFor updates the longest wait of this minute.
func (s *scheduler) waitedFor(t *Turn) {
	s.turnMinute()
	s.longest.this = max(s.longest.this, s.now-t.arrived)
}

func (s *scheduler) turnMinute() {
	switch minute := s.now / 60e9; minute - s.longest.minute {
	case 0:
	case 1:
		s.longest.minute, s.longest.ago, s.longest.this = minute, s.longest.this, 0
	default:
		s.longest.minute, s.longest.ago, s.longest.this = minute, 0, 0
	}
}

// find returns the node of a claim's client, and creates it and the nodes above it if needed. A new
// node starts at the virtual time. In the newest class it starts one mean request behind it:
// otherwise clients that send a second request would be refused before endless new ones.
func (s *scheduler) find(c *Claim) *node {
	n := s.nodes[c.keys[c.depth-1]]
	if n == nil {
		n = &s.classes[c.class].node
		for i, key := range c.keys[:c.depth] {
			child := s.nodes[key]
			if child == nil {
				child = s.grow(n, key)
				child.unit = i == int(c.unit)
				if c.class == newest {
					child.tag += n.expected()
				}
			}
			n = child
		}
	}
	if n.children > 0 {
		n = s.others(n)
	}
	if n.resting {
		s.idle.remove(n)
	}
	if top := n.top(); top.weight != c.weight {
		top.weight = c.weight
		top.fix()
	}
	return n
}

// others returns the node for the requests of a client, such as an address, that has visitors below it. They
// are a client next to the visitors: in the queue of the client itself they would come before all of these.
func (s *scheduler) others(n *node) *node {
	key := n.key ^ 1<<63
	if others := s.nodes[key]; others != nil {
		return others
	}
	return s.grow(n, key)
}

// grow adds a node. Requests that wait at its parent itself move to the node of the parent's others.
func (s *scheduler) grow(parent *node, key uint64) *node {
	if t := parent.head; t != nil {
		parent.head, parent.tail = nil, nil
		others := s.others(parent)
		for t != nil {
			next := t.next
			t.leaf = others
			s.append(t)
			others.noteWait(t.expected, parent.order)
			t = next
		}
		if key == others.key {
			return others
		}
	}
	var n *node
	if last := len(s.spare) - 1; last >= 0 {
		n = s.spare[last]
		s.spare[last] = nil
		s.spare = s.spare[:last]
	} else {
		n = new(node)
	}
	n.parent, n.key, n.weight, n.tag, n.touched = parent, key, 1, parent.virtual, s.now
	n.page, n.turned = pageTurns, math.MinInt64
	s.nodes[key] = n
	parent.children++
	if parent.resting {
		s.idle.remove(parent)
	}
	return n
}

// rest moves a node to the idle nodes if it has no requests and no children.
func (s *scheduler) rest(n *node) {
	if !n.fixed && n.waiting == 0 && n.inside == 0 && n.children == 0 && !n.resting {
		s.idle.add(n, s.now)
	}
}

// forget drops an idle node.
func (s *scheduler) forget(n *node) {
	s.idle.remove(n)
	delete(s.nodes, n.key)
	parent := n.parent
	parent.children--
	if len(s.spare) < maxSpare && cap(n.least) <= 16 {
		*n = node{least: n.least, heaviest: n.heaviest}
		s.spare = append(s.spare, n)
	}
	s.rest(parent)
}

// append adds a request to the end of its client's queue.
func (s *scheduler) append(t *Turn) {
	n := t.leaf
	t.prev, t.next = n.tail, nil
	if n.tail != nil {
		n.tail.next = t
	} else {
		n.head = t
	}
	n.tail = t
}

// remove takes a request out of its client's queue.
func (s *scheduler) remove(t *Turn) {
	n := t.leaf
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		n.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		n.tail = t.prev
	}
	t.prev, t.next = nil, nil
}

// list adds a request to the end of the list of running requests.
func (s *scheduler) list(t *Turn) {
	t.due = s.now + chargeEvery
	t.prev, t.next = s.running.youngest, nil
	if t.prev != nil {
		t.prev.next = t
	} else {
		s.running.oldest = t
	}
	s.running.youngest = t
}

// unlist takes a request out of the list of running requests.
func (s *scheduler) unlist(t *Turn) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		s.running.oldest = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		s.running.youngest = t.prev
	}
	t.prev, t.next = nil, nil
}
