package fairshare_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairshare"
)

// seenGuard returns a guard with n lists of seen. The list i has the page "/page/i" and those below it. A POST to
// "/form/i", or below it, is blocked if its client has not seen the list i. The guard remembers
// paths, as in all larger policies.
func seenGuard(t *testing.T, n int) *fairshare.Guard {
	rules := []fairshare.Rule{{Name: "search", Match: fairshare.Match{Path: []string{"*search*"}},
		Limit: requests(1000, time.Hour)}}
	for i := range n {
		rules = append(rules, fairshare.Rule{Name: fmt.Sprint("unseen ", i), Action: fairshare.Block,
			Match: fairshare.Match{Method: []string{"POST"},
				Path: []string{fmt.Sprint("/form/", i), fmt.Sprintf("/form/%d/*", i)},
				Not:  []fairshare.Match{{Seen: []string{fmt.Sprint("/page/", i), fmt.Sprintf("/page/%d/*", i)}}}}})
	}
	return memoryGuard(t, rules...)
}

// visit sends a request and settles it, and reports whether it passed.
func visit(t *testing.T, g *fairshare.Guard, req fairshare.Request, status int) bool {
	t.Helper()
	return judged(t, g, 1, req, settles(t, g, fairshare.Outcome{Time: req.Time, Status: status})) == 1
}

// Each client has seen what was shown to it, even if other clients have asked for the same page before.
func TestAPageCountsForEachClientThatHasSeenIt(t *testing.T) {
	const lists = 64
	for _, list := range []int{0, 1, 31, 62, 63} {
		page, form := fmt.Sprint("/page/", list), fmt.Sprint("/form/", list)
		for _, test := range []struct {
			name   string
			visits []string // of the page, in turn
			seen   []string
			unseen []string
		}{
			{"nobody", nil, nil, []string{alice, bob, carol}},
			{"the first", []string{alice}, []string{alice}, []string{bob, carol}},
			{"the first, twice", []string{alice, alice}, []string{alice}, []string{bob, carol}},
			{"the first and another", []string{alice, bob}, []string{alice, bob}, []string{"192.0.2.3", carol}},
			{"IPv4, then IPv6", []string{alice, carol}, []string{alice, carol}, []string{bob, "2001:db8:0:1::1"}},
			{"IPv6, then IPv4", []string{carol, alice}, []string{carol, alice, "2001:db8::2"}, []string{bob}},
			{"IPv4-mapped", []string{bob, "::ffff:192.0.2.1"}, []string{alice, bob, "::ffff:192.0.2.2"},
				[]string{"::ffff:192.0.2.3"}},
			{"three", []string{alice, bob, carol, bob}, []string{alice, bob, carol}, []string{"192.0.3.1"}},
		} {
			g := seenGuard(t, lists)
			for _, addr := range test.visits {
				if !visit(t, g, arriving(addr, "GET", page, 0), 200) {
					t.Fatalf("%s: the page is refused", test.name)
				}
			}
			for i, addrs := range [][]string{test.unseen, test.seen} {
				for _, addr := range addrs {
					if got, want := visit(t, g, arriving(addr, "POST", form, time.Minute), 200), i == 1; got != want {
						t.Errorf("%s, list %d: %s has seen the page: %v, want %v", test.name, list, addr, got, want)
					}
				}
			}
			if other := fmt.Sprint("/form/", (list+1)%lists); visit(t, g, arriving(alice, "POST", other, 0), 200) {
				t.Errorf("%s, list %d: a client has seen the page of the next list", test.name, list)
			}
		}
	}
}

// Only an answer with a page to a GET shows it, also if the path was asked for before.
func TestOnlyAnswersShowPages(t *testing.T) {
	for _, test := range []struct {
		method, target string
		status         int
		want           bool
	}{
		{"GET", "/page/1", 200, true},
		{"GET", "/page/1?x=1", 200, true},
		{"GET", "/page/1", 304, true},
		{"GET", "/page/1", 302, false},
		{"GET", "/page/1", 404, false},
		{"GET", "/page/1", 0, false},
		{"HEAD", "/page/1", 200, false},
		{"POST", "/page/1", 200, false},
		{"GET", "/page%2F1", 200, false}, // an odd path
		{"GET", "/page/2", 200, false},
		{"GET", "/page/", 200, false},
	} {
		g := seenGuard(t, 3)
		for _, addr := range []string{alice, bob, alice} {
			visit(t, g, arriving(addr, test.method, test.target, 0), test.status)
		}
		for _, addr := range []string{alice, bob} {
			if got := visit(t, g, arriving(addr, "POST", "/form/1", 0), 200); got != test.want {
				t.Errorf("%s %s, %d: %s has seen the page: %v, want %v", test.method, test.target, test.status, addr,
					got, test.want)
			}
		}
	}
}

// A request that is refused shows nothing, and neither does the next request of another path.
func TestRefusedRequestsShowNothing(t *testing.T) {
	rules := []fairshare.Rule{
		{Name: "one page", Match: fairshare.Match{Method: []string{"GET"}}, Limit: requests(1, time.Hour)},
		{Name: "a", Match: fairshare.Match{Path: []string{"*a*b*", "/none"}}, Limit: requests(1000, time.Hour)},
		{Name: "b", Match: fairshare.Match{Path: []string{"/blocked*"}}, Action: fairshare.Block},
		{Name: "unseen", Action: fairshare.Block, Match: fairshare.Match{Method: []string{"POST"},
			Not: []fairshare.Match{{Seen: []string{"/page", "/blocked"}}}}},
	}
	g := memoryGuard(t, rules...)
	if !visit(t, g, arriving(bob, "GET", "/page", 0), 200) { // remembers the path
		t.Fatal("the first page is refused")
	}
	visit(t, g, arriving(alice, "GET", "/blocked", 0), 200)
	if !visit(t, g, arriving(alice, "GET", "/other", 0), 200) {
		t.Fatal("the first page is refused")
	}
	if visit(t, g, arriving(alice, "GET", "/page", 0), 200) {
		t.Fatal("the second page passes")
	}
	if visit(t, g, arriving(alice, "POST", "/form", 0), 200) {
		t.Error("a client has seen a page that was refused")
	}
	if !visit(t, g, arriving(bob, "POST", "/form", 0), 200) {
		t.Error("a client has not seen its page")
	}
}

// What clients have seen agrees with a map, over many requests of several clients in a few networks.
func TestSeenThroughRequestsAgreesWithAMap(t *testing.T) {
	type fact struct {
		client, via string
		list        int
	}
	clients := []string{"192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8::1", "2001:db8:0:1::1", "2001:db9::1"}
	others := map[string]string{"192.0.2.1": "::ffff:192.0.2.1", "2001:db8::1": "2001:db8::2"} // of the same client
	for seed, n := range []int{2, 3, 63, 64} {
		rnd := rand.New(rand.NewPCG(uint64(seed), 14))
		g := seenGuard(t, n)
		shown := map[fact]time.Duration{}
		passed, at := 0, time.Duration(0)
		for step := range 4000 {
			at += time.Duration(rnd.IntN(60)) * 16 * time.Second
			f := fact{client: clients[rnd.IntN(len(clients))], list: []int{0, n / 2, n - 1}[rnd.IntN(3)]}
			addr, via := f.client, netip.Addr{}
			if other, ok := others[addr]; ok && rnd.IntN(2) == 0 {
				addr = other
			}
			if rnd.IntN(4) == 0 {
				f.via = "10.0.0.1"
				via = netip.MustParseAddr(f.via)
			}
			if rnd.IntN(20) == 0 {
				status := []int{200, 200, 206, 304, 404, 500}[rnd.IntN(6)]
				req := arriving(addr, []string{"GET", "GET", "HEAD"}[rnd.IntN(3)], fmt.Sprint("/page/", f.list), at)
				if req.Via = via; !visit(t, g, req, status) {
					t.Fatalf("step %d: the page is refused", step)
				}
				if req.Method == "GET" && status < 400 {
					shown[f] = at
				}
				continue
			}
			req := arriving(addr, "POST", fmt.Sprint("/form/", f.list), at)
			req.Via = via
			when, known := shown[f]
			want := known && at-when <= 24*time.Hour
			if got := visit(t, g, req, 200); got != want {
				t.Fatalf("step %d, %d lists: %s via %q has seen the page of list %d: %v, want %v", step, n, addr, f.via,
					f.list, got, want)
			}
			if want {
				passed++
			}
		}
		if passed < 200 || passed > 3500 {
			t.Errorf("%d of 4000 requests passed", passed)
		}
	}
}

// The same holds while many clients ask for more pages than are remembered.
func TestSeenByClientsAtTheSameTime(t *testing.T) {
	const lists = 63 // all of which are remembered
	g := seenGuard(t, lists)
	var wg sync.WaitGroup
	for client := range byte(8) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(client), 16))
			addr := netip.AddrFrom4([4]byte{10, client % 4, 0, client}).String()
			var shown [lists]bool
			for step := range 3000 {
				page := fmt.Sprint("/other/", rnd.IntN(2000))
				if step > rnd.IntN(10_000) {
					list := []int{0, 1, 30, 61, 62}[rnd.IntN(5)]
					page, shown[list] = fmt.Sprintf("/page/%d/%d", list, rnd.IntN(400)), true
				}
				if !visit(t, g, arriving(addr, "GET", page, 0), 200) {
					t.Error("a page is refused")
					return
				}
				list := []int{0, 1, 2, 30, 60, 61, 62}[rnd.IntN(7)]
				form := fmt.Sprintf("/form/%d/%d", list, rnd.IntN(200))
				if got := visit(t, g, arriving(addr, "POST", form, 0), 200); got != shown[list] {
					t.Errorf("step %d: the client %s has seen the page of list %d: %v, want %v", step, addr, list, got,
						shown[list])
					return
				}
			}
		})
	}
	wg.Wait()
}
