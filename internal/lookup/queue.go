package lookup

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Bounds of a queue.
const (
	maxWaiting  = 4096 // addresses that wait for their look-up
	maxNetworks = 8192 // networks that are remembered
	samples     = 8    // of those who wait, to find one that gives way
)

// A queue says which address is looked up next. Whoever sends forged claims
// from many addresses, or has a reverse zone that does not answer, must not
// keep a crawler waiting:
//
//   - Of a network (/24, /48) one address is looked up at a time.
//   - Networks wait in one of three lanes, each with places of its own: those
//     in which something was confirmed, those nothing is known of, and those
//     that were refused or did not answer. None takes a place of another.
//   - In a lane it is the turn of wide prefixes (/16, /32) in a circle; within
//     one, of its networks in a circle; within a network chance decides:
//     among confirmed addresses that are to be renewed, then among those never
//     looked up, then among those that had no answer.
//   - In the first two lanes a look-up that is slow gives its place up when
//     others wait, and goes on, or waits again, in the third (see line.hurry).
//   - When too many wait, one of those goes whose prefix has the most waiting.
//
// A queue is guarded by the lock of its line.
type queue struct {
	items    map[netip.Addr]*item // waiting or running: single-flight
	waiting  []*item
	networks map[netip.Prefix]*network
	wides    map[netip.Prefix]*wide // those with something waiting
	lanes    [lanes]laneState
	dropped  uint64
}

// A lane is what is known of a network.
type lane uint8

const (
	proven   lane = iota // something was confirmed there
	untried              // nothing is known
	doubtful             // it was refused, or its DNS did not answer
	lanes
)

type laneState struct {
	limit, running int
	ring           []*wide
}

// A turn says who comes first within a network.
type turn uint8

const (
	renewal turn = iota // it is confirmed already
	fresh               // it was never looked up, or had an answer long ago
	retrial             // its last look-up had no answer
	turns
)

// An item is an address that waits for its look-up or has it.
type item struct {
	addr    netip.Addr
	network *network
	turn    turn
	at, all int  // where it stands in its network's slice, in waiting
	lane    lane // in which it runs
	running bool
	hurried bool // told to give its place up
	cancel  context.CancelFunc
	hurry   *time.Timer   // tells it so; nil in the lane where nobody is hurried
	waiters int           // calls that wait for it: it is not dropped
	done    chan struct{} // closed at the end; nil: nobody waits
	result  any           // an *entry, for those who wait
}

type network struct {
	prefix  netip.Prefix
	wide    *wide // while something waits, or it is ready
	waiting [turns][]*item
	running bool
	ready   bool // it stands in a list of its wide prefix, maybe with nothing waiting any more
	rank    rank // the highest that was found
	failing bool // the last look-up had no answer
	refused bool // an answer was not what the site looks for
}

func (n *network) lane() lane {
	switch {
	case n.failing:
		return doubtful
	case n.rank == preferred:
		return proven
	case n.refused:
		return doubtful
	}
	return untried
}

func (n *network) load() int {
	return len(n.waiting[renewal]) + len(n.waiting[fresh]) + len(n.waiting[retrial])
}

type wide struct {
	prefix  netip.Prefix
	waiting int
	ready   [lanes][]*network
	inRing  [lanes]bool
}

func newQueue(limits [lanes]int) queue {
	q := queue{
		items:    make(map[netip.Addr]*item),
		networks: make(map[netip.Prefix]*network),
		wides:    make(map[netip.Prefix]*wide),
	}
	for i, limit := range limits {
		q.lanes[i].limit = limit
	}
	return q
}

// prefixes returns the network of an address and the wide prefix around it.
func prefixes(addr netip.Addr) (narrow, wide netip.Prefix) {
	if addr.Is4() {
		narrow, _ = addr.Prefix(24)
		wide, _ = addr.Prefix(16)
	} else {
		narrow, _ = addr.Prefix(48)
		wide, _ = addr.Prefix(32)
	}
	return narrow, wide
}

// push lets an address wait that is not in the queue. It returns nil when
// there is no room; must makes room in any case.
func (q *queue) push(addr netip.Addr, as turn, must bool) *item {
	narrow, _ := prefixes(addr)
	if len(q.waiting) >= maxWaiting && !q.makeRoom(addr, as) && !must {
		q.dropped++
		return nil
	}
	n := q.networks[narrow]
	if n == nil {
		if len(q.networks) >= maxNetworks {
			q.forgetOne()
		}
		n = &network{prefix: narrow}
		q.networks[narrow] = n
	}
	it := &item{addr: addr, network: n, turn: as}
	q.items[addr] = it
	q.add(it)
	return it
}

// makeRoom drops one that waits in a prefix with more waiting than that of
// addr has. A renewal takes the place of anything new.
func (q *queue) makeRoom(addr netip.Addr, as turn) bool {
	narrow, around := prefixes(addr)
	inWide, inNetwork := 0, 0
	if w := q.wides[around]; w != nil {
		inWide = w.waiting
	}
	if n := q.networks[narrow]; n != nil {
		inNetwork = n.load()
	}
	if as == renewal {
		inWide, inNetwork = -1, -1
	}
	var victim *item
	for range samples {
		it := q.waiting[rand.IntN(len(q.waiting))]
		w, n := it.network.wide.waiting, it.network.load()
		if it.waiters == 0 && it.turn != renewal && it.network.lane() != proven &&
			(w > inWide || w == inWide && n > inNetwork) {
			victim, inWide, inNetwork = it, w, n
		}
	}
	if victim == nil {
		return false
	}
	q.remove(victim)
	delete(q.items, victim.addr)
	q.dropped++
	if n := victim.network; n.load() == 0 && !n.running && n.rank == unconfirmed && !n.failing && !n.refused {
		delete(q.networks, n.prefix) // nothing is known of it
	}
	return true
}

// forgetOne forgets a network in which nothing happens: of a few that come by
// chance, the one that is lowest in rank.
func (q *queue) forgetOne() {
	var victim *network
	seen := 0
	for _, n := range q.networks {
		if n.running || n.load() > 0 {
			continue
		}
		if victim == nil || n.rank < victim.rank {
			victim = n
		}
		if seen++; seen == samples {
			break
		}
	}
	if victim != nil {
		delete(q.networks, victim.prefix)
	}
}

// add puts an item among those who wait.
func (q *queue) add(it *item) {
	n := it.network
	if n.wide == nil {
		_, around := prefixes(it.addr)
		w := q.wides[around]
		if w == nil {
			w = &wide{prefix: around}
			q.wides[around] = w
		}
		n.wide = w
	}
	list := &n.waiting[it.turn]
	it.at = len(*list)
	*list = append(*list, it)
	it.all = len(q.waiting)
	q.waiting = append(q.waiting, it)
	n.wide.waiting++
	q.makeReady(n)
}

// makeReady gives a network its turn in the circle, if it has something to
// look up and no look-up in progress.
func (q *queue) makeReady(n *network) {
	if n.ready || n.running || n.load() == 0 {
		return
	}
	n.ready = true
	k, w := n.lane(), n.wide
	if len(w.ready[k]) > 2*w.waiting+4 { // most have nothing any more: it was dropped
		w.ready[k] = slices.DeleteFunc(w.ready[k], func(n *network) bool { return n.load() == 0 && n.unready() })
	}
	w.ready[k] = append(w.ready[k], n)
	q.makeTurn(w, k)
}

// unready notes that a network with nothing waiting left the list of its wide
// prefix.
func (n *network) unready() bool {
	n.ready, n.wide = false, nil
	return true
}

func (q *queue) makeTurn(w *wide, k lane) {
	if w.inRing[k] || len(w.ready[k]) == 0 {
		return
	}
	l := &q.lanes[k]
	if len(l.ring) > 2*len(q.wides)+64 { // most have nothing any more: they were dropped
		l.ring = slices.DeleteFunc(l.ring, func(w *wide) bool {
			w.inRing[k] = len(w.ready[k]) > 0
			return !w.inRing[k]
		})
	}
	w.inRing[k] = true
	l.ring = append(l.ring, w)
}

// remove takes an item out from among those who wait.
func (q *queue) remove(it *item) {
	n := it.network
	list := &n.waiting[it.turn]
	last := len(*list) - 1
	(*list)[it.at] = (*list)[last]
	(*list)[it.at].at = it.at
	(*list)[last] = nil
	*list = (*list)[:last]

	last = len(q.waiting) - 1
	q.waiting[it.all] = q.waiting[last]
	q.waiting[it.all].all = it.all
	q.waiting[last] = nil
	q.waiting = q.waiting[:last]

	w := n.wide
	if n.load() == 0 {
		n.waiting = [turns][]*item{}
		if !n.ready {
			n.wide = nil
		}
	}
	if w.waiting--; w.waiting == 0 {
		delete(q.wides, w.prefix)
		for k, list := range w.ready {
			for _, n := range list {
				n.unready()
			}
			w.ready[k] = nil
		}
	}
}

// next takes the item whose turn it is in a lane that has a free place, and
// nil without one. The item runs from then on.
func (q *queue) next(k lane) *item {
	l := &q.lanes[k]
	if l.running >= l.limit {
		return nil
	}
	for len(l.ring) > 0 {
		w := l.ring[0]
		l.ring[0] = nil
		l.ring = l.ring[1:]
		w.inRing[k] = false
		n := w.pop(k)
		if n == nil {
			continue
		}
		q.makeTurn(w, k)

		first := renewal
		for len(n.waiting[first]) == 0 {
			first++
		}
		from := n.waiting[first]
		it := from[rand.IntN(len(from))]
		q.remove(it)
		it.running, it.hurried, it.lane = true, false, k
		n.running = true
		l.running++
		return it
	}
	return nil
}

// pop takes the network whose turn it is, nil if nothing waits in any.
func (w *wide) pop(k lane) *network {
	for len(w.ready[k]) > 0 {
		n := w.ready[k][0]
		w.ready[k][0] = nil
		w.ready[k] = w.ready[k][1:]
		if n.load() > 0 {
			n.ready = false
			return n
		}
		n.unready()
	}
	return nil
}

// crowded reports whether somebody waits for a place in a full lane.
func (q *queue) crowded(k lane) bool {
	l := &q.lanes[k]
	return l.running >= l.limit && slices.ContainsFunc(l.ring, func(w *wide) bool { return len(w.ready[k]) > 0 })
}

// running is how many items run.
func (q *queue) running() (n int) {
	for i := range q.lanes {
		n += q.lanes[i].running
	}
	return n
}

// moveOver gives a running item a place in the doubtful lane, if one is free.
func (q *queue) moveOver(it *item) bool {
	from, to := &q.lanes[it.lane], &q.lanes[doubtful]
	if to.running >= to.limit {
		return false
	}
	from.running--
	to.running++
	it.lane, it.hurry = doubtful, nil
	return true
}

// ended takes note that an item runs no more.
func (q *queue) ended(it *item) {
	it.cancel()
	if it.hurry != nil {
		it.hurry.Stop()
	}
	it.running, it.cancel, it.hurry = false, nil, nil
	it.network.running = false
	q.lanes[it.lane].running--
}

// again lets an item wait once more, which was too slow for others who wait.
func (q *queue) again(it *item) {
	it.network.failing = true
	if it.turn == fresh {
		it.turn = retrial
	}
	q.add(it)
}

// finished takes note of what became of an item: r is what was found, silence
// that an answer failed to come for which its network is to blame.
func (q *queue) finished(it *item, r rank, answered, silence bool) {
	n := it.network
	delete(q.items, it.addr)
	n.rank = max(n.rank, r)
	n.failing = !answered && silence
	n.refused = n.refused || answered && r < preferred
	q.makeReady(n)
}
