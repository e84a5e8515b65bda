package share

import (
	"encoding/binary"
	"math"
)

// A message is the part of a report for the other members.
type message struct {
	capacity int
	inside   int
	waiting  int
	samples  bool // requests finished recently
	demand   demands
	virtual  [len(ages)]float64 // of the classes
	heavy    []heavyNode
}

// A heavyNode says what a network or client has used.
type heavyNode struct {
	key    uint64
	used   float64 // ns; fades
	weight float64
	parent uint16 // index in message.heavy of the node above it, or topOf and its class
	unit   bool
}

const (
	messageVersion = 1
	topOf          = 0x4000
	unitBit        = 0x8000

	headBytes  = 2 + 3*4 + len(ages)*(4+4+8) + 2
	heavyBytes = 8 + 4 + 4 + 2

	requestsMost = 1 << 24 // bound of numbers of requests in a message
)

// append appends the message.
func (m *message) append(b []byte) []byte {
	order := binary.LittleEndian
	flags := byte(0)
	if m.samples {
		flags = 1
	}
	b = append(b, messageVersion, flags)
	for _, n := range [...]int{m.capacity, m.inside, m.waiting} {
		b = order.AppendUint32(b, uint32(min(n, requestsMost)))
	}
	for i := range m.demand {
		b = order.AppendUint32(b, math.Float32bits(float32(m.demand[i].slots)))
		b = order.AppendUint32(b, math.Float32bits(float32(m.demand[i].networks)))
		b = order.AppendUint64(b, math.Float64bits(m.virtual[i]))
	}
	b = order.AppendUint16(b, uint16(len(m.heavy)))
	for i := range m.heavy {
		h := &m.heavy[i]
		parent := h.parent
		if h.unit {
			parent |= unitBit
		}
		b = order.AppendUint64(b, h.key)
		b = order.AppendUint32(b, math.Float32bits(float32(h.used)))
		b = order.AppendUint32(b, math.Float32bits(float32(h.weight)))
		b = order.AppendUint16(b, parent)
	}
	return b
}

// parse replaces m by a message. It returns false, and leaves m unusable, if the message is of another
// version or makes no sense.
func (m *message) parse(b []byte) bool {
	order := binary.LittleEndian
	*m = message{}
	if len(b) < headBytes || b[0] != messageVersion {
		return false
	}
	m.samples = b[1]&1 != 0
	b = b[2:]
	for _, n := range [...]*int{&m.capacity, &m.inside, &m.waiting} {
		*n = int(order.Uint32(b))
		if b = b[4:]; *n > requestsMost {
			return false
		}
	}
	real := func(most float64) (x float64, ok bool) {
		x = float64(math.Float32frombits(order.Uint32(b)))
		b = b[4:]
		return x, x >= 0 && x <= most
	}
	for i := range m.demand {
		var ok, ok2 bool
		m.demand[i].slots, ok = real(requestsMost)
		m.demand[i].networks, ok2 = real(requestsMost)
		m.virtual[i] = math.Float64frombits(order.Uint64(b))
		if b = b[8:]; !ok || !ok2 || !(math.Abs(m.virtual[i]) < 1e20) ||
			m.demand[i].slots > 0 && m.demand[i].networks < leastNetworks {
			return false
		}
	}
	n := int(order.Uint16(b))
	if b = b[2:]; n > heavyMost || len(b) != n*heavyBytes {
		return false
	}
	m.heavy = make([]heavyNode, n)
	for i := range m.heavy {
		h := &m.heavy[i]
		h.key = order.Uint64(b)
		b = b[8:]
		var ok, ok2 bool
		h.used, ok = real(1e18)
		h.weight, ok2 = real(1024)
		h.parent = order.Uint16(b)
		b = b[2:]
		h.unit = h.parent&unitBit != 0
		h.parent &^= unitBit
		top := h.parent >= topOf && int(h.parent-topOf) < len(ages)
		if !ok || !ok2 || h.weight < 1./1024 || !top && int(h.parent) >= i {
			return false
		}
	}
	return true
}
