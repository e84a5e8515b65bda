package fairshare_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairshare"
)

// pagesLimit returns a limit of n pages a minute.
func pagesLimit(n int64, by ...fairshare.KeyPart) *fairshare.Limit {
	l := requests(n, time.Minute, by...)
	l.Count = fairshare.Pages
	return l
}

func pagesGuard(t testing.TB, change func(*fairshare.Rule)) *fairshare.Guard {
	rule := fairshare.Rule{Name: "pages", Limit: pagesLimit(2)}
	if change != nil {
		change(&rule)
	}
	return newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{rule}})
}

// opening is the request of a browser that opens a page.
func opening(addr, target string) fairshare.Request {
	return with(asking(addr, target), "Accept", "text/html,application/xhtml+xml", "Sec-Fetch-Dest", "document")
}

func posting(addr, target string) fairshare.Request {
	req := asking(addr, target)
	req.Method = "POST"
	return req
}

const ms = time.Millisecond

func TestPageCountsWithItsParts(t *testing.T) {
	script := with(asking(alice, "/api/items"), "Sec-Fetch-Dest", "empty", "Accept", "*/*")
	frame := with(asking(alice, "/video"), "Sec-Fetch-Dest", "iframe", "Accept", "text/html")
	old := with(asking(alice, "/thumb?id=1"), "Accept", "*/*") // without Sec-Fetch: over http
	play(t, pagesGuard(t, nil), []step{
		{0, opening(alice, "/"), 0, 0, "allow"},
		{100 * ms, asking(alice, "/a.css"), 0, 0, "allow"},
		{200 * ms, old, 0, 0, "allow"}, // the burst
		{300 * ms, script, 0, 0, "allow"},
		{400 * ms, frame, 0, 0, "allow"},
		{9 * time.Second, asking(alice, "/late.png"), 0, 0, "allow"},
		{9900 * ms, opening(alice, "/b"), 0, 0, "allow"},
		{10 * time.Second, asking(alice, "/b.png"), 0, 0, "allow"},
		{11 * time.Second, opening(alice, "/c"), 0, 0, "refuse pages 1m19s"},
		{11 * time.Second, asking(alice, "/c.png"), 0, 0, "allow"}, // of the page before
		{11500 * ms, old, 0, 0, "refuse pages 1m18.5s"},            // no burst any more
		{12 * time.Second, posting(alice, "/b.png"), 0, 0, "refuse pages 1m18s"},
		{12 * time.Second, asking(bob, "/b.png"), 0, 0, "allow"},                     // counts: bob has no page
		{25 * time.Second, asking(alice, "/b.png"), 0, 0, "refuse pages 1m5s"},       // the page is over
		{25 * time.Second, asking(bob, "/far-later.png"), 0, 0, "allow"},             // counts too
		{26 * time.Second, opening(bob, "/"), 0, 0, "refuse pages 1m4s"},             //
		{time.Hour, asking(alice, "/c.png"), 0, 0, "allow"},                          // counts
		{time.Hour + ms, posting(alice, "/c"), 0, 0, "allow"},                        // counts
		{time.Hour + 2*ms, posting(alice, "/c"), 0, 0, "refuse pages 1m29.998s"},     //
		{time.Hour + 3*time.Second, asking(alice, "/d.png"), 0, 0, "allow"},          // of the answer to the POST
		{time.Hour + 4*time.Second, asking(alice, "/e"), 0, 0, "refuse pages 1m26s"}, //
	})
}

// Whatever a client says of its requests, a limit of N lets N·(1+PageParts) pass.
func TestPagePartsAreBounded(t *testing.T) {
	g := pagesGuard(t, nil)
	passed := 0
	for i := range 1000 {
		req := with(asking(alice, fmt.Sprint("/catalogue/", i)), "Sec-Fetch-Dest", "image")
		if v := repeat(t, g, time.Duration(i)*20*ms, req, 1); v.Action == fairshare.Allow {
			passed++
		}
	}
	if want := 2 * (1 + fairshare.PageParts); passed != want {
		t.Errorf("%d requests passed, want %d", passed, want)
	}
}

// A page whose parts have used it is not refunded: otherwise redirects would open pages for free.
func TestRefundOfPages(t *testing.T) {
	refund := func(r *fairshare.Rule) { r.Refund = redirects }
	play(t, pagesGuard(t, refund), []step{
		{0, opening(alice, "/old"), 302, 0, "allow"}, // refunded
		{1 * time.Second, opening(alice, "/old"), 302, 0, "allow"},
		{2 * time.Second, opening(alice, "/new"), 0, 0, "allow"},
		{3 * time.Second, asking(alice, "/a.css"), 0, 0, "allow"},
		{4 * time.Second, opening(alice, "/old"), 302, 0, "allow"},
		{5 * time.Second, opening(alice, "/new"), 0, 0, "allow"},
		{6 * time.Second, opening(alice, "/old"), 302, 0, "refuse pages 1m24s"},
	})
	g, passed := pagesGuard(t, refund), 0
	for i := range 1000 {
		req := with(asking(bob, fmt.Sprint("/catalogue/", i)), "Sec-Fetch-Dest", "image")
		if i%10 == 0 {
			req = posting(bob, "/old")
		}
		req.Time = start.Add(time.Duration(i) * 20 * ms)
		v, err := g.Decide(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if v.Action == fairshare.Allow {
			passed++
		}
		if i%10 != 0 || i%20 == 10 { // every second redirect ends after its parts
			continue
		}
		if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: req.Time, Status: 302}); err != nil {
			t.Fatal(err)
		}
	}
	if most := 2 * (1 + fairshare.PageParts) * 2; passed > most {
		t.Errorf("%d requests passed, want at most %d", passed, most)
	}
}

// A refused request changes no counter: it neither begins a page nor uses one.
func TestRefusedPartsAreGivenBack(t *testing.T) {
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "pages", Limit: pagesLimit(1)},
		{Name: "images", Match: fairshare.Match{Path: []string{"*.png"}}, Limit: requests(1, time.Hour)},
		{Name: "no maps", Match: fairshare.Match{Path: []string{"*.map"}}, Action: fairshare.Block},
		{Name: "dry pages", Limit: pagesLimit(1), DryRun: true},
		{Name: "dry scripts", Match: fairshare.Match{Path: []string{"*.js"}}, Limit: requests(1, time.Hour),
			DryRun: true},
	}})
	steps := []step{{0, opening(alice, "/"), 0, 0, "allow"}, {0, asking(alice, "/a.png"), 0, 0, "allow"},
		{0, asking(alice, "/a.js"), 0, 0, "allow"}}
	for range 300 {
		steps = append(steps, step{0, asking(alice, "/a.png"), 0, 0, "refuse images 2h0m0s"},
			step{0, asking(alice, "/a.map"), 0, 0, "block no maps"})
	}
	for range fairshare.PageParts - 2 {
		steps = append(steps, step{0, asking(alice, "/a.css"), 0, 0, "allow"})
	}
	steps = append(steps, step{0, asking(alice, "/a.css"), 0, 0, "refuse pages 2m0s"})
	play(t, g, steps)
}

// A limit that clients share, with newcomers, counts pages for both.
func TestPagesOfNewcomers(t *testing.T) {
	g := pagesGuard(t, func(r *fairshare.Rule) {
		r.Limit = pagesLimit(1, fairshare.KeyPart{Kind: fairshare.ByNetwork})
		r.Limit.Newcomers = pagesLimit(1)
	})
	play(t, g, []step{
		{0, opening(bob, "/"), 0, 0, "allow"},
		{11 * time.Second, opening(alice, "/"), 0, 0, "allow"}, // as a newcomer
		{12 * time.Second, asking(alice, "/a.css"), 0, 0, "allow"},
		{13 * time.Second, asking(alice, "/b.css"), 0, 0, "allow"},
		{14 * time.Second, opening(alice, "/b"), 0, 0, "refuse pages 1m46s"},
		{15 * time.Second, asking(alice, "/c.css"), 0, 0, "allow"},
		{22 * time.Second, asking(alice, "/d.css"), 0, 0, "refuse pages 1m38s"},
	})
}

// All provisional clients of a peer have a ceiling, which counts pages too.
func TestPagesOfProvisionalClients(t *testing.T) {
	g := pagesGuard(t, nil)
	part := through(nginx, alice)
	part.SetTarget("/a.css")
	play(t, g, []step{
		{0, through(nginx, alice), 0, 0, "allow"},
		{0, part, 0, 0, "allow"},
		{2 * time.Second, through(nginx, alice), 0, 0, "allow"},
		{4 * time.Second, through(nginx, alice), 0, 0, "refuse pages 1m26s"},
		{4 * time.Second, part, 0, 0, "allow"},
	})
	g = memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "pages", Limit: pagesLimit(2)}}})
	passed := 0
	for i := range 1000 {
		req := through(gateway, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String())
		req.Method = "POST"
		if v := repeat(t, g, 5*time.Second, req, 1); v.Action == fairshare.Allow {
			passed++
		}
	}
	if passed != 2*256 {
		t.Errorf("%d provisional clients passed, want 512", passed)
	}
}

// A limit of pages decides as one of requests from which the parts are taken out.
func TestPagesAgainstAModel(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and in one goroutine")
	}
	type last struct {
		began time.Duration
		parts int
	}
	rng := rand.New(rand.NewPCG(15, 3))
	counting := pagesGuard(t, func(r *fairshare.Rule) { r.Limit.N = 5 })
	plain := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "pages", Limit: requests(5, time.Minute)}}})
	lasts := map[string]*last{}
	targets := []string{"/", "/a", "/a.css", "/b.js", "/c.json", "/d.png"}
	var now time.Duration
	covered := 0
	for range 10_000 {
		if rng.IntN(12) == 0 {
			now += time.Duration(rng.IntN(16*5)) * time.Second / 16
		}
		addr := fmt.Sprintf("192.0.2.%d", rng.IntN(4))
		target := targets[rng.IntN(len(targets))]
		req := asking(addr, target)
		part, limit := target != "/" && target != "/a", 10*time.Second
		switch rng.IntN(8) {
		case 0:
			req, part = opening(addr, target), false
		case 1:
			req, part = posting(addr, target), false
		case 2:
			req = with(req, "Accept", "text/html") // an extension comes first
		default:
			if !part {
				part, limit = true, time.Second
			}
		}
		l := lasts[addr]
		want := fairshare.Allow
		if part && l != nil && l.parts < fairshare.PageParts && now-l.began < limit {
			l.parts++
			covered++
		} else if want = repeat(t, plain, now, req, 1).Action; want == fairshare.Allow {
			if l == nil || l.began != now {
				l = &last{began: now}
				lasts[addr] = l
			}
		}
		if got := repeat(t, counting, now, req, 1); got.Action != want {
			t.Fatalf("at %v, %s %s of %s: %s, want %s", now, req.Method, target, addr, got.Action, want)
		}
	}
	if covered < 500 {
		t.Errorf("only %d requests were parts of pages", covered)
	}
}

// Requests at the same time do not use a page more often than allowed.
func TestPagePartsAreBoundedConcurrently(t *testing.T) {
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "pages", Limit: pagesLimit(2)}}})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				req := with(asking(alice, fmt.Sprint("/", i)), "Sec-Fetch-Dest", "image")
				req.Time = start
				v, err := g.Decide(t.Context(), &req)
				if err != nil {
					t.Error(err)
					return
				}
				if v.Action == fairshare.Allow {
					passed.Add(1)
				}
				if err := g.Settle(t.Context(), &v, fairshare.Outcome{Time: start, Status: 302}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most := int64(2 * (1 + fairshare.PageParts)); passed.Load() > most || passed.Load() < fairshare.PageParts {
		t.Errorf("%d requests passed, want at most %d", passed.Load(), most)
	}
}
