package share

import (
	"net/netip"
	"testing"

	"fairshare"
	"fairshare/membans"
	"fairshare/memlimit"
)

// A fleet is one node above its networks. Other clients, and members that got no page yet, have the
// levels that they have without fleets.
func TestClaimOfAFleet(t *testing.T) {
	policy := &fairshare.Policy{}
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(policy, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	q := New(Options{Capacity: 1, Key: guard.AppendKey, By: []fairshare.KeyPart{{Kind: fairshare.ByFleet},
		{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr}}})
	of := func(addr, fleet string, isNew bool) Claim {
		return q.Claim(&fairshare.Request{Addr: netip.MustParseAddr(addr), Fleet: fleet, FleetNew: isNew})
	}
	member, fellow, other := of("192.0.2.1", "fleet-1", false), of("203.0.113.1", "fleet-1", false),
		of("192.0.2.1", "fleet-2", false)
	if member.depth != 3 || member.keys[0] != fellow.keys[0] || member.keys[1] == fellow.keys[1] ||
		member.keys[0] == other.keys[0] {
		t.Errorf("two members of a fleet and one of another: %+v, %+v, %+v", member, fellow, other)
	}
	reader, neighbor, newcomer := of("198.51.100.1", "", false), of("198.51.100.2", "", false),
		of("198.51.100.3", "fleet-1", true)
	if reader.depth != 2 || reader.keys[0] != neighbor.keys[0] || reader.keys[1] == neighbor.keys[1] ||
		reader.keys[0] != newcomer.keys[0] || newcomer.depth != 2 {
		t.Errorf("three clients of a network outside fleets: %+v, %+v, %+v", reader, neighbor, newcomer)
	}
}
