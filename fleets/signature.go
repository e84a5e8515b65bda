package fleets

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"fairshare"
)

// A view is one way to group clients, the narrowest first.
type view uint8

const (
	byAgent   view = iota // user agent and headers
	byOwner               // the owner of the address
	byHeaders             // which headers are present
	views
)

const (
	slotSets  = 1 << 7
	slotWays  = 8
	slots     = slotSets * slotWays
	agentSize = 120 // bytes of a user agent
	pathSize  = 64
)

// A ref refers to a slot: its index, shifted, and its generation. 0 means none.
type ref uint16

const (
	generationBits = 6
	generationMask = 1<<generationBits - 1
)

// A head says which signature a slot has. The slots keep the signatures with the
// most clients (Misra and Gries 1982, in each set). A new signature takes 1 from the
// weight of the lightest slot of its set, and replaces it if the weight is 0. So a flood
// of random user agents occupies one slot of a set. The heads of a set are two cache
// lines.
type head struct {
	hash       uint64 // 0: the slot is free
	weight     uint32
	generation uint8
	view       view
	fleet      bool // it stays
}

// A slot counts the clients of one signature.
type slot struct {
	id       uint32 // of the signature, the same in all processes
	agent    [agentSize]byte
	agentLen uint8
	fresh    [freshTicks]visits // of the last ticks: too new to be judged
	periods  [2]period          // the present one and the one before
	entry    vote[[pathSize]byte]
	owner    vote[fairshare.Owner]
	gaps     gaps
	fleet    *fleet
}

// visits are counts of visits of clients.
type visits struct {
	arrived uint32 // asked for a page
	entered uint32 // and got it
	assets  uint32 // and asked for an asset
}

// A period counts the clients of a signature in some minutes.
type period struct {
	requests  uint32 // for pages
	clients   uint32 // that got a page
	assets    uint32 // of clients: asked for an asset
	addresses sketch
	networks  sketch
	paths     sketch // of first pages
}

// A vote finds the value that more than half of the votes are for, if there is one
// (Boyer and Moore 1981).
type vote[T comparable] struct {
	value T
	lead  uint32
	votes uint32
}

func (v *vote[T]) add(value T) {
	v.votes++
	switch {
	case v.value == value:
		v.lead++
	case v.lead == 0:
		v.value, v.lead = value, 1
	default:
		v.lead--
	}
}

// share returns the least share of the votes that the value has.
func (v *vote[T]) share() float64 { return float64(v.lead) / float64(max(v.votes, 1)) }

// A slotSet is a set of slots. Most sites have few signatures at a time, and a slot is large: those
// without counts are not looked at.
type slotSet [slots / 64]uint64

func (s *slotSet) add(i int) { s[i/64] |= 1 << (i % 64) }

// counting yields each slot that may have counts, in order.
func (f *Finder) counting(yield func(*head, *slot) bool) {
	for word := range f.touched[0] {
		for set := f.touched[0][word] | f.touched[1][word]; set != 0; set &= set - 1 {
			i := word*64 + bits.TrailingZeros64(set)
			if !yield(&f.heads[i], &f.slots[i]) {
				return
			}
		}
	}
}

// slot returns the slot of a ref, to count in it; nil if it has another signature now.
func (f *Finder) slot(r ref) *slot {
	if r == 0 {
		return nil
	}
	if i := int(r >> generationBits); f.heads[i].generation == uint8(r&generationMask) {
		f.touched[0].add(i)
		return &f.slots[i]
	}
	return nil
}

// sign gives a client the signatures of a request.
func (f *Finder) sign(c *client, req *fairshare.Request) {
	sig := f.signatures(req)
	for v := range views {
		c.refs[v] = f.take(v, sig[v], req)
	}
	path := maphash.String(f.seed, req.Path)
	for _, r := range c.refs {
		if s := f.slot(r); s != nil {
			s.periods[0].paths.add(path)
			var text [pathSize]byte
			copy(text[:], req.Path)
			s.entry.add(text)
			s.owner.add(req.Owner)
			s.fresh[0].arrived++
		}
	}
}

// signatures returns the hash of each signature of a request; 0 for none.
func (f *Finder) signatures(req *fairshare.Request) (sig [views]uint64) {
	var b [8 * 6]byte
	present := uint64(1)
	for i, name := range [...]string{"Accept", "Accept-Language", "Accept-Encoding", "Sec-Ch-Ua", "Sec-Fetch-Site",
		"Cookie", "Referer", "Upgrade-Insecure-Requests"} {
		text := ""
		if req.Header != nil {
			if values := req.Header.Values(name); len(values) > 0 {
				text = values[0]
			}
		}
		if text == "" {
			continue
		}
		present |= 2 << i
		if i < 4 {
			binary.LittleEndian.PutUint64(b[8*i:], maphash.String(f.seed, text))
		}
	}
	binary.LittleEndian.PutUint64(b[32:], present)
	sig[byHeaders] = maphash.Bytes(f.seed, b[32:40]) | 1
	binary.LittleEndian.PutUint64(b[40:], maphash.String(f.seed, req.UserAgent))
	sig[byAgent] = maphash.Bytes(f.seed, b[:]) | 1
	if req.Owner.ASN != 0 {
		binary.LittleEndian.PutUint64(b[32:], uint64(req.Owner.ASN)<<32)
		sig[byOwner] = maphash.Bytes(f.seed, b[32:40]) | 1
	}
	return sig
}

// take returns a ref to the slot of a signature; 0 if it has none.
func (f *Finder) take(v view, hash uint64, req *fairshare.Request) ref {
	if hash == 0 {
		return 0
	}
	first := int(hash>>8%slotSets) * slotWays
	set := f.heads[first:][:slotWays:slotWays]
	lightest := -1
	for i := range set {
		h := &set[i]
		if h.hash == hash && h.view == v {
			h.weight++
			return ref(first+i)<<generationBits | ref(h.generation)
		}
		if !h.fleet && (lightest < 0 || h.weight < set[lightest].weight) {
			lightest = i
		}
	}
	if lightest < 0 {
		return 0
	}
	h := &set[lightest]
	if h.weight > 0 {
		h.weight--
		return 0
	}
	// The generation is never 0, so that no ref is.
	*h = head{hash: hash, weight: 1, generation: h.generation%generationMask + 1, view: v}
	s := &f.slots[first+lightest]
	*s = slot{id: identity(v, req)}
	s.agentLen = uint8(copy(s.agent[:], req.UserAgent))
	return ref(first+lightest)<<generationBits | ref(h.generation)
}

// identity returns a number of the signature of a request that is the same in all
// processes: FNV-1a, 32 bits.
func identity(v view, req *fairshare.Request) uint32 {
	h := uint32(2166136261)
	add := func(c byte) { h = (h ^ uint32(c)) * 16777619 }
	text := func(s string) {
		for i := range min(len(s), 256) {
			add(s[i])
		}
		add(0)
	}
	add(byte(v))
	switch v {
	case byOwner:
		for i := range 4 {
			add(byte(req.Owner.ASN >> (8 * i)))
		}
		return h
	case byAgent:
		text(req.UserAgent)
	}
	for _, name := range [...]string{"Accept", "Accept-Language", "Accept-Encoding", "Sec-Ch-Ua", "Sec-Fetch-Site",
		"Cookie", "Referer", "Upgrade-Insecure-Requests"} {
		var values []string
		if req.Header != nil {
			values = req.Header.Values(name)
		}
		switch {
		case len(values) == 0 || values[0] == "":
			add(0)
		case v == byAgent && name[0] == 'A':
			text(values[0])
		default:
			add(1)
		}
	}
	return h
}
