package fairshare_test

import (
	"testing"
	"time"

	"fairshare"
)

var (
	hosting = fairshare.Owner{ASN: 64500, Name: "Example Hosting", Type: "hosting"}
	telecom = fairshare.Owner{ASN: 64501, Name: "Example Telecom"}
)

// owned returns a request whose owner is known.
func owned(req fairshare.Request, owner fairshare.Owner) fairshare.Request {
	req.Owner = owner
	return req
}

func TestMatchASN(t *testing.T) {
	for _, c := range []struct {
		texts []string
		owner fairshare.Owner
		want  bool
	}{
		{[]string{"AS64500"}, hosting, true},
		{[]string{"as64500"}, hosting, true},
		{[]string{"7", "64500"}, hosting, true},
		{[]string{"AS6450"}, hosting, false},
		{[]string{"Hosting"}, hosting, true},
		{[]string{"hosting"}, telecom, false},
		{[]string{"example hosting"}, hosting, true},
		{[]string{"example"}, hosting, false},
		{[]string{"*TELE*"}, telecom, true},
		{[]string{"re:^Example"}, telecom, true},
		{[]string{"re:^example"}, telecom, false},
		{[]string{"*"}, telecom, true},
		{[]string{"*"}, fairshare.Owner{}, false}, // nobody is known
		{[]string{}, telecom, false},
	} {
		if got := holdsFor(t, fairshare.Match{ASN: c.texts}, owned(from(alice), c.owner)); got != c.want {
			t.Errorf("asn %q for %v: %v, want %v", c.texts, c.owner, got, c.want)
		}
	}
}

// The owner of an address that a peer has named counts in restrictions only.
func TestOwnerOfAProvisionalAddressGivesNoPermission(t *testing.T) {
	match := fairshare.Match{ASN: []string{"hosting"}}
	allowing := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "hosting", Match: match, Action: fairshare.Allow},
		{Name: "none", Action: fairshare.Block},
	}}
	blocking := fairshare.Policy{Rules: []fairshare.Rule{{Name: "hosting", Match: match, Action: fairshare.Block}}}
	for _, c := range []struct {
		policy fairshare.Policy
		req    fairshare.Request
		want   string
	}{
		{allowing, from(alice), "allow"},
		{allowing, through(nginx, alice), "block none"},
		{blocking, from(alice), "block hosting"},
		{blocking, through(nginx, alice), "block hosting"},
		{blocking, unnamed(nginx), "allow"},
	} {
		play(t, newGuard(t, c.policy), []step{{0, owned(c.req, hosting), 0, 0, c.want}})
	}
}

func TestLimitByASN(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "limit",
		Limit: requests(1, time.Hour, fairshare.KeyPart{Kind: fairshare.ByASN})}}})
	play(t, g, []step{
		{0, owned(from("10.1.2.3"), hosting), 0, 0, "allow"},
		{0, owned(from("2001:db8::1"), hosting), 0, 0, "refuse limit 2h0m0s"}, // another address of the owner
		{0, owned(from("10.1.2.4"), telecom), 0, 0, "allow"},
		{0, from("10.1.2.5"), 0, 0, "allow"}, // without an owner it counts by its network
		{0, from("10.1.2.6"), 0, 0, "refuse limit 2h0m0s"},
		{0, from("10.1.3.6"), 0, 0, "allow"},
		{0, owned(through(nginx, "10.1.3.7"), hosting), 0, 0, "allow"}, // so does a provisional address
		{0, owned(through(nginx, "10.1.3.8"), hosting), 0, 0, "refuse limit 2h0m0s"},
		{0, owned(through(nginx, "10.1.4.8"), hosting), 0, 0, "allow"},
	})
}

func TestOwnersCostNoAllocation(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "ceiling", Limit: requests(1<<20, time.Hour)},
		{Name: "fleets", Match: fairshare.Match{ASN: []string{"AS7", "hosting", "*cloud*"}},
			Limit: requests(1<<20, time.Hour, fairshare.KeyPart{Kind: fairshare.ByASN})},
	}}
	g := memGuard(t, policy)
	req := owned(from(alice), hosting)
	req.Time = start
	pass(t, g, &req)
	if n := testing.AllocsPerRun(1000, func() { pass(t, g, &req) }); n != 0 && !raceDetector {
		t.Errorf("%v allocations a request", n)
	}
}

func BenchmarkDecideByOwner(b *testing.B) {
	by := []fairshare.KeyPart{{Kind: fairshare.ByASN}}
	for name, match := range map[string]fairshare.Match{"number": {ASN: []string{"AS64500"}},
		"type": {ASN: []string{"hosting"}}, "name": {ASN: []string{"*hosting"}}, "none": {}} {
		b.Run(name, func(b *testing.B) {
			rules := []fairshare.Rule{{Name: "ceiling", Limit: requests(1<<27, time.Hour)}}
			if match.ASN != nil {
				rules = append(rules, fairshare.Rule{Name: "fleets", Match: match,
					Limit: requests(1<<27, time.Hour, by...)})
			}
			g := memGuard(b, fairshare.Policy{Rules: rules})
			req := owned(from(alice), hosting)
			b.ReportAllocs()
			for b.Loop() {
				req.Time = start
				pass(b, g, &req)
			}
		})
	}
}
