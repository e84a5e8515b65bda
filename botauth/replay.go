package botauth

import (
	"hash/maphash"
	"net/netip"
	"sync"

	"fairshare/internal/network"
)

// Bounds of the memory for signatures that were used: 8 bytes each, about 40 with the
// table, in two generations.
const (
	maxUsedOfAgent = 100_000 // in replayWindow seconds: 150 requests a second
	maxUsed        = 400_000
)

// replays remembers signatures that were used until they are too old to be accepted.
type replays struct {
	seed maphash.Seed

	mu      sync.Mutex
	turned  int64 // Unix seconds at which the newer generation began
	newer   map[uint64]uint64
	older   map[uint64]uint64
	ofAgent map[string]int // entries of newer
}

func newReplays() *replays {
	return &replays{seed: maphash.MakeSeed(), newer: map[uint64]uint64{}, ofAgent: map[string]int{}}
}

// id returns what a signature is remembered by. With a nonce it is used once. Without one
// it may be used again by the address that used it first: some bots sign once a second
// for all requests.
func (p *replays) id(s *signature, addr netip.Addr) (id, user uint64) {
	var h maphash.Hash
	h.SetSeed(p.seed)
	h.WriteString(s.agent)
	h.WriteByte(0)
	h.WriteString(s.keyID)
	h.WriteByte(0)
	if s.nonce != "" {
		h.WriteByte('n')
		h.WriteString(s.nonce)
		return h.Sum64(), 0
	}
	h.WriteByte('s')
	h.Write(s.value)
	id = h.Sum64()
	return id, maphash.Comparable(p.seed, addr) | 1
}

// A use is the result of a look at replays.
type use uint8

const (
	fresh use = iota
	replayed
	noRoom
)

// look reports whether a signature may be used.
func (p *replays) look(id, user uint64, now int64) use {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	return p.find(id, user)
}

func (p *replays) find(id, user uint64) use {
	by, found := p.newer[id]
	if !found {
		by, found = p.older[id]
	}
	if found && (user == 0 || by != user) {
		return replayed
	}
	return fresh
}

// take marks a signature as used, unless it was used before or there is no room.
func (p *replays) take(s *signature, id, user uint64, now int64) use {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	if found := p.find(id, user); found != fresh {
		return found
	}
	if _, known := p.newer[id]; !known {
		if len(p.newer) >= maxUsed || p.ofAgent[s.agent] >= maxUsedOfAgent {
			return noRoom
		}
		p.ofAgent[s.agent]++
	}
	p.newer[id] = user
	return fresh
}

// turn begins a new generation when all signatures of the older one have expired.
func (p *replays) turn(now int64) {
	switch age := now - p.turned; {
	case age < replayWindow:
		return
	case age < 2*replayWindow:
		p.older = p.newer
	default:
		p.older = nil
	}
	p.turned, p.newer, p.ofAgent = now, map[uint64]uint64{}, map[string]int{}
}

// Bounds of the work for signatures that prove nothing. To read one takes some 15 µs, to
// check it some 60.
const (
	failuresOfAddr   = 10  // a minute, of an address (IPv6 /64)
	failuresOfSigner = 200 // likewise, of one with a valid signature in the last hour
	failuresOfAll    = 300 // a second, that were checked; addresses with a valid signature are exempt
)

// signerAge is for how many seconds an address counts as one of a signer.
const signerAge = 3600

// A budget bounds the work for signatures that prove nothing, by address and in all.
type budget struct {
	seed maphash.Seed

	mu     sync.Mutex
	slots  [4096]slot
	second int64
	failed int // in that second
}

// A slot is the state of one address.
type slot struct {
	tag    uint32
	failed uint32
	minute int64 // of failed
	valid  int64 // Unix seconds of the last valid signature; 0 for none
}

func newBudget() *budget { return &budget{seed: maphash.MakeSeed()} }

func (b *budget) slot(addr netip.Addr) (*slot, uint32) {
	h := maphash.Comparable(b.seed, network.Cut(addr, 32, 64))
	return &b.slots[h%uint64(len(b.slots))], uint32(h >> 32)
}

// allows reports whether a signature from an address may be looked at now.
func (b *budget) allows(addr netip.Addr, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, tag := b.slot(addr)
	known := s.tag == tag
	signer := known && now-s.valid < signerAge
	most := uint32(failuresOfAddr)
	if signer {
		most = failuresOfSigner
	}
	if known && s.minute == now/60 && s.failed >= most {
		return false
	}
	return signer || b.second != now || b.failed < failuresOfAll
}

// valid notes a valid signature.
func (b *budget) valid(addr netip.Addr, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, tag := b.slot(addr)
	if s.tag != tag {
		*s = slot{tag: tag}
	}
	s.valid = now
}

// fail notes a signature that proved nothing. checked says that its key was used.
func (b *budget) fail(addr netip.Addr, checked bool, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.second != now {
		b.second, b.failed = now, 0
	}
	if checked {
		b.failed++
	}
	s, tag := b.slot(addr)
	if s.tag != tag {
		if now-s.valid < signerAge { // an address that signs keeps its place
			return
		}
		*s = slot{tag: tag}
	}
	if s.minute != now/60 {
		s.minute, s.failed = now/60, 0
	}
	s.failed++
}
