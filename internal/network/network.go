// Package network computes which addresses belong together: the network of an
// address, and the prefix that counts as one client. It also reads prefixes.
//
// Start with [Of]. Functions take IPv4-mapped addresses as IPv4 and drop zones.
package network

import (
	"errors"
	"net/netip"
)

// Bits of a network: one customer rarely has a larger one.
const (
	Bits4 = 24
	Bits6 = 48
)

// Bits of the addresses that count as one client if a policy does not say
// otherwise.
const (
	ClientBits4 = 32
	ClientBits6 = 64
)

// Of returns the network of an address: an IPv4 /24 or an IPv6 /48; the zero
// Prefix if the address is invalid.
func Of(addr netip.Addr) netip.Prefix { return Cut(addr, Bits4, Bits6) }

// Around returns the network that a client's prefix lies in, or the masked
// prefix itself if it is at least as wide as a network; the zero Prefix if the
// prefix is invalid.
func Around(client netip.Prefix) netip.Prefix {
	if client.Addr().Is4In6() {
		client = Canonical(client)
	}
	return Cut(client.Addr(), min(Bits4, client.Bits()), min(Bits6, client.Bits()))
}

// Cut returns the prefix of an address with bits4 bits for IPv4 and bits6 bits
// for IPv6. It returns the zero Prefix if the address is invalid or has fewer
// bits.
func Cut(addr netip.Addr, bits4, bits6 int) netip.Prefix {
	addr, bits := addr.Unmap().WithZone(""), bits6
	if addr.Is4() {
		bits = bits4
	}
	if bits == addr.BitLen() {
		return netip.PrefixFrom(addr, bits)
	}
	p, _ := addr.Prefix(bits)
	return p
}

// Single returns the prefix that holds only the address.
func Single(addr netip.Addr) netip.Prefix {
	return Cut(addr, 32, 128)
}

// ClientBits returns the given lengths of client prefixes. A length that is not
// from 1 to 32, or from 1 to 128, is replaced by ClientBits4 or ClientBits6.
func ClientBits(bits4, bits6 int) (int, int) {
	if bits4 < 1 || bits4 > 32 {
		bits4 = ClientBits4
	}
	if bits6 < 1 || bits6 > 128 {
		bits6 = ClientBits6
	}
	return bits4, bits6
}

// Canonical returns the prefix masked, without a zone, and an IPv4-mapped one
// of at least 96 bits as IPv4. An invalid prefix becomes the zero Prefix.
func Canonical(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// Errors of Parse.
var (
	ErrSyntax = errors.New("neither an address nor a prefix")
	ErrZone   = errors.New("an address with a zone")
	ErrMapped = errors.New("an IPv4-mapped prefix of less than 96 bits")
)

// Parse reads a prefix, or an address, which is a prefix of one address. The
// result is in the form of Canonical: bits after the length are dropped.
func Parse(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, ErrZone
		}
		return Single(addr), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, ErrSyntax
	case p.Addr().Is4In6() && p.Bits() < 96:
		return netip.Prefix{}, ErrMapped
	}
	return Canonical(p), nil
}

// Mask returns the first n of 64 bits set; n may be below 0 (no bit) or above
// 64 (all bits).
func Mask(n int) uint64 { return ^(^uint64(0) >> max(n, 0)) }
