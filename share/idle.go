package share

import "math/bits"

// Bounds of what is remembered of clients and networks without a request.
const (
	maxIdle   = 1 << 14
	idleFor   = 60e9 // ns that a node is kept whose lag is gone; each class above it half-life longer
	idleClass = 32
	maxSpare  = 1 << 10 // nodes kept for use again
)

// An idle is the nodes without children and without requests, by how far they
// are from fresh: class c holds those whose lag was about 2^c/2 ms when they
// came to rest, in the order they did. The nearest to fresh are forgotten
// first.
type idle struct {
	classes  [idleClass]struct{ oldest, youngest *node }
	occupied uint32 // bit c: class c holds some
	n        int
	next     int // class that is looked at next
}

func (l *idle) add(n *node, now int64) {
	n.class = uint8(min(bits.Len64(uint64(max(n.lag(), 0)/1e6)), idleClass-1))
	n.since, n.resting = now, true
	c := &l.classes[n.class]
	n.earlier, n.younger = c.youngest, nil
	if c.youngest != nil {
		c.youngest.younger = n
	} else {
		c.oldest = n
	}
	c.youngest = n
	l.occupied |= 1 << n.class
	l.n++
}

func (l *idle) remove(n *node) {
	c := &l.classes[n.class]
	if n.earlier != nil {
		n.earlier.younger = n.younger
	} else {
		c.oldest = n.younger
	}
	if n.younger != nil {
		n.younger.earlier = n.earlier
	} else {
		c.youngest = n.earlier
	}
	if c.oldest == nil {
		l.occupied &^= 1 << n.class
	}
	n.earlier, n.younger, n.resting = nil, nil, false
	l.n--
}

// stale returns a node that is to be forgotten: the nearest to fresh if there
// are too many, else one that has rested long enough. It looks at one class in
// each call.
func (l *idle) stale(now int64) *node {
	if l.n > maxIdle {
		return l.classes[bits.TrailingZeros32(l.occupied)].oldest
	}
	c := l.next
	l.next = (l.next + 1) % idleClass
	if n := l.classes[c].oldest; n != nil && now-n.since > idleFor*int64(1+c) {
		l.next = c
		return n
	}
	return nil
}
