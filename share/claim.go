package share

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"fairshare"
	"fairshare/internal/network"
)

// A Claim holds the keys and the weight with which a request waits. It does not refer to the
// request.
type Claim struct {
	keys   [MaxParts]uint64 // of the nodes, from the top level down
	depth  uint8
	class  uint8
	weight float64 // of the node at the top level
	wait   time.Duration

	path, network uint64 // for the search for the capacity
}

// terms are the options and seeds from which claims are made.
type terms struct {
	Options
	seed       maphash.Seed
	generation uint16 // number of changes of By: keys of different generations differ
}

func newTerms(opts Options, last *terms) *terms {
	t := &terms{Options: opts}
	if last == nil {
		t.seed = maphash.MakeSeed()
		return t
	}
	t.seed, t.generation = last.seed, last.generation
	if !slices.Equal(opts.By, last.By) {
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
)

// Claim returns the claim of a request on arrival, and records that the client was seen. It is used
// for one Wait.
func (q *Queue) Claim(req *fairshare.Request) Claim {
	t := q.terms.Load()
	c := Claim{depth: uint8(len(t.By)), weight: 1, wait: t.Wait}
	client := t.client(t.Client(req.Addr), req.Via)
	bot := req.Bot.State == fairshare.Verified && !req.Bot.UserTriggered
	override := req.Override
	if req.Via.IsValid() { // an override does not apply to an address that only its peer names
		override = fairshare.Override{}
	}
	weight, labelled := t.labelWeight(override.Labels)
	if t.Ages {
		c.class = classOf(q.known.seen(client, req.Time))
	}
	if bot || len(override.Labels) > 0 || override.Action == fairshare.Allow {
		c.class = privileged
	}

	room := q.keyBuffers.Get().(*[]byte)
	b := append((*room)[:0], byte(t.generation), byte(t.generation>>8), c.class)
	switch {
	case bot:
		c.weight = t.botWeight(&req.Bot)
		b = append(b, tagBot)
		b = append(b, req.Bot.Name...)
	case labelled:
		b = append(b, tagLabel)
		b = binary.LittleEndian.AppendUint64(b, client)
	}
	if labelled {
		c.weight = weight
	}
	for i, part := range t.By {
		switch {
		case bot:
			b = append(b, byte(i))
		case labelled && i == 0:
		default:
			b = t.Key(b, req, part)
		}
		c.keys[i] = maphash.Bytes(t.seed, b)
		b = append(b, 0xFF)
	}
	if t.Capacity == 0 {
		c.path = maphash.String(t.seed, req.Path)
		if c.network = c.keys[0]; !bot && !labelled {
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
	client = fairshare.PrefixID(client).Prefix
	a := client.Addr().As16()
	var b [34]byte
	copy(b[2:], a[:])
	if via.IsValid() {
		a = via.As16()
		copy(b[18:], a[:])
	}
	b[0], b[1] = tagClient, byte(client.Bits())
	if client.Addr().Is4() {
		b[1] = 96 + byte(client.Bits())
	}
	hash := maphash.Bytes(t.seed, b[:])
	if via.IsValid() { // a peer can name any address: its clients get some sets, not all
		const peerSets = 1 << 12
		peer := maphash.Bytes(t.seed, b[18:])
		hash = (peer+hash>>nameBits%peerSets)<<nameBits | hash&(1<<nameBits-1)
	}
	return hash
}

// appendAddr is the default of Options.Key.
func appendAddr(b []byte, req *fairshare.Request, part fairshare.KeyPart) []byte {
	cut := network.Cut(req.Addr, network.ClientBits4, network.ClientBits6)
	if part.Kind == fairshare.ByNetwork {
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
