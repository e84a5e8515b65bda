package fairshare_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/network"
	"fairshare/membans"
	"fairshare/memlimit"
)

// addrGuards returns guards with the same rules: one with prepared takes, one with other takes in memory, and
// one with a model of a limiter.
func addrGuards(t *testing.T, p *fairshare.Policy) map[string]*fairshare.Guard {
	t.Helper()
	limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	g, err := fairshare.NewGuard(p, plainLimiter{limiter}, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*fairshare.Guard{"prepared": memGuard(t, *p), "not prepared": g, "model": newGuard(t, *p)}
}

// Limits by network and by address count apart, whichever comes first. The policies have four rules and more, since
// smaller ones do not prepare takes.
func TestLimitsByNetworkAndByAddress(t *testing.T) {
	part := func(kind fairshare.KeyKind) fairshare.KeyPart { return fairshare.KeyPart{Kind: kind} }
	addr := fairshare.Rule{Name: "addr", Limit: requests(2, time.Hour, part(fairshare.ByAddr))}
	visitor := fairshare.Rule{Name: "visitor", Limit: requests(2, time.Hour, part(fairshare.ByVisitor))}
	net := fairshare.Rule{Name: "network", Limit: requests(3, time.Hour, part(fairshare.ByNetwork))}
	wider := fairshare.Rule{Name: "wider", Limit: requests(4, time.Hour, wide(16, 32))}
	var fillers []fairshare.Rule
	for _, name := range []string{"a", "b", "c"} {
		fillers = append(fillers, fairshare.Rule{Name: name, Action: fairshare.Block,
			Match: fairshare.Match{Path: []string{"/" + name}}})
	}
	type request struct{ addr, refusedBy string } // "" means that it passes
	for _, test := range []struct {
		name     string
		rules    []fairshare.Rule // in this order, and in the opposite one
		prefix4  int
		prefix6  int
		requests []request
	}{
		{"IPv4", []fairshare.Rule{net, addr}, 0, 0, []request{{"192.0.2.1", ""}, {"192.0.2.1", ""},
			{"192.0.2.1", "addr"}, {"192.0.2.2", ""}, {"192.0.2.2", "network"}, {"192.0.2.3", "network"},
			{"192.0.3.1", ""}, {"192.0.3.1", ""}, {"192.0.3.1", "addr"}, {"192.0.3.2", ""}, {"192.0.3.2", "network"}}},
		{"IPv6", []fairshare.Rule{net, addr}, 0, 0, []request{{"2001:db8:0:1::1", ""}, {"2001:db8:0:1::2", ""},
			{"2001:db8:0:1::3", "addr"}, {"2001:db8:0:2::1", ""}, {"2001:db8:0:3::1", "network"},
			{"2001:db8:1::1", ""}, {"2001:db8:1::2", ""}, {"2001:db8:1::3", "addr"}, {"2001:db8:1:1::1", ""}}},
		{"IPv4-mapped", []fairshare.Rule{net, addr}, 0, 0, []request{{"192.0.2.1", ""}, {"::ffff:192.0.2.1", ""},
			{"::ffff:192.0.2.1", "addr"}, {"192.0.2.1", "addr"}, {"::ffff:192.0.2.2", ""}, {"192.0.2.3", "network"},
			{"::ffff:192.0.2.3", "network"}, {"::ffff:192.0.3.1", ""}, {"::192.0.2.1", ""}}},
		{"wide clients", []fairshare.Rule{net, addr}, 28, 56, []request{{"192.0.2.1", ""}, {"192.0.2.14", ""},
			{"192.0.2.15", "addr"}, {"192.0.2.16", ""}, {"192.0.2.17", "network"}, {"192.0.3.1", ""},
			{"2001:db8:0:1::1", ""}, {"2001:db8:0:ff::1", ""}, {"2001:db8:0:2::1", "addr"}, {"2001:db8:0:100::1", ""},
			{"2001:db8:0:200::1", "network"}}},
		{"narrow clients", []fairshare.Rule{net, addr}, 32, 128, []request{{"2001:db8::1", ""}, {"2001:db8::1", ""},
			{"2001:db8::1", "addr"}, {"2001:db8::2", ""}, {"2001:db8::3", "network"}}},
		{"three sizes", []fairshare.Rule{wider, net, addr}, 0, 0, []request{{"10.1.2.1", ""}, {"10.1.2.1", ""},
			{"10.1.2.1", "addr"}, {"10.1.2.2", ""}, {"10.1.2.3", "network"}, {"10.1.3.1", ""}, {"10.1.4.1", "wider"},
			{"10.2.2.1", ""}, {"2001:db8:1::1", ""}, {"2001:db8:2::1", ""}, {"2001:db8:3::1", ""},
			{"2001:db8:4::1", ""}, {"2001:db8:5::1", "wider"}, {"2001:db9::1", ""}}},
		{"visitors without an ID", []fairshare.Rule{net, visitor}, 0, 0, []request{{"192.0.2.1", ""},
			{"192.0.2.1", ""}, {"192.0.2.1", "visitor"}, {"192.0.2.2", ""}, {"192.0.2.3", "network"}}},
		{"visitors and addresses", []fairshare.Rule{visitor, wider, addr}, 0, 0, []request{{"10.1.2.1", ""},
			{"10.1.2.1", ""}, {"10.1.2.2", ""}, {"10.1.2.2", ""}, {"10.1.9.9", "wider"}, {"10.2.2.1", ""}}},
	} {
		for _, opposite := range []bool{false, true} {
			p := &fairshare.Policy{IPv4Prefix: test.prefix4, IPv6Prefix: test.prefix6}
			p.Rules = append(p.Rules, fillers...)
			for i := range test.rules {
				if opposite {
					i = len(test.rules) - 1 - i
				}
				p.Rules = append(p.Rules, test.rules[i])
			}
			for kind, g := range addrGuards(t, p) {
				for i, want := range test.requests {
					req := from(want.addr)
					req.Time = start
					v, err := g.Decide(t.Context(), &req)
					if err != nil {
						t.Fatal(err)
					}
					got := ""
					if v.Action == fairshare.Refuse {
						got = v.Rule.Name
					}
					if got != want.refusedBy {
						t.Errorf("%s, opposite order %v, %s: request %d of %s is refused by %q, want %q", test.name, opposite,
							kind, i, want.addr, got, want.refusedBy)
					}
					if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 200}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// A countedLimit is a slow and obviously right model of one limit: it has a number for each prefix.
type countedLimit struct {
	limit *fairshare.Limit
	count map[string]int64
}

// name returns what the limit counts a request under.
func (c *countedLimit) name(p *fairshare.Policy, req *fairshare.Request) string {
	if len(c.limit.By) == 0 || c.limit.By[0].Kind == fairshare.ByAddr {
		return "client " + p.Client(req.Addr).String()
	}
	switch part := c.limit.By[0]; part.Kind {
	case fairshare.ByVisitor:
		if req.Visitor.ID != 0 {
			return fmt.Sprint("visitor ", req.Visitor.ID)
		}
		return "client " + p.Client(req.Addr).String()
	default:
		bits4, bits6 := part.PrefixLengths()
		return "network " + network.Cut(req.Addr, bits4, bits6).String()
	}
}

// addrPolicy returns a policy with limits on requests and errors, by addresses and by networks in any order.
func addrPolicy(rnd *rand.Rand) *fairshare.Policy {
	p := &fairshare.Policy{IPv4Prefix: []int{0, 28, 32}[rnd.IntN(3)], IPv6Prefix: []int{0, 56, 128}[rnd.IntN(3)]}
	kinds := []fairshare.KeyPart{{Kind: fairshare.ByAddr}, {Kind: fairshare.ByNetwork}, {Kind: fairshare.ByVisitor},
		wide(16, 32), wide(26, 60), {Kind: fairshare.ByAddr}, {Kind: fairshare.ByNetwork}}
	for i := range 4 + rnd.IntN(6) {
		resource := []fairshare.Resource{fairshare.Requests, fairshare.Requests, fairshare.Errors}[rnd.IntN(3)]
		by := []fairshare.KeyPart{kinds[rnd.IntN(len(kinds))]}
		p.Rules = append(p.Rules, fairshare.Rule{Name: fmt.Sprint("limit ", i), Limit: &fairshare.Limit{
			Resource: resource, N: 1 + rnd.Int64N(80), Window: time.Hour, By: by}})
	}
	return p
}

// Requests of many clients in some networks pass as long as a count of each limit's prefix says so.
func TestLimitsOfManyClientsAgreeWithCounts(t *testing.T) {
	passed, refused := 0, 0
	for round := range uint64(60) {
		rnd := rand.New(rand.NewPCG(round, 15))
		p := addrPolicy(rnd)
		guards := addrGuards(t, p)
		delete(guards, "model") // it is slow
		var limits []countedLimit
		for i := range p.Rules {
			limits = append(limits, countedLimit{p.Rules[i].Limit, map[string]int64{}})
		}
		for step := range 400 {
			req := fairshare.Request{Time: start, Method: "GET", Path: "/"}
			switch low := byte(rnd.IntN(3) * 17); rnd.IntN(4) {
			case 0:
				req.Addr = netip.AddrFrom4([4]byte{10, byte(rnd.IntN(2)), byte(rnd.IntN(2)), low})
			case 1: // the same clients
				req.Addr = netip.AddrFrom16([16]byte{10: 0xFF, 0xFF, 10, byte(rnd.IntN(2)), byte(rnd.IntN(2)), low})
			default:
				req.Addr = netip.AddrFrom16([16]byte{0x20, 1, 0xD, 0xB8, 5: byte(rnd.IntN(2)), 7: low,
					15: byte(rnd.IntN(2))})
			}
			if rnd.IntN(5) == 0 {
				req.Visitor.ID = 1 + rnd.Uint64N(3)
			}
			status := []int{200, 404}[rnd.IntN(2)]
			want := true
			for i := range limits {
				want = want && limits[i].count[limits[i].name(p, &req)] < limits[i].limit.N
			}
			for i := range limits {
				if want && (limits[i].limit.Resource == fairshare.Requests || status == 404) {
					limits[i].count[limits[i].name(p, &req)]++
				}
			}
			for kind, g := range guards {
				if got := visit(t, g, req, status); got != want {
					t.Fatalf("round %d, %s, request %d of %v: it passes: %v, want %v", round, kind, step, req.Addr, got,
						want)
				}
			}
			if want {
				passed++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d requests passed, %d were refused", passed, refused)
	if min(passed, refused) < 1000 {
		t.Errorf("only %d requests passed, and %d were refused", passed, refused)
	}
}
