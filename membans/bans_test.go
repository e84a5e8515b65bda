package membans_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/membans/bantest"
)

func TestBansKeepTheContract(t *testing.T) {
	bantest.Run(t, func(_ testing.TB, most int) fairshare.Bans { return membans.New(most) })
}

// A ban can begin in the future if the clock was set back since. Lifting it ends
// it.
func TestLiftEndsABanThatBeganInTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	client, ahead := fairshare.PrefixID(netip.MustParsePrefix("192.0.2.1/32")), now.Add(30*24*time.Hour)
	bans := membans.New(0)
	bans.Restore(fairshare.BanRecord{Client: client, Kind: fairshare.ByAddr, Rule: "a", Number: 1, Began: ahead,
		Until: ahead.Add(time.Hour), Since: ahead.Add(time.Hour)})
	query := fairshare.BanQuery{Rule: bans.RuleNumber("a")}
	query.Key, _ = fairshare.NewBanKey(fairshare.ByAddr, client)
	if bans.Find(&query, now) == 0 {
		t.Fatal("the ban is not restored")
	}
	if n := bans.Lift(client, ahead, nil); n != 1 {
		t.Errorf("%d bans are lifted, want 1", n)
	}
	if wait := bans.Find(&query, now); wait != 0 {
		t.Errorf("the ban holds for another %v", wait)
	}
}

func BenchmarkFindNoBan(b *testing.B) { benchmarkFind(b, 2_000_000, 1_000_000) }
func BenchmarkFindBan(b *testing.B)   { benchmarkFind(b, 0, 1_000_000) }

// In an attack, a few banned clients often send most of the requests.
func BenchmarkFindBanOfFewClients(b *testing.B) { benchmarkFind(b, 0, 1000) }

// benchmarkFind looks for n clients, from number first on, among a million
// bans.
func benchmarkFind(b *testing.B, first, n uint32) {
	bans := membans.New(0)
	rule := bans.RuleNumber("rapid")
	now := time.Unix(1_800_000_000, 0)
	terms := &fairshare.BanTerms{After: 1, For: 24 * time.Hour}
	key := func(i uint32) fairshare.BanKey {
		addr := netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
		k, _ := fairshare.NewBanKey(fairshare.ByAddr, fairshare.ClientID{Prefix: netip.PrefixFrom(addr, 32)})
		return k
	}
	for i := range uint32(1_000_000) {
		bans.CountRefusal(&fairshare.Refusal{Key: key(i), Rule: rule, Terms: terms, At: now, Bits4: 32, Bits6: 64},
			true)
	}
	queries := make([]fairshare.BanQuery, 1<<16)
	r := uint32(0)
	for i := range queries {
		r = r*1664525 + 1013904223
		queries[i] = fairshare.BanQuery{Key: key(first + r%n), Rule: rule}
	}
	b.ReportAllocs()
	i, found := 0, 0
	for b.Loop() {
		if bans.Find(&queries[i&(len(queries)-1)], now) > 0 {
			found++
		}
		i++
	}
	if found > 0 != (first == 0) {
		b.Fatalf("%d of %d found", found, i)
	}
}

// MayBan names the rules that have banned a client, until its last ban is replaced.
func TestMayBanNamesTheRulesOfAClient(t *testing.T) {
	b := membans.New(2)
	for i := range 70 {
		b.RuleNumber(fmt.Sprint(i))
	}
	client := func(addr string) *fairshare.BanKey {
		id, _ := fairshare.ParseClientID(addr)
		key, _ := fairshare.NewBanKey(fairshare.ByAddr, id)
		return &key
	}
	ban := func(addr string, rule uint32, length time.Duration) {
		b.CountRefusal(&fairshare.Refusal{Key: *client(addr), Rule: rule, Terms: &fairshare.BanTerms{For: length},
			At: time.Unix(1e9, 0), Bits4: 32, Bits6: 64}, true)
	}
	for _, step := range []struct {
		addr   string
		rule   uint32
		length time.Duration
		want   [3]uint64 // of three clients
	}{
		{"192.0.2.1", 3, time.Hour, [3]uint64{1 << 3, 0, 0}},
		{"192.0.2.1", 69, 100 * time.Hour, [3]uint64{1<<3 | 1<<5, 0, 0}},
		{"192.0.2.2", 0, time.Hour, [3]uint64{1<<3 | 1<<5, 1, 0}}, // instead of the one that ends first
		{"192.0.2.3", 1, 200 * time.Hour, [3]uint64{1<<3 | 1<<5, 0, 1 << 1}},
		{"192.0.2.3", 2, 300 * time.Hour, [3]uint64{0, 0, 1<<1 | 1<<2}},
		{"192.0.2.1", 4, 400 * time.Hour, [3]uint64{1 << 4, 0, 1<<1 | 1<<2}},
	} {
		ban(step.addr, step.rule, step.length)
		for i, want := range step.want {
			for range 2 { // the second time from the cache
				if got := b.MayBan(client(fmt.Sprintf("192.0.2.%d", i+1)), true); got != want {
					t.Errorf("after the ban of %s by rule %d: client %d: %b, want %b", step.addr, step.rule, i+1, got,
						want)
				}
			}
		}
	}
}
