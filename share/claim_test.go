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
		Capacity: 8, Ages: true, By: parts("network", "addr"),
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

// The levels of a claim are those of its owner, networks and address, as far as they are known.
func TestClaimByDefault(t *testing.T) {
	q := New(Options{Capacity: 8, Ages: true})
	of := func(addr string, asn uint32) Claim {
		req := request(addr, noon)
		req.Owner.ASN = asn
		return q.Claim(req)
	}
	a := of("192.0.2.1", 64500)
	for _, c := range []struct {
		name   string
		claim  Claim
		common int // levels that a and the claim have in common
	}{
		{"itself", of("192.0.2.1", 64500), 4}, {"a neighbour", of("192.0.2.2", 64500), 3},
		{"another network", of("192.0.3.1", 64500), 2}, {"another wider network", of("192.1.2.1", 64500), 1},
		{"another owner", of("192.0.2.1", 64501), 0},
	} {
		common := 0
		for common < 4 && c.claim.keys[common] == a.keys[common] {
			common++
		}
		if common != c.common || c.claim.depth != 4 || c.claim.unit != 2 {
			t.Errorf("%s: %d levels in common, want %d; %+v", c.name, common, c.common, c.claim)
		}
	}
	if x, y := of("192.0.2.1", 0), of("192.0.3.1", 0); x.depth != 3 || x.unit != 1 || x.keys[0] != y.keys[0] ||
		x.keys[1] == y.keys[1] {
		t.Errorf("without a known owner: %+v and %+v, want one wider network", x, y)
	}
	peer := request("192.0.2.1", noon)
	peer.Owner.ASN, peer.Via = 64500, netip.MustParseAddr("198.51.100.1")
	if c := q.Claim(peer); c.depth != 3 || c.keys[0] == a.keys[0] {
		t.Errorf("an address that only its peer names has an owner: %+v", c)
	}
}

// A visitor is one client at all addresses, below the network in which its cookie was issued.
func TestClaimOfAVisitor(t *testing.T) {
	q := New(Options{Capacity: 8, Ages: true})
	known := func(addr string, age time.Duration) string {
		q.Known(netip.PrefixFrom(netip.MustParseAddr(addr), 32), noon.Add(-age), noon)
		return addr
	}
	of := func(addr string, id uint64, age time.Duration, change func(*fairshare.Request)) Claim {
		req := request(addr, noon)
		req.Owner.ASN = uint32(req.Addr.As4()[0])
		if id != 0 {
			req.Visitor = fairshare.Visitor{ID: id, Network: uint32(id / 10), Wider: uint16(id / 100),
				Since: noon.Add(-age)}
		}
		if change != nil {
			change(req)
		}
		return q.Claim(req)
	}
	day := known("9.0.0.1", 25*time.Hour)
	waits := func(r *fairshare.Request) { r.Visitor.Waits = noon.Add(-20 * time.Second) }
	member := func(r *fairshare.Request) { r.Visitor.Member = true }
	label := func(r *fairshare.Request) { r.Override.Labels = []string{"regular"} }
	a := of("1.0.0.1", 1234, time.Minute, nil)
	for _, c := range []struct {
		name   string
		claim  Claim
		common int // levels that a and the claim have in common
		depth  uint8
		unit   uint8
		class  uint8
		waited time.Duration
	}{
		{"itself", of("1.0.0.1", 1234, time.Minute, nil), 3, 3, 1, 3, 0},
		{"it comes through another network", of("2.0.0.1", 1234, time.Minute, nil), 3, 3, 1, 3, 0},
		{"it waits", of("2.0.0.1", 1234, time.Minute, waits), 3, 3, 1, 3, 20 * time.Second},
		{"another cookie of the network", of("1.0.0.1", 1235, time.Minute, nil), 2, 3, 1, 3, 0},
		{"of another network of the owner", of("1.0.0.1", 1244, time.Minute, nil), 1, 3, 1, 3, 0},
		{"of another owner", of("1.0.0.1", 1334, time.Minute, nil), 0, 3, 1, 3, 0},
		{"an older cookie", of("1.0.0.1", 1234, time.Hour, nil), 0, 3, 1, 1, 0},
		{"a cookie from the future", of("1.0.0.1", 1234, -time.Hour, nil), 0, 3, 1, newest, 0},
		{"a member", of("1.0.0.1", 1234, 0, member), 0, 3, 1, privileged, 0},
		{"its address without the cookie", of("1.0.0.1", 0, 0, nil), 0, 4, 2, newest, 0},
		{"at an older address", of(day, 1234, time.Minute, waits), 0, 5, 2, 0, 20 * time.Second},
		{"at a labelled address", of("1.0.0.1", 1234, time.Minute, label), 0, 5, 2, 0, 0},
	} {
		common := 0
		for common < 3 && c.claim.keys[common] == a.keys[common] {
			common++
		}
		if got := c.claim; common != c.common || got.depth != c.depth || got.unit != c.unit || got.class != c.class ||
			got.waited != c.waited {
			t.Errorf("%s: %d levels in common, want %d; %+v, want %+v", c.name, common, c.common, got, c)
		}
	}
	// At an older address, cookies are clients below this address.
	x, y, z := of(day, 1234, 0, nil), of(day, 1235, 0, nil), of(day, 0, 0, nil)
	if x.keys[3] != z.keys[3] || y.keys[3] != z.keys[3] || x.keys[4] == y.keys[4] {
		t.Errorf("%+v, %+v and %+v, want two clients below an address", x, y, z)
	}
	// The address of a visitor is not remembered.
	if c := of("1.0.0.1", 0, 0, func(r *fairshare.Request) { r.Time = noon.Add(time.Hour) }); c.class != 1 {
		t.Errorf("an address that came without a cookie is of class %d after an hour", c.class)
	}
	of("3.0.0.1", 1234, 0, nil)
	if c := of("3.0.0.1", 0, 0, func(r *fairshare.Request) { r.Time = noon.Add(time.Hour) }); c.class != newest {
		t.Errorf("an address that came only with a cookie is of class %d", c.class)
	}
	// The search for the capacity counts copies of a cookie as one network.
	auto := New(Options{Ages: true})
	req := request("1.0.0.1", noon)
	req.Visitor = fairshare.Visitor{ID: 7, Network: 8, Since: noon.Add(-time.Hour)}
	b := auto.Claim(req)
	req.Addr = netip.MustParseAddr("2.0.0.1")
	if c := auto.Claim(req); c.network != b.network {
		t.Errorf("copies of a cookie are two networks")
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
	kinds := func(kinds ...fairshare.KeyKind) (by []fairshare.KeyPart) {
		for _, k := range kinds {
			by = append(by, fairshare.KeyPart{Kind: k})
		}
		return by
	}
	q := New(Options{Capacity: 8, By: kinds(fairshare.ByHost, fairshare.ByNetwork, fairshare.ByAddr), Key: guard})
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
	q.Replace(Options{Capacity: 8, By: kinds(fairshare.ByHost, fairshare.ByNetwork), Key: guard})
	if c := q.Claim(req); c.depth != 2 || c.keys[0] == a.keys[0] || c.keys[1] == a.keys[1] {
		t.Errorf("%+v after %+v", c, a)
	}
	// Parts beyond MaxParts are ignored.
	q.Replace(Options{Capacity: 8, By: kinds(1, 2, 3, 4, 5, 6), Key: guard})
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

// A member that the site's own cookie identifies has no known owner and no wider network.
func TestMemberHasALevelIfAllLevelsAreWide(t *testing.T) {
	wide := fairshare.KeyPart{Kind: fairshare.ByNetwork, Bits4: 16, Bits6: 32}
	fleet, owner := fairshare.KeyPart{Kind: fairshare.ByFleet}, fairshare.KeyPart{Kind: fairshare.ByASN}
	for _, by := range [][]fairshare.KeyPart{{owner}, {wide}, {owner, wide}, {fleet, owner}} {
		q := New(Options{Capacity: 1, By: by, Ages: true})
		of := func(id uint64) Claim {
			req := request("192.0.2.1", noon)
			req.Visitor = fairshare.Visitor{ID: id, Network: uint32(id), Since: noon, Member: true}
			return q.Claim(req)
		}
		first, other, same := of(1), of(2), of(1)
		if first.depth != 1 || first.keys[0] == other.keys[0] || first.keys[0] != same.keys[0] {
			t.Fatalf("%v: %d levels, %x, %x and %x, want one level, another for each member", by, first.depth,
				first.keys, other.keys, same.keys)
		}
		turn, err := q.Wait(t.Context(), &first)
		if err != nil {
			t.Fatal(err)
		}
		turn.Done()
	}
}
