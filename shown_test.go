package fairshare

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"
)

// shownPaths are paths of requests, among them such as fit several lists, and odd ones.
var shownPaths = []string{"/", "/a", "/A", "/a/", "/a/b.css", "/a/B.CSS", "/login", "/x/login", "/x/y/login", "/list/1",
	"/list/2", "/list/", "/zone/end", "/%C3%84/x", "/%C3%A4/x", "/a/%2e%2e/b", "/a%2Fb", "*"}

// seenLists returns n different lists of pages. Some of them fit many of shownPaths, and others none. The last place
// has often shown something.
func seenLists(rnd *rand.Rand, n int) (lists [][]string) {
	for i := range n {
		list := []string{fmt.Sprint("/only/", i)}
		if n < 5 || i == n-1 || rnd.IntN(3) == 0 {
			list = append(list, some(rnd, "/", "/a", "*.css", "*/login", "/list/*", "*o*e*", "*", "re:^/x", "/Ä/*")...)
		}
		lists = append(lists, list)
	}
	return lists
}

// shownPolicy returns a policy with these lists. Its index remembers paths, unless it has few rules.
func shownPolicy(rnd *rand.Rand, lists [][]string) *Policy {
	p := &Policy{FoldPaths: rnd.IntN(3) == 0}
	if rnd.IntN(3) == 0 {
		p.Sites = []Site{{Name: "a", Hosts: []string{"a.example"}, OwnRules: true},
			{Name: "b", Hosts: []string{"b.example"}, OwnRules: true}}
	}
	add := func(m Match, action Action) {
		r := Rule{Name: fmt.Sprint("rule ", len(p.Rules)), Match: m, Action: action}
		if len(p.Sites) > 0 && rnd.IntN(3) == 0 {
			r.Site = pick(rnd, "a", "b")
		}
		if action == Undecided {
			r.Limit = &Limit{Resource: Requests, N: 1, Window: time.Minute}
		}
		p.Rules = append(p.Rules, r)
	}
	for _, list := range lists {
		add(Match{Path: []string{"/form"}, Seen: list}, Undecided)
	}
	for range pick(rnd, 1, 6) {
		add(Match{Path: some(rnd, "*a*b*", "*o*e*", "/a", "*.css", "*ist*"), Method: some(rnd, "GET", "POST", "HEAD")},
			pick(rnd, Undecided, Undecided, Undecided, Undecided, Allow, Block))
	}
	return p
}

// What a request shows to its client agrees with a search in all lists, whether its path is a new one or remembered,
// and whatever the decision was used for before.
func TestShownPlacesAgreeWithASearch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(12, 13))
	at := time.Unix(1_800_000_000, 0)
	remembered, last, none := 0, 0, 0 // of requests with a remembered path
	for round := range 150 {
		n := pick(rnd, 1, 2, 5, maxSeen-1, maxSeen)
		p := shownPolicy(rnd, seenLists(rnd, n))
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.seen) != n {
			t.Fatalf("%d lists, want %d", len(g.seen), n)
		}
		for range 100 {
			req := &Request{Time: at, Addr: keyAddr(rnd),
				Method: pick(rnd, "GET", "GET", "GET", "HEAD", "POST", "BREW"),
				Host:   pick(rnd, "a.example", "b.example", "other"), UserAgent: pick(rnd, "curl", "Mozilla")}
			req.SetTarget(pick(rnd, shownPaths...) + pick(rnd, "", "", "?x=1"))
			if rnd.IntN(4) == 0 {
				g.MatchEarly(req)
			}
			d := g.decisions.New().(*decision)
			d.reset(req, at)
			known := uint64(0)
			if x := d.set.index; x.salt != 0 && req.early.policy == nil && len(d.set.rules) >= fewRules {
				known, _ = g.paths.get(maphash.String(g.seed, req.Path) ^ x.salt)
			}
			want := uint64(0)
			v, err := g.Decide(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			if v.Action == Allow && req.Method == "GET" && !req.OddPath {
				for i := range g.seen {
					if g.seen[i].paths.match(&decision{guard: g}, req.Path) {
						want |= 1 << i
					}
				}
			}
			if got := v.d.shows; got != want {
				t.Fatalf("round %d, %d lists, %s %s: the places are %#x, want %#x", round, n, req.Method, req.Path,
					got, want)
			}
			if known != 0 && v.Action == Allow && req.Method == "GET" {
				remembered++
				last += int(want >> (maxSeen - 1))
				if want == 0 {
					none++
				}
			}
			if err := g.Settle(context.Background(), &v, Outcome{Time: at, Status: 200}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d remembered paths, %d of which show the last place and %d nothing", remembered, last, none)
	if remembered < 1000 || last < 100 || none < 100 {
		t.Errorf("only %d remembered paths, %d of which show the last place and %d nothing", remembered, last, none)
	}
}
