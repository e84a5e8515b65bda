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

// Bounds of the work for signatures that turn out to be wrong. One takes about 60 µs.
const (
	failuresOfNetwork = 10  // a minute
	failuresOfAll     = 300 // a second; networks with a valid signature in this hour are exempt
)

// A budget bounds the checks of wrong signatures, by network (/24, /48) and in all.
type budget struct {
	seed maphash.Seed

	mu     sync.Mutex
	slots  [4096]slot
	second int64
	failed int // in that second
}

// A slot is the state of one network.
type slot struct {
	tag    uint32
	failed uint32
	minute int64 // of failed
	valid  int64 // Unix seconds of the last valid signature; 0 for none
}

func newBudget() *budget { return &budget{seed: maphash.MakeSeed()} }

func (b *budget) slot(addr netip.Addr) (*slot, uint32) {
	h := maphash.Comparable(b.seed, network.Of(addr))
	return &b.slots[h%uint64(len(b.slots))], uint32(h >> 32)
}

// allows reports whether a signature from an address may be checked now.
func (b *budget) allows(addr netip.Addr, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, tag := b.slot(addr)
	known := s.tag == tag
	if known && s.minute == now/60 && s.failed >= failuresOfNetwork {
		return false
	}
	return b.second != now || b.failed < failuresOfAll || known && now-s.valid < 3600
}

// record notes the result of a check.
func (b *budget) record(addr netip.Addr, valid bool, now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, tag := b.slot(addr)
	if s.tag != tag {
		if !valid && now-s.valid < 3600 { // a network that signs keeps its place
			s = &slot{}
		}
		*s = slot{tag: tag}
	}
	if valid {
		s.valid = now
		return
	}
	if s.minute != now/60 {
		s.minute, s.failed = now/60, 0
	}
	s.failed++
	if b.second != now {
		b.second, b.failed = now, 0
	}
	b.failed++
}
