package share

import "math"

// A node is a part of the hierarchy: a class, a network or a client. Among its siblings it is a flow
// of start-time fair queueing (Goyal, Vin, Cheng 1996). For its children it is a server (Goyal,
// Guo, Vin 1996).
//
// Tags and virtual times are in ns of upstream time, divided by a weight.
type node struct {
	parent *node
	key    uint64 // its key in scheduler.nodes
	fixed  bool   // a class, or several: it is in no heap and is never forgotten

	// As a child among its siblings.
	tag     float64 // in the parent's virtual time: the start of its next request, the finish of its last
	weight  float64
	touched int64    // when its lag was last faded
	backlog float64  // expected cost in ns of the requests that wait below it
	last    float64  // approximate start tag of the last request that waits below it
	waiting int      // requests below it that wait
	inside  int      // requests below it that are in progress
	order   uint64   // among equal tags: since when it waits; lower is earlier
	at      [3]int32 // its index in each heap: the parent's two, while it waits, and class.arrivals

	used  float64 // ns that its requests have used, after their factors; fades like the lag
	heavy bool    // in group.heavy

	mean  float64 // mean ns of its recent requests
	ended int     // number of requests in mean, at most meanOf or meanAbove

	// As the parent of its children.
	virtual  float64 // the start tag of the latest request that began
	children int
	least    heap // waiting children, next turn first
	heaviest heap // waiting children, last turn first

	head, tail *Turn // of a client: waiting requests in order of arrival

	// While it is idle: see idle.
	resting bool
	lagged  uint8
	idle    int64 // since when

	// Turns by arrival: see class.
	unit    bool    // a network, or a client that is in none
	listed  bool    // in class.arrivals
	page    int     // of a unit: turns that it may have by arrival
	visits  float64 // of a unit: ns that visitors below it used by their places; fades like the lag
	placed  int     // of a visitor: turns that it may have by its place
	placeAt int64   // since when it has been waiting
	since   int64   // since when it waits, for class.arrivals
	number  uint64  // among equals in class.arrivals: lower is earlier
	turned  int64   // when a visitor had its last turn

	earlier, younger *node // neighbors in a list of idle nodes
}

// A nodeList is a list of nodes. A node is in one list at most.
type nodeList struct{ first, last *node }

func (l *nodeList) append(n *node) {
	n.earlier, n.younger = l.last, nil
	if l.last != nil {
		l.last.younger = n
	} else {
		l.first = n
	}
	l.last = n
}

func (l *nodeList) remove(n *node) {
	if n.earlier != nil {
		n.earlier.younger = n.younger
	} else {
		l.first = n.younger
	}
	if n.younger != nil {
		n.younger.earlier = n.earlier
	} else {
		l.last = n.earlier
	}
	n.earlier, n.younger = nil, nil
}

const (
	halfLife    = 60e9 // ns in which the lag fades by half
	fadeStep    = 1e9  // ns between updates of the fading
	firstGuess  = 10e6 // expected ns of a request before any is measured
	maxExpected = 10e9 // ns: a request is charged at most this much in advance
	meanOf      = 8    // approximate number of requests in a client's moving mean
	meanAbove   = 64   // the same for a node above a client
)

// expected returns the expected cost of the next request: the mean of the node, or of the nearest
// node above it that has a mean. It is a whole number, so that sums are exact.
func (n *node) expected() float64 {
	for ; n != nil; n = n.parent {
		if n.ended > 0 {
			return math.Ceil(min(n.mean, maxExpected))
		}
	}
	return firstGuess
}

// learn adds a cost to the moving mean of about that many requests.
func (n *node) learn(cost float64, of int) {
	n.ended = min(n.ended+1, of)
	n.mean += (cost - n.mean) / float64(n.ended)
}

// unitOf returns the unit that the node is in, or itself.
func (n *node) unitOf() *node {
	for !n.unit && !n.parent.fixed {
		n = n.parent
	}
	return n
}

// top returns the node's ancestor below its class, or itself.
func (n *node) top() *node {
	for !n.parent.fixed {
		n = n.parent
	}
	return n
}

// lag returns how much more time the node has used than its siblings.
func (n *node) lag() float64 { return n.tag - n.parent.virtual }

// fade reduces the lag with time. It is called several times for each node and request, so the usual case, that
// little time has passed, is short enough to be compiled into the callers.
func (n *node) fade(now int64) {
	if now-n.touched >= fadeStep {
		n.fadeBy(now-n.touched, now)
	}
}

func (n *node) fadeBy(passed, now int64) {
	n.touched = now
	part := math.Exp2(-float64(passed) / halfLife)
	n.visits *= part
	n.used *= part
	if lag := n.lag(); lag > 0 {
		n.tag -= lag * (1 - part)
		n.fix()
	}
}

// charge adds a cost; a negative cost is a refund.
func (n *node) charge(cost float64, now int64) {
	n.chargeElsewhere(cost, now)
	n.used += cost
}

// chargeElsewhere adds a cost that another member of the group has charged.
func (n *node) chargeElsewhere(cost float64, now int64) {
	n.fade(now)
	n.tag += cost / n.weight
	n.fix()
}

// noteBegin records that a request below the node begins, with the cost to charge.
func (n *node) noteBegin(cost float64, now int64) {
	n.fade(now)
	n.tag += cost / n.weight
	n.used += cost
	n.inside++
}

// noteWait records that one more request below the node waits.
func (n *node) noteWait(cost float64, order uint64) {
	n.waiting++
	n.backlog += cost
	if n.waiting > 1 {
		n.fix()
		return
	}
	n.tag = max(n.tag, n.parent.virtual)
	n.order = order
	if !n.fixed {
		n.weigh()
		n.parent.least.push(n, leastFirst)
		n.parent.heaviest.push(n, heaviestFirst)
	}
}

// noteLeave records that one request fewer waits.
func (n *node) noteLeave(cost float64) {
	n.waiting--
	if n.waiting > 0 {
		n.backlog = max(n.backlog-cost, 0)
		n.fix()
		return
	}
	n.backlog = 0
	if !n.fixed {
		n.parent.least.remove(n, leastFirst)
		n.parent.heaviest.remove(n, heaviestFirst)
	}
}

// fix restores the node's positions in the heaps of its waiting siblings.
func (n *node) fix() {
	if n.waiting > 0 && !n.fixed {
		n.move()
	}
}

// move is fix for a node that waits and is in heaps.
func (n *node) move() {
	n.weigh()
	n.parent.least.fix(n, leastFirst)
	n.parent.heaviest.fix(n, heaviestFirst)
}

func (n *node) weigh() {
	n.last = n.tag + n.backlog*(1-1/float64(n.waiting))/n.weight
}

// The orders of waiting nodes.
const (
	leastFirst    = 0 // least start tag first; among equals the longest wait
	heaviestFirst = 1 // latest newest request first; among equals the later arrival
	sinceFirst    = 2 // longest wait first
)

// A heap is a binary heap of nodes that store their indexes. It holds the values to compare, so
// that comparing does not access the nodes.
type heap []heapEntry

type heapEntry struct {
	key   float64
	order uint64
	node  *node
}

func (n *node) entry(by int) heapEntry {
	switch by {
	case leastFirst:
		return heapEntry{n.tag, n.order, n}
	case heaviestFirst:
		return heapEntry{-n.last, ^n.order, n}
	}
	return heapEntry{float64(n.since), n.number, n}
}

func (p *heapEntry) before(other *heapEntry) bool {
	return p.key < other.key || p.key == other.key && p.order < other.order
}

func (h *heap) push(n *node, by int) {
	*h = append(*h, n.entry(by))
	h.up(len(*h)-1, by)
}

func (h *heap) remove(n *node, by int) {
	i, end := int(n.at[by]), len(*h)-1
	moved := (*h)[end]
	(*h)[end] = heapEntry{}
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
	(*h)[i] = n.entry(by)
	if len(*h) > 1 && !h.up(i, by) {
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
