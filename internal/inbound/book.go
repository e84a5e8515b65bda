package inbound

import (
	"net/netip"
	"sync/atomic"
)

// A book holds the open connections: how many each address has, and which of
// them are idle, longest first. All it does takes constant time, but for
// setBounds. It is not safe for concurrent use and closes nothing itself.
type book struct {
	connections int // in all
	perAddr     int
	exempt      func(netip.Addr) bool // no bound for this address; nil: none is exempt

	open  int
	all   queue
	idle  queue // of all
	peers map[netip.Addr]*peer
	// ranks[n] begins the list of peers with n connections, the one that came
	// to n last first. Exempt peers are in none.
	ranks []*peer
	top   int // no rank above it holds a peer
}

// A peer is an IPv4 address or an IPv6 /64 with open connections.
type peer struct {
	key        netip.Addr
	last       netip.Addr // the address that connected last
	open       int
	idle       queue
	streams    atomic.Int64 // of HTTP/2 that are not answered yet
	exempt     bool
	rank       int
	prev, next *peer
}

// An entry is one connection in the book.
type entry struct {
	conn   *conn
	peer   *peer // nil: it has no address
	open   bool
	isIdle bool
	links  [3]struct{ prev, next *entry }
}

// A queue lists entries by the time since which they are in it.
type queue struct{ first, last *entry }

// Each entry is in one queue, each idle one in two more.
const (
	ofOpen = iota
	ofAll
	ofPeer
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

// A bound says which bound an admission met.
type bound uint8

const (
	noBound bound = iota
	boundPerAddr
	boundInAll
)

// maxExempted bounds how many exempt peers are passed over to find the one
// with the most connections. Each is passed over once.
const maxExempted = 8

func newBook(connections, perAddr int, exempt func(netip.Addr) bool) *book {
	b := &book{peers: make(map[netip.Addr]*peer)}
	b.setBounds(connections, perAddr, exempt)
	return b
}

// setBounds changes the bounds. Who is exempt is asked anew. Nothing is
// closed for it.
func (b *book) setBounds(connections, perAddr int, exempt func(netip.Addr) bool) {
	b.connections, b.perAddr, b.exempt = connections, perAddr, exempt
	b.ranks, b.top = make([]*peer, perAddr+1), 0
	for _, p := range b.peers {
		p.exempt, p.prev, p.next = false, nil, nil
		b.enrank(p)
	}
}

// peerKey is what connections are counted under: the address, of IPv6 its
// first 64 bits.
func peerKey(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	prefix, err := a.Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return prefix.Addr()
}

// admit takes in a new connection, idle until it sends a request. addr is
// unmapped and without a zone, or invalid for a peer without an address.
// With a bound met, victim is the connection that has to be closed for it: no
// longer in the book, and maybe e itself.
func (b *book) admit(e *entry, addr netip.Addr) (victim *entry, met bound) {
	var p *peer
	if addr.IsValid() {
		key := peerKey(addr)
		if p = b.peers[key]; p != nil {
			p.last = addr
		}
		if p != nil && p.open >= b.perAddr && !p.exempt {
			if b.isExempt(addr) {
				b.setExempt(p)
			} else {
				met = boundPerAddr
				if victim = p.idle.first; victim == nil {
					return e, met
				}
			}
		}
		if p == nil {
			p = &peer{key: key, last: addr}
		}
	}
	if met == noBound && b.open >= b.connections {
		met = boundInAll
		if victim = b.longestIdle(); victim == nil {
			return e, met
		}
	}
	if victim != nil {
		b.remove(victim)
	}
	e.peer, e.open = p, true
	b.open++
	b.all.push(e, ofOpen)
	if p != nil {
		b.peers[p.key] = p // it may have left with the victim
		b.count(p, +1)
	}
	b.pushIdle(e)
	return victim, met
}

// longestIdle returns the longest idle connection of the address with the most
// connections; if that has none, the longest idle of all, or nil.
func (b *book) longestIdle() *entry {
	for range maxExempted {
		for b.top > 0 && b.ranks[b.top] == nil {
			b.top--
		}
		if b.top <= 1 { // all addresses are equal
			break
		}
		p := b.ranks[b.top]
		if b.isExempt(p.last) {
			b.setExempt(p)
			continue
		}
		if p.idle.first != nil {
			return p.idle.first
		}
		break
	}
	return b.idle.first
}

// remove forgets a connection, once.
func (b *book) remove(e *entry) {
	if !e.open {
		return
	}
	b.dropIdle(e)
	e.open = false
	b.open--
	b.all.remove(e, ofOpen)
	if p := e.peer; p != nil {
		b.count(p, -1)
		if p.open == 0 {
			delete(b.peers, p.key)
		}
	}
}

// setIdle says whether a connection waits for a request.
func (b *book) setIdle(e *entry, idle bool) {
	switch {
	case !e.open || e.isIdle == idle:
	case idle:
		b.pushIdle(e)
	default:
		b.dropIdle(e)
	}
}

func (b *book) pushIdle(e *entry) {
	e.isIdle = true
	b.idle.push(e, ofAll)
	if e.peer != nil {
		e.peer.idle.push(e, ofPeer)
	}
}

func (b *book) dropIdle(e *entry) {
	if !e.isIdle {
		return
	}
	e.isIdle = false
	b.idle.remove(e, ofAll)
	if e.peer != nil {
		e.peer.idle.remove(e, ofPeer)
	}
}

func (b *book) isExempt(addr netip.Addr) bool {
	return b.exempt != nil && b.exempt(addr)
}

func (b *book) setExempt(p *peer) {
	b.unrank(p)
	p.exempt = true
}

func (b *book) count(p *peer, by int) {
	b.unrank(p)
	p.open += by
	b.enrank(p)
}

func (b *book) enrank(p *peer) {
	if p.exempt || p.open == 0 {
		return
	}
	p.rank = min(p.open, len(b.ranks)-1) // more than the bound: it has been lowered
	if p.next = b.ranks[p.rank]; p.next != nil {
		p.next.prev = p
	}
	b.ranks[p.rank] = p
	b.top = max(b.top, p.rank)
}

func (b *book) unrank(p *peer) {
	if p.exempt || p.open == 0 {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		b.ranks[p.rank] = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}
