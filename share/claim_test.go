package share

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestClaim(t *testing.T) {
	googlebot := fairshare.Bot{Name: "googlebot", Categories: []string{"search"}, State: fairshare.Verified}
	gptbot := fairshare.Bot{Name: "gptbot", Categories: []string{"ai", "training"}, State: fairshare.Verified}
	q := New(Options{
		Capacity: 8, Ages: true,
		Labels: map[string]float64{"partner": 4, "slow": 0.5}, Bots: map[string]float64{"googlebot": 2, "ai": 0.25},
	})
	q.Known(netip.MustParsePrefix("192.0.2.9/32"), noon.Add(-time.Hour), noon)
	q.Known(netip.MustParsePrefix("2001:db8:1:2::/64"), noon.Add(-time.Hour), noon)
	allowed := func(addr string) fairshare.Request {
		return fairshare.Request{Time: noon, Addr: netip.MustParseAddr(addr),
			Override: fairshare.Override{Action: fairshare.Allow}}
	}
	of := func(addr string, bot fairshare.Bot, labels ...string) fairshare.Request {
		r := fairshare.Request{Time: noon, Bot: bot, Override: fairshare.Override{Labels: labels}}
		if addr != "" {
			r.Addr = netip.MustParseAddr(addr)
		}
		return r
	}
	no := fairshare.Bot{}
	with := func(b fairshare.Bot, change func(*fairshare.Bot)) fairshare.Bot { change(&b); return b }
	for _, c := range []struct {
		name            string
		a, b            fairshare.Request
		network, client bool // whether a and b have the same
		class           uint8
		weight          float64 // of a
	}{
		{"the same address", of("192.0.2.1", no), of("192.0.2.1", no), true, true, newest, 1},
		{"a neighbour", of("192.0.2.1", no), of("192.0.2.2", no), true, false, newest, 1},
		{"another network", of("192.0.2.1", no), of("192.0.3.1", no), false, false, newest, 1},
		{"one IPv6 customer", of("2001:db8::1", no), of("2001:db8::2", no), true, true, newest, 1},
		{"two IPv6 customers", of("2001:db8::1", no), of("2001:db8:0:1::2", no), true, false, newest, 1},
		{"known for long", of("192.0.2.9", no), of("192.0.2.9", no), true, true, 1, 1},
		{"known for long, IPv6", of("2001:db8:1:2::7", no), of("2001:db8:1:2::8", no), true, true, 1, 1},
		{"a known and an unknown client of one network", of("192.0.2.9", no), of("192.0.2.1", no), false, false,
			1, 1},
		{"no address", of("", no), of("", no), true, true, newest, 1},
		{"no address and one", of("", no), of("192.0.2.1", no), false, false, newest, 1},
		{"a verified bot at two addresses", of("66.249.66.1", googlebot), of("66.249.70.1", googlebot), true, true,
			privileged, 2},
		{"bots of a category", of("192.0.2.1", gptbot), of("192.0.2.1", googlebot), false, false, privileged, 0.25},
		{"a bot and its neighbour", of("66.249.66.1", googlebot), of("66.249.66.1", no), false, false, privileged, 2},
		{"a user-triggered bot", of("192.0.2.1", with(googlebot, func(b *fairshare.Bot) { b.UserTriggered = true })),
			of("192.0.2.1", no), true, true, newest, 1},
		{"a forged bot", of("192.0.2.1", with(googlebot, func(b *fairshare.Bot) { b.State = fairshare.Forged })),
			of("192.0.2.1", no), true, true, newest, 1},
		{"a bot that is not verified yet", of("192.0.2.1",
			with(googlebot, func(b *fairshare.Bot) { b.State = fairshare.Pending })), of("192.0.2.1", no), true, true,
			newest, 1},
		{"a label without weight", of("192.0.2.1", no, "regular"), of("192.0.2.2", no, "regular"), true, false,
			privileged, 1},
		{"a label with weight", of("192.0.2.1", no, "partner"), of("192.0.2.2", no, "partner"), false, false,
			privileged, 4},
		{"the same with that label", of("192.0.2.1", no, "partner"), of("192.0.2.1", no, "regular", "partner"), true,
			true, privileged, 4},
		{"the greatest weight", of("192.0.2.1", no, "slow", "partner"), of("192.0.2.1", no, "partner"), true, true,
			privileged, 4},
		{"a label of less weight", of("192.0.2.1", no, "slow"), of("192.0.2.1", no), false, false, privileged, 0.5},
		{"a client that an operator allows", allowed("192.0.2.1"), of("192.0.2.2", no), false, false, privileged, 1},
		{"a labelled bot at two addresses", of("192.0.2.1", googlebot, "partner"), of("192.0.2.7", googlebot), true,
			true, privileged, 4},
	} {
		a, b := q.Claim(&c.a), q.Claim(&c.b)
		if got := a.keys[0] == b.keys[0]; got != c.network {
			t.Errorf("%s: one network: %v, want %v", c.name, got, c.network)
		}
		if got := a.keys[1] == b.keys[1]; got != c.client {
			t.Errorf("%s: one client: %v, want %v", c.name, got, c.client)
		}
		if a.class != c.class || a.weight != c.weight || a.depth != 2 {
			t.Errorf("%s: class %d, weight %v, depth %d, want %d and %v", c.name, a.class, a.weight, a.depth, c.class,
				c.weight)
		}
	}
}

// The class depends on the time since the client's first request.
func TestClassesByAge(t *testing.T) {
	for _, ages := range []bool{true, false} {
		q := New(Options{Capacity: 8, Ages: ages, Remember: 64})
		for _, c := range []struct {
			after time.Duration
			class uint8
		}{
			{0, newest}, {750 * ms, newest}, {time.Second, 5}, {9 * time.Second, 5}, {10 * time.Second, 4},
			{59 * time.Second, 4}, {time.Minute, 3}, {9 * time.Minute, 3}, {10 * time.Minute, settled},
			{59 * time.Minute, settled}, {time.Hour, 1}, {23 * time.Hour, 1}, {24 * time.Hour, 0}, {96 * time.Hour, 0},
			{2400 * time.Hour, 0}, // after a break of 96 days
		} {
			want := c.class
			if !ages {
				want = 0
			}
			if got := q.Claim(request("192.0.2.1", noon.Add(c.after))); got.class != want {
				t.Errorf("Ages %v: after %v the class is %d, want %d", ages, c.after, got.class, want)
			}
		}
	}
}

func TestClaimByOtherParts(t *testing.T) {
	guard := func(b []byte, req *fairshare.Request, part fairshare.KeyPart) []byte {
		switch part.Kind {
		case fairshare.ByHost:
			return append(append(b, byte(part.Kind)), req.Host...)
		case fairshare.ByEveryone:
			return append(b, byte(part.Kind))
		}
		return appendAddr(b, req, part)
	}
	parts := func(kinds ...fairshare.KeyKind) (by []fairshare.KeyPart) {
		for _, k := range kinds {
			by = append(by, fairshare.KeyPart{Kind: k})
		}
		return by
	}
	q := New(Options{Capacity: 8, By: parts(fairshare.ByHost, fairshare.ByNetwork, fairshare.ByAddr), Key: guard})
	req := request("192.0.2.1", noon)
	req.Host = "a.example"
	other := *req
	other.Host = "b.example"
	a, b := q.Claim(req), q.Claim(&other)
	for i := range 3 {
		if a.depth != 3 || a.keys[i] == b.keys[i] || a.keys[i] == 0 {
			t.Errorf("level %d of %d: %x and %x, want two", i, a.depth, a.keys[i], b.keys[i])
		}
	}
	// Keys of another hierarchy differ, even for equal values.
	q.Replace(Options{Capacity: 8, By: parts(fairshare.ByHost, fairshare.ByNetwork), Key: guard})
	if c := q.Claim(req); c.depth != 2 || c.keys[0] == a.keys[0] || c.keys[1] == a.keys[1] {
		t.Errorf("%+v after %+v", c, a)
	}
	// Parts beyond MaxParts are ignored.
	q.Replace(Options{Capacity: 8, By: parts(1, 2, 3, 4, 5, 6), Key: guard})
	if c := q.Claim(req); c.depth != MaxParts {
		t.Errorf("%d parts", c.depth)
	}
}

func TestClaimHasPathAndNetworkForTheCapacity(t *testing.T) {
	q := New(Options{By: []fairshare.KeyPart{{Kind: fairshare.ByAddr}}})
	a, b, c := request("192.0.2.1", noon), request("192.0.2.2", noon), request("192.0.3.1", noon)
	c.Path = "/other"
	x, y, z := q.Claim(a), q.Claim(b), q.Claim(c)
	if x.network != y.network || x.path != y.path || x.network == z.network || x.path == z.path {
		t.Errorf("%+v %+v %+v", x, y, z)
	}
}

func TestClaimAllocatesNothing(t *testing.T) {
	q := New(Options{Ages: true, Remember: 1024})
	req := request("192.0.2.1", noon)
	q.Claim(req)
	if n := testing.AllocsPerRun(100, func() { q.Claim(req) }); n > 0 && !raceDetector {
		t.Errorf("%v allocations", n)
	}
}
