package fairshare

import (
	"hash/fnv"
	mathbits "math/bits"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"fairshare/internal/offheap"
)

// A client has standing by age when its first request came knownAfter ago.
const knownAfter = 10 * time.Minute

// maxAged is how many clients of one network (IPv4 /24, IPv6 /48) have standing
// by age at the same time: an attacker gains little by preparing thousands of
// addresses of one network.
const maxAged = 16

// A History remembers since when clients are known, and which pages they have
// seen recently. Its memory is at most 12 MiB, of which the system provides a page
// when a client is first noted there. If a limit has [Limit.Distinct], it also
// remembers which paths were counted, in at most 8 MiB more. It is safe for
// concurrent use.
//
// The first table is one of sets, one for each network's hash, of maxAged words. A word
// is
//
//	24 bits  of the client's hash, never 0; a word of 0 is empty
//	20 bits  when it was first seen, in ticks; hasAged: long enough ago
//	20 bits  when it was last seen, in ticks
//
// A new client takes a word that was not used for an hour, of a client with
// standing for a day. Without such a word it takes that of the newest client
// without standing. So an attacker with many addresses displaces neither
// clients of other networks nor those of its own that came before.
//
// The second table has sets of shownSetSize words for what clients have seen: 44
// bits of a hash of client and pages, and when, in ticks. The oldest word of a
// set goes first.
type History struct {
	once   sync.Once
	secret [3]uint64
	aged   []atomic.Uint64
	shown  []atomic.Uint64

	forgotten forgotten
	counted   countedTable
}

const (
	historySets = 1 << 16
	peerSets    = 1 << 8 // for the clients that one peer names
	tick        = 16 * time.Second
	tickBits    = 20
	tickMask    = 1<<tickBits - 1 // 194 days
	mostAhead   = 1 << 16         // twelve days
	hasAged     = tickMask
	agedFor     = uint64(24 * time.Hour / tick) // until an unused word with standing may be taken
	cameFor     = uint64(time.Hour / tick)      // until one without may be
)

func ticks(t time.Time) uint64 { return uint64(t.Unix()/int64(tick/time.Second)) & tickMask }

// since returns how many ticks have gone by, up to 182 days. A time at most twelve days in the
// future counts as now.
func since(then, now uint64) uint64 {
	gone := (now - then) & tickMask
	if gone > tickMask-mostAhead {
		return 0
	}
	return gone
}

// A clientName is what a client is remembered under. The zero clientName is
// nobody's.
type clientName struct {
	set  int // of its network, from 1
	hash uint64
}

// name returns the name of the client whose addresses share the first bits of
// addr; via as in a [Request].
func (h *History) name(addr netip.Addr, bits int, via netip.Addr) clientName {
	c := cut(addr, bits, bits)
	return h.nameOf(&c, via)
}

// clientOf returns the name of the client of a request.
func (g *Guard) clientOf(req *Request) clientName {
	c := cut(req.Addr, g.bits4, g.bits6)
	return g.history.nameOf(&c, req.Via)
}

// nameOf is name for an address that is cut.
func (h *History) nameOf(c *cutAddr, via netip.Addr) clientName {
	h.once.Do(h.make)
	own, set := h.hash(c.own, c.ownBits), h.hash(c.network, c.networkBits)
	if via.IsValid() { // a peer can name any network: its clients have some sets, not all
		of := h.hash(wordsOf(via), 128)
		set, own = of+set%peerSets, own^of
	}
	return clientName{1 + int(set&(historySets-1)), own}
}

func (h *History) make() {
	for i := range h.secret {
		h.secret[i] = rand.Uint64()
	}
	h.aged = offheap.Slice[atomic.Uint64](h, historySets*maxAged)
	h.shown = offheap.Slice[atomic.Uint64](h, shownSets*shownSetSize)
}

// hash hashes an address cut to its first bits. Nobody who does not know the secret
// finds two addresses with the same hash.
func (h *History) hash(w addrWords, bits int) uint64 {
	return fold(fold(w[0]^h.secret[0], w[1]^h.secret[1])^uint64(bits), h.secret[2])
}

// fold multiplies two numbers and adds the halves of the product.
func fold(a, b uint64) uint64 {
	high, low := mathbits.Mul64(a, b)
	return high ^ low
}

// set returns the words of a client's network and what the client's word begins
// with.
func (h *History) set(c *clientName) (set []atomic.Uint64, name uint64) {
	return h.aged[(c.set-1)*maxAged:][:maxAged:maxAged], max(c.hash>>(2*tickBits), 1)
}

// meet notes that a client sends a request, and reports whether it has standing
// by age.
func (h *History) meet(client *clientName, at time.Time) (aged bool) {
	set, name := h.set(client)
	now, met := ticks(at), false
	for i := range set {
		w := set[i].Load()
		if w>>(2*tickBits) != name {
			continue
		}
		first, last := w>>tickBits&tickMask, w&tickMask
		if first != hasAged && since(first, now) >= uint64((knownAfter+tick-1)/tick) {
			first = hasAged
		}
		if next := name<<(2*tickBits) | first<<tickBits | last + since(last, now); next&^tickMask != w&^tickMask ||
			since(last, now) > 0 {
			next = name<<(2*tickBits) | first<<tickBits | now
			set[i].CompareAndSwap(w, next) // another request of the client notes the same
		}
		met, aged = true, first == hasAged
		break
	}
	if !met {
		h.put(set, name<<(2*tickBits)|min(now, hasAged-1)<<tickBits|now, now)
	}
	runtime.KeepAlive(h)
	return aged
}

// knows reports whether a client has standing by age, and changes nothing.
func (h *History) knows(client *clientName, at time.Time) bool {
	defer runtime.KeepAlive(h)
	set, name := h.set(client)
	for i := range set {
		if w := set[i].Load(); w>>(2*tickBits) == name {
			first := w >> tickBits & tickMask
			return first == hasAged || since(first, ticks(at)) >= uint64((knownAfter+tick-1)/tick)
		}
	}
	return false
}

// put stores a new word in the place of one that may be forgotten, if there is
// one.
func (h *History) put(set []atomic.Uint64, word, now uint64) {
	victim, old, best := -1, uint64(0), uint64(0)
	for i := range set {
		w := set[i].Load()
		if w == 0 {
			victim, old = i, w
			break
		}
		idle := since(w, now)
		rank := 2*tickMask + idle // may be forgotten
		if w>>tickBits&tickMask != hasAged {
			if idle < cameFor {
				rank = tickMask - since(w>>tickBits, now)
			}
		} else if idle < agedFor {
			continue
		}
		if rank > best { // no rank is 0
			victim, old, best = i, w, rank
		}
	}
	if victim >= 0 {
		set[victim].CompareAndSwap(old, word)
	}
}

// RestoreFirstSeen records when the first request of a client came, as a registry
// has stored it. The client has standing by age when that is long enough ago. A
// later time than the known one changes nothing.
func (h *History) RestoreFirstSeen(client netip.Prefix, first, now time.Time) {
	if !client.IsValid() {
		return
	}
	defer runtime.KeepAlive(h)
	client = PrefixID(client).Prefix
	named := h.name(client.Addr(), client.Bits(), netip.Addr{})
	set, name := h.set(&named)
	at, from := ticks(now), uint64(hasAged)
	if age := now.Sub(first); age <= 0 {
		from = min(at, hasAged-1)
	} else if age < knownAfter {
		from = min(ticks(first), hasAged-1)
	}
	word := name<<(2*tickBits) | from<<tickBits | at
	for i := range set {
		w := set[i].Load()
		if w>>(2*tickBits) != name {
			continue
		}
		known := w >> tickBits & tickMask
		if known != hasAged && (from == hasAged || since(known, at) < since(from, at)) {
			set[i].CompareAndSwap(w, word)
		}
		return
	}
	h.put(set, word, at)
}

// forget takes the standing of a client away: it is as new as at its first
// request.
func (h *History) forget(client *clientName) {
	if client.set == 0 {
		return
	}
	set, name := h.set(client)
	for i := range set {
		if w := set[i].Load(); w>>(2*tickBits) == name {
			set[i].CompareAndSwap(w, 0)
		}
	}
	runtime.KeepAlive(h)
}

const (
	shownSets     = 1 << 15
	shownSetSize  = 16
	setsOfNetwork = 64
	shownFor      = uint64(24 * time.Hour / tick)
)

// A seenList is one list of Match.Seen.
type seenList struct {
	texts []string
	paths *pathSet
	id    uint64 // of the texts, the same in the guards of all policies
}

func newSeenList(texts []string, paths *pathSet) seenList {
	hash := fnv.New64a()
	for _, text := range texts {
		hash.Write([]byte(text))
		hash.Write([]byte{0})
	}
	return seenList{texts, paths, hash.Sum64()}
}

// page returns the set and the word of what a client has seen, without the time.
func (h *History) page(c *clientName, list *seenList) (set []atomic.Uint64, word uint64) {
	hash := (c.hash ^ list.id*0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93
	hash ^= hash >> 32
	// The clients of a network share some sets, so that eight of them cannot
	// displace what all others have seen, nor a network what other networks have.
	n := (c.set*setsOfNetwork + int(c.hash%setsOfNetwork)) & (shownSets - 1)
	return h.shown[n*shownSetSize:][:shownSetSize:shownSetSize], max(hash>>tickBits, 1) << tickBits
}

// show notes that a client has seen pages of some of the lists, a set of places.
func (h *History) show(c *clientName, lists []seenList, places uint64, at time.Time) {
	if c.set == 0 {
		return
	}
	now := ticks(at)
	for ; places != 0; places &= places - 1 {
		set, word := h.page(c, &lists[mathbits.TrailingZeros64(places)])
		oldest, old, longest := 0, uint64(0), int64(-1)
		for i := range set {
			w := set[i].Load()
			idle := int64(since(w&tickMask, now))
			if w == 0 {
				idle = tickMask
			}
			if w&^tickMask == word {
				oldest, old = i, w
				break
			}
			if idle > longest {
				oldest, old, longest = i, w, idle
			}
		}
		if old != word|now {
			set[oldest].CompareAndSwap(old, word|now)
		}
	}
	runtime.KeepAlive(h)
}

// saw reports whether a client has seen a page of a list recently.
func (h *History) saw(c *clientName, list *seenList, at time.Time) bool {
	if c.set == 0 {
		return false
	}
	defer runtime.KeepAlive(h)
	set, word := h.page(c, list)
	for i := range set {
		if w := set[i].Load(); w&^tickMask == word {
			return since(w&tickMask, ticks(at)) <= shownFor
		}
	}
	return false
}

// noteShown notes what an answer to the request would show to the client.
func (d *decision) noteShown() {
	if len(d.guard.seen) == 0 || d.req.Method != "GET" || d.req.OddPath {
		return
	}
	if !d.shownKnown {
		d.shown, d.shownKnown = d.findShown(), true
	}
	d.shows |= d.shown
}

// findShown returns the places in guard.seen whose paths the request's path fits.
func (d *decision) findShown() (places uint64) {
	for i := range d.guard.seen {
		if d.guard.seen[i].paths.match(d, d.req.Path) {
			places |= 1 << i
		}
	}
	return places
}

// hasSeen reports whether the client has seen a page of a place in guard.seen.
func (d *decision) hasSeen(place uint8) bool {
	return !d.req.Proxy && d.guard.history.saw(&d.client, &d.guard.seen[place], d.now)
}
