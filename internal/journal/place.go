package journal

import (
	"hash/maphash"
	"net/netip"
)

// A place is where an entry is counted: with those of its client and rule, or
// with those of its network and rule.
type place struct {
	shard   uint64 // by the network alone: no network fills the table
	client  uint64 // hash, never 0, of client, rule, action, dry run and ban
	network uint64 // hash, never 0, of network, rule, action and dry run
	hi, lo  uint64 // the network
	v4      bool
	member  uint8 // which part of the network: of a /24 the address
	valid   bool
}

// masks cut an address to what counts as one client.
type masks struct{ v4, v6hi, v6lo uint64 }

func newMasks(v4, v6 int) masks {
	if v4 == 0 {
		v4 = 32
	}
	if v6 == 0 {
		v6 = 64
	}
	return masks{
		v4:   ^uint64(0) << (32 - v4),
		v6hi: ^uint64(0) << max(64-v6, 0),
		v6lo: ^uint64(0) << min(128-v6, 64),
	}
}

type hashed struct{ hi, lo, rule, kind uint64 }

func newPlace(seed maphash.Seed, e *Entry, m *masks) place {
	from := e.Client.Unmap()
	addr := from.As16()
	var client, network hashed
	for i := range 8 {
		client.hi = client.hi<<8 | uint64(addr[i])
		client.lo = client.lo<<8 | uint64(addr[8+i])
	}
	p := place{v4: from.Is4(), valid: from.IsValid()}
	if p.v4 {
		client.lo &= m.v4
		network.hi, network.lo = client.hi, client.lo&^0xFF
	} else {
		client.hi &= m.v6hi
		client.lo &= m.v6lo
		network.hi = client.hi &^ 0xFFFF
	}
	p.hi, p.lo = network.hi, network.lo
	p.shard = maphash.Comparable(seed, network) % shards

	client.rule = maphash.String(seed, e.Rule)
	network.rule = client.rule
	if e.DryRun {
		network.kind = 1
	}
	if e.Action != "refuse" {
		network.kind |= 2
	}
	client.kind = network.kind
	switch e.Ban {
	case BanStarted:
		client.kind |= 4
	case BanInForce:
		client.kind |= 8
	}
	p.client = maphash.Comparable(seed, client) | 1
	p.network = maphash.Comparable(seed, network) | 1
	if p.v4 {
		p.member = uint8(client.lo)
	} else {
		p.member = uint8(p.client >> 56)
	}
	return p
}

// prefix returns the network: a /24 of IPv4, a /48 of IPv6.
func (p *place) prefix() netip.Prefix {
	if !p.valid {
		return netip.Prefix{}
	}
	if p.v4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(p.lo >> 24), byte(p.lo >> 16), byte(p.lo >> 8), 0}), 24)
	}
	var b [16]byte
	for i := range 6 {
		b[i] = byte(p.hi >> (56 - 8*i))
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), 48)
}
