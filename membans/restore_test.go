package membans_test

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
)

// Members of a group make the same ban at different times, and each reads the longer one of another. A client whose
// ban is restored again is still one banned client of its network.
func TestRestoredBansCountEachClientOnce(t *testing.T) {
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	bans := membans.New(0)
	client := func(i byte) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, i}), 64)
	}
	ban := func(i byte, length time.Duration) {
		bans.Restore(fairshare.BanRecord{Client: fairshare.PrefixID(client(i)), Kind: fairshare.ByAddr, Rule: "a",
			Number: 1, Began: now, Until: now.Add(length), Since: now.Add(length)})
	}
	key, _ := fairshare.NewBanKey(fairshare.ByAddr, fairshare.PrefixID(client(255)))
	for i := range byte(7) {
		for more := range 3 {
			ban(i, time.Hour+time.Duration(more)*time.Second)
		}
	}
	if _, limited := bans.LimitsNewcomers(&key, now); limited {
		t.Error("newcomers are limited with 7 banned clients")
	}
	ban(7, time.Hour)
	if _, limited := bans.LimitsNewcomers(&key, now); !limited {
		t.Error("newcomers are not limited with 8 banned clients")
	}
	if n := bans.Lift(fairshare.PrefixID(client(3)), now, nil); n != 1 {
		t.Errorf("%d bans are lifted, want 1", n)
	}
	if _, limited := bans.LimitsNewcomers(&key, now); limited {
		t.Error("newcomers are limited after one of 8 bans was lifted")
	}
}
