package inbound

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	addrnet "fairshare/internal/network"
)

// A slowTable is a slow and simple model of a connTable: a list of all
// connections, searched completely for each result.
type slowTable struct {
	bounds
	all      []*slowEntry
	clock    int
	reached  map[netip.Prefix]int // when a client's number was reached
	last     map[netip.Prefix]netip.Addr
	exempted map[netip.Prefix]bool // clients found exempt
}

type slowEntry struct {
	e       *entry
	client  netip.Prefix // invalid: none
	network netip.Prefix
	state   state
	since   int
}

// longest returns the connection that has been in the lowest state for longest.
func (b *slowTable) longest(worst state, of func(*slowEntry) bool) *slowEntry {
	var found *slowEntry
	for _, s := range b.all {
		if s.state <= worst && of(s) && (found == nil || s.state < found.state ||
			s.state == found.state && s.since < found.since) {
			found = s
		}
	}
	return found
}

func (b *slowTable) count(of func(*slowEntry) bool) (n int) {
	for _, s := range b.all {
		if of(s) {
			n++
		}
	}
	return n
}

func ofClient(client netip.Prefix) func(*slowEntry) bool {
	return func(s *slowEntry) bool { return client.IsValid() && s.client == client }
}

// ofNetwork excludes the connections of exempt clients.
func (b *slowTable) ofNetwork(network netip.Prefix) func(*slowEntry) bool {
	return func(s *slowEntry) bool { return network.IsValid() && s.network == network && !b.exempted[s.client] }
}

func (b *slowTable) isExemptPeer(client netip.Prefix) bool {
	if b.exempt(b.last[client]) {
		b.exempted[client] = true
	}
	return b.exempted[client]
}

func (b *slowTable) yielding(client, network netip.Prefix, addr netip.Addr) *slowEntry {
	own := b.count(ofClient(client))
	if own > 0 && b.isExemptPeer(client) || own == 0 && addr.IsValid() && b.exempt(addr) {
		own, network = 0, netip.Prefix{}
	}
	for range maxExempted {
		var most netip.Prefix
		for _, s := range b.all {
			if !s.client.IsValid() || b.exempted[s.client] {
				continue
			}
			rank := func(client netip.Prefix) int { return min(b.count(ofClient(client)), b.perAddr) }
			if !most.IsValid() || rank(s.client) > rank(most) ||
				rank(s.client) == rank(most) && b.reached[s.client] > b.reached[most] {
				most = s.client
			}
		}
		if !most.IsValid() || b.count(ofClient(most)) < own+2 {
			break
		}
		near := b.count(b.ofNetwork(network))
		if near > max(1, b.connections/4) && !slices.ContainsFunc(b.all,
			func(s *slowEntry) bool { return s.client == most && s.network == network }) {
			break
		}
		if !b.isExemptPeer(most) {
			return b.longest(busy, ofClient(most))
		}
	}
	for range maxExempted {
		var most netip.Prefix
		for _, s := range b.all {
			n, best := b.count(b.ofNetwork(s.network)), b.count(b.ofNetwork(most))
			if n > max(1, b.connections/4) && (n > best || n == best && s.network.Compare(most) < 0) {
				most = s.network
			}
		}
		if !most.IsValid() || network.IsValid() && b.count(b.ofNetwork(most)) < b.count(b.ofNetwork(network))+2 {
			break
		}
		if found := b.longest(busy, b.ofNetwork(most)); !b.isExemptPeer(found.client) {
			return found
		}
	}
	worst := pending
	if own > 0 {
		worst = idle
	}
	for range maxExempted {
		if b.count(b.ofNetwork(network)) < max(1, b.connections/4) {
			return b.longest(worst, func(*slowEntry) bool { return true })
		}
		if found := b.longest(worst, b.ofNetwork(network)); found == nil || !b.isExemptPeer(found.client) {
			return found
		}
	}
	return nil
}

func (b *slowTable) admit(e *entry, addr netip.Addr) (*entry, bound) {
	b.clock++
	var victim *slowEntry
	met := noBound
	var client, network netip.Prefix
	if addr.IsValid() {
		bits, wide := b.ipv6Bits, 48
		if addr.Is4() {
			bits, wide = b.ipv4Bits, 24
		}
		client, _ = addr.Prefix(bits)
		network, _ = addr.Prefix(min(bits, wide))
		if b.count(ofClient(client)) > 0 {
			b.last[client] = addr
		}
	}
	if addr.IsValid() && b.count(ofClient(client)) >= b.perAddr && !b.isExemptPeer(client) {
		met, victim = boundPerAddr, b.longest(pending, ofClient(client))
	} else if len(b.all) >= b.connections {
		met, victim = boundInAll, b.yielding(client, network, addr)
	}
	if met != noBound && victim == nil {
		return e, met
	}
	exempted := b.exempted[client]
	if victim != nil {
		b.remove(victim.e)
	}
	b.clock++
	if addr.IsValid() {
		b.reached[client], b.last[client] = b.clock, addr
		if exempted {
			b.exempted[client] = true
		}
	}
	b.all = append(b.all, &slowEntry{e, client, network, pending, b.clock})
	if victim == nil {
		return nil, met
	}
	return victim.e, met
}

func (b *slowTable) remove(e *entry) {
	b.clock++
	i := slices.IndexFunc(b.all, func(s *slowEntry) bool { return s.e == e })
	if i < 0 {
		return
	}
	client := b.all[i].client
	b.all = slices.Delete(b.all, i, i+1)
	if client.IsValid() {
		b.reached[client] = b.clock
		if b.count(ofClient(client)) == 0 {
			delete(b.exempted, client)
		}
	}
}

func (b *slowTable) setState(e *entry, to state) {
	b.clock++
	for _, s := range b.all {
		if s.e == e && (s.state != to || to == pending) {
			s.state, s.since = to, b.clock
		}
	}
}

// Both tables have the same result after each step, whether changes of states are made
// at once or only noted.
func TestConnTableAgreesWithASlowModel(t *testing.T) {
	noted := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		exempt := func(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1]%5 == 0 }
		to := bounds{connections: 1 + r.IntN(20), perAddr: 1 + r.IntN(6), ipv4Bits: 32 - r.IntN(10),
			ipv6Bits: 64 - r.IntN(20), exempt: exempt}
		fast := newConnTable(to)
		slow := &slowTable{bounds: to, reached: map[netip.Prefix]int{}, last: map[netip.Prefix]netip.Addr{},
			exempted: map[netip.Prefix]bool{}}
		var known []*entry
		for step := range 400 {
			what := ""
			switch n := r.IntN(10); {
			case n < 5 || len(known) == 0:
				e := new(entry)
				var addr netip.Addr
				switch r.IntN(8) {
				case 0: // a Unix socket
				case 1, 2:
					addr = netip.AddrFrom16([16]byte{0x20, 1, 5: byte(r.IntN(2)), 7: byte(r.IntN(3)),
						15: byte(r.IntN(20))})
				default:
					addr = netip.AddrFrom4([4]byte{192, 0, byte(r.IntN(3)), byte(r.IntN(8))})
				}
				what = fmt.Sprintf("admit %v", addr)
				gotVictim, gotBound := fast.admit(e, addr)
				wantVictim, wantBound := slow.admit(e, addr)
				if gotVictim != wantVictim || gotBound != wantBound {
					t.Fatalf("seed %d, step %d: %s: victim %p by bound %d, want %p by %d", seed, step, what,
						gotVictim, gotBound, wantVictim, wantBound)
				}
				known = append(known, e)
			case n < 6:
				e := known[r.IntN(len(known))]
				what = "remove"
				fast.remove(e)
				slow.remove(e)
			default:
				e, to := known[r.IntN(len(known))], state(r.IntN(int(states)))
				what = fmt.Sprintf("state %d", to)
				if !fast.note(e, to) {
					noted++
				} else {
					fast.setState(e, to)
				}
				slow.setState(e, to)
			}
			switch r.IntN(12) {
			case 0:
				fast.relax(fast.relaxedAt + calm)
			case 1:
				fast.settle()
				if fault := slow.orderFault(fast); fault != "" {
					t.Fatalf("seed %d, step %d: %s: %s", seed, step, what, fault)
				}
			}
			if fast.open != len(slow.all) {
				t.Fatalf("seed %d, step %d: %s: %d are open, want %d", seed, step, what, fast.open, len(slow.all))
			}
			if fault := fast.fault(); fault != "" {
				t.Fatalf("seed %d, step %d: %s: %s", seed, step, what, fault)
			}
		}
	}
	if noted == 0 {
		t.Error("no change was only noted")
	}
}

// orderFault returns a difference between the lines of all connections of both tables,
// "" if there is none.
func (b *slowTable) orderFault(fast *connTable) string {
	for s := range states {
		var want []*slowEntry
		for _, c := range b.all {
			if c.state == s {
				want = append(want, c)
			}
		}
		slices.SortFunc(want, func(a, b *slowEntry) int { return a.since - b.since })
		e := fast.lines[s].first
		for _, c := range want {
			if e != c.e {
				return fmt.Sprintf("the line of state %d is in another order", s)
			}
			e = e.links[ofAll].next
		}
		if e != nil {
			return fmt.Sprintf("the line of state %d is too long", s)
		}
	}
	return ""
}

// fault returns an inconsistency of the table, "" if there is none.
func (t *connTable) fault() string {
	all := 0
	perPeer, perNetwork := map[*peer]int{}, map[*network]int{}
	for e := t.all.first; e != nil; e = e.links[ofOpen].next {
		all++
		if !e.open {
			return "a closed connection is among the open ones"
		}
		if p := e.peer; p != nil {
			perPeer[p]++
			if t.peers[p.key] != p {
				return "a connection's peer is unknown"
			}
			if !p.exempt {
				perNetwork[p.network]++
			}
		}
	}
	// tally counts the entries of lines, if each is in the right one.
	tally := func(l *lines, which int) (n int) {
		for s := range l {
			for e := l[s].first; e != nil; e = e.links[which].next {
				if e.state != state(s) || !e.open {
					return -1
				}
				n++
			}
		}
		return n
	}
	if all != t.open || tally(&t.lines, ofAll) != all {
		return "the sums differ"
	}
	ranked := 0
	for rank, p := range t.ranks {
		for ; p != nil; p = p.next {
			ranked++
			if min(p.open, len(t.ranks)-1) != rank || p.exempt || rank > t.top {
				return "a peer has the wrong rank"
			}
		}
	}
	for _, p := range t.peers {
		if p.open != perPeer[p] || p.open == 0 || tally(&p.lines, ofPeer) != p.open {
			return "a peer has the wrong number"
		}
		if !p.exempt {
			ranked--
		}
	}
	if ranked != 0 {
		return "a peer is in no rank"
	}
	for key, n := range t.networks {
		if n.open != perNetwork[n] || n.open == 0 || n.key != key || tally(&n.lines, ofNetwork) != n.open {
			return "a network has the wrong number"
		}
		delete(perNetwork, n)
		if slices.Contains(t.crowded, n) != (n.open > t.quarter) {
			return "the list of crowded networks is wrong"
		}
	}
	if len(perNetwork) > 0 || len(t.crowded) > len(t.networks) {
		return "a network is unknown"
	}
	return ""
}

// The bounds of a full table can be lowered and raised.
func TestBoundsMayChange(t *testing.T) {
	b := newConnTable(bounds{connections: 100, perAddr: 10, ipv4Bits: 32, ipv6Bits: 64})
	addr := netip.MustParseAddr("192.0.2.1")
	var all []*entry
	for range 10 {
		e := new(entry)
		if victim, _ := b.admit(e, addr); victim != nil {
			t.Fatal("a bound is met too early")
		}
		all = append(all, e)
	}
	b.setBounds(bounds{connections: 100, perAddr: 4, ipv4Bits: 32, ipv6Bits: 64})
	if fault := b.fault(); fault != "" || b.open != 10 {
		t.Fatalf("%d are open; %s", b.open, fault)
	}
	if victim, met := b.admit(new(entry), addr); victim != all[0] || met != boundPerAddr {
		t.Errorf("victim %p by bound %d, want the longest idle one", victim, met)
	}
	b.setBounds(bounds{connections: 100, perAddr: 20, ipv4Bits: 24, ipv6Bits: 64,
		exempt: func(netip.Addr) bool { return true }})
	if victim, _ := b.admit(new(entry), addr); victim != nil || b.fault() != "" {
		t.Errorf("victim %p with a raised bound; %s", victim, b.fault())
	}
	b.setBounds(bounds{connections: 5, perAddr: 4, ipv4Bits: 32, ipv6Bits: 64})
	if victim, met := b.admit(new(entry), netip.MustParseAddr("192.0.2.2")); victim != all[1] || met != boundInAll {
		t.Errorf("victim %p by bound %d, want the longest idle one of the fullest address", victim, met)
	}
	if fault := b.fault(); fault != "" {
		t.Error(fault)
	}
}

func TestClientsAndNetworks(t *testing.T) {
	for _, test := range []struct {
		addr               string
		ipv4, ipv6         int // of the policy; 0: missing
		client, itsNetwork string
	}{
		{"192.0.2.7", 0, 0, "192.0.2.7/32", "192.0.2.0/24"},
		{"192.0.2.7", 28, 0, "192.0.2.0/28", "192.0.2.0/24"},
		{"192.0.2.7", 16, 0, "192.0.0.0/16", "192.0.0.0/16"},
		{"2001:db8:1:2:3:4:5:6", 0, 0, "2001:db8:1:2::/64", "2001:db8:1::/48"},
		{"2001:db8:1:2:3:4:5:6", 0, 128, "2001:db8:1:2::/64", "2001:db8:1::/48"},
		{"2001:db8:1:2:3:4:5:6", 0, 56, "2001:db8:1::/56", "2001:db8:1::/48"},
		{"2001:db8:1:2:3:4:5:6", 0, 32, "2001:db8::/32", "2001:db8::/32"},
		{"2001:db8:0:ffff:1:1::1", 0, 0, "2001:db8:0:ffff::/64", "2001:db8::/48"},
		{"::1", 0, 0, "::/64", "::/48"},
	} {
		c := Config{IPv4Prefix: test.ipv4, IPv6Prefix: test.ipv6}
		c.fill()
		b := newConnTable(c.bounds())
		client := b.clientOf(netip.MustParseAddr(test.addr))
		if client.String() != test.client || addrnet.Around(client).String() != test.itsNetwork {
			t.Errorf("%s with prefixes %d and %d is counted as %s in %s, want %s in %s",
				test.addr, test.ipv4, test.ipv6, client, addrnet.Around(client), test.client, test.itsNetwork)
		}
	}
}

// BenchmarkAccept adds connections to a full table in which each address has one.
func BenchmarkAccept(b *testing.B) {
	for _, full := range []int{512, 16384} {
		b.Run(fmt.Sprintf("full of %d", full), func(b *testing.B) {
			table := newConnTable(bounds{connections: full, perAddr: 512, ipv4Bits: 32, ipv6Bits: 64})
			entries := make([]entry, 2*full)
			i := uint32(0)
			admit := func() *entry {
				i++
				var addr [4]byte
				binary.BigEndian.PutUint32(addr[:], i)
				e := &entries[int(i)%len(entries)]
				victim, _ := table.admit(e, netip.AddrFrom4(addr))
				return victim
			}
			for range full {
				admit()
			}
			b.ReportAllocs()
			for b.Loop() {
				if admit() == nil {
					b.Fatal("no connection was replaced")
				}
			}
		})
	}
}

// BenchmarkRequest makes a connection busy and idle again.
func BenchmarkRequest(b *testing.B) {
	table := newConnTable(bounds{connections: 16384, perAddr: 512, ipv4Bits: 32, ipv6Bits: 64})
	entries := make([]entry, 16384)
	for i := range entries {
		table.admit(&entries[i], netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := &entries[i%len(entries)]
		table.setState(e, busy)
		table.setState(e, idle)
		i += 7919
	}
	if fault := table.fault(); fault != "" {
		b.Fatal(fault)
	}
}

// The tests fill a table of 16 connections and add one.
func TestWhichConnectionIsReplaced(t *testing.T) {
	singles := func(format string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return all
	}
	times := func(n int, addr string) []string { return slices.Repeat([]string{addr}, n) }
	proxy := netip.MustParseAddr("10.0.0.9")
	for _, test := range []struct {
		name   string
		open   []string
		state  state // of all open connections
		from   string
		victim string // the address that loses one; "": the new one is closed
		met    bound
	}{
		{"a new client replaces one of the fullest client",
			append(times(4, "192.0.2.1"), singles("203.0.%d.1", 12)...), busy,
			"198.51.100.1", "192.0.2.1", boundInAll},
		{"one of eight addresses", slices.Concat(times(2, "192.0.2.1"), times(2, "192.0.2.2"), times(2, "192.0.2.3"),
			times(2, "192.0.2.4"), times(2, "192.0.2.5"), times(2, "192.0.2.6"), times(2, "192.0.2.7"),
			times(2, "192.0.2.8")), busy, "198.51.100.1", "192.0.2.8", boundInAll},
		{"the fullest client keeps the others", append(times(4, "192.0.2.1"), singles("203.0.%d.1", 12)...), busy,
			"203.0.1.1", "192.0.2.1", boundInAll},
		{"a client does not get as many as the fullest had",
			slices.Concat(times(2, "192.0.2.1"), singles("203.0.%d.1", 14)),
			busy, "203.0.1.1", "", boundInAll},
		{"only connections in use stay", singles("203.0.%d.1", 16), busy, "198.51.100.1", "", boundInAll},
		{"only connections, one idle", singles("203.0.%d.1", 16), idle, "203.0.5.1", "203.0.1.1", boundInAll},
		{"only waiting connections, for a new client", singles("203.0.%d.1", 16), pending, "198.51.100.1",
			"203.0.1.1", boundInAll},
		{"only waiting connections, for a second one",
			singles("203.0.%d.1", 16), pending, "203.0.5.1", "", boundInAll},
		{"many addresses of one network", append(singles("192.0.2.%d", 10), singles("203.0.%d.1", 6)...), busy,
			"198.51.100.1", "192.0.2.1", boundInAll},
		{"many /64 of one /48", append(singles("2001:db8:7:%d::1", 10), singles("203.0.%d.1", 6)...), busy,
			"198.51.100.1", "2001:db8:7:1::1", boundInAll},
		{"a full network does not replace others", append(singles("192.0.2.%d", 10), singles("203.0.%d.1", 6)...),
			busy, "192.0.2.77", "", boundInAll},
		{"a full network does not replace a second connection", slices.Concat(times(2, "198.51.100.9"),
			singles("192.0.2.%d", 10), singles("203.0.%d.1", 4)), busy, "192.0.2.77", "", boundInAll},
		{"a full network replaces one of its own", slices.Concat(times(2, "192.0.2.1"), singles("192.0.2.%d", 9),
			singles("203.0.%d.1", 5)), busy, "192.0.2.77", "192.0.2.1", boundInAll},
		{"an address has a quarter", times(4, "192.0.2.1"), busy, "192.0.2.1", "", boundPerAddr},
		{"an address is a /64", times(4, "2001:db8::1"), busy, "2001:db8::2", "", boundPerAddr},
		{"an address at its bound replaces its idle ones", times(4, "192.0.2.1"), idle, "192.0.2.1", "192.0.2.1",
			boundPerAddr},
		{"a proxy does not count as the fullest client",
			append(times(10, proxy.String()), times(2, "192.0.2.1")...), busy,
			"198.51.100.1", "", noBound},
		{"others are replaced before a proxy", slices.Concat(times(12, proxy.String()), times(2, "192.0.2.1"),
			singles("203.0.%d.1", 2)), busy, "198.51.100.1", "192.0.2.1", boundInAll},
		{"a proxy is the new client", slices.Concat(times(12, proxy.String()), times(2, "192.0.2.1"),
			singles("203.0.%d.1", 2)), busy, proxy.String(), "192.0.2.1", boundInAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{Connections: 16, PerAddr: 16, Exempt: func(a netip.Addr) bool { return a == proxy }}
			c.fill()
			b := newConnTable(c.bounds())
			addrs := map[*entry]string{nil: ""}
			for _, addr := range test.open {
				e := new(entry)
				if victim, _ := b.admit(e, netip.MustParseAddr(addr)); victim != nil {
					t.Fatalf("%s met a bound too early", addr)
				}
				addrs[e] = addr
				b.setState(e, test.state)
			}
			e := new(entry)
			addrs[e] = ""
			victim, met := b.admit(e, netip.MustParseAddr(test.from))
			if addrs[victim] != test.victim || met != test.met {
				t.Errorf("%q lost one for bound %d, want %q for %d", addrs[victim], met, test.victim, test.met)
			}
			if fault := b.fault(); fault != "" {
				t.Error(fault)
			}
		})
	}
}
