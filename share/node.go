package share

import "math"

// A node is a part of the hierarchy: a side, a network, a client. Among its
// siblings it is a flow of start-time fair queueing (Goyal, Vin, Cheng 1996),
// for its children it is a server of its own (Goyal, Guo, Vin 1996).
//
// Tags and virtual times are ns of the upstream's time, divided by a weight.
type node struct {
	parent *node
	key    uint64 // what scheduler.nodes has it under

	// Among its siblings.
	tag     float64 // in the parent's virtual time: the start of its next request, the finish of its last
	weight  float64
	touched int64    // when its lag faded last
	backlog float64  // ns that what waits below it is expected to cost
	last    float64  // about the start tag of the last request that waits below it
	waiting int      // requests below it that wait
	inside  int      // requests below it that the upstream works on
	order   uint64   // among equal tags: since when it waits; lower is earlier
	at      [2]int32 // its places in the parent's heaps, while it waits

	mean  float64 // ns that its requests took lately, on average
	ended int     // of how many, at most meanOf or meanAbove

	// Of its children.
	virtual  float64 // the start tag of the latest request that began
	children int
	least    heap // of waiting children: whose turn is next
	heaviest heap // of waiting children: who would be served last

	head, tail *Turn // of a client: requests that wait, in the order they came

	// While it is idle: see idle.
	resting          bool
	class            uint8
	since            int64
	earlier, younger *node
}

const (
	halfLife    = 60e9 // ns: old use fades by half in a minute
	fadeStep    = 1e9  // ns: but it is not looked at more often
	firstGuess  = 10e6 // ns that a request is expected to take while nothing is known
	maxExpected = 10e9 // ns: nobody is charged more than this ahead
	meanOf      = 8    // requests of a client's moving mean, about
	meanAbove   = 64   // the same, of a node above it
)

// expected returns what the next request is expected to cost: the mean of the
// node, or of the nearest one above it that has one. It is a whole number, so
// that sums are exact.
func (n *node) expected() float64 {
	for ; n != nil; n = n.parent {
		if n.ended > 0 {
			return math.Ceil(min(n.mean, maxExpected))
		}
	}
	return firstGuess
}

// learn adds a cost to the mean of about so many requests.
func (n *node) learn(cost float64, of int) {
	n.ended = min(n.ended+1, of)
	n.mean += (cost - n.mean) / float64(n.ended)
}

// lag returns how much more than its siblings the node has had.
func (n *node) lag() float64 { return n.tag - n.parent.virtual }

// fade lets old use fade.
func (n *node) fade(now int64) {
	passed := now - n.touched
	if passed < fadeStep {
		return
	}
	n.touched = now
	if lag := n.lag(); lag > 0 {
		n.tag -= lag * (1 - math.Exp2(-float64(passed)/halfLife))
		n.fix()
	}
}

// charge adds a cost, or takes it back when it is below 0.
func (n *node) charge(cost float64, now int64) {
	n.fade(now)
	n.tag += cost / n.weight
	n.fix()
}

// begins notes that a request below the node begins, which is expected to cost
// so much.
func (n *node) begins(cost float64, now int64) {
	n.fade(now)
	n.parent.virtual = max(n.parent.virtual, n.tag)
	n.tag += cost / n.weight
	n.inside++
}

// joins notes that one more request below the node waits.
func (n *node) joins(cost float64, order uint64) {
	n.waiting++
	n.backlog += cost
	if n.waiting > 1 {
		n.fix()
		return
	}
	n.tag = max(n.tag, n.parent.virtual)
	n.order = order
	n.weigh()
	if n.parent.parent != nil { // sides are in no heap
		n.parent.least.push(n, leastFirst)
		n.parent.heaviest.push(n, heaviestFirst)
	}
}

// leaves notes that one request less waits.
func (n *node) leaves(cost float64) {
	n.waiting--
	if n.waiting > 0 {
		n.backlog = max(n.backlog-cost, 0)
		n.fix()
		return
	}
	n.backlog = 0
	if n.parent.parent != nil {
		n.parent.least.remove(n, leastFirst)
		n.parent.heaviest.remove(n, heaviestFirst)
	}
}

// fix puts the node where it belongs among its siblings that wait.
func (n *node) fix() {
	if n.waiting == 0 {
		return
	}
	n.weigh()
	if n.parent.parent != nil {
		n.parent.least.fix(n, leastFirst)
		n.parent.heaviest.fix(n, heaviestFirst)
	}
}

func (n *node) weigh() {
	n.last = n.tag + n.backlog*(1-1/float64(n.waiting))/n.weight
}

// The two orders of children that wait.
const (
	leastFirst    = 0 // least start tag, then who waits longer
	heaviestFirst = 1 // whose newest request would be served last, then who came later
)

// A heap is a binary heap of nodes that know their places. What they are
// compared by stands in it, so that the nodes need not be looked at.
type heap []place

type place struct {
	key   float64
	order uint64
	node  *node
}

func (n *node) place(by int) place {
	if by == leastFirst {
		return place{n.tag, n.order, n}
	}
	return place{-n.last, ^n.order, n}
}

func (p *place) before(other *place) bool {
	return p.key < other.key || p.key == other.key && p.order < other.order
}

func (h *heap) push(n *node, by int) {
	*h = append(*h, n.place(by))
	h.up(len(*h)-1, by)
}

func (h *heap) remove(n *node, by int) {
	i, end := int(n.at[by]), len(*h)-1
	moved := (*h)[end]
	(*h)[end] = place{}
	*h = (*h)[:end]
	if i == end {
		return
	}
	(*h)[i] = moved
	if !h.up(i, by) {
		h.down(i, by)
	}
}

func (h *heap) fix(n *node, by int) {
	i := int(n.at[by])
	(*h)[i] = n.place(by)
	if !h.up(i, by) {
		h.down(i, by)
	}
}

func (h *heap) up(i, by int) (moved bool) {
	of := *h
	p := of[i]
	for i > 0 {
		above := (i - 1) / 2
		if !p.before(&of[above]) {
			break
		}
		of[i] = of[above]
		of[i].node.at[by] = int32(i)
		i, moved = above, true
	}
	of[i] = p
	p.node.at[by] = int32(i)
	return moved
}

func (h *heap) down(i, by int) {
	of := *h
	p := of[i]
	for {
		below := 2*i + 1
		if below >= len(of) {
			break
		}
		if below+1 < len(of) && of[below+1].before(&of[below]) {
			below++
		}
		if !of[below].before(&p) {
			break
		}
		of[i] = of[below]
		of[i].node.at[by] = int32(i)
		i = below
	}
	of[i] = p
	p.node.at[by] = int32(i)
}
