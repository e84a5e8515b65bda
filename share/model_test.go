package share

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A model is a slow scheduler that stores only requests, tags and means, and searches all of them
// each time. It forgets no client.
type model struct {
	slots, queue int
	now          int64
	root         *modelNode
	classes      [len(ages)]*modelNode
	newer        [len(ages) - 1]*modelNode
	nodes        map[uint64]*modelNode
	requests     []*modelRequest // waiting ones in order of arrival; the others unordered
	running      []*modelRequest // in order of their next charge
	order        int
	waited       int64 // when a request last waited
	workers      int
}

type modelNode struct {
	cost        float64 // of a class: usual cost of its requests
	all         int     // of a class: requests that ended,
	learned     int64   // and when the last one did
	came        int64   // of a class: when a request last arrived
	proven      int     // of a class: requests since the last expensive one
	recent      int     // of a class: its last requests,
	took, spent float64 // and the time of all, and of expensive ones

	arrivals []*modelNode // of a class: units and visitors that wait, the longest wait first
	inOrder  *modelNode
	unit     bool
	page     int
	placed   int
	visits   float64
	placeAt  int64
	since    int64
	turned   int64

	parent               *modelNode
	tag, virtual, weight float64
	touched              int64
	mean                 float64
	ended                int
	order                int
}

type modelRequest struct {
	id       int
	path     []*modelNode // from the client up to the root's child; nil while it is calm
	claim    *Claim
	expected float64
	charged  float64
	began    int64
	due      int64
	state    uint8
	factor   float64
}

func newModel() *model {
	m := &model{root: &modelNode{weight: 1}, nodes: map[uint64]*modelNode{}}
	above := m.root
	for i := range m.classes {
		m.classes[i] = &modelNode{parent: above, weight: 1}
		if i < len(m.newer) {
			m.newer[i] = &modelNode{parent: above, weight: 1}
			above = m.newer[i]
		}
	}
	return m
}

func (r *modelRequest) below(n *modelNode) bool { return slices.Contains(r.path, n) }

// count returns the number of requests in a state below a node, and their expected cost.
func (m *model) count(n *modelNode, state uint8) (count int, backlog float64) {
	for _, r := range m.requests {
		if r.state == state && (n == m.root || r.below(n)) {
			count++
			backlog += r.expected
		}
	}
	return count, backlog
}

func (m *model) waitingChildren(n *modelNode) (children []*modelNode) {
	for _, r := range m.requests {
		if r.state != waits {
			continue
		}
		for i, at := range r.path {
			if at == n && i > 0 && !slices.Contains(children, r.path[i-1]) {
				children = append(children, r.path[i-1])
			}
		}
	}
	return children
}

func (n *modelNode) expected() float64 {
	for ; n != nil; n = n.parent {
		if n.ended > 0 {
			return math.Ceil(min(n.mean, 10e9))
		}
	}
	return 10e6
}

func (n *modelNode) fade(now int64) {
	if past := now - n.touched; past >= 1e9 {
		n.touched = now
		n.visits *= math.Exp2(-float64(past) / 60e9)
		if lag := n.tag - n.parent.virtual; lag > 0 {
			n.tag -= lag * (1 - math.Exp2(-float64(past)/60e9))
		}
	}
}

func (n *modelNode) charge(cost float64, now int64) {
	n.fade(now)
	n.tag += cost / n.weight
}

func (m *model) pass(now int64) {
	m.now = max(m.now, now)
	for len(m.running) > 0 && m.running[0].due <= m.now {
		r := m.running[0]
		if so := float64(m.now - r.began); so > r.charged {
			for _, n := range r.path {
				n.charge((so-r.charged)*r.factor, m.now)
			}
			r.charged = so
			if m.isExpensive(r, so) {
				m.classes[r.claim.class].proven = 0
			}
		}
		r.due = m.now + 125e6
		m.running = append(m.running[1:], r)
	}
	if waiting, _ := m.count(m.root, waits); waiting > 0 {
		m.waited = m.now
	}
}

// isCalm reports whether no request has waited for five seconds, and half of the workers are free.
func (m *model) isCalm() bool {
	waiting, _ := m.count(m.root, waits)
	return waiting == 0 && 2*len(m.running) < m.used() && m.now-m.waited >= 5e9
}

// path returns the nodes of a claim, from the client up to the root's child.
func (m *model) path(c *Claim) (path []*modelNode) {
	n := m.classes[c.class]
	for up := n; up != m.root; up = up.parent {
		path = append(path, up)
	}
	keys := slices.Clone(c.keys[:c.depth])
	if leaf := m.nodes[keys[c.depth-1]]; leaf != nil {
		for _, below := range m.nodes {
			if below.parent == leaf { // visitors are below the address
				keys = append(keys, keys[c.depth-1]|1<<63)
				break
			}
		}
	}
	for i, key := range keys {
		child := m.nodes[key]
		if child == nil {
			if i > 0 {
				m.moveWaiting(n, keys[i-1]|1<<63)
			}
			child = &modelNode{parent: n, tag: n.virtual, touched: m.now, weight: 1, page: 8, unit: i == int(c.unit),
				turned: math.MinInt64}
			if c.class == newest {
				child.tag += n.expected()
			}
			m.nodes[key] = child
		}
		if n = child; i == 0 {
			n.weight = c.weight
		}
		path = slices.Insert(path, 0, n)
	}
	return path
}

// moveWaiting moves requests that wait at a node itself below it.
func (m *model) moveWaiting(n *modelNode, key uint64) {
	for _, r := range m.requests {
		if r.state == waits && r.path[0] == n {
			if m.nodes[key] == nil {
				m.nodes[key] = &modelNode{parent: n, tag: n.virtual, touched: m.now, weight: 1, page: 8,
					turned: math.MinInt64, order: n.order}
			}
			r.path = slices.Insert(r.path, 0, m.nodes[key])
		}
	}
}

func (m *model) arrive(id int, c *Claim, now int64) *modelRequest {
	m.pass(now)
	r := &modelRequest{id: id, factor: c.cost, claim: c}
	if m.isCalm() {
		m.classes[c.class].came = m.now
		r.state, r.began, r.due = inside, m.now, m.now+125e6
		r.expected = m.root.expected()
		r.charged = r.expected
		m.requests, m.running = append(m.requests, r), append(m.running, r)
		return r
	}
	for _, running := range m.running {
		if running.path == nil {
			running.path = m.path(running.claim)
			for _, n := range running.path {
				n.fade(m.now)
				n.tag = max(n.tag, n.parent.virtual) + running.charged*running.factor/n.weight
			}
		}
	}
	r.path = m.path(c)
	for _, n := range r.path {
		n.fade(m.now)
	}
	leaf, unit := r.path[0], r.unit()
	lag := unit.tag - unit.parent.virtual
	r.expected = r.path[0].expected()
	atOnce := false
	m.classes[c.class].came = m.now
	if waiting, _ := m.count(m.root, waits); waiting == 0 && len(m.running) < m.slots &&
		!m.held(m.classes[c.class]) {
		atOnce = true
	} else {
		m.order++
	}
	for _, n := range r.path {
		if waiting, _ := m.count(n, waits); waiting == 0 {
			n.tag = max(n.tag, n.parent.virtual)
			n.order = m.order
		}
	}
	m.requests = append(m.requests, r)
	r.state = waits
	class := r.class(m)
	waiting, _ := m.count(unit, waits)
	if waiting == 1 && lag <= class.expected() {
		unit.page = 8
	}
	place := m.now - int64(c.waited)
	if c.waited > 0 && place > leaf.turned {
		leaf.placed, leaf.placeAt = 8, place
	}
	if !atOnce && leaf.placed > 0 {
		class.list(leaf, leaf.placeAt)
	}
	if !atOnce && waiting == 1 && unit.page > 0 && lag <= 8*class.expected() {
		class.list(unit, m.now)
	}
	if atOnce {
		m.turn(r)
		m.begin(r, nil)
	} else {
		m.waited = m.now
	}
	m.dispatch()
	m.bound()
	m.dispatch()
	return r
}

// unit returns the node that has turns by arrival.
func (r *modelRequest) unit() *modelNode {
	for i, n := range r.path {
		if n.unit {
			return r.path[i]
		}
	}
	panic("no unit")
}

// list adds a node behind those that have waited as long or longer.
func (n *modelNode) list(child *modelNode, since int64) {
	if slices.Contains(n.arrivals, child) {
		return
	}
	child.since = since
	i := 0
	for i < len(n.arrivals) && n.arrivals[i].since <= since {
		i++
	}
	n.arrivals = slices.Insert(n.arrivals, i, child)
}

// turn counts a turn of a request's client.
func (m *model) turn(r *modelRequest) {
	unit, leaf := r.unit(), r.path[0]
	unit.page = max(unit.page-1, 0)
	leaf.placed = max(leaf.placed-1, 0)
	leaf.turned = m.now
}

func (m *model) begin(r *modelRequest, inOrder *modelNode) {
	starts := map[*modelNode]float64{}
	for _, n := range r.path {
		starts[n] = n.tag
		if n == r.class(m) || r.class(m) == m.classes[newest] {
			break
		}
		for _, child := range m.waitingChildren(n.parent) {
			starts[n] = min(starts[n], child.tag)
		}
	}
	r.state, r.began = inside, m.now
	r.expected = r.path[0].expected()
	for _, n := range r.path {
		start, below := starts[n]
		if !below {
			start = n.tag
		}
		n.parent.virtual = max(n.parent.virtual, start)
		n.fade(m.now)
		n.charge(r.expected*r.factor, m.now)
		if n.unit && inOrder == r.path[0] && n != inOrder {
			n.visits += r.expected
		}
		n.order = m.order
	}
	r.charged, r.due = r.expected, m.now+125e6
	m.running = append(m.running, r)
}

func (m *model) dispatch() {
	for len(m.running) < m.slots {
		if waiting, _ := m.count(m.root, waits); waiting == 0 {
			return
		}
		class := m.class()
		if m.held(class) {
			next := class
			for i := 0; class == next; i++ {
				if m.classes[i] == next {
					return
				}
				older := m.classes[i]
				if waiting, _ := m.count(older, waits); waiting > 0 && !m.held(older) {
					class = older
				}
			}
		}
		n := m.next(class)
		for _, r := range m.requests {
			if r.state == waits && r.path[0] == n {
				m.order++
				m.begin(r, r.class(m).inOrder)
				m.turn(r)
				m.leaveArrivals()
				break
			}
		}
	}
}

// class returns the class of a request.
func (r *modelRequest) class(m *model) *modelNode {
	for _, n := range r.path {
		if slices.Contains(m.classes[:], n) {
			return n
		}
	}
	return nil
}

// leaveArrivals removes nodes without waiting requests.
func (m *model) leaveArrivals() {
	for _, class := range m.classes {
		for i, n := range slices.Backward(class.arrivals) {
			if waiting, _ := m.count(n, waits); waiting == 0 || n.placed == 0 && (!n.unit || n.page == 0) {
				class.arrivals = slices.Delete(class.arrivals, i, i+1)
			}
		}
	}
}

func (m *model) used() int {
	if m.workers > 0 {
		return min(m.slots, m.workers)
	}
	return m.slots
}

// inside counts the requests in progress of classes.
func (m *model) inside(classes []*modelNode) (n int) {
	for _, class := range classes {
		of, _ := m.count(class, inside)
		n += of
	}
	return n
}

// held reports whether a class must leave the free slots to older ones, itself or as one of the classes newer
// than another.
func (m *model) held(class *modelNode) bool {
	for i, from := range m.classes[:slices.Index(m.classes[:], class)+1] {
		most := m.used() - max(m.used()/8, 1)
		for _, newer := range m.classes[i:] {
			most += newer.proven
		}
		if m.cheapest(from) > 0 && m.used() >= 4 && m.inside(m.classes[i:]) >= most {
			return true
		}
	}
	return false
}

// cheapest returns the least cost of older classes whose clients come; 0 if there is none.
func (m *model) cheapest(class *modelNode) float64 {
	var costs []float64
	for _, older := range m.classes[:slices.Index(m.classes[:], class)] {
		if older.cost > 0 && m.now-older.came < 2e9 {
			costs = append(costs, older.cost)
		}
	}
	if len(costs) == 0 {
		return 0
	}
	return slices.Min(costs)
}

func (m *model) isExpensive(r *modelRequest, cost float64) bool {
	cheapest := m.cheapest(m.classes[r.claim.class])
	return cheapest > 0 && cost > 4*cheapest
}

// class returns the class that is next.
func (m *model) class() *modelNode {
	slots := m.slots
	for i, newer := range m.newer {
		older := m.classes[i]
		olderWaits, _ := m.count(older, waits)
		newerWaits, _ := m.count(newer, waits)
		olderInside, _ := m.count(older, inside)
		newerInside, _ := m.count(newer, inside)
		half := float64(slots) / 2
		first := older.tag <= newer.tag
		if float64(olderInside) < half && float64(newerInside) >= half {
			first = true
		}
		if float64(olderInside) >= half && float64(newerInside) < half {
			first = false
		}
		if olderWaits > 0 && (newerWaits == 0 || first) {
			return older
		}
		slots -= olderInside
	}
	return m.classes[newest]
}

// next returns the client of a class that is next.
func (m *model) next(n *modelNode) *modelNode {
	last := n.inOrder
	n.inOrder = nil
	for last == nil && len(n.arrivals) > 0 && n.inOrder == nil {
		n.inOrder = n.arrivals[0]
		for above := n.inOrder.parent; above != n; above = above.parent {
			if above.tag-above.parent.virtual > max(5e9*float64(m.slots), 64*n.expected()) ||
				above.unit && above.visits > 64*n.expected() {
				n.inOrder = nil
				break
			}
		}
		if n.inOrder == nil {
			n.arrivals = n.arrivals[1:]
		}
	}
	if n.inOrder != nil {
		n = n.inOrder
	}
	for children := m.waitingChildren(n); children != nil; children = m.waitingChildren(n) {
		n = slices.MinFunc(children, func(a, b *modelNode) int {
			return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.order, b.order))
		})
	}
	return n
}

func (m *model) bound() {
	for {
		waiting, _ := m.count(m.root, waits)
		if waiting <= m.queue {
			return
		}
		n, left := m.classes[newest], m.queue
		for i, newer := range m.newer {
			olderWaits, _ := m.count(m.classes[i], waits)
			newerWaits, _ := m.count(newer, waits)
			if float64(newerWaits) <= float64(left)/2 && float64(olderWaits) > float64(left)/2 {
				n = m.classes[i]
				break
			}
			left = max(left-olderWaits, 0)
		}
		last := func(n *modelNode) float64 {
			count, backlog := m.count(n, waits)
			return n.tag + backlog*(1-1/float64(count))/n.weight
		}
		for children := m.waitingChildren(n); children != nil; children = m.waitingChildren(n) {
			n = slices.MaxFunc(children, func(a, b *modelNode) int {
				return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.order, b.order))
			})
		}
		for _, r := range slices.Backward(m.requests) {
			if r.state == waits && r.path[0] == n {
				r.state = refused
				m.leaveArrivals()
				break
			}
		}
	}
}

func (m *model) done(r *modelRequest, now int64) {
	m.pass(now)
	cost := float64(m.now - r.began)
	class := m.classes[r.claim.class]
	part := min(float64(m.now-class.learned)/30e9, 0.125)
	if class.all++; class.all <= 8 {
		part = 1 / float64(class.all)
	}
	if class.cost == 0 {
		class.cost = cost
	}
	class.cost += part * min(cost-class.cost, class.cost)
	class.learned = m.now
	if class.recent++; class.recent > 64 {
		class.recent, class.took, class.spent = 32, class.took/2, class.spent/2
	}
	class.took += cost
	if m.isExpensive(r, cost) {
		class.proven = 0
		class.spent += cost
	} else if r.path != nil && class.spent <= class.took/2 {
		class.proven = min(class.proven+1, m.slots)
	}
	for i, n := range append(slices.Clone(r.path), m.root) {
		if n != m.root {
			n.charge((cost-r.charged)*r.factor, m.now)
		}
		of := 64
		if i == 0 && n != m.root {
			of = 8
		}
		n.ended = min(n.ended+1, of)
		n.mean += (cost - n.mean) / float64(n.ended)
	}
	m.end(r)
}

func (m *model) leave(r *modelRequest, now int64) {
	m.pass(now)
	if r.state == waits {
		r.state = ended
		m.leaveArrivals()
		m.dispatch()
		return
	}
	for _, n := range r.path {
		n.charge(-r.charged*r.factor, m.now)
	}
	m.end(r)
}

func (m *model) end(r *modelRequest) {
	r.state = ended
	m.running = slices.DeleteFunc(m.running, func(other *modelRequest) bool { return other == r })
	if r.path == nil {
		return // nothing waits
	}
	for i, class := range m.classes {
		half := float64(m.used()-max(m.used()/8, 1)) / 2
		if m.inside(m.classes[i:i+1]) == 0 || float64(m.inside(m.classes[i:])) < half {
			class.proven = 0
		}
	}
	m.dispatch()
}

// check tests that the state of a scheduler is consistent.
func check(t interface{ Fatalf(string, ...any) }, s *scheduler) {
	type sums struct {
		waiting, inside, children int
		backlog                   float64
		least                     []*node
	}
	below := map[*node]*sums{}
	of := func(n *node) *sums {
		if below[n] == nil {
			below[n] = &sums{}
		}
		return below[n]
	}
	resting := 0
	for key, n := range s.nodes {
		if n.key != key {
			t.Fatalf("node %x is kept as %x", n.key, key)
		}
		parent := of(n.parent)
		parent.children++
		if n.waiting > 0 {
			parent.least = append(parent.least, n)
		}
		if n.resting {
			resting++
		}
		if idle := n.waiting == 0 && n.inside == 0 && n.children == 0; idle != n.resting {
			t.Fatalf("node %+v: idle %v", n, idle)
		}
		if !n.parent.fixed && s.nodes[n.parent.key] != n.parent {
			t.Fatalf("node %+v has a parent that is not kept", n)
		}
		for r := n.head; r != nil; r = r.next {
			if r.state != waits || r.leaf != n || r.next == nil && n.tail != r {
				t.Fatalf("request %+v waits at %+v", r, n)
			}
			for up := n; up != &s.root; up = up.parent {
				of(up).waiting++
				of(up).backlog += r.expected
			}
		}
	}
	inUse, calm := 0, 0
	for r := s.running.oldest; r != nil; r = r.next {
		inUse++
		if r.state != inside || r.next == nil && r != s.running.youngest || r.next != nil && r.next.due < r.due {
			t.Fatalf("request %+v runs", r)
		}
		if r.leaf == nil {
			calm++
			continue
		}
		for up := r.leaf; up != &s.root; up = up.parent {
			of(up).inside++
		}
	}
	if calm != s.calm || calm > 0 && s.waiting > 0 {
		t.Fatalf("%d requests have no node, want %d; %d wait", calm, s.calm, s.waiting)
	}
	look := func(n *node) {
		want := of(n)
		if n.waiting != want.waiting || n.inside != want.inside || n.children != want.children ||
			n.backlog != want.backlog {
			t.Fatalf("node %+v, want %+v", n, want)
		}
		for by, h := range []heap{n.least, n.heaviest} {
			if len(h) != len(want.least) {
				t.Fatalf("%d children in heap %d, want %d", len(h), by, len(want.least))
			}
			for i, p := range h {
				if child := p.node; int(child.at[by]) != i || p != child.entry(by) ||
					i > 0 && p.before(&h[(i-1)/2]) || child.parent != n || child.waiting == 0 {
					t.Fatalf("child %+v has index %d in heap %d", child, i, by)
				}
			}
		}
	}
	for _, n := range s.nodes {
		look(n)
	}
	for i := range s.classes {
		look(&s.classes[i].node)
	}
	for i := range s.newer {
		look(&s.newer[i])
	}
	if s.inside != inUse || s.inside != calm+s.classes[0].inside+s.newer[0].inside ||
		s.waiting != s.classes[0].waiting+s.newer[0].waiting {
		t.Fatalf("%d inside and %d wait, want %d and %+v %+v", s.inside, s.waiting, inUse, s.classes[0], s.newer[0])
	}
	arrivals := 0
	for i := range s.classes {
		c := &s.classes[i]
		for i, p := range c.arrivals {
			above := p.node.parent
			for !above.fixed {
				above = above.parent
			}
			if n := p.node; n.waiting == 0 || !n.listed || above != &c.node || int(n.at[sinceFirst]) != i ||
				p.key != float64(n.since) || i > 0 && p.before(&c.arrivals[(i-1)/2]) {
				t.Fatalf("%+v waits in order of arrival", n)
			}
		}
		arrivals += len(c.arrivals)
	}
	for _, n := range s.nodes {
		if n.listed {
			arrivals--
		}
	}
	if arrivals != 0 {
		t.Fatalf("%d too many wait in order of arrival", arrivals)
	}
	if s.waiting > s.queue || s.waiting > 0 && s.inside < s.slots && !s.held(s.class()) {
		t.Fatalf("%d wait of at most %d, %d are inside of %d", s.waiting, s.queue, s.inside, s.slots)
	}
	listed := 0
	for c := range s.idle.classes {
		var last *node
		for n := s.idle.classes[c].first; n != nil; n = n.younger {
			listed++
			if !n.resting || int(n.lagged) != c || n.earlier != last || last != nil && n.idle < last.idle {
				t.Fatalf("%+v rests in class %d", n, c)
			}
			last = n
		}
		if s.idle.classes[c].last != last || (last != nil) != (s.idle.occupied>>c&1 == 1) {
			t.Fatalf("class %d ends with %+v", c, last)
		}
	}
	if listed != s.idle.n || listed != resting || listed > maxIdle+1 {
		t.Fatalf("%d rest, %d are counted, %d listed", resting, s.idle.n, listed)
	}
}

// The scheduler behaves like the model for random sequences of calls.
func TestSchedulerMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := newScheduler(), newModel()
		var now int64
		slots := rapid.IntRange(1, 5).Draw(t, "slots")
		queue := rapid.IntRange(0, 12).Draw(t, "queue")
		set := func() {
			s.workers = rapid.IntRange(0, 5).Draw(t, "workers")
			m.workers = s.workers
			s.set(slots, queue, false, now)
			m.slots, m.queue = slots, queue
			m.pass(now)
			m.dispatch()
			m.bound()
			m.dispatch()
		}
		set()
		type both struct {
			turn  *Turn
			model *modelRequest
		}
		var all []both
		pick := func(t *rapid.T, state uint8) (both, bool) {
			var of []both
			for _, b := range all {
				if b.turn.state == state {
					of = append(of, b)
				}
			}
			if len(of) == 0 {
				return both{}, false
			}
			return of[rapid.IntRange(0, len(of)-1).Draw(t, "which")], true
		}
		for step := range rapid.IntRange(40, 160).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 19).Draw(t, "what"); {
			case what < 9:
				network, addr := uint64(rapid.IntRange(1, 4).Draw(t, "network")),
					uint64(rapid.IntRange(1, 3).Draw(t, "addr"))
				class := []uint8{0, newest, 3, newest}[network-1]
				c := &Claim{keys: [MaxParts + 1]uint64{network << 8, network<<8 | addr}, depth: 2, class: class,
					weight: 1}
				switch network { // keys of another hierarchy, as after a reload
				case 1:
					if rapid.Bool().Draw(t, "visitor") { // below its address
						c.keys[2], c.depth = network<<8|addr<<4, 3
					}
				case 2:
					c.keys, c.depth = [MaxParts + 1]uint64{network<<8 | addr}, 1
				case 3:
					c.keys = [MaxParts + 1]uint64{network << 8, network<<8 | 1<<4 | addr/2, network<<8 | addr}
					c.depth = 3
					c.unit = 1
				}
				c.cost = []float64{1, 0.75, 1.25}[addr-1]
				if addr > 1 && (network > 1 || c.depth > 2) { // a visitor
					c.waited = time.Duration(rapid.SampledFrom([]int64{0, 1e3, 5e6, 1e9, 20e9}).Draw(t, "waited"))
				}
				if network == 1 {
					c.weight = []float64{4, 0.5}[addr%2]
				}
				turn := new(Turn)
				s.arrive(turn, c, now)
				all = append(all, both{turn, m.arrive(len(all), c, now)})
			case what < 14:
				if b, ok := pick(t, inside); ok {
					s.done(b.turn, now)
					m.done(b.model, now)
				}
			case what < 16:
				state := []uint8{waits, inside}[what-14]
				if b, ok := pick(t, state); ok {
					s.leave(b.turn, now)
					m.leave(b.model, now)
				}
			case what < 19:
				now += rapid.SampledFrom([]int64{1e3, 5e6, 20e6, 130e6, 1500e6, 6e9}).Draw(t, "passes")
			default:
				slots, queue = rapid.IntRange(1, 5).Draw(t, "slots"), rapid.IntRange(0, 12).Draw(t, "queue")
				set()
			}
			check(t, s)
			for i, b := range all {
				if b.turn.state != b.model.state {
					t.Fatalf("step %d: request %d is in state %d, want %d", step, i, b.turn.state, b.model.state)
				}
			}
			for key, n := range s.nodes {
				if want := m.nodes[key]; n.tag != want.tag || n.virtual != want.virtual || n.mean != want.mean {
					t.Fatalf("step %d: node %x is %s, want %s", step, key, fmt.Sprint(n.tag, n.virtual, n.mean),
						fmt.Sprint(want.tag, want.virtual, want.mean))
				}
			}
		}
	})
}
