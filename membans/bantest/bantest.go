package bantest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"fairshare"
)

// Run checks that the Bans that open returns keep what [fairshare.Bans]
// promises. Each must be empty, and must have room for the given number of bans
// and former bans; 0 means room for a few thousand.
func Run(t *testing.T, open func(tb testing.TB, most int) fairshare.Bans) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, func(testing.TB, int) fairshare.Bans)
	}{
		{"random calls agree with the model", runModel},
		{"the number of bans is bounded", runBound},
		{"queries allocate nothing", runAllocations},
		{"concurrent calls", runConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

var start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// key returns the key of a client as ParseClientID reads it.
func key(kind fairshare.KeyKind, client string, via netip.Addr) fairshare.BanKey {
	id, err := fairshare.ParseClientID(client)
	if err != nil {
		panic(err)
	}
	id.Via = via
	k, ok := fairshare.NewBanKey(kind, id)
	if !ok {
		panic("no key of " + client)
	}
	return k
}

// A ruleCase is a rule of the random test.
type ruleCase struct {
	name  string
	terms fairshare.BanTerms
}

// runModel makes the same random calls to the implementation and to a [Model].
// Clients, also those of two IPv6 networks, are banned by enforced rules, by one in
// dry run, and by one that changes between the two.
func runModel(t *testing.T, open func(testing.TB, int) fairshare.Bans) {
	rules := []ruleCase{
		{"enforced", fairshare.BanTerms{For: 2 * time.Hour, Growth: 2, Forgive: 6 * time.Hour}},
		{"dry run", fairshare.BanTerms{For: time.Hour}},
		{"changing", fairshare.BanTerms{For: time.Minute, Growth: 3, Max: time.Hour, Forgive: 10 * time.Minute}},
		{"also enforced", fairshare.BanTerms{For: 90 * time.Minute}},
	}
	gateway := netip.MustParseAddr("172.17.0.1")
	ipv6 := func(rnd *rand.Rand) string {
		return fmt.Sprintf("2001:db8:%x:%x::/64", 1+rnd.IntN(2), rnd.IntN(clientsThatBan))
	}
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 14))
		bans, model := open(t, 0), new(Model)
		for _, r := range rules {
			if got, want := bans.RuleNumber(r.name), model.RuleNumber(r.name); got != want {
				t.Fatalf("rule %q has number %d, want %d", r.name, got, want)
			}
		}
		pick := func() (k fairshare.BanKey, isIPv6 bool) {
			switch rnd.IntN(8) {
			case 0:
				return key(fairshare.ByAddr, fmt.Sprintf("192.0.2.%d", rnd.IntN(8)), netip.Addr{}), false
			case 1:
				return key(fairshare.ByAddr, fmt.Sprintf("192.0.2.%d", rnd.IntN(8)), gateway), false
			case 2:
				return key(fairshare.ByNetwork, "192.0.2.0/24", netip.Addr{}), false
			case 3:
				return key(fairshare.ByBot, []string{"googlebot", "bingbot"}[rnd.IntN(2)], netip.Addr{}), false
			}
			return key(fairshare.ByAddr, ipv6(rnd), netip.Addr{}), true
		}
		now := start
		for step := range 20_000 {
			now = now.Add(time.Duration(rnd.Int64N(int64(30 * time.Second))))
			if rnd.IntN(2000) == 0 {
				now = now.Add(12 * time.Hour)
			}
			k, isIPv6 := pick()
			rule := uint32(rnd.IntN(len(rules)))
			dryRun := rule == 1
			if rule == 2 {
				dryRun = rnd.IntN(4) == 0
			}
			switch n := rnd.IntN(400); {
			case n < 20:
				client := ipv6(rnd)
				if n == 0 {
					client = []string{"192.0.2.3", "192.0.2.0/24", "2001:db8:1::/48", "::/0", "googlebot"}[rnd.IntN(5)]
				}
				id, _ := fairshare.ParseClientID(client)
				at := now.Add(-time.Duration(rnd.IntN(3)) * time.Minute)
				var got, want []string
				collect := func(lifted *[]string) func(fairshare.BanKey, string) {
					return func(k fairshare.BanKey, rule string) { *lifted = append(*lifted, fmt.Sprint(k, rule)) }
				}
				n, m := bans.Lift(id, at, collect(&got)), model.Lift(id, at, collect(&want))
				slices.Sort(got)
				slices.Sort(want)
				if n != m || !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: Lift(%s) ended %d bans %q, want %d, %q", seed, step, client, n, got, m,
						want)
				}
			case n < 200:
				r := fairshare.Refusal{Key: k, Rule: rule, DryRun: dryRun, Terms: &rules[rule].terms, At: now,
					Bits4: 32, Bits6: 64}
				reached := rnd.IntN(4) > 0
				got, want := bans.CountRefusal(&r, reached), model.CountRefusal(&r, reached)
				if got != want {
					t.Fatalf("seed %d, step %d: CountRefusal(%+v, %v) = %v, want %v", seed, step, r, reached, got, want)
				}
			default:
				q := fairshare.BanQuery{Key: k, Rule: rule, DryRun: dryRun, Newcomer: rnd.IntN(2) == 0}
				if got, want := bans.Find(&q, now), model.Find(&q, now); got != want {
					t.Fatalf("seed %d, step %d: Find(%+v) = %v, want %v", seed, step, q, got, want)
				} else if f, ok := bans.(fairshare.BanFilter); ok && got > 0 &&
					f.MayBan(&q.Key, q.Newcomer)>>(q.Rule%64)&1 == 0 {
					t.Fatalf("seed %d, step %d: Find(%+v) = %v, and MayBan lacks the rule", seed, step, q, got)
				}
				if !isIPv6 {
					continue
				}
				gotRule, got := bans.LimitsNewcomers(&k, now)
				if wantRules := model.LimitingRules(&k, now); got != (len(wantRules) > 0) ||
					got && !slices.Contains(wantRules, gotRule) {
					t.Fatalf("seed %d, step %d: LimitsNewcomers = %d, %v, want one of %v", seed, step, gotRule, got,
						wantRules)
				}
			}
		}
	}
}

// runBound bans three times as many clients as there is room for. The bans that
// end last stay.
func runBound(t *testing.T, open func(testing.TB, int) fairshare.Bans) {
	const most = 100
	bans := open(t, most)
	rule := bans.RuleNumber("one")
	client := func(i int) fairshare.BanKey {
		return key(fairshare.ByAddr, netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).String(), netip.Addr{})
	}
	for i := range 3 * most {
		bans.CountRefusal(&fairshare.Refusal{Key: client(i), Rule: rule, At: start, Bits4: 32, Bits6: 64,
			Terms: &fairshare.BanTerms{For: time.Duration(1+i) * time.Hour, Max: 1000 * time.Hour}}, true)
	}
	if n := bans.Len(); n != most {
		t.Errorf("Len() = %d, want %d", n, most)
	}
	for i := range 3 * most {
		banned := bans.Find(&fairshare.BanQuery{Key: client(i), Rule: rule}, start) > 0
		if banned && i < most || !banned && i >= 3*most-most/2 {
			t.Errorf("client %d of %d: banned %v", i, 3*most, banned)
		}
	}
}

// runAllocations checks that queries of a decision allocate nothing: without a
// ban, for banned clients and for others.
func runAllocations(t *testing.T, open func(testing.TB, int) fairshare.Bans) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	bans := open(t, 0)
	rule := bans.RuleNumber("one")
	q, client := new(fairshare.BanQuery), new(fairshare.BanKey)
	queries := func() float64 {
		return testing.AllocsPerRun(100, func() {
			for _, addr := range [...]string{"2001:db8:1:1::1", "2001:db8:1:ffff::1", "192.0.2.1"} {
				*client = queryKeys[addr]
				*q = fairshare.BanQuery{Key: *client, Rule: rule, Newcomer: true}
				bans.Find(q, start)
				bans.LimitsNewcomers(client, start)
				if f, ok := bans.(fairshare.BanFilter); ok {
					f.MayBan(client, true)
				}
			}
		})
	}
	if n := queries(); n != 0 {
		t.Errorf("without a ban: %v allocations", n)
	}
	for i := range clientsThatBan {
		client := key(fairshare.ByAddr, fmt.Sprintf("2001:db8:1:%x::/64", i), netip.Addr{})
		bans.CountRefusal(&fairshare.Refusal{Key: client, Rule: rule, Terms: &fairshare.BanTerms{For: time.Hour},
			At: start, Bits4: 32, Bits6: 64}, true)
	}
	if n := queries(); n != 0 {
		t.Errorf("with a banned network: %v allocations", n)
	}
}

var queryKeys = map[string]fairshare.BanKey{
	"2001:db8:1:1::1":    key(fairshare.ByAddr, "2001:db8:1:1::/64", netip.Addr{}),
	"2001:db8:1:ffff::1": key(fairshare.ByAddr, "2001:db8:1:ffff::/64", netip.Addr{}),
	"192.0.2.1":          key(fairshare.ByAddr, "192.0.2.1", netip.Addr{}),
}

// runConcurrent checks that bans are found while others begin, are lifted and
// replace one another. The race detector does the rest.
func runConcurrent(t *testing.T, open func(testing.TB, int) fairshare.Bans) {
	bans := open(t, 1000)
	rule := bans.RuleNumber("one")
	terms := &fairshare.BanTerms{For: time.Hour}
	stays := key(fairshare.ByAddr, "198.51.100.1", netip.Addr{})
	bans.CountRefusal(&fairshare.Refusal{Key: stays, Rule: rule, At: start, Bits4: 32, Bits6: 64,
		Terms: &fairshare.BanTerms{For: 1000 * time.Hour}}, true)
	lift, _ := fairshare.ParseClientID("10.0.0.0/9")
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(worker), 15))
			for range 2000 {
				addr := netip.AddrFrom4([4]byte{10, byte(rnd.IntN(256)), 0, byte(rnd.IntN(16))})
				k := key(fairshare.ByAddr, addr.String(), netip.Addr{})
				bans.CountRefusal(&fairshare.Refusal{Key: k, Rule: rule, Terms: terms, At: start,
					Bits4: 32, Bits6: 64}, true)
				bans.Find(&fairshare.BanQuery{Key: k, Rule: rule}, start)
				if rnd.IntN(100) == 0 {
					bans.Lift(lift, start, nil)
				}
				if bans.Find(&fairshare.BanQuery{Key: stays, Rule: rule}, start) == 0 {
					t.Error("a ban that ends last is not found")
					return
				}
				if f, ok := bans.(fairshare.BanFilter); ok && f.MayBan(&stays, false)>>(rule%64)&1 == 0 {
					t.Error("MayBan lacks the rule of a ban that ends last")
					return
				}
			}
		})
	}
	all.Wait()
}
