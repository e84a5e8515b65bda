package lookup

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	addrnet "fairshare/internal/network"
)

// Bounds of a queue.
const (
	maxWaiting  = 4096 // most addresses that wait for a look-up
	maxNetworks = 8192 // most networks in memory
	samples     = 8    // random candidates for the address to drop
)

// A queue decides which address is looked up next. An attacker may send forged claims from many
// addresses, or have a reverse zone that does not answer. Neither must delay the look-up of a
// crawler:
//
//   - One address of a network (/24, /48) is looked up at a time.
//   - Networks wait in one of three lanes, each with its own number of look-ups at once: networks
//     with a confirmed address, unknown networks, and networks
//     that were refused or did not answer. A lane never uses the look-ups of another lane.
//   - In a lane, wide prefixes (/16, /32) take turns, and within a prefix its
//     networks take turns. Within a network the choice is random: first among
//     confirmed addresses that need a renewal, then among addresses that were never
//     looked up, then among addresses without an answer.
//   - In the first two lanes a slow look-up loses its slot when
//     others wait, and continues, or waits again, in the third (see line.hurry).
//   - When too many wait, an address of the prefix with the most waiting addresses is dropped.
//
// A queue is guarded by the lock of its line.
type queue struct {
	items    map[netip.Addr]*item // waiting or running: single-flight
	waiting  []*item
	networks map[netip.Prefix]*network
	wides    map[netip.Prefix]*wide // prefixes with waiting addresses
	lanes    [lanes]laneState
	dropped  uint64
}

// A lane is a class of networks.
type lane uint8

const (
	proven   lane = iota // an address was confirmed
	untried              // nothing is known
	doubtful             // an address was refused, or its DNS did not answer
	lanes
)

type laneState struct {
	limit, running int
	ring           []*wide
}

// A turn is the priority of an address within its network.
type turn uint8

const (
	renewal turn = iota // already confirmed
	fresh               // never looked up, or long ago
	retrial             // the last look-up had no answer
	turns
)

// An item is an address whose look-up waits or runs.
type item struct {
	addr    netip.Addr
	network *network
	turn    turn
	at, all int  // its index in its network's slice, and in waiting
	lane    lane // in which it runs
	running bool
	hurried bool // has lost its place
	cancel  context.CancelFunc
	hurry   *time.Timer   // takes its place; nil in the doubtful lane
	waiters int           // calls that wait for it; then it is not dropped
	done    chan struct{} // closed at the end; nil: no call waits
	result  any           // an *entry, for the calls that wait
}

type network struct {
	prefix  netip.Prefix
	wide    *wide // set while an address waits or the network is ready
	waiting [turns][]*item
	running bool
	ready   bool // it is in a list of its wide prefix, perhaps without waiting addresses
	rank    rank // highest rank found so far
	failing bool // the last look-up had no answer
	refused bool // an answer was not a preferred name
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
	return addrnet.Of(addr), addrnet.Cut(addr, 16, 32)
}

// push adds an address that is not in the queue. It returns nil if the queue is full; must adds it
// in any case.
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

// makeRoom drops an address from a prefix with more waiting addresses than that of addr. A renewal
// replaces any new address.
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
		delete(q.networks, n.prefix) // it has no history
	}
	return true
}

// forgetOne removes an inactive network: of a few random ones, the one with the lowest rank.
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

// add adds an item to the waiting ones.
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

// makeReady adds a network to the ring of its prefix, if it has waiting addresses and no look-up in
// progress.
func (q *queue) makeReady(n *network) {
	if n.ready || n.running || n.load() == 0 {
		return
	}
	n.ready = true
	k, w := n.lane(), n.wide
	if len(w.ready[k]) > 2*w.waiting+4 { // most networks have lost their waiting addresses
		w.ready[k] = slices.DeleteFunc(w.ready[k], func(n *network) bool { return n.load() == 0 && n.unready() })
	}
	w.ready[k] = append(w.ready[k], n)
	q.makeTurn(w, k)
}

// unready records that a network without waiting addresses left the list of its wide prefix.
func (n *network) unready() bool {
	n.ready, n.wide = false, nil
	return true
}

func (q *queue) makeTurn(w *wide, k lane) {
	if w.inRing[k] || len(w.ready[k]) == 0 {
		return
	}
	l := &q.lanes[k]
	if len(l.ring) > 2*len(q.wides)+64 { // most prefixes have lost their waiting addresses
		l.ring = slices.DeleteFunc(l.ring, func(w *wide) bool {
			w.inRing[k] = len(w.ready[k]) > 0
			return !w.inRing[k]
		})
	}
	w.inRing[k] = true
	l.ring = append(l.ring, w)
}

// remove removes an item from the waiting ones.
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

// next returns the next item of a lane with a free place, which then runs, or nil.
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

// pop returns the next network, or nil if none has waiting addresses.
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

// crowded reports whether a lane is full and has waiting addresses.
func (q *queue) crowded(k lane) bool {
	l := &q.lanes[k]
	return l.running >= l.limit && slices.ContainsFunc(l.ring, func(w *wide) bool { return len(w.ready[k]) > 0 })
}

// running returns the number of items that run.
func (q *queue) running() (n int) {
	for i := range q.lanes {
		n += q.lanes[i].running
	}
	return n
}

// moveOver moves a running item to the doubtful lane, if that has a free place.
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

// ended records that an item no longer runs.
func (q *queue) ended(it *item) {
	it.cancel()
	if it.hurry != nil {
		it.hurry.Stop()
	}
	it.running, it.cancel, it.hurry = false, nil, nil
	it.network.running = false
	q.lanes[it.lane].running--
}

// requeue adds an item to the queue again because it was too slow while others waited.
func (q *queue) requeue(it *item) {
	it.network.failing = true
	if it.turn == fresh {
		it.turn = retrial
	}
	q.add(it)
}

// finished records the result of an item. r is the rank of the result. silence is true if an answer
// is missing because of the item's network.
func (q *queue) finished(it *item, r rank, answered, silence bool) {
	n := it.network
	delete(q.items, it.addr)
	n.rank = max(n.rank, r)
	n.failing = !answered && silence
	n.refused = n.refused || answered && r < preferred
	q.makeReady(n)
}
