package policyfile

import (
	"net/netip"
	"sync"
	"testing"
)

// Replace changes a list at once, in every set that contains the list, while
// requests look it up. Prefixes of all versions are in the set at any time.
func TestListsAreReplacedUnderRunningRequests(t *testing.T) {
	f := parsed(t, `
lists: {drop: {file: drop.txt}, office: [203.0.113.0/24]}
rules:
  - {name: dropped, match: {addr: drop}, block: true}
  - {name: dropped and ours, match: {addr: [office, drop, 192.0.2.1]}, limit: {requests: 600, per: 1m}}
`)
	list, alone, joined := f.Sources[0].Set, f.Policy.Rules[0].Match.Addr, f.Policy.Rules[1].Match.Addr
	always, odd, even := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.3"),
		netip.MustParseAddr("2001:db8::2")
	for _, addr := range []netip.Addr{always, odd, even} {
		if alone.Contains(addr) || joined.Contains(addr) {
			t.Errorf("%s is in a list that could not be had yet", addr)
		}
	}
	version := func(i int) {
		third := netip.PrefixFrom(odd, 32)
		if i%2 == 0 {
			third = netip.PrefixFrom(even, 128)
		}
		list.Replace([]netip.Prefix{netip.MustParsePrefix("::ffff:198.51.100.1/128"), third, {}})
	}
	version(0)
	var asking sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if !alone.Contains(always) || !joined.Contains(always) ||
					!joined.Contains(netip.MustParseAddr("203.0.113.9")) {
					t.Error("an address of all versions was missed")
					return
				}
			}
		})
	}
	for i := range 1000 {
		version(i)
	}
	close(stop)
	asking.Wait()
	if !alone.Contains(odd) || !joined.Contains(odd) || alone.Contains(even) || joined.Contains(even) {
		t.Error("the last version is not the one that holds")
	}
	if got := list.Prefixes(); len(got) != 2 || got[0].String() != "198.51.100.1/32" {
		t.Errorf("prefixes %v", got)
	}
	list.Replace(nil)
	if alone.Contains(always) || joined.Contains(always) || !joined.Contains(netip.MustParseAddr("192.0.2.1")) {
		t.Error("after an empty version, the set does not have exactly the prefixes of its other parts")
	}
}

// manyPrefixes returns n prefixes of all lengths, spread like those of threat
// lists.
func manyPrefixes(n int) []netip.Prefix {
	list := make([]netip.Prefix, n)
	for i := range list {
		x := uint32(i) * 2654435761
		addr := netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
		list[i] = netip.PrefixFrom(addr, 16+i%17).Masked()
	}
	return list
}

func BenchmarkReplaceHalfAMillion(b *testing.B) {
	prefixes := manyPrefixes(500_000)
	set := &AddrSet{external: true}
	b.ReportAllocs()
	for b.Loop() {
		set.Replace(prefixes)
	}
	if set.size() < 300_000 {
		b.Fatal(set.size())
	}
}

func BenchmarkContainsInHalfAMillion(b *testing.B) {
	list, set := &AddrSet{external: true}, &AddrSet{}
	list.Replace(manyPrefixes(500_000))
	set.addList("list", list)
	var addrs [1 << 16]netip.Addr
	for i := range addrs {
		x := uint32(i) * 2246822519
		addrs[i] = netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
	}
	b.ReportAllocs()
	n, in := 0, 0
	for b.Loop() {
		if set.Contains(addrs[n&(len(addrs)-1)]) {
			in++
		}
		n++
	}
	if n > len(addrs) && (in == 0 || in == n) {
		b.Fatalf("%d of %d", in, n)
	}
}
