package fairshare_test

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// judged returns how many of n requests pass; what each of them does next is
// up to then.
func judged(t *testing.T, g *fairshare.Guard, n int, req fairshare.Request,
	then func(*fairshare.Verdict)) (passed int) {
	t.Helper()
	for range n {
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if v.Action == fairshare.Allow {
			passed++
			then(&v)
		}
	}
	return passed
}

func settles(t *testing.T, g *fairshare.Guard, out fairshare.Outcome) func(*fairshare.Verdict) {
	return func(v *fairshare.Verdict) {
		t.Helper()
		if err := g.Settle(t.Context(), v, out); err != nil {
			t.Fatal(err)
		}
	}
}

func memoryGuard(t *testing.T, rules ...fairshare.Rule) *fairshare.Guard {
	t.Helper()
	g, err := memlimit.NewGuard(&fairshare.Policy{Rules: rules}, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func arriving(addr, method, target string, at time.Duration) fairshare.Request {
	req := fairshare.Request{Time: start.Add(at), Addr: netip.MustParseAddr(addr), Method: method}
	req.SetTarget(target)
	return req
}

// A client that stalls its requests, so that they have cost nothing yet, may
// not have more and more of them in progress.
func TestStalledRequestsKeepHolding(t *testing.T) {
	for _, resource := range []fairshare.Resource{fairshare.Bytes, fairshare.CPU, fairshare.Time} {
		g := memoryGuard(t, fairshare.Rule{Name: "r", Limit: &fairshare.Limit{Resource: resource, N: 64 << 20,
			Window: time.Minute}})
		passed := 0
		for i := range 100 {
			req := arriving("192.0.2.1", "GET", "/", time.Duration(i)*time.Second)
			out := fairshare.Outcome{Time: req.Time, Part: fairshare.SettleSoFar}
			passed += judged(t, g, 20, req, settles(t, g, out))
		}
		if passed < 16 || passed > 16*8 {
			t.Errorf("%s: %d stalled requests in progress, want 16 to 128", resource, passed)
		}
	}
}

// The long polls of an office hold no error once the upstream has worked on
// them for a while. Posts that their clients can still delay do.
func TestLongPollsHoldNoErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		whole bool
		took  time.Duration
		want  int
	}{
		{"young", true, 4 * time.Second, 10},
		{"long polls", true, 6 * time.Second, 60},
		{"slow posts", false, 6 * time.Second, 10},
	} {
		g := memoryGuard(t, fairshare.Rule{Name: "r", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 10,
			Window: time.Minute}})
		out := fairshare.Outcome{Time: start, Took: c.took, Whole: c.whole, Bytes: -1, CPU: -1,
			Part: fairshare.SettleSoFar}
		if got := judged(t, g, 60, arriving("192.0.2.1", "GET", "/poll", 0), settles(t, g, out)); got != c.want {
			t.Errorf("%s: %d of 60 in progress, want %d", c.name, got, c.want)
		}
	}
}

// A request that costs ten times what a network may spend leaves room for the
// other clients of that network, an hour later.
func TestExpensiveRequestLeavesRoomForOtherClients(t *testing.T) {
	g := memoryGuard(t, fairshare.Rule{Name: "r", Limit: &fairshare.Limit{
		Resource: fairshare.Time, N: 30_000_000, Window: time.Minute,
		By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}},
	}})
	judged(t, g, 1, arriving("192.0.2.1", "GET", "/", 0),
		settles(t, g, fairshare.Outcome{Time: start, Status: 200, Took: 5 * time.Minute}))
	later := arriving("192.0.2.77", "GET", "/", time.Hour)
	if got := judged(t, g, 40, later, func(*fairshare.Verdict) {}); got < 30 {
		t.Errorf("%d requests of other clients in progress, want at least 30", got)
	}
}

// What a client has seen outlives the visits of its neighbours.
func TestNeighboursDoNotDisplaceWhatAClientHasSeen(t *testing.T) {
	g := memoryGuard(t, fairshare.Rule{Name: "unseen", Match: fairshare.Match{
		Method: []string{"POST"}, Not: []fairshare.Match{{Seen: []string{"*"}}},
	}, Action: fairshare.Block})
	addr := func(i int) string { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String() }
	const clients = 100
	for i := range clients {
		judged(t, g, 1, arriving(addr(i), "GET", "/login", 0),
			settles(t, g, fairshare.Outcome{Time: start, Status: 200}))
	}
	known := 0
	for i := range clients {
		known += judged(t, g, 1, arriving(addr(i), "POST", "/login", time.Minute), func(*fairshare.Verdict) {})
	}
	if known != clients {
		t.Errorf("%d of %d clients of one network have seen the page", known, clients)
	}
	if judged(t, g, 1, arriving("192.0.2.200", "POST", "/login", time.Minute), func(*fairshare.Verdict) {}) != 0 {
		t.Error("a client that has seen nothing passed")
	}
}

// A client that sends requests during its ban is a newcomer afterwards.
func TestRequestsDuringABanGiveNoStanding(t *testing.T) {
	g := memoryGuard(t,
		fairshare.Rule{Name: "new", Match: fairshare.Match{Path: []string{"/new"}}, Limit: &fairshare.Limit{
			Resource: fairshare.Requests, N: 1, Window: 24 * time.Hour,
			By:        []fairshare.KeyPart{{Kind: fairshare.ByEveryone}},
			Newcomers: &fairshare.Limit{Resource: fairshare.Requests, Window: 24 * time.Hour},
		}},
		fairshare.Rule{Name: "ban", Match: fairshare.Match{Path: []string{"/bad"}}, Limit: &fairshare.Limit{
			Resource: fairshare.Requests, N: 1, Window: time.Minute,
		}, Ban: &fairshare.BanTerms{After: 1, For: time.Hour}})
	pass := func(addr, path string, at time.Duration) bool {
		return judged(t, g, 1, arriving(addr, "GET", path, at), func(*fairshare.Verdict) {}) == 1
	}
	pass("192.0.2.9", "/new", 0)
	pass("192.0.2.1", "/bad", time.Second)
	for at := 2 * time.Second; at < time.Hour; at += 20 * time.Second {
		if pass("192.0.2.1", "/bad", at) {
			t.Fatalf("passed after %v", at)
		}
	}
	if pass("192.0.2.1", "/new", 65*time.Minute) {
		t.Error("the client has standing after its ban")
	}
}
