package membans

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

// The rules of each key agree with the entries, while these replace one another.
func TestRulesOfKeysAgreeWithEntries(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := New(40)
	for i := range 100 {
		b.RuleNumber(fmt.Sprint(i))
	}
	keys := make([]fairshare.BanKey, 20)
	for i := range keys {
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)
		keys[i], _ = fairshare.NewBanKey(fairshare.ByAddr, fairshare.PrefixID(addr))
	}
	removed := 0 // how often a key had no entry any more
	for step := range 3000 {
		b.CountRefusal(&fairshare.Refusal{Key: keys[rnd.IntN(len(keys))], Rule: rnd.Uint32N(100),
			Terms: &fairshare.BanTerms{For: time.Duration(1+rnd.IntN(1000)) * time.Hour},
			At:    time.Unix(1_800_000_000+int64(step), 0), Bits4: 32, Bits6: 64}, true)
		want := map[uint64]banning{}
		for number := range uint32(b.Len()) {
			id := b.entryAt(number).id
			hash := maphash.Bytes(b.seed, id.key[:])
			want[hash] = banning{want[hash].rules | 1<<(id.rule%64), want[hash].entries + 1}
		}
		if len(b.banning) != len(want) {
			t.Fatalf("step %d: %d keys, want %d", step, len(b.banning), len(want))
		}
		for hash, of := range want {
			if got := b.banning[hash]; got.entries != of.entries || of.rules&^got.rules != 0 {
				t.Fatalf("step %d: rules %b of %d entries, want %b of %d", step, got.rules, got.entries, of.rules,
					of.entries)
			}
		}
		for i := range keys {
			hash := maphash.Bytes(b.seed, keys[i][:])
			if got := b.MayBan(&keys[i], false); want[hash].rules&^got != 0 {
				t.Fatalf("step %d: MayBan = %b, want %b", step, got, want[hash].rules)
			} else if want[hash].entries == 0 && got != 0 {
				t.Fatalf("step %d: MayBan = %b without an entry", step, got)
			}
			if want[hash].entries == 0 && step > 1000 {
				removed++
			}
		}
	}
	if removed == 0 {
		t.Error("every key had an entry all the time")
	}
}
