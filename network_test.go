package fairshare_test

import (
	"testing"
	"time"

	"fairshare"
)

// wide returns the key part of a network with these prefix lengths.
func wide(bits4, bits6 uint8) fairshare.KeyPart {
	return fairshare.KeyPart{Kind: fairshare.ByNetwork, Bits4: bits4, Bits6: bits6}
}

func TestNetworkOfAnySizeIsCountedTogether(t *testing.T) {
	for _, test := range []struct {
		name    string
		part    fairshare.KeyPart
		first   string
		same    string // in the network of first
		another string // in the next network
	}{
		{"network", wide(0, 0), "10.1.2.3", "10.1.2.255", "10.1.3.3"},
		{"network/16", wide(16, 32), "10.1.2.3", "10.1.255.3", "10.2.2.3"},
		{"network/20", wide(20, 40), "10.1.16.3", "10.1.31.3", "10.1.32.3"},
		{"network/20", wide(20, 40), "2001:db8:1000::1", "2001:db8:10ff::1", "2001:db8:1100::1"},
		{"network/16", wide(16, 32), "2001:db8::1", "2001:db8:ffff::1", "2001:db9::1"},
		{"network/24/128", wide(24, 128), "2001:db8::1", "2001:db8::1", "2001:db8::2"},
		{"network/24/128", wide(24, 128), "10.1.2.3", "10.1.2.4", "10.1.3.3"},
		{"network/32", wide(32, 64), "10.1.2.3", "10.1.2.3", "10.1.2.4"},
		{"network/1/1", wide(1, 1), "10.1.2.3", "127.1.2.4", "128.0.0.1"},
	} {
		if got := test.part.String(); got != test.name {
			t.Errorf("%v is %q, want %q", test.part, got, test.name)
		}
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit",
			Limit: requests(1, time.Hour, test.part)}}})
		play(t, g, []step{
			{0, from(test.first), 0, 0, "allow"},
			{0, from(test.same), 0, 0, "refuse limit 2h0m0s"},
			{0, from(test.another), 0, 0, "allow"},
		})
	}
}

// The key of a network names its size: a /16 and the /24 with the same first
// address are two networks.
func TestKeysOfNetworksOfTwoSizesDiffer(t *testing.T) {
	req := from("10.1.0.3")
	g := newGuard(t, fairshare.Policy{})
	keys := map[string]string{}
	for _, part := range []fairshare.KeyPart{wide(0, 0), wide(16, 32), wide(20, 40), {Kind: fairshare.ByAddr}} {
		key := string(g.AppendKey(nil, &req, part))
		if other, twice := keys[key]; twice {
			t.Errorf("%s and %s have the same key", other, part)
		}
		keys[key] = part.String()
	}
}

func TestNetworkOfAnySizeCanBeBanned(t *testing.T) {
	for _, test := range []struct {
		part                 fairshare.KeyPart
		first, same, another string
		client               string
	}{
		{wide(16, 32), "10.1.0.3", "10.1.255.3", "10.2.2.3", "10.1.0.0/16"},
		{wide(16, 32), "2001:db8::1", "2001:db8:ffff::1", "2001:db9::1", "2001:db8::/32"},
		{wide(32, 128), "2001:db8::1", "2001:db8::1", "2001:db8::2", "2001:db8::1/128"},
	} {
		rule := fairshare.Rule{Name: "limit", Limit: requests(1, time.Hour, test.part),
			Ban: &fairshare.BanTerms{After: 1, For: 10 * time.Minute}}
		g, bans, reported := watched(t, fairshare.Policy{Rules: []fairshare.Rule{rule}})
		decide := func(g *fairshare.Guard, addr string) fairshare.Finding {
			req := from(addr)
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			return v.Finding
		}
		decide(g, test.first)
		if f := decide(g, test.same); f.Ban != fairshare.BanStarted {
			t.Fatalf("%s: %+v, want the start of a ban", test.same, f)
		}
		if f := decide(g, test.another); f.Action != fairshare.Allow {
			t.Errorf("%s is not allowed: %+v", test.another, f)
		}
		banned := (*reported)[0]
		if got := banned.Client.Prefix.String(); got != test.client || banned.Kind != fairshare.ByNetwork {
			t.Errorf("%s is banned, want %s", got, test.client)
		}

		restarted, again, _ := watched(t, fairshare.Policy{Rules: []fairshare.Rule{rule}})
		again.Restore(banned)
		if f := decide(restarted, test.first); f.Ban != fairshare.BanInForce {
			t.Errorf("%s after a restart: %+v, want a ban in force", test.first, f)
		}
		if n := bans.Lift(banned.Client, start, nil); n != 1 {
			t.Errorf("%d bans of %s are lifted, want 1", n, test.client)
		}
		if _, err := g.Lift(t.Context(), banned.Client, start, start); err != nil {
			t.Error(err)
		}
	}
}

// A provisional client's network may be banned, and a ban of the network
// itself holds for it.
func TestBanOfAWideNetworkHoldsForProvisionalClients(t *testing.T) {
	g, bans, reported := watched(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit",
		Limit: requests(1, time.Hour, wide(16, 32)), Ban: &fairshare.BanTerms{After: 1, For: 10 * time.Minute}}}})
	ask := func(req fairshare.Request) fairshare.Finding {
		req.Time = start
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		return v.Finding
	}
	ask(through(nginx, "10.1.2.3"))
	if f := ask(through(nginx, "10.1.9.3")); f.Ban != fairshare.BanStarted {
		t.Fatalf("%+v, want the start of a ban", f)
	}
	if f := ask(from("10.1.2.3")); f.Action != fairshare.Allow {
		t.Errorf("the address itself: %+v, want allow", f)
	}
	banned := (*reported)[0]
	if banned.Client.Via != nginx || banned.Client.Prefix.String() != "10.1.0.0/16" {
		t.Errorf("%v is banned", banned.Client)
	}
	bans.Lift(banned.Client, start, nil)
	banned.Client.Via = from("10.1.2.3").Via
	bans.Restore(banned)
	if f := ask(through(gateway, "10.1.77.3")); f.Ban != fairshare.BanInForce {
		t.Errorf("through another peer: %+v, want a ban in force", f)
	}
}

func TestPrefixLengthsAreChecked(t *testing.T) {
	for _, part := range []fairshare.KeyPart{wide(33, 64), wide(16, 129),
		{Kind: fairshare.ByAddr, Bits4: 16}, {Kind: fairshare.ByPath, Bits6: 16}} {
		if err := requests(1, time.Hour, part).Check(); err == nil {
			t.Errorf("%v passes", part)
		}
	}
	if err := requests(1, time.Hour, wide(1, 128)).Check(); err != nil {
		t.Error(err)
	}
}
