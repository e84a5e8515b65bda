package fairshare

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairshare/internal/network"
)

// keyAddrs are addresses that share prefixes of many lengths.
var keyAddrs = []string{"", "192.0.2.1", "192.0.2.2", "192.0.2.130", "192.0.3.1", "193.0.2.1", "0.0.0.0",
	"255.255.255.255", "::ffff:192.0.2.1", "::ffff:192.0.2.2", "::ffff:193.0.2.1", "::192.0.2.1", "::", "::1",
	"2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:2:8000::1", "2001:db8:1:3::1", "2001:db8:2::1",
	"2002:db8:1:2::1", "fe80::1%eth0", "fe80::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}

// keyAddr returns one of keyAddrs, or the invalid address.
func keyAddr(rnd *rand.Rand) (addr netip.Addr) {
	if s := pick(rnd, keyAddrs...); s != "" {
		addr = netip.MustParseAddr(s)
	}
	return addr
}

// plainKey is a slow and obviously right model of decision.key for limits whose clients were not forgotten. It makes
// the key from the prefixes that network.Cut returns.
func plainKey(p *Policy, req *Request, by []KeyPart, site string) (key []byte) {
	for _, part := range by {
		bits4, bits6 := p.prefixes()
		kind := ByAddr
		switch {
		case part.Kind == ByVisitor && req.Visitor.ID != 0:
			key = binary.BigEndian.AppendUint64(append(key, byte(ByVisitor)), req.Visitor.ID)
			continue
		case part.Kind == ByEveryone:
			key = append(key, byte(ByEveryone))
			continue
		case part.Kind == ByPath:
			key = append(append(key, byte(ByPath), byte(len(req.Path))), req.Path...)
			continue
		case part.Kind == ByNetwork:
			kind = ByNetwork
			bits4, bits6 = part.PrefixLengths()
		}
		bits, usual := bits6, 48
		if req.Addr.Unmap().Is4() {
			bits, usual = bits4, 24
		}
		if req.Via.IsValid() {
			kind |= provisional
		}
		ofOtherSize := part.Kind == ByNetwork && bits != usual
		if ofOtherSize {
			kind |= sized
		}
		var addr [16]byte
		if req.Addr.IsValid() {
			addr = network.Cut(req.Addr, bits4, bits6).Addr().As16()
		}
		key = append(append(key, byte(kind)), addr[:]...)
		if ofOtherSize {
			key = append(key, byte(bits))
		}
		if via := req.Via.As16(); req.Via.IsValid() {
			key = append(key, via[:]...)
		}
	}
	if p.SitesApart && site != "" {
		key = append(append(key, 0xFF, byte(len(site))), site...)
	}
	return key
}

// keyLimits returns limits by addresses, networks and visitors, among others, in any order.
func keyLimits(rnd *rand.Rand, n int) (rules []Rule) {
	for i := range n {
		parts := [][]KeyPart{nil, {{Kind: ByAddr}}, {{Kind: ByNetwork}}, {{Kind: ByVisitor}},
			{{Kind: ByNetwork, Bits4: 24, Bits6: 48}}, {{Kind: ByNetwork, Bits4: 16}}, {{Kind: ByNetwork, Bits6: 64}},
			{{Kind: ByNetwork, Bits4: 32, Bits6: 128}}, {{Kind: ByEveryone}},
			{{Kind: ByNetwork}, {Kind: ByPath}}, {{Kind: ByPath}, {Kind: ByAddr}}, {{Kind: ByVisitor}, {Kind: ByPath}}}
		by := pick(rnd, parts...)
		if n > manyKeys {
			by = []KeyPart{{Kind: ByNetwork, Bits4: uint8(1 + i%32), Bits6: uint8(1 + i%128)}}
			if rnd.IntN(3) == 0 {
				by = []KeyPart{{Kind: pick(rnd, ByAddr, ByNetwork, ByVisitor)}}
			}
		}
		rules = append(rules, Rule{Name: fmt.Sprint("limit ", i), Limit: &Limit{Resource: Requests, N: 1,
			Window: time.Minute, By: by}})
	}
	return rules
}

// The keys of a request are those that a slow model makes, in whichever order the limits ask for them, and whatever
// the decision was used for before.
func TestKeysAgreeWithPrefixes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 9))
	at := time.Unix(1_800_000_000, 0)
	for round := range 400 {
		p := &Policy{Rules: keyLimits(rnd, pick(rnd, 2, 3, 6, 12, 60)), IPv4Prefix: pick(rnd, 0, 0, 32, 28, 24, 16, 1),
			IPv6Prefix: pick(rnd, 0, 0, 128, 64, 56, 48, 40, 1), SitesApart: rnd.IntN(2) == 0,
			Sites: []Site{{Name: "a", Hosts: []string{"a.example"}}}}
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rules := len(p.Rules) // the other limits are ceilings
		d := g.decisions.New().(*decision)
		for range 60 {
			req := &Request{Addr: keyAddr(rnd), Path: "/path", Host: pick(rnd, "a.example", "other")}
			if rnd.IntN(4) == 0 {
				req.Visitor.ID = rnd.Uint64()
			}
			if rnd.IntN(4) == 0 {
				req.Via = netip.MustParseAddr(pick(rnd, "10.0.0.1", "::"))
			}
			d.reset(req, at)
			if rnd.IntN(2) == 0 {
				d.cutAddr() // as the history does
			}
			limits := rnd.Perm(rules)
			for _, i := range slices.Concat(limits, limits) {
				by := g.limits[i].By
				if got, want := d.key(i), plainKey(p, req, by, d.siteName()); !slices.Equal(got, want) {
					t.Fatalf("round %d, %v via %v, %s, limits in the order %v: the key is\n%x, want\n%x", round, req.Addr,
						req.Via, partsText(by), limits, got, want)
				}
			}
		}
	}
}

// partsText returns the text of parts of a key.
func partsText(by []KeyPart) (s string) {
	for _, part := range by {
		s += " by " + part.String()
	}
	return s
}

// After a client is forgotten, its keys are new, and those of all other clients stay. Its network is
// counted as before.
func TestKeysAfterAClientIsForgotten(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for _, first := range []KeyKind{ByAddr, ByNetwork, ByVisitor} {
		p := &Policy{Rules: []Rule{
			{Name: "first", Limit: &Limit{Resource: Requests, N: 1, Window: time.Minute, By: []KeyPart{{Kind: first}}}},
			{Name: "addr", Limit: &Limit{Resource: Requests, N: 2, Window: time.Minute, By: []KeyPart{{Kind: ByAddr}}}},
			{Name: "network", Limit: &Limit{Resource: Requests, N: 3, Window: time.Minute,
				By: []KeyPart{{Kind: ByNetwork}}}},
			{Name: "visitor", Limit: &Limit{Resource: Requests, N: 4, Window: time.Minute,
				By: []KeyPart{{Kind: ByVisitor}}}}}}
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := g.decisions.New().(*decision)
		forget := func(addr string) {
			g.history.forgotten.note(PrefixID(p.Client(netip.MustParseAddr(addr))), at)
		}
		check := func(addr string, isNew bool) {
			t.Helper()
			req := &Request{Addr: netip.MustParseAddr(addr)}
			d.reset(req, at)
			for i := range p.Rules {
				by := g.limits[i].By
				want := plainKey(p, req, by, "")
				if isNew && by[0].Kind != ByNetwork {
					want = appendTime(want, at.UnixNano())
				}
				if got := d.key(i); !slices.Equal(got, want) {
					t.Errorf("%s, %s: the key is %x, want %x", addr, partsText(by), got, want)
				}
			}
		}
		check("192.0.2.1", false)
		forget("192.0.2.1")
		for _, addr := range []string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "2001:db8::1"} {
			check(addr, addr == "192.0.2.1" || addr == "::ffff:192.0.2.1")
		}
		forget("2001:db8::1")
		check("2001:db8::2", true) // the same /64
		check("2001:db8:0:1::1", false)

		// It is forgotten while its request is judged. Keys that are made later are the new ones.
		if g, err = NewGuard(p, noLimiter{}, nil); err != nil {
			t.Fatal(err)
		}
		req := &Request{Addr: netip.MustParseAddr("192.0.2.1")}
		d = g.decisions.New().(*decision)
		d.reset(req, at)
		before := d.key(1)
		forget("192.0.2.1")
		if want := appendTime(slices.Clone(before), at.UnixNano()); !slices.Equal(d.key(3), want) {
			t.Errorf("the key is %x, want %x", d.key(3), want)
		}
	}
}

// Requests are of the same client, and of the same network, for the history as for limits.
func TestNamesOfClientsAgreeWithPrefixes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(10, 11))
	for range 100 {
		p := &Policy{IPv4Prefix: pick(rnd, 0, 28, 24), IPv6Prefix: pick(rnd, 0, 128, 56, 48)}
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		g.UseHistory(new(History))
		g.history.once.Do(func() { // the same secret in each run
			for i := range g.history.secret {
				g.history.secret[i] = rnd.Uint64()
			}
		})
		type named struct {
			addr netip.Addr
			clientName
		}
		var all []named
		for _, s := range keyAddrs[1:] {
			addr := netip.MustParseAddr(s)
			name := g.clientOf(&Request{Addr: addr})
			all = append(all, named{addr, name})
			if client := p.Client(addr); g.history.name(client.Addr(), client.Bits(), netip.Addr{}) != name {
				t.Errorf("%v has another name than its prefix %v", addr, client)
			}
			first := g.clientOf(&Request{Addr: addr, Via: netip.MustParseAddr("10.0.0.1")})
			second := g.clientOf(&Request{Addr: addr, Via: netip.MustParseAddr("10.0.0.2")})
			if first.hash == name.hash || second.hash == name.hash || first.hash == second.hash {
				t.Errorf("%v has the same name through peers", addr)
			}
		}
		for _, a := range all {
			for _, b := range all {
				client, around := p.Client(a.addr) == p.Client(b.addr), network.Of(a.addr) == network.Of(b.addr)
				if (a.hash == b.hash) != client || (a.set == b.set) != around {
					t.Errorf("%v and %v: same name: %v, want %v; same network: %v, want %v", a.addr, b.addr,
						a.hash == b.hash, client, a.set == b.set, around)
				}
			}
		}
	}
}
