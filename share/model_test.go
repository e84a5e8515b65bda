package share

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

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
}

type modelNode struct {
	arrivals []*modelNode // of a class: children that wait, in order of arrival
	inOrder  bool
	page     int

	parent               *modelNode
	tag, virtual, weight float64
	touched              int64
	mean                 float64
	ended                int
	order                int
}

type modelRequest struct {
	id       int
	path     []*modelNode // from the client up to the root's child
	expected float64
	charged  float64
	began    int64
	due      int64
	state    uint8
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
				n.charge(so-r.charged, m.now)
			}
			r.charged = so
		}
		r.due = m.now + 125e6
		m.running = append(m.running[1:], r)
	}
}

func (m *model) arrive(id int, c *Claim, now int64) *modelRequest {
	m.pass(now)
	n := m.classes[c.class]
	r := &modelRequest{id: id}
	for up := n; up != m.root; up = up.parent {
		r.path = append(r.path, up)
	}
	for i, key := range c.keys[:c.depth] {
		child := m.nodes[key]
		if child == nil {
			child = &modelNode{parent: n, tag: n.virtual, touched: m.now, weight: 1, page: 8}
			if c.class == newest {
				child.tag += n.expected()
			}
			m.nodes[key] = child
		}
		if n = child; i == 0 {
			n.weight = c.weight
		}
		r.path = slices.Insert(r.path, 0, n)
	}
	for _, n := range r.path {
		n.fade(m.now)
	}
	lag := r.top(m).tag - r.class(m).virtual
	r.expected = r.path[0].expected()
	atOnce := false
	if waiting, _ := m.count(m.root, waits); waiting == 0 && len(m.running) < m.slots {
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
	class, top := r.class(m), r.top(m)
	waiting, _ := m.count(top, waits)
	if waiting == 1 && lag <= class.expected() {
		top.page = 8
	}
	if atOnce {
		top.page = max(top.page-1, 0)
	} else if waiting == 1 && top.page > 0 && lag <= 8*class.expected() {
		class.arrivals = append(class.arrivals, top)
	}
	if atOnce {
		m.begin(r, false)
	}
	m.dispatch()
	m.bound()
	return r
}

func (m *model) begin(r *modelRequest, byArrival bool) {
	r.state, r.began = inside, m.now
	r.expected = r.path[0].expected()
	for _, n := range r.path {
		if !byArrival || n != r.top(m) || r.class(m) == m.classes[newest] {
			n.parent.virtual = max(n.parent.virtual, n.tag)
		}
		n.fade(m.now)
		n.charge(r.expected, m.now)
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
		n := m.next()
		for _, r := range m.requests {
			if r.state == waits && r.path[0] == n {
				m.order++
				m.begin(r, r.class(m).inOrder)
				r.top(m).page = max(r.top(m).page-1, 0)
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

// top returns the node below the class.
func (r *modelRequest) top(m *model) *modelNode { return r.path[slices.Index(r.path, r.class(m))-1] }

// leaveArrivals removes nodes without waiting requests.
func (m *model) leaveArrivals() {
	for _, class := range m.classes {
		for i, n := range slices.Backward(class.arrivals) {
			if waiting, _ := m.count(n, waits); waiting == 0 || n.page == 0 {
				class.arrivals = slices.Delete(class.arrivals, i, i+1)
			}
		}
	}
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

// next returns the client that is next.
func (m *model) next() *modelNode {
	n := m.class()
	if n.inOrder = !n.inOrder && len(n.arrivals) > 0; n.inOrder {
		n = n.arrivals[0]
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
	for i, n := range append(slices.Clone(r.path), m.root) {
		if n != m.root {
			n.charge(cost-r.charged, m.now)
		}
		of := 64
		if i == 0 {
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
		return
	}
	for _, n := range r.path {
		n.charge(-r.charged, m.now)
	}
	m.end(r)
}

func (m *model) end(r *modelRequest) {
	r.state = ended
	m.running = slices.DeleteFunc(m.running, func(other *modelRequest) bool { return other == r })
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
	inUse := 0
	for r := s.running.oldest; r != nil; r = r.next {
		inUse++
		if r.state != inside || r.next == nil && r != s.running.youngest || r.next != nil && r.next.due < r.due {
			t.Fatalf("request %+v runs", r)
		}
		for up := r.leaf; up != &s.root; up = up.parent {
			of(up).inside++
		}
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
	if s.inside != inUse || s.inside != s.classes[0].inside+s.newer[0].inside ||
		s.waiting != s.classes[0].waiting+s.newer[0].waiting {
		t.Fatalf("%d inside and %d wait, want %d and %+v %+v", s.inside, s.waiting, inUse, s.classes[0], s.newer[0])
	}
	for i := range s.classes {
		c := &s.classes[i]
		arrivals := 0
		for n := c.arrivals.first; n != nil; n = n.younger {
			arrivals++
			if n.waiting == 0 || !n.listed || n.parent != &c.node || n.younger == nil && n != c.arrivals.last {
				t.Fatalf("%+v waits in order of arrival", n)
			}
		}
		for _, entry := range c.least {
			if entry.node.listed {
				arrivals--
			}
		}
		if arrivals != 0 {
			t.Fatalf("%d too many wait in order of arrival", arrivals)
		}
	}
	if s.waiting > s.queue || s.waiting > 0 && s.inside < s.slots {
		t.Fatalf("%d wait of at most %d, %d are inside of %d", s.waiting, s.queue, s.inside, s.slots)
	}
	listed := 0
	for c := range s.idle.classes {
		var last *node
		for n := s.idle.classes[c].first; n != nil; n = n.younger {
			listed++
			if !n.resting || int(n.lagged) != c || n.earlier != last || last != nil && n.since < last.since {
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
			s.set(slots, queue, false, now)
			m.slots, m.queue = slots, queue
			m.pass(now)
			m.dispatch()
			m.bound()
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
				c := &Claim{keys: [MaxParts]uint64{network << 8, network<<8 | addr}, depth: 2, class: class, weight: 1}
				switch network { // keys of another hierarchy, as after a reload
				case 2:
					c.keys, c.depth = [MaxParts]uint64{network<<8 | addr}, 1
				case 3:
					c.keys, c.depth = [MaxParts]uint64{network << 8, network<<8 | 1<<4 | addr/2, network<<8 | addr}, 3
				}
				if network == 1 {
					c.weight = []float64{4, 0.5}[addr%2]
				}
				turn := &Turn{}
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
				now += rapid.SampledFrom([]int64{1e3, 5e6, 20e6, 130e6, 1500e6}).Draw(t, "passes")
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
