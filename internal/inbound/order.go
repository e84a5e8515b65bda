package inbound

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// An order says whether the lines of a connTable are in order. A request changes the
// state of its connection twice, but the order only matters when a connection has to be
// closed. So usually the changes are only noted, without a lock. At a bound, settle
// puts the lines in the order that they would have if each change had been made at
// once. From then on each change is made at once, until no bound was met for 10 to 20
// seconds: so a full table takes constant time per connection.
type order struct {
	changes atomic.Uint64 // how many were noted or made
	strict  atomic.Bool   // each change is made at once
	settled uint64        // changes up to this one were in order when strict ended

	needed    bool          // settle was called since relaxedAt
	relaxedAt time.Duration // when relax looked at needed
}

// calm is how long no bound may be met until changes are only noted.
const calm = 10 * time.Second

// A note is the last change of the state of a connection: its number, and in the
// lowest two bits the state.
type note struct{ bits atomic.Uint64 }

func (n *note) set(o *order, s state) { n.bits.Store(o.changes.Add(1)<<2 | uint64(s)) }

func (n *note) state() state { return state(n.bits.Load() & 3) }

// note notes a change of the state of a connection. If it returns true, the caller must
// call setState with the lock held. It is safe for concurrent use, without the lock.
func (t *connTable) note(e *entry, s state) (strict bool) {
	if t.strict.Load() {
		return true
	}
	if s == pending || e.noted.state() != s {
		e.noted.set(&t.order, s)
	}
	// settle sets strict before it reads the notes: it has read this one, or strict is true here.
	return t.strict.Load()
}

// settle makes the changes that were only noted, in their order. It takes time in
// proportion to the connections when it begins to be strict, and else a constant time.
func (t *connTable) settle() {
	t.needed = true
	if t.strict.Swap(true) {
		return
	}
	type change struct {
		*entry
		bits uint64
	}
	var late []change
	for e := t.all.first; e != nil; e = e.links[ofOpen].next {
		if bits := e.noted.bits.Load(); bits>>2 > t.settled || state(bits&3) != e.state {
			late = append(late, change{e, bits})
		}
	}
	slices.SortFunc(late, func(a, b change) int { return cmp.Compare(a.bits, b.bits) })
	for _, c := range late {
		t.drop(c.entry)
		t.push(c.entry, state(c.bits&3))
	}
}

// relax ends strictness if settle was not called for long. It must be called from time
// to time; now is measured from any fixed time.
func (t *connTable) relax(now time.Duration) {
	if now-t.relaxedAt < calm {
		return
	}
	if !t.needed && t.strict.Load() {
		t.settled = t.changes.Load()
		t.strict.Store(false)
	}
	t.needed, t.relaxedAt = false, now
}
