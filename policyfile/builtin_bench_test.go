package policyfile_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
	"fairshare/policyfile"
)

// BenchmarkDecideBuiltIn measures Decide and Settle with the built-in policy, for
// one page of each client in turn. With bans, other clients are banned.
func BenchmarkDecideBuiltIn(b *testing.B) {
	for _, clients := range []uint32{1, 10_000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) { decideBuiltIn(b, clients, membans.New(0)) })
	}
	b.Run("bans=1000", func(b *testing.B) {
		bans := membans.New(0)
		for i := range 1000 {
			key, _ := fairshare.NewBanKey(fairshare.ByAddr, fairshare.ClientID{
				Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), 32)})
			bans.CountRefusal(&fairshare.Refusal{Key: key, Rule: bans.RuleNumber("secrets"), Bits4: 32, Bits6: 64,
				Terms: &fairshare.BanTerms{After: 1, For: 100 * time.Hour}, At: time.Unix(1_800_000_000, 0)}, true)
		}
		decideBuiltIn(b, 10_000, bans)
	})
}

// canonicalHeader is a header of canonical names, as httpguard has it.
type canonicalHeader map[string][]string

func (h canonicalHeader) Values(name string) []string { return h[name] }

func decideBuiltIn(b *testing.B, clients uint32, bans *membans.Bans) {
	file := policyfile.BuiltIn()
	file.Provide(policyfile.Facts{Bots: true, Busy: true, Attempts: true})
	policy := file.Policy
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	g, err := fairshare.NewGuard(&policy, limiter, bans)
	if err != nil {
		b.Fatal(err)
	}
	req := fairshare.Request{
		Method: "GET", Host: "www.example.org",
		UserAgent: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
		Header:    canonicalHeader{"Cookie": {"session=0123456789abcdef; theme=dark"}, "Accept": {"text/html"}},
	}
	req.SetTarget("/wiki/Fair_queuing?page=2")
	start := time.Unix(1_800_000_000, 0)
	b.ReportAllocs()
	i := uint32(0)
	for b.Loop() {
		i++
		n := i * 2654435761 % clients
		req.Addr = netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
		req.Time = start.Add(time.Duration(i) * 100 * time.Second / time.Duration(clients))
		v, err := g.Decide(b.Context(), &req)
		if err != nil || v.Action != fairshare.Allow {
			b.Fatalf("%s, %v; want allow", v.Action, err)
		}
		if err := g.Settle(b.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 200, Bytes: 1000}); err != nil {
			b.Fatal(err)
		}
	}
}
