package inbound

import (
	"net/netip"
	"slices"
	"sync/atomic"

	addrnet "fairshare/internal/network"
)

// A connTable holds the open connections: how many each client and each network
// has, their states, and since when. Its methods take constant time, except
// setBounds and settle. It is not safe for concurrent use, except note, and does not
// close connections.
type connTable struct {
	bounds
	order
	quarter int // of all connections; a network with more may lose some

	open  int
	all   queue
	lines lines
	peers map[netip.Prefix]*peer
	// ranks[n] is the head of the list of peers with n connections, the one that
	// reached n last first. Exempt peers are in no list.
	ranks    []*peer
	top      int // all higher ranks are empty
	networks map[netip.Prefix]*network
	crowded  []*network // the few networks with more than a quarter
}

// bounds are the bounds of a connTable.
type bounds struct {
	connections int // in all
	perAddr     int
	ipv4Bits    int // of a client's prefix
	ipv6Bits    int
	exempt      func(netip.Addr) bool // this address has no bound; nil: none is exempt
}

// A peer is a client with open connections: an IPv4 address or IPv6 /64, or the
// wider prefix that the policy counts as one client.
type peer struct {
	key        netip.Prefix
	last       netip.Addr // the address that connected last
	network    *network   // of its connections, unless it is exempt
	open       int
	lines      lines
	streams    atomic.Int64 // of HTTP/2, not answered yet
	exempt     bool         // in no rank and no network
	rank       int
	prev, next *peer
}

// A network is an IPv4 /24 or an IPv6 /48 with open connections.
type network struct {
	key   netip.Prefix
	open  int
	lines lines
}

// A state says what would be lost by closing a connection.
type state uint8

const (
	idle    state = iota // between two requests: nothing is lost
	pending              // waits for its client: before its first request, or within one
	busy                 // in use
	states
)

// lines are the connections by state, the one that has been in it for longest first.
type lines [states]queue

// longest returns the connection to close with the least harm: the one that has been in
// the lowest state for longest. It is nil if none is in a state up to worst.
func (l *lines) longest(worst state) *entry {
	for s := idle; s <= worst; s++ {
		if l[s].first != nil {
			return l[s].first
		}
	}
	return nil
}

// An entry is one connection in the table.
type entry struct {
	conn  *conn
	peer  *peer // nil: it has no address
	open  bool
	state state // as the lines have it
	noted note  // the last change of the state
	links [4]struct{ prev, next *entry }
}

// A queue lists entries in the order in which they were added.
type queue struct{ first, last *entry }

// Each entry is in the queue of all, and in a line of all, of its peer, and of
// its network unless the peer is exempt.
const (
	ofOpen = iota
	ofAll
	ofPeer
	ofNetwork
)

func (q *queue) push(e *entry, which int) {
	e.links[which].prev = q.last
	if q.last != nil {
		q.last.links[which].next = e
	} else {
		q.first = e
	}
	q.last = e
}

func (q *queue) remove(e *entry, which int) {
	l := &e.links[which]
	if l.prev != nil {
		l.prev.links[which].next = l.next
	} else {
		q.first = l.next
	}
	if l.next != nil {
		l.next.links[which].prev = l.prev
	} else {
		q.last = l.prev
	}
	l.prev, l.next = nil, nil
}

// A bound is the bound that an admission reached.
type bound uint8

const (
	noBound bound = iota
	boundPerAddr
	boundInAll
)

// maxExempted bounds how many exempt peers are skipped to find the one with the most
// connections. Each is skipped once.
const maxExempted = 8

func newConnTable(to bounds) *connTable {
	t := &connTable{peers: make(map[netip.Prefix]*peer)}
	t.setBounds(to)
	return t
}

// setBounds changes the bounds, and calls exempt again for all peers. It closes no
// connection; open connections stay counted under their prefix.
func (t *connTable) setBounds(to bounds) {
	t.bounds, t.quarter = to, max(1, to.connections/4)
	t.ranks, t.top = make([]*peer, t.perAddr+1), 0
	t.networks, t.crowded = make(map[netip.Prefix]*network), nil
	for _, p := range t.peers {
		p.exempt, p.prev, p.next = false, nil, nil
		p.network = t.networkOf(p.key)
		t.enrank(p)
	}
	for s := range t.lines {
		for e := t.lines[s].first; e != nil; e = e.links[ofAll].next {
			if e.peer != nil {
				e.links[ofNetwork].prev, e.links[ofNetwork].next = nil, nil
				e.peer.network.lines[s].push(e, ofNetwork)
				t.countNetwork(e.peer.network, +1)
			}
		}
	}
}

// clientOf returns the prefix under which the connections of an address are counted.
func (t *connTable) clientOf(a netip.Addr) netip.Prefix {
	return addrnet.Cut(a, t.ipv4Bits, t.ipv6Bits)
}

// networkOf returns the network of a client.
func (t *connTable) networkOf(client netip.Prefix) *network {
	key := addrnet.Around(client)
	n := t.networks[key]
	if n == nil {
		n = &network{key: key}
		t.networks[key] = n
	}
	return n
}

// admit adds a new connection, pending until it sends a request. addr is unmapped
// and without a zone, or invalid for a peer without an address. If a bound is reached,
// the caller must close victim, which may be e itself. It is not in the table any more.
func (t *connTable) admit(e *entry, addr netip.Addr) (victim *entry, met bound) {
	var p *peer
	if addr.IsValid() {
		p = t.peers[t.clientOf(addr)]
		if p != nil {
			p.last = addr
		}
	}
	switch {
	case p != nil && p.open >= t.perAddr && !t.isExemptPeer(p):
		t.settle()
		met, victim = boundPerAddr, p.lines.longest(pending)
	case t.open >= t.connections:
		t.settle()
		met, victim = boundInAll, t.yielding(p, addr)
	}
	if met != noBound {
		if victim == nil {
			return e, met
		}
		t.remove(victim)
	}
	if p == nil && addr.IsValid() {
		p = &peer{key: t.clientOf(addr), last: addr}
	}
	e.peer, e.open = p, true
	t.open++
	t.all.push(e, ofOpen)
	if p != nil {
		if p.open == 0 { // new, or removed with the victim
			t.peers[p.key] = p
			if !p.exempt {
				p.network = t.networkOf(p.key)
			}
		}
		t.count(p, +1)
	}
	e.noted.set(&t.order, pending)
	t.push(e, pending)
	return victim, met
}

// yielding returns the connection to close for a new one of p, which may be nil,
// when the table is full; nil if there is none.
//
//  1. The client with the most connections loses one, in any state, if it then
//     still has as many as p. So a client without a connection gets one while another
//     client has two, and never takes the only one of another client. A client of a
//     network with more than a quarter of all can only take one from its own network.
//     Otherwise many such clients, with one connection each, would close the second
//     connections of browsers.
//  2. The network with the most connections loses one if it has more than a quarter
//     of all, and then still as many as p's network. One customer may have any number
//     of addresses there.
//  3. Otherwise the connection closes that has been idle for longest. For a client
//     without a connection, it may also be the one that waits longest for its client.
//     A client of a network that has a quarter can only close connections of that
//     network.
func (t *connTable) yielding(p *peer, addr netip.Addr) *entry {
	own, near := 0, (*network)(nil)
	switch {
	case p != nil && t.isExemptPeer(p): // other clients are behind it
	case p != nil:
		own, near = p.open, p.network
	case addr.IsValid() && !t.isExempt(addr):
		near = t.networks[addrnet.Around(t.clientOf(addr))]
	}
	worst := pending
	if own > 0 {
		worst = idle
	}
	return t.yieldingTo(own, near, worst)
}

// yieldingTo is yielding for a client with own connections in the network near, which
// is nil if it has none. The third rule closes only connections up to the state worst.
func (t *connTable) yieldingTo(own int, near *network, worst state) *entry {
	for range maxExempted {
		top := t.topPeer()
		if top == nil || top.open < own+2 || near != nil && near.open > t.quarter && top.network != near {
			break
		}
		if !t.isExemptPeer(top) {
			return top.lines.longest(busy)
		}
	}
	for range maxExempted {
		n := t.mostCrowded()
		if n == nil || near != nil && n.open < near.open+2 {
			break
		}
		if e := n.lines.longest(busy); !t.isExemptPeer(e.peer) {
			return e
		}
	}
	for range maxExempted {
		if near == nil || near.open < t.quarter {
			return t.lines.longest(worst)
		}
		if e := near.lines.longest(worst); e == nil || !t.isExemptPeer(e.peer) {
			return e
		}
	}
	return nil
}

// topPeer returns the peer with the most connections, nil if all are exempt.
func (t *connTable) topPeer() *peer {
	for t.top > 0 && t.ranks[t.top] == nil {
		t.top--
	}
	return t.ranks[t.top]
}

// mostCrowded returns the network with the most connections if it has more than a
// quarter, else nil.
func (t *connTable) mostCrowded() (most *network) {
	for _, n := range t.crowded {
		if most == nil || n.open > most.open || n.open == most.open && n.key.Compare(most.key) < 0 {
			most = n
		}
	}
	return most
}

// remove removes a connection. Only the first call has an effect.
func (t *connTable) remove(e *entry) {
	if !e.open {
		return
	}
	t.drop(e)
	e.open = false
	t.open--
	t.all.remove(e, ofOpen)
	if p := e.peer; p != nil {
		t.count(p, -1)
		if p.open == 0 {
			delete(t.peers, p.key)
		}
	}
}

// setState changes the state of a connection, and puts it last in its line, even if
// it is pending again.
func (t *connTable) setState(e *entry, s state) {
	if e.open && (e.state != s || s == pending) {
		e.noted.set(&t.order, s)
		t.drop(e)
		t.push(e, s)
	}
}

func (t *connTable) push(e *entry, s state) {
	e.state = s
	t.lines[s].push(e, ofAll)
	if p := e.peer; p != nil {
		p.lines[s].push(e, ofPeer)
		if !p.exempt {
			p.network.lines[s].push(e, ofNetwork)
		}
	}
}

func (t *connTable) drop(e *entry) {
	t.lines[e.state].remove(e, ofAll)
	if p := e.peer; p != nil {
		p.lines[e.state].remove(e, ofPeer)
		if !p.exempt {
			p.network.lines[e.state].remove(e, ofNetwork)
		}
	}
}

func (t *connTable) isExempt(addr netip.Addr) bool {
	return t.exempt != nil && t.exempt(addr)
}

// isExemptPeer reports whether a peer is exempt. It removes a peer that has become
// exempt from its rank and network.
func (t *connTable) isExemptPeer(p *peer) bool {
	if !p.exempt && t.isExempt(p.last) {
		t.unrank(p)
		for s := range p.lines {
			for e := p.lines[s].first; e != nil; e = e.links[ofPeer].next {
				p.network.lines[s].remove(e, ofNetwork)
				t.countNetwork(p.network, -1)
			}
		}
		p.exempt = true
	}
	return p.exempt
}

func (t *connTable) count(p *peer, by int) {
	t.unrank(p)
	p.open += by
	t.enrank(p)
	if !p.exempt {
		t.countNetwork(p.network, by)
	}
}

func (t *connTable) countNetwork(n *network, by int) {
	was := n.open
	n.open += by
	switch {
	case was <= t.quarter && n.open > t.quarter:
		t.crowded = append(t.crowded, n)
	case was > t.quarter && n.open <= t.quarter:
		t.crowded = slices.DeleteFunc(t.crowded, func(c *network) bool { return c == n })
	}
	if n.open == 0 {
		delete(t.networks, n.key)
	}
}

func (t *connTable) enrank(p *peer) {
	if p.exempt || p.open == 0 {
		return
	}
	p.rank = min(p.open, len(t.ranks)-1) // it may exceed a bound that was lowered
	if p.next = t.ranks[p.rank]; p.next != nil {
		p.next.prev = p
	}
	t.ranks[p.rank] = p
	t.top = max(t.top, p.rank)
}

func (t *connTable) unrank(p *peer) {
	if p.exempt || p.open == 0 {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		t.ranks[p.rank] = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}
