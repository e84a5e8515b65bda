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
	sides        [2]*modelNode
	nodes        map[uint64]*modelNode
	requests     []*modelRequest // waiting ones in order of arrival; the others unordered
	running      []*modelRequest // in order of their next charge
	order        int
}

type modelNode struct {
	parent               *modelNode
	tag, virtual, weight float64
	touched              int64
	mean                 float64
	ended                int
	order                int
}

type modelRequest struct {
	id       int
	path     []*modelNode // from the client up to its side
	expected float64
	charged  float64
	began    int64
	due      int64
	state    uint8
}

func newModel() *model {
	m := &model{root: &modelNode{weight: 1}, nodes: map[uint64]*modelNode{}}
	for i := range m.sides {
		m.sides[i] = &modelNode{parent: m.root, weight: 1}
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
	n := m.sides[c.side]
	r := &modelRequest{id: id, path: []*modelNode{n}}
	for i, key := range c.keys[:c.depth] {
		child := m.nodes[key]
		if child == nil {
			child = &modelNode{parent: n, tag: n.virtual, touched: m.now, weight: 1}
			if c.side == newcomers {
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
	if atOnce {
		m.begin(r)
	}
	m.dispatch()
	m.bound()
	return r
}

func (m *model) begin(r *modelRequest) {
	r.state, r.began = inside, m.now
	r.expected = r.path[0].expected()
	for _, n := range r.path {
		n.fade(m.now)
		n.parent.virtual = max(n.parent.virtual, n.tag)
		n.charge(r.expected, m.now)
		n.order = m.order
	}
	r.charged, r.due = r.expected, m.now+125e6
	m.running = append(m.running, r)
}

func (m *model) dispatch() {
	for len(m.running) < m.slots {
		a, b := m.sides[standing], m.sides[newcomers]
		waitA, _ := m.count(a, waits)
		waitB, _ := m.count(b, waits)
		insideA, _ := m.count(a, inside)
		insideB, _ := m.count(b, inside)
		n := a
		switch {
		case waitA+waitB == 0:
			return
		case waitA == 0:
			n = b
		case waitB == 0:
		case insideA < m.slots/2 && insideB >= m.slots/2:
		case insideB < m.slots/2 && insideA >= m.slots/2, b.tag < a.tag:
			n = b
		}
		for children := m.waitingChildren(n); children != nil; children = m.waitingChildren(n) {
			n = slices.MinFunc(children, func(a, b *modelNode) int {
				return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.order, b.order))
			})
		}
		for _, r := range m.requests {
			if r.state == waits && r.path[0] == n {
				m.order++
				m.begin(r)
				break
			}
		}
	}
}

func (m *model) bound() {
	for {
		waiting, _ := m.count(m.root, waits)
		if waiting <= m.queue {
			return
		}
		n := m.sides[newcomers]
		ofNew, _ := m.count(n, waits)
		if ofOld, _ := m.count(m.sides[standing], waits); float64(ofNew) <= float64(m.queue)/2 &&
			float64(ofOld) > float64(m.queue)/2 {
			n = m.sides[standing]
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
		if n.parent.parent != &s.root && s.nodes[n.parent.key] != n.parent {
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
	for i := range s.sides {
		look(&s.sides[i])
	}
	if s.inside != inUse || s.inside != s.sides[0].inside+s.sides[1].inside ||
		s.waiting != s.sides[0].waiting+s.sides[1].waiting {
		t.Fatalf("%d inside and %d wait, want %d and %+v %+v", s.inside, s.waiting, inUse, s.sides[0], s.sides[1])
	}
	if s.waiting > s.queue || s.waiting > 0 && s.inside < s.slots {
		t.Fatalf("%d wait of at most %d, %d are inside of %d", s.waiting, s.queue, s.inside, s.slots)
	}
	listed := 0
	for c := range s.idle.classes {
		var last *node
		for n := s.idle.classes[c].oldest; n != nil; n = n.younger {
			listed++
			if !n.resting || int(n.class) != c || n.earlier != last || last != nil && n.since < last.since {
				t.Fatalf("%+v rests in class %d", n, c)
			}
			last = n
		}
		if s.idle.classes[c].youngest != last || (last != nil) != (s.idle.occupied>>c&1 == 1) {
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
				side := uint8(network % 2)
				c := &Claim{keys: [MaxParts]uint64{network << 8, network<<8 | addr}, depth: 2, side: side, weight: 1}
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
