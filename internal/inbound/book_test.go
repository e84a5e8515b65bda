package inbound

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// A slowBook keeps the promises of a book in the plainest way: a list of all
// connections, gone through for each question.
type slowBook struct {
	connections, perAddr int
	exempt               func(netip.Addr) bool
	all                  []*slowEntry
	clock                int
	reached              map[netip.Addr]int // when a peer's number was reached
	last                 map[netip.Addr]netip.Addr
	spared               map[netip.Addr]bool // peers found exempt
}

type slowEntry struct {
	e     *entry
	addr  netip.Addr
	idle  bool
	since int
}

func (b *slowBook) longest(of func(*slowEntry) bool) *slowEntry {
	var found *slowEntry
	for _, s := range b.all {
		if s.idle && of(s) && (found == nil || s.since < found.since) {
			found = s
		}
	}
	return found
}

func (b *slowBook) count(key netip.Addr) (n int) {
	for _, s := range b.all {
		if s.addr.IsValid() && peerKey(s.addr) == key {
			n++
		}
	}
	return n
}

func (b *slowBook) longestIdle() *slowEntry {
	for range maxExempted {
		var most netip.Addr
		for _, s := range b.all {
			if !s.addr.IsValid() || b.spared[peerKey(s.addr)] {
				continue
			}
			key := peerKey(s.addr)
			rank := func(key netip.Addr) int { return min(b.count(key), b.perAddr) }
			if !most.IsValid() || rank(key) > rank(most) || rank(key) == rank(most) && b.reached[key] > b.reached[most] {
				most = key
			}
		}
		if !most.IsValid() || b.count(most) < 2 || b.perAddr < 2 {
			break
		}
		if b.exempt(b.last[most]) {
			b.spared[most] = true
			continue
		}
		if found := b.longest(func(s *slowEntry) bool { return s.addr.IsValid() && peerKey(s.addr) == most }); found != nil {
			return found
		}
		break
	}
	return b.longest(func(*slowEntry) bool { return true })
}

func (b *slowBook) admit(e *entry, addr netip.Addr) (*entry, bound) {
	b.clock++
	var victim *slowEntry
	met := noBound
	key := netip.Addr{}
	if addr.IsValid() {
		key = peerKey(addr)
		if b.count(key) > 0 {
			b.last[key] = addr
		}
		if b.count(key) >= b.perAddr && !b.spared[key] {
			if b.exempt(addr) {
				b.spared[key] = true
			} else {
				met = boundPerAddr
				if victim = b.longest(func(s *slowEntry) bool { return s.addr.IsValid() && peerKey(s.addr) == key }); victim == nil {
					return e, met
				}
			}
		}
	}
	if met == noBound && len(b.all) >= b.connections {
		met = boundInAll
		if victim = b.longestIdle(); victim == nil {
			return e, met
		}
	}
	spared := b.spared[key]
	if victim != nil {
		b.remove(victim.e)
	}
	if addr.IsValid() {
		b.clock++
		b.reached[key], b.last[key] = b.clock, addr
		if spared {
			b.spared[key] = true
		}
	}
	b.all = append(b.all, &slowEntry{e, addr, true, b.clock})
	if victim == nil {
		return nil, met
	}
	return victim.e, met
}

func (b *slowBook) remove(e *entry) {
	b.clock++
	i := slices.IndexFunc(b.all, func(s *slowEntry) bool { return s.e == e })
	if i < 0 {
		return
	}
	addr := b.all[i].addr
	b.all = slices.Delete(b.all, i, i+1)
	if addr.IsValid() {
		key := peerKey(addr)
		b.reached[key] = b.clock
		if b.count(key) == 0 {
			delete(b.spared, key)
		}
	}
}

func (b *slowBook) setIdle(e *entry, idle bool) {
	b.clock++
	for _, s := range b.all {
		if s.e == e && s.idle != idle {
			s.idle, s.since = idle, b.clock
		}
	}
}

// TestBookIsTheSlowOne has the book and the slow one do the same.
func TestBookIsTheSlowOne(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		exempt := func(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1]%5 == 0 }
		connections, perAddr := 1+r.IntN(20), 1+r.IntN(6)
		fast := newBook(connections, perAddr, exempt)
		slow := &slowBook{connections: connections, perAddr: perAddr, exempt: exempt,
			reached: map[netip.Addr]int{}, last: map[netip.Addr]netip.Addr{}, spared: map[netip.Addr]bool{}}
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
					addr = netip.AddrFrom16([16]byte{0x20, 1, 7: byte(r.IntN(3)), 15: byte(r.IntN(20))})
				default:
					addr = netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(8))})
				}
				what = fmt.Sprintf("admit %v", addr)
				gotVictim, gotBound := fast.admit(e, addr)
				wantVictim, wantBound := slow.admit(e, addr)
				if gotVictim != wantVictim || gotBound != wantBound {
					t.Fatalf("seed %d, step %d: %s: victim %p by bound %d, want %p by %d", seed, step, what, gotVictim, gotBound, wantVictim, wantBound)
				}
				known = append(known, e)
			case n < 6:
				e := known[r.IntN(len(known))]
				what = "remove"
				fast.remove(e)
				slow.remove(e)
			default:
				e, idle := known[r.IntN(len(known))], n < 8
				what = fmt.Sprintf("idle %v", idle)
				fast.setIdle(e, idle)
				slow.setIdle(e, idle)
			}
			if fast.open != len(slow.all) {
				t.Fatalf("seed %d, step %d: %s: %d are open, want %d", seed, step, what, fast.open, len(slow.all))
			}
			if fault := fast.fault(); fault != "" {
				t.Fatalf("seed %d, step %d: %s: %s", seed, step, what, fault)
			}
		}
	}
}

// fault looks for what does not fit in a book.
func (b *book) fault() string {
	all, idle := 0, 0
	perPeer := map[*peer]int{}
	for e := b.all.first; e != nil; e = e.links[ofOpen].next {
		all++
		if !e.open {
			return "a closed connection is among the open ones"
		}
		if e.peer != nil {
			perPeer[e.peer]++
			if b.peers[e.peer.key] != e.peer {
				return "a connection's peer is unknown"
			}
		}
	}
	for e := b.idle.first; e != nil; e = e.links[ofAll].next {
		idle++
		if !e.isIdle {
			return "a busy connection is among the idle ones"
		}
	}
	ranked := 0
	for rank, p := range b.ranks {
		for ; p != nil; p = p.next {
			ranked++
			if min(p.open, len(b.ranks)-1) != rank || p.exempt || rank > b.top {
				return "a peer has the wrong rank"
			}
		}
	}
	for _, p := range b.peers {
		if p.open != perPeer[p] || p.open == 0 {
			return "a peer has the wrong number"
		}
		if !p.exempt {
			ranked--
		}
	}
	if all != b.open || idle > all || ranked != 0 {
		return "numbers do not add up"
	}
	return ""
}

// TestBoundsMayChange lowers and raises the bounds of a full book.
func TestBoundsMayChange(t *testing.T) {
	b := newBook(100, 10, nil)
	addr := netip.MustParseAddr("192.0.2.1")
	var all []*entry
	for range 10 {
		e := new(entry)
		if victim, _ := b.admit(e, addr); victim != nil {
			t.Fatal("a bound is met too early")
		}
		all = append(all, e)
	}
	b.setBounds(100, 4, nil)
	if fault := b.fault(); fault != "" || b.open != 10 {
		t.Fatalf("%d are open; %s", b.open, fault)
	}
	if victim, met := b.admit(new(entry), addr); victim != all[0] || met != boundPerAddr {
		t.Errorf("victim %p by bound %d, want the longest idle one", victim, met)
	}
	b.setBounds(100, 20, func(netip.Addr) bool { return true })
	if victim, _ := b.admit(new(entry), addr); victim != nil || b.fault() != "" {
		t.Errorf("victim %p with a raised bound; %s", victim, b.fault())
	}
	b.setBounds(5, 4, nil)
	if victim, met := b.admit(new(entry), netip.MustParseAddr("192.0.2.2")); victim != all[1] || met != boundInAll {
		t.Errorf("victim %p by bound %d, want the longest idle one of the fullest address", victim, met)
	}
}

func TestPeersAreCountedBy64Bits(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7":              "192.0.2.7",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::",
		"2001:db8:1:2:ffff::":    "2001:db8:1:2::",
		"2001:db8:1:3::":         "2001:db8:1:3::",
		"::1":                    "::",
		"fe80::1":                "fe80::",
		"2001:db8:0:ffff:1:1::1": "2001:db8:0:ffff::",
	} {
		if got := peerKey(netip.MustParseAddr(addr)); got != netip.MustParseAddr(want) {
			t.Errorf("%s is counted as %s, want %s", addr, got, want)
		}
	}
}

// BenchmarkAccept admits to a full book of as many addresses as connections.
func BenchmarkAccept(b *testing.B) {
	for _, full := range []int{512, 16384} {
		b.Run(fmt.Sprintf("full of %d", full), func(b *testing.B) {
			book := newBook(full, 512, nil)
			entries := make([]entry, 2*full)
			i := uint32(0)
			admit := func() *entry {
				i++
				var addr [4]byte
				binary.BigEndian.PutUint32(addr[:], i)
				e := &entries[int(i)%len(entries)]
				victim, _ := book.admit(e, netip.AddrFrom4(addr))
				return victim
			}
			for range full {
				admit()
			}
			b.ReportAllocs()
			for b.Loop() {
				if admit() == nil {
					b.Fatal("nobody had to go")
				}
			}
		})
	}
}

// BenchmarkRequest has a connection become busy and idle again.
func BenchmarkRequest(b *testing.B) {
	book := newBook(16384, 512, nil)
	entries := make([]entry, 16384)
	for i := range entries {
		book.admit(&entries[i], netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e := &entries[i%len(entries)]
		book.setIdle(e, false)
		book.setIdle(e, true)
		i += 7919
	}
	if fault := book.fault(); fault != "" {
		b.Fatal(fault)
	}
}
