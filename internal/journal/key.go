package journal

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"

	"fairshare/internal/network"
)

// A tableKey says where an entry is counted: with those of its client and rule, or
// with those of its network and rule.
type tableKey struct {
	shard   uint64 // by the network alone, so that one network cannot fill the table
	client  uint64 // hash, never 0, of client, rule, action, dry run and ban
	network uint64 // hash, never 0, of network, rule, action and dry run
	hi, lo  uint64 // the network
	v4      bool
	member  uint8 // which part of the network: of a /24 the address
	valid   bool
}

// masks cut an address to the prefix of one client.
type masks struct{ v4, v6hi, v6lo uint64 }

func newMasks(v4, v6 int) masks {
	v4, v6 = network.ClientBits(v4, v6)
	return masks{v4: network.Mask(32 + v4), v6hi: network.Mask(v6), v6lo: network.Mask(v6 - 64)}
}

type hashed struct {
	hi, lo, rule, kind uint64
	through            netip.Addr // of a client
}

func newTableKey(seed maphash.Seed, e *Entry, m *masks) tableKey {
	from := e.Client.Unmap()
	addr := from.As16()
	var client, around hashed
	for i := range 8 {
		client.hi = client.hi<<8 | uint64(addr[i])
		client.lo = client.lo<<8 | uint64(addr[8+i])
	}
	p := tableKey{v4: from.Is4(), valid: from.IsValid()}
	if p.v4 {
		client.lo &= m.v4
		around.hi, around.lo = client.hi, client.lo&network.Mask(32+network.Bits4)
	} else {
		client.hi &= m.v6hi
		client.lo &= m.v6lo
		around.hi = client.hi & network.Mask(network.Bits6)
	}
	p.hi, p.lo = around.hi, around.lo
	p.shard = maphash.Comparable(seed, around) % shards

	client.rule = maphash.String(seed, e.Rule)
	around.rule = client.rule
	if e.DryRun {
		around.kind = 1
	}
	if e.Action != "refuse" {
		around.kind |= 2
	}
	client.kind, client.through = around.kind, e.Through
	switch e.Ban {
	case BanStarted:
		client.kind |= 4
	case BanInForce:
		client.kind |= 8
	}
	p.client = maphash.Comparable(seed, client) | 1
	p.network = maphash.Comparable(seed, around) | 1
	if p.v4 {
		p.member = uint8(client.lo)
	} else {
		p.member = uint8(p.client >> 56)
	}
	return p
}

// prefix returns the network; the zero Prefix if the entry has no client.
func (p *tableKey) prefix() netip.Prefix {
	if !p.valid {
		return netip.Prefix{}
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], p.hi)
	binary.BigEndian.PutUint64(a[8:], p.lo)
	if p.v4 {
		return network.Of(netip.AddrFrom4([4]byte(a[12:])))
	}
	return network.Of(netip.AddrFrom16(a))
}
