package registrar_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// addrs returns addresses of different clients in many networks.
func addrs(n int) []netip.Addr {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]netip.Addr, n)
	for i := range all {
		a := r.Uint32()
		all[i] = netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
	}
	return all
}

func BenchmarkPassed(b *testing.B) {
	for _, n := range []int{1, 1024, 1 << 15} {
		g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
		p := registrar.Request{UserAgent: browser, At: time.Now(), Took: time.Millisecond, Bytes: 1000}
		all := addrs(n)
		for _, p.Addr = range all {
			g.Passed(p)
		}
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			p, i := p, 0
			for b.Loop() {
				p.Addr = all[i&(n-1)]
				g.Passed(p)
				i++
			}
		})
		b.Run(fmt.Sprintf("parallel/clients=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var start atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				p, i := p, int(start.Add(7919))
				for pb.Next() {
					p.Addr = all[i&(n-1)]
					g.Passed(p)
					i++
				}
			})
		})
		if s := g.Stats(); n > 1024 && s.Clients < n-100 || n == 1 && s.Clients != 1 {
			b.Fatalf("%+v", s)
		}
	}
}

// BenchmarkPassedAgents counts a client that sends a new user agent each time.
func BenchmarkPassedAgents(b *testing.B) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	agents := make([]string, 1000)
	for i := range agents {
		agents[i] = strings.Repeat("x", i%300) + fmt.Sprint(i)
	}
	p := registrar.Request{Addr: netip.MustParseAddr("192.0.2.1"), At: time.Now()}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p.UserAgent = agents[i%len(agents)]
		g.Passed(p)
		i++
	}
}

// BenchmarkFlood counts clients that send one request each; most of them are dropped.
func BenchmarkFlood(b *testing.B) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	p := registrar.Request{UserAgent: browser, At: time.Now()}
	b.ReportAllocs()
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		a := r.Uint32()
		p.Addr = netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
		g.Passed(p)
	}
}

func BenchmarkRefused(b *testing.B) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	r := registrar.Refusal{
		Request: registrar.Request{UserAgent: browser, At: time.Now()},
		Story: registry.Story{Rule: "rapid requests", Action: fairshare.Refuse, Status: 429, By: "addr",
			Resource: "requests",
			Method:   "GET", Host: "example.org", Path: "/a/path/of/some/length"},
	}
	all := addrs(1024)
	refs := make([]string, len(all))
	for i := range refs {
		refs[i] = fmt.Sprintf("ref%07d", i)
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		r, i := r, 0
		for b.Loop() {
			r.Addr, r.Story.ID = all[i&1023], refs[i&1023]
			g.Refused(r)
			i++
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		var start atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			r, i := r, int(start.Add(331))
			for pb.Next() {
				r.Addr, r.Story.ID = all[i&1023], refs[i&1023]
				g.Refused(r)
				i++
			}
		})
	})
}

func BenchmarkBanned(b *testing.B) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	all := addrs(100_000)
	ban := fairshare.BanRecord{Rule: "rapid requests", Kind: fairshare.ByAddr, Number: 1, Began: time.Now(),
		Until: time.Now().Add(time.Hour)}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		ban.Client.Prefix = netip.PrefixFrom(all[i%len(all)], 32)
		g.Banned(ban)
		i++
	}
}

func BenchmarkSettleNothing(b *testing.B) {
	g := registrar.New(registrar.Options{Store: newFakeStore(), Prefix: policy.Client})
	for b.Loop() {
		g.Settle(b.Context())
	}
}

func BenchmarkOverride(b *testing.B) {
	now := time.Now()
	many := func(n int) (overrides []registry.OverrideRecord, labels []registry.Label) {
		for i, a := range addrs(n) {
			id := fairshare.ClientID{Prefix: netip.PrefixFrom(a, 32)}
			if i%2 == 0 {
				overrides = append(overrides, registry.OverrideRecord{Client: id, Action: fairshare.Refuse, Since: now,
					Until: now.Add(time.Hour)})
			} else {
				labels = append(labels, registry.Label{Client: id, Name: "partner"})
			}
		}
		return overrides, labels
	}
	r := rand.New(rand.NewPCG(3, 4))
	others := make([]netip.Addr, 1<<12)
	for i := range others {
		a := r.Uint32()
		others[i] = netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
	}
	for _, n := range []int{0, 1, 1000, 100_000} {
		overrides, labels := many(n)
		store := newFakeStore()
		store.overrides, store.labels = overrides, labels
		g := registrar.New(registrar.Options{Store: store, Prefix: policy.Client})
		if err := g.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		for _, bot := range []fairshare.Bot{{}, {Name: "googlebot", State: fairshare.Verified}} {
			b.Run(fmt.Sprintf("overrides=%d/bot=%s", n, bot.Name), func(b *testing.B) {
				b.ReportAllocs()
				i, found := 0, 0
				for b.Loop() {
					if w := g.Override(others[i&(1<<12-1)], bot, now); w.Action != 0 || w.Labels != nil {
						found++
					}
					i++
				}
				if found > i/100 {
					b.Fatalf("%d of %d have an override", found, i)
				}
			})
		}
		if n == 0 {
			continue
		}
		b.Run(fmt.Sprintf("overrides=%d/found", n), func(b *testing.B) {
			b.ReportAllocs()
			addr := overrides[0].Client.Prefix.Addr()
			for b.Loop() {
				if g.Override(addr, fairshare.Bot{}, now).Action != fairshare.Refuse {
					b.Fatal("not refused")
				}
			}
		})
	}
}

// BenchmarkNewOverrides does the work of a running server after one of many overrides
// has changed.
func BenchmarkNewOverrides(b *testing.B) {
	var overrides []registry.OverrideRecord
	for _, a := range addrs(100_000) {
		id := fairshare.ClientID{Prefix: netip.PrefixFrom(a, 32)}
		overrides = append(overrides, registry.OverrideRecord{Client: id, Action: fairshare.Block})
	}
	for b.Loop() {
		runtime.KeepAlive(registrar.NewOverrides(overrides, nil))
	}
}
