package share

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// A Claim holds the keys and the weight with which a request waits, and has room for its turn. It does
// not refer to the request. It must not be copied once it waits.
type Claim struct {
	keys   [MaxParts + 1]uint64 // of the nodes, from the top level down
	depth  uint8
	unit   uint8 // level of the unit: see node.unit
	class  uint8
	weight float64       // of the node at the top level
	cost   float64       // factor on the charged time; 0: 1
	wait   time.Duration // longest wait for the turn
	waited time.Duration // for how long the visitor has been waiting; 0: it does not wait

	path, network uint64 // for the search for the capacity

	turn Turn // used by the first Wait
}

// terms are the options and seeds from which claims are made.
type terms struct {
	Options
	seed       maphash.Seed
	generation uint16 // number of changes of By, or in a group a digest of it: keys of different generations differ
}

// hash returns the key of a node.
func (t *terms) hash(b []byte) uint64 {
	if t.Hash != nil {
		return t.Hash(b)
	}
	return maphash.Bytes(t.seed, b)
}

func newTerms(opts Options, last *terms) *terms {
	t := &terms{Options: opts}
	if last == nil {
		t.seed = maphash.MakeSeed()
	} else {
		t.seed, t.generation = last.seed, last.generation
	}
	switch {
	case t.Hash != nil: // the same for all members with the same levels
		t.generation = uint16(crc32.ChecksumIEEE(fmt.Appendf(nil, "%#v", opts.By)))
	case last != nil && !slices.Equal(opts.By, last.By):
		t.generation++
	}
	return t
}

// Tags of hashed values, besides the kinds of key parts.
const (
	tagClient = 0xF0 + iota
	tagBot
	tagLabel
	tagNetwork
	tagVisitor
	tagIssued
	tagIssuedWider
)

// maxPlace bounds for how long a visitor counts as waiting.
const maxPlace = time.Hour

// Claim returns the claim of a request on arrival, and records that the client was seen. It is used
// for one Wait.
//
// A visitor is one client, whatever its address. It is below the network in which its cookie was
// issued, so that many cookies of a few networks have the parts of these networks. If its address is
// of an older class, the visitor is a client below its address, in the class of the address. So
// neither copies of a cookie nor many cookies give an address, or its network, more than it has.
func (q *Queue) Claim(req *fairshare.Request) Claim {
	t := q.terms.Load()
	c := Claim{weight: 1, cost: costOf(req.Browser), wait: t.Wait}
	bot := req.Bot.State == fairshare.Verified && !req.Bot.UserTriggered
	override := req.Override
	if req.Via.IsValid() { // an override does not apply to an address that only its peer names
		override = fairshare.Override{}
	}
	weight, labelled := t.labelWeight(override.Labels)
	visitor := &req.Visitor
	roams := visitor.ID != 0 && !bot && !labelled // it has its own place, whatever its address
	noOwner := req.Owner.ASN == 0 || req.Via.IsValid() || req.Proxy
	if t.Ages {
		c.class = newest
		if visitor.ID != 0 {
			c.class = classOf(req.Time.Sub(visitor.Since))
		}
		if visitor.Member && visitor.ID != 0 {
			c.class = privileged
		}
		client := t.client(t.Client(req.Addr), req.Via)
		// The cookie remembers a visitor, so that it needs no place in the table.
		if class := classOf(q.known.seen(client, req.Time, visitor.ID == 0)); class < c.class {
			c.class, roams = class, false
		}
	}
	if bot || len(override.Labels) > 0 || override.Action == fairshare.Allow {
		roams = roams && c.class == privileged
		c.class = privileged
	}

	room := q.keyBuffers.Get().(*[]byte)
	b := binary.LittleEndian.AppendUint16((*room)[:0], t.generation)
	b = append(b, c.class)
	switch {
	case bot:
		c.weight = t.botWeight(&req.Bot)
		b = append(b, tagBot)
		b = append(b, req.Bot.Name...)
	case labelled:
		of := clientBytes(t.Client(req.Addr), req.Via)
		b = append(append(b, tagLabel), of[:]...)
	}
	if labelled {
		c.weight = weight
	}
	wider := false // there is a level of the visitor's owner or wider network
	for i := range t.By {
		part := &t.By[i]
		switch {
		case bot:
			b = append(b, byte(i))
		case labelled && i == 0:
		case roams && isWide(part):
			switch {
			case visitor.Wider != 0 && !wider:
				b = binary.LittleEndian.AppendUint16(append(b, tagIssuedWider), visitor.Wider)
				wider = true
			case c.depth == 0 && i+1 == len(t.By): // a claim needs a level
				b = binary.LittleEndian.AppendUint32(append(b, tagIssued), visitor.Network)
			default:
				continue
			}
		case roams && part.Kind == fairshare.ByNetwork:
			b = binary.LittleEndian.AppendUint32(append(b, tagIssued), visitor.Network)
		case roams && (part.Kind == fairshare.ByAddr || part.Kind == fairshare.ByVisitor):
			b = binary.LittleEndian.AppendUint64(append(b, tagVisitor), visitor.ID)
		case part.Kind == fairshare.ByASN && noOwner && i+1 < len(t.By) && isWide(&t.By[i+1]):
			continue // the wider network takes the place of the owner
		case part.Kind == fairshare.ByFleet && (req.Fleet == "" || req.FleetNew) && i+1 < len(t.By):
			continue // the next level takes its place; nobody's first page waits for a fleet
		default:
			b = t.Key(b, req, *part)
		}
		if t.Hash == nil { // as t.hash does; this is called for each level of each request
			c.keys[c.depth] = maphash.Bytes(t.seed, b)
		} else {
			c.keys[c.depth] = t.Hash(b)
		}
		c.depth++
		b = append(b, 0xFF)
	}
	if c.depth > 1 {
		c.unit = c.depth - 2
	}
	if visitor.ID != 0 && !bot && !labelled {
		if !roams { // a client below its address
			b = binary.LittleEndian.AppendUint64(append(b, tagVisitor), visitor.ID)
			c.keys[c.depth] = t.hash(b)
			c.depth++
		}
		if !visitor.Waits.IsZero() {
			c.waited = min(max(req.Time.Sub(visitor.Waits), 1), maxPlace)
		}
	}
	if t.Capacity == 0 {
		c.path = maphash.String(t.seed, req.Path)
		switch {
		case bot || labelled:
			c.network = c.keys[0]
		case roams:
			c.network = maphash.Bytes(t.seed,
				binary.LittleEndian.AppendUint32(append(b[:0], tagIssued), visitor.Network))
		default:
			of := fairshare.Request{Addr: req.Addr}
			if req.Via.IsValid() { // all clients that a peer merely names are one network
				of.Addr = req.Via
			}
			c.network = maphash.Bytes(t.seed, appendAddr(append(b[:0], tagNetwork), &of,
				fairshare.KeyPart{Kind: fairshare.ByNetwork}))
		}
	}
	*room = b
	q.keyBuffers.Put(room)
	return c
}

// factor returns the factor on what the request is charged.
func (c *Claim) factor() float64 {
	if c.cost == 0 {
		return 1
	}
	return c.cost
}

// WaitAtMost shortens the longest wait for the turn. With 0 or less, a request that gets no turn at
// once is refused.
func (c *Claim) WaitAtMost(d time.Duration) { c.wait = min(c.wait, max(d, 0)) }

// isWide reports whether a part is an owner or a network wider than a /24 or /48.
func isWide(part *fairshare.KeyPart) bool {
	bits4, bits6 := part.PrefixLengths()
	return part.Kind == fairshare.ByASN ||
		part.Kind == fairshare.ByNetwork && bits4 < network.Bits4 && bits6 < network.Bits6
}

// Factors on the time that a request is charged, by the signs of a browser. The signs can be forged,
// and privacy browsers lack some, so a client gains or loses a fifth by them at most.
const (
	likelyCost       = 0.8
	contradictedCost = 1.25
)

func costOf(b fairshare.Browser) float64 {
	switch b {
	case fairshare.BrowserLikely:
		return likelyCost
	case fairshare.BrowserContradicted:
		return contradictedCost
	}
	return 1
}

// labelWeight returns the greatest weight of the labels; found is false if none has a weight.
func (t *terms) labelWeight(labels []string) (weight float64, found bool) {
	for _, label := range labels {
		if w, ok := t.Labels[label]; ok {
			weight, found = max(weight, bounded(w)), true
		}
	}
	return weight, found
}

func (t *terms) botWeight(bot *fairshare.Bot) float64 {
	if w, ok := t.Bots[bot.Name]; ok {
		return bounded(w)
	}
	for _, category := range bot.Categories {
		if w, ok := t.Bots[category]; ok {
			return bounded(w)
		}
	}
	return 1
}

func bounded(weight float64) float64 {
	if weight != weight {
		return 1
	}
	return min(max(weight, 1./1024), 1024)
}

// client returns the hash under which a client is remembered; via as in a Request.
func (t *terms) client(client netip.Prefix, via netip.Addr) uint64 {
	b := clientBytes(client, via)
	hash := maphash.Bytes(t.seed, b[:])
	if via.IsValid() { // a peer can name any address: its clients get some sets, not all
		const peerSets = 1 << 12
		peer := maphash.Bytes(t.seed, b[18:])
		hash = (peer+hash>>nameBits%peerSets)<<nameBits | hash&(1<<nameBits-1)
	}
	return hash
}

// clientBytes returns what stands for a client's prefix; via as in a Request.
func clientBytes(client netip.Prefix, via netip.Addr) (b [34]byte) {
	client = fairshare.PrefixID(client).Prefix
	a := client.Addr().As16()
	copy(b[2:], a[:])
	if via.IsValid() {
		a = via.As16()
		copy(b[18:], a[:])
	}
	b[0], b[1] = tagClient, byte(client.Bits())
	if client.Addr().Is4() {
		b[1] = 96 + byte(client.Bits())
	}
	return b
}

// appendAddr is the default of Options.Key.
func appendAddr(b []byte, req *fairshare.Request, part fairshare.KeyPart) []byte {
	if part.Kind == fairshare.ByASN && req.Owner.ASN != 0 {
		return binary.LittleEndian.AppendUint32(append(b, byte(part.Kind)), req.Owner.ASN)
	}
	cut := network.Cut(req.Addr, network.ClientBits4, network.ClientBits6)
	if part.Kind == fairshare.ByNetwork || part.Kind == fairshare.ByASN {
		bits4, bits6 := part.PrefixLengths()
		cut = network.Cut(req.Addr, bits4, bits6)
	}
	b = append(b, byte(part.Kind), byte(cut.Bits()))
	if !req.Addr.IsValid() {
		return append(b, make([]byte, 16)...)
	}
	a := cut.Addr().As16()
	return append(b, a[:]...)
}
