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
// The virtual time of a node is the start tag of the latest request that began below it, and never
// decreases. Turns by arrival change that of the newest class only. In the others, networks that
// always wait would fall behind it, and be served before networks that begin to wait.
//
// A child without waiting requests starts again at its parent's virtual time, or at its own finish
// tag if that is later. The lead of the finish tag fades, so that old use is forgotten. The end of a
// busy period changes nothing.
type scheduler struct {
	slots int
	queue int
	dry   bool // no request waits

	now     int64
	root    node
	classes [len(ages)]class    // oldest first
	newer   [len(ages) - 1]node // newer[i] holds all classes after i
	nodes   map[uint64]*node
	spare   []*node
	idle    idle
	order   uint64
	inside  int
	waiting int
	waited  int64 // when a request last waited; -1: never

	running struct{ oldest, youngest *Turn } // in order of their next charge

	tally  [len(ages)]Class
	recent struct {
		at              int64
		served, refused float64
	}
	longest struct {
		minute    int64
		this, ago int64
	}
}

// A class holds clients of about the same age. Below it are the levels of Options.By.
type class struct {
	node
	arrivals nodeList // waiting children with node.page > 0, in order of arrival
	inOrder  bool     // the last turn went to the first of arrivals
}

const (
	chargeEvery  = 125e6 // ns between charges of a running request
	chargeAtOnce = 64    // most requests charged in one call
	pageTurns    = 8     // turns by arrival that a network gets in a row: a page and its parts
	recentStep   = 1e9   // ns
	recentHalf   = 10e9  // ns: half-life of recent
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
		}
	}
	return s
}

// arrive adds a request. It may begin or be refused at once: see t.state.
func (s *scheduler) arrive(t *Turn, c *Claim, now int64) {
	s.pass(now)
	leaf := s.find(c)
	for n := leaf; n != &s.root; n = n.parent {
		n.fade(s.now)
	}
	t.leaf, t.class, t.arrived = leaf, c.class, s.now
	t.expected = leaf.expected()
	if s.dry {
		over := s.inside - s.slots
		if over >= s.queue {
			s.tally[c.class].Refused++
		} else if over >= 0 {
			s.tally[c.class].Waited++
		}
	}
	atOnce := s.dry || s.waiting == 0 && s.inside < s.slots
	s.classes[c.class].arrive(leaf.top(), !atOnce)
	if atOnce {
		for n := leaf; n != &s.root; n = n.parent {
			n.tag = max(n.tag, n.parent.virtual)
			n.parent.virtual = n.tag
			n.noteBegin(t.expected, s.now)
		}
		s.begin(t)
		return
	}
	t.state, t.waited = waits, true
	s.order++
	s.append(t)
	for n := leaf; n != &s.root; n = n.parent {
		n.noteWait(t.expected, s.order)
	}
	s.waiting++
	s.waited = s.now
	s.dispatch()
	s.bound()
}

// done ends a request that the upstream has processed.
func (s *scheduler) done(t *Turn, now int64) {
	s.pass(now)
	cost, of := float64(s.now-t.began), meanOf
	for n := t.leaf; n != &s.root; n = n.parent {
		n.charge(cost-t.charged, s.now)
		n.learn(cost, of)
		of = meanAbove
	}
	s.root.learn(cost, of)
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
	case inside:
		for n := t.leaf; n != &s.root; n = n.parent {
			n.charge(-t.charged, s.now)
		}
		s.end(t)
	}
}

// expire refuses a request that has waited for the longest allowed time.
func (s *scheduler) expire(t *Turn, now int64) {
	s.pass(now)
	s.withdraw(t)
	s.refuse(t, true)
}

// set changes the bounds.
func (s *scheduler) set(slots, queue int, dry bool, now int64) {
	s.pass(now)
	s.slots, s.queue, s.dry = slots, queue, dry
	s.dispatch()
	s.bound()
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
			for n := t.leaf; n != &s.root; n = n.parent {
				n.charge(so-t.charged, s.now)
			}
			t.charged = so
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
		c := s.class()
		n := c.next()
		t := n.head
		s.remove(t)
		s.order++
		c.served(n.top())
		cost := n.expected()
		for ; n != &s.root; n = n.parent {
			if n.parent != &c.node || !c.inOrder || t.class == newest {
				n.parent.virtual = max(n.parent.virtual, n.tag)
			}
			n.noteBegin(cost, s.now)
			n.order = s.order
			n.noteLeave(t.expected)
		}
		s.waiting--
		t.expected = cost
		s.begin(t)
	}
}

// arrive gives a child a page's worth of turns by arrival if it has used at most one request more than
// its siblings. A child that begins to wait enters the order of arrival if it has such turns left,
// and has not used more than a page's worth more.
func (c *class) arrive(top *node, waits bool) {
	one := c.expected()
	if top.waiting == 0 && top.lag() <= one {
		top.page = pageTurns
	}
	if !waits {
		top.page = max(top.page-1, 0)
	} else if top.waiting == 0 && top.page > 0 && top.lag() <= pageTurns*one {
		c.arrivals.append(top)
		top.listed = true
	}
}

// next returns the client whose request is next. Every second turn goes by arrival.
func (c *class) next() *node {
	n := &c.node
	if c.inOrder = !c.inOrder && c.arrivals.first != nil; c.inOrder {
		n = c.arrivals.first
	}
	for n.head == nil {
		n = n.least[0].node
	}
	return n
}

// served updates the order of arrival when a request below a child gets its turn.
func (c *class) served(top *node) {
	top.page = max(top.page-1, 0)
	if top.page == 0 || top.waiting == 1 {
		c.leave(top)
	}
}

// leave removes a child from the order of arrival.
func (c *class) leave(top *node) {
	if top.listed {
		c.arrivals.remove(top)
		top.listed = false
	}
}

// class returns the class whose request is next. It compares each class with all newer ones
// together. If only one side uses less than half of the slots, it is next; otherwise the side with
// the lower start tag. So each class is guaranteed half of what the older classes leave, and uses
// what the others do not.
func (s *scheduler) class() *class {
	slots := s.slots
	for i := range s.newer {
		older, newer := &s.classes[i], &s.newer[i]
		switch {
		case older.waiting == 0:
		case newer.waiting == 0, 2*older.inside < slots && 2*newer.inside >= slots:
			return older
		case 2*newer.inside < slots && 2*older.inside >= slots:
		case older.tag <= newer.tag:
			return older
		}
		slots -= older.inside
	}
	return &s.classes[newest]
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
	for n := t.leaf; n != &s.root; n = n.parent {
		n.inside--
	}
	s.rest(t.leaf)
	s.dispatch()
}

// withdraw removes a request from the queue.
func (s *scheduler) withdraw(t *Turn) {
	s.remove(t)
	if top := t.leaf.top(); top.waiting == 1 {
		s.classes[t.class].leave(top)
	}
	for n := t.leaf; n != &s.root; n = n.parent {
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
	t.busy = &Busy{RetryAfter: s.retryAfter(t), Waited: late}
	t.wake()
}

// Bounds of Busy.RetryAfter, without the spread.
const (
	minRetry = 1e9  // ns
	maxRetry = 60e9 // ns; with a greater bound, clients that retry without pause could keep others out for long
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
		for _, key := range c.keys[:c.depth] {
			child := s.nodes[key]
			if child == nil {
				child = s.grow(n, key)
				if c.class == newest {
					child.tag += n.expected()
				}
			}
			n = child
		}
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

func (s *scheduler) grow(parent *node, key uint64) *node {
	var n *node
	if last := len(s.spare) - 1; last >= 0 {
		n = s.spare[last]
		s.spare[last] = nil
		s.spare = s.spare[:last]
	} else {
		n = new(node)
	}
	n.parent, n.key, n.weight, n.tag, n.touched = parent, key, 1, parent.virtual, s.now
	n.page = pageTurns
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
