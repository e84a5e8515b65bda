//go:build linux

package main

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
)

// random returns a source of random numbers for that seed and name. Each client has its own, so one that
// starts later does not change the others.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// addresses hands out public IPv4 addresses, each in a /24 of its own.
type addresses struct {
	rng  *rand.Rand
	used map[[3]byte]bool
}

func newAddresses(seed uint64) *addresses {
	return &addresses{rng: random(seed, "addresses"), used: make(map[[3]byte]bool)}
}

func (a *addresses) next() netip.Addr {
	for {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], a.rng.Uint32())
		b[3] = b[3]%250 + 2
		net := [3]byte{b[0], b[1], b[2]}
		addr := netip.AddrFrom4(b)
		if a.used[net] || !public(addr) {
			continue
		}
		a.used[net] = true
		return addr
	}
}

func (a *addresses) take(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = a.next()
	}
	return all
}

// reserved are the networks that no client on the Internet has.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("224.0.0.0/3"),
}

func public(addr netip.Addr) bool {
	for _, p := range reserved {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}
