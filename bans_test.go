package fairshare

import (
	"net/netip"
	"testing"
	"time"
)

func BenchmarkFindNoBan(b *testing.B) { benchmarkFind(b, 2_000_000, 1_000_000) }
func BenchmarkFindBan(b *testing.B)   { benchmarkFind(b, 0, 1_000_000) }

// A few banned clients that knock all the time are what an attack looks like.
func BenchmarkFindBanOfFew(b *testing.B) { benchmarkFind(b, 0, 1000) }

// benchmarkFind looks for n clients, from number first on, among a million
// bans.
func benchmarkFind(b *testing.B, first, n uint32) {
	bans := NewBans(0)
	rule := bans.ruleID("rapid")
	now := time.Unix(1_800_000_000, 0)
	terms := &BanTerms{After: 1, For: 24 * time.Hour}
	key := func(i uint32) (k banKey) {
		copy(k[:], appendAddr(k[:0], ByAddr, netip.AddrFrom4(
			[4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}), 32, 64))
		return k
	}
	for i := range uint32(1_000_000) {
		bans.refused(&refused{key: key(i), rule: rule, terms: terms, at: now.UnixNano(), bits4: 32, bits6: 64}, true)
	}
	keys := make([]banKey, 1<<16)
	r := uint32(0)
	for i := range keys {
		r = r*1664525 + 1013904223
		keys[i] = key(first + r%n)
	}
	b.ReportAllocs()
	i, found := 0, 0
	for b.Loop() {
		if bans.find(&keys[i&(len(keys)-1)], rule, now, false) > 0 {
			found++
		}
		i++
	}
	if found > 0 != (first == 0) {
		b.Fatalf("%d of %d found", found, i)
	}
}

// A ban of a time when the clock was ahead is over once it is lifted.
func TestLiftEndsABanOfTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	client, ahead := PrefixID(netip.MustParsePrefix("192.0.2.1/32")), now.Add(30*24*time.Hour)
	bans := NewBans(0)
	bans.Restore(Banned{Client: client, Kind: ByAddr, Rule: "a", Number: 1, Began: ahead, Until: ahead.Add(time.Hour),
		Since: ahead.Add(time.Hour)})
	key, _ := keyOf(ByAddr, client)
	rule := bans.ruleID("a")
	if bans.find(&key, rule, now, false) == 0 {
		t.Fatal("it is not restored")
	}
	if n := bans.Lift(client, ahead); n != 1 {
		t.Errorf("%d are lifted, want 1", n)
	}
	if wait := bans.find(&key, rule, now, false); wait != 0 {
		t.Errorf("it holds for another %v", wait)
	}
}
