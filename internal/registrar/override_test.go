package registrar_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/registrar"
	"fairshare/registry"
)

func TestOverride(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	overrides := registrar.NewOverrides([]registry.OverrideRecord{
		{Client: id("192.0.2.0/24"), Action: fairshare.Block},
		{Client: id("192.0.2.128/25"), Action: fairshare.Allow},
		{Client: id("192.0.2.129"), Action: fairshare.Refuse, Since: hours(-1), Until: hours(2)},
		{Client: id("192.0.2.130"), Action: fairshare.Refuse, Since: hours(-2), Until: now}, // it has ended
		{Client: id("192.0.2.7"), Action: fairshare.Allow, Since: hours(-3), Until: hours(-1)},
		{Client: id("2001:db8::/32"), Action: fairshare.Allow},
		// in a replay: it starts later
		{Client: id("2001:db8:1::/64"), Action: fairshare.Refuse, Since: hours(5), Until: hours(6)},
		{Client: id("2001:db8:2::/64"), Action: fairshare.Refuse, Since: hours(2), Until: hours(1)},
		{Client: id("2001:db8:3::/64"), Action: fairshare.Refuse, Since: hours(-1)}, // it never ends
		{Client: id("198.51.100.0/24"), Action: fairshare.Allow, Until: hours(-1)},
		{Client: fairshare.ClientID{Prefix: netip.MustParsePrefix("::ffff:203.0.113.0/120")}, Action: fairshare.Block},
		{Client: id("googlebot"), Action: fairshare.Refuse, Since: hours(-1), Until: hours(1)},
		{Client: id("goodbot"), Action: fairshare.Allow},
		{Client: fairshare.ClientID{}, Action: fairshare.Block}, // ignored: no client
	}, []registry.Label{
		{Client: id("192.0.2.0/24"), Name: "wide"},
		{Client: id("192.0.2.129"), Name: "own"},
		{Client: id("192.0.2.129"), Name: "also"},
		{Client: id("192.0.2.129"), Name: "wide"},
		{Client: id("0.0.0.0/0"), Name: "all"},
		{Client: id("googlebot"), Name: "search"},
		{Client: id("googlebot"), Name: "all"},
	})
	google := func(state fairshare.BotState) fairshare.Bot { return fairshare.Bot{Name: "googlebot", State: state} }
	for _, test := range []struct {
		addr   string
		bot    fairshare.Bot
		action fairshare.Action
		wait   time.Duration
		labels string
	}{
		{"192.0.2.1", fairshare.Bot{}, fairshare.Block, 0, "all wide"},
		{"192.0.2.200", fairshare.Bot{}, fairshare.Allow, 0, "all wide"}, // of the longest prefix
		{"192.0.2.129", fairshare.Bot{}, fairshare.Refuse, 2 * time.Hour, "all also own wide"},
		{"192.0.2.130", fairshare.Bot{}, fairshare.Allow, 0, "all wide"}, // of the next wider prefix
		{"192.0.2.7", fairshare.Bot{}, fairshare.Block, 0, "all wide"},
		{"::ffff:192.0.2.1", fairshare.Bot{}, fairshare.Block, 0, "all wide"},
		{"203.0.113.9", fairshare.Bot{}, fairshare.Block, 0, "all"},
		{"198.51.100.1", fairshare.Bot{}, fairshare.Undecided, 0, "all"},
		{"2001:db8::1", fairshare.Bot{}, fairshare.Allow, 0, ""},
		{"2001:db8:1::1", fairshare.Bot{}, fairshare.Refuse, time.Hour, ""}, // at most the whole duration
		{"2001:db8:2::1", fairshare.Bot{}, fairshare.Refuse, 1, ""},
		{"2001:db8:3::1%eth0", fairshare.Bot{}, fairshare.Block, 0, ""},
		{"2001:db9::1", fairshare.Bot{}, fairshare.Undecided, 0, ""},

		{"2001:db9::1", google(fairshare.Claimed), fairshare.Refuse, time.Hour, ""},
		{"2001:db9::1", google(fairshare.Forged), fairshare.Refuse, time.Hour, ""},
		{"2001:db9::1", google(fairshare.Pending), fairshare.Refuse, time.Hour, ""},
		{"2001:db9::1", google(fairshare.Verified), fairshare.Refuse, time.Hour, "all search"},
		{"198.51.100.1", google(fairshare.Verified), fairshare.Refuse, time.Hour, "all search"},
		{"192.0.2.200", google(fairshare.Verified), fairshare.Allow, 0, "all search wide"}, // the address first
		{"2001:db9::1", fairshare.Bot{Name: "googlebot", State: fairshare.Verified, UserTriggered: true},
			fairshare.Refuse,
			time.Hour, ""},
		// any client can claim to be that bot
		{"2001:db9::1", fairshare.Bot{Name: "goodbot", State: fairshare.Claimed}, fairshare.Undecided, 0, ""},
		{"2001:db9::1", fairshare.Bot{Name: "goodbot", State: fairshare.Forged}, fairshare.Undecided, 0, ""},
		{"2001:db9::1", fairshare.Bot{Name: "goodbot", State: fairshare.Verified, UserTriggered: true},
			fairshare.Undecided,
			0, ""},
		{"2001:db9::1", fairshare.Bot{Name: "goodbot", State: fairshare.Verified}, fairshare.Allow, 0, ""},
		{"2001:db9::1", fairshare.Bot{Name: "otherbot", State: fairshare.Verified}, fairshare.Undecided, 0, ""},
	} {
		got := overrides.Override(netip.MustParseAddr(test.addr), test.bot, now)
		if labels := strings.Join(got.Labels, " "); got.Action != test.action || got.Wait != test.wait ||
			labels != test.labels {
			t.Errorf("%s %+v: %v %v %q, want %v %v %q", test.addr, test.bot, got.Action, got.Wait, labels,
				test.action, test.wait, test.labels)
		}
	}
	if got := overrides.Override(netip.Addr{}, fairshare.Bot{}, now); got.Action != fairshare.Undecided ||
		got.Labels != nil {
		t.Errorf("no address: %+v", got)
	}
	none := registrar.NewOverrides(nil, nil)
	if got := none.Override(netip.MustParseAddr("192.0.2.1"), google(fairshare.Verified),
		now); got.Action != fairshare.Undecided || got.Labels != nil {
		t.Errorf("without overrides: %+v", got)
	}
}

// Random overrides and labels are compared with a slow model.
func TestOverridesMatchModel(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		randomAddr := func() netip.Addr { // from a few, so that prefixes contain them
			if rnd.IntN(3) == 0 {
				b := netip.MustParseAddr("2001:db8::").As16()
				b[4], b[7], b[15] = byte(rnd.IntN(2)), byte(rnd.IntN(3)), byte(rnd.IntN(3))
				return netip.AddrFrom16(b)
			}
			return netip.AddrFrom4([4]byte{10, byte(rnd.IntN(2)), byte(rnd.IntN(3)), byte(rnd.IntN(4))})
		}
		bots := []string{"googlebot", "bingbot", ""}
		randomID := func() fairshare.ClientID {
			if rnd.IntN(6) == 0 {
				return fairshare.ClientID{Bot: bots[rnd.IntN(2)]}
			}
			a := randomAddr()
			p, _ := a.Prefix(rnd.IntN(a.BitLen() + 1))
			return fairshare.PrefixID(p)
		}
		set := map[fairshare.ClientID]registry.OverrideRecord{}
		for range rnd.IntN(12) {
			s := registry.OverrideRecord{Client: randomID(), Action: fairshare.Allow + fairshare.Action(rnd.IntN(3)),
				Since: now.Add(time.Duration(rnd.IntN(100)-90) * time.Minute)}
			if s.Action == fairshare.Refuse || rnd.IntN(3) == 0 {
				s.Until = now.Add(time.Duration(rnd.IntN(100)-50) * time.Minute)
			}
			set[s.Client] = s
		}
		var labels []registry.Label
		for range rnd.IntN(12) {
			labels = append(labels, registry.Label{Client: randomID(), Name: fmt.Sprint(rnd.IntN(5))})
		}
		var all []registry.OverrideRecord
		for _, s := range set {
			all = append(all, s)
		}
		overrides := registrar.NewOverrides(all, labels)
		for range 100 {
			addr, bot := randomAddr(), fairshare.Bot{Name: bots[rnd.IntN(3)], UserTriggered: rnd.IntN(3) == 0}
			if bot.Name != "" {
				bot.State = fairshare.Claimed + fairshare.BotState(rnd.IntN(4))
			}
			var want fairshare.Override
			best := -1
			for _, s := range all {
				ended := !s.Until.IsZero() && !now.Before(s.Until)
				isBot := s.Client.Bot != "" && s.Client.Bot == bot.Name &&
					(s.Action != fairshare.Allow || bot.State == fairshare.Verified && !bot.UserTriggered)
				isAddr := s.Client.Bot == "" && s.Client.Prefix.Contains(addr)
				if ended || !isBot && !isAddr {
					continue
				}
				rank := 0
				if isAddr {
					rank = 1 + s.Client.Prefix.Bits()
				}
				if rank > best {
					best, want.Action, want.Wait = rank, s.Action, 0
					if s.Action == fairshare.Refuse {
						want.Wait = max(1, min(s.Until.Sub(now), s.Until.Sub(s.Since)))
					}
				}
			}
			for _, l := range labels {
				if l.Client.Bot == "" && l.Client.Prefix.Contains(addr) ||
					l.Client.Bot != "" && l.Client.Bot == bot.Name && bot.State == fairshare.Verified &&
						!bot.UserTriggered {
					want.Labels = append(want.Labels, l.Name)
				}
			}
			slices.Sort(want.Labels)
			want.Labels = slices.Compact(want.Labels)
			got := overrides.Override(addr, bot, now)
			if got.Action != want.Action || got.Wait != want.Wait || !slices.Equal(got.Labels, want.Labels) {
				t.Fatalf("seed %d: %v %+v: %+v, want %+v\noverrides %+v\nlabels %+v", seed, addr, bot, got, want, all,
					labels)
			}
		}
	}
}
