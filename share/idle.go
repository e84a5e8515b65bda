package share

import "math/bits"

// Bounds of the memory of clients and networks without a request.
const (
	maxIdle   = 1 << 14
	idleFor   = 60e9 // ns that a node without lag is kept; each higher class is kept one half-life longer
	idleClass = 32
	maxSpare  = 1 << 10 // nodes kept for reuse
)

// An idle holds the nodes without children and without requests, by their lag. Class c holds nodes
// whose lag was about 2^c/2 ms when they became idle, oldest first. Nodes with the least lag are
// forgotten first.
type idle struct {
	classes  [idleClass]nodeList // the first is idle for longest
	occupied uint32              // bit c: class c is not empty
	n        int
	next     int // class to check next
}

func (l *idle) add(n *node, now int64) {
	n.lagged = uint8(min(bits.Len64(uint64(max(n.lag(), 0)/1e6)), idleClass-1))
	n.idle, n.resting = now, true
	l.classes[n.lagged].append(n)
	l.occupied |= 1 << n.lagged
	l.n++
}

func (l *idle) remove(n *node) {
	c := &l.classes[n.lagged]
	c.remove(n)
	if c.first == nil {
		l.occupied &^= 1 << n.lagged
	}
	n.resting = false
	l.n--
}

// stale returns a node to forget: if there are too many nodes, the one with the least lag; else one
// that has been idle for long enough. It checks one class in each call.
func (l *idle) stale(now int64) *node {
	if l.n > maxIdle {
		return l.classes[bits.TrailingZeros32(l.occupied)].first
	}
	c := l.next
	l.next = (l.next + 1) % idleClass
	if n := l.classes[c].first; n != nil && now-n.idle > idleFor*int64(1+c) {
		l.next = c
		return n
	}
	return nil
}
