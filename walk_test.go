package fairshare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// noLimiter lets every take pass.
type noLimiter struct{}

func (noLimiter) Take(_ context.Context, _ time.Time, _ []Take, tallies []Tally) error {
	clear(tallies)
	return nil
}

func (noLimiter) Settle(context.Context, time.Time, []Charge) error { return nil }

func pick[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

// some returns one to three elements.
func some[T any](rnd *rand.Rand, of ...T) (chosen []T) {
	for range 1 + rnd.IntN(3) {
		chosen = append(chosen, pick(rnd, of...))
	}
	return chosen
}

func randomMatch(rnd *rand.Rand, depth int) (m Match) {
	if rnd.IntN(2) == 0 {
		m.Method = some(rnd, "GET", "post", "HEAD", "BREW", "re:^P", "PUT")
	}
	if rnd.IntN(2) == 0 {
		m.Path = some(rnd, "/", "/a", "/a/", "/a/b.css", "*.css", "*.git/config", "*/login", "*/a/login", "*/login/",
			"/a/*", "/b*/c", "*a*b*", "*", "re:^/a", "/Ä/*", "*.CSS", "")
	}
	if rnd.IntN(6) == 0 {
		m.Query = map[string][]string{pick(rnd, "x", "*"): some(rnd, "", "1", "*")}
	}
	if rnd.IntN(6) == 0 {
		m.Bot = some(rnd, "known", "verified", "forged", "search")
	}
	if rnd.IntN(6) == 0 {
		m.UserAgent = some(rnd, "curl", "", "Moz")
	}
	if rnd.IntN(6) == 0 {
		m.Referer = some(rnd, "none", "self", "own", "other")
	}
	if rnd.IntN(6) == 0 {
		m.Cookie = some(rnd, "none", "any", "a")
	}
	if rnd.IntN(20) == 0 {
		m.Addr = Prefixes{netip.MustParsePrefix(pick(rnd, "192.0.2.0/24", "198.51.100.0/24"))}
	}
	if rnd.IntN(4) == 0 && depth > 0 {
		m.Not = []Match{randomMatch(rnd, depth-1)}
	}
	return m
}

func randomPolicy(rnd *rand.Rand) *Policy {
	p := &Policy{FoldPaths: rnd.IntN(4) == 0}
	for i := range rnd.IntN(150) {
		r := Rule{Name: fmt.Sprint("rule ", i)}
		if r.Match = randomMatch(rnd, 1); i > 0 && rnd.IntN(3) == 0 {
			r.Match = p.Rules[i-1].Match
		}
		switch rnd.IntN(14) {
		case 12:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: MaxCrawlDelay, Algorithm: GCRA, CrawlDelay: true}
		case 13:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: time.Second, When: Busy}
		case 0:
			r.Action = Allow
		case 1:
			r.Action = Block
		case 2:
			r.Action, r.DryRun = Block, true
		default:
			r.Limit = &Limit{Resource: Requests, N: 1, Window: time.Second}
			r.Last = rnd.IntN(12) == 0
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

// The walk with the index applies the same rules as the plain walk.
func TestWalkAgreesWithPlainWalk(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	indexed := 0
	for range 300 {
		p := randomPolicy(rnd)
		g, err := NewGuard(p, noLimiter{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		busy := rnd.IntN(2) == 0
		g.UseBusy(func() bool { return busy })
		for range 100 {
			req := Request{Time: time.Unix(1_800_000_000, 0), Addr: netip.MustParseAddr("192.0.2.1"),
				Method: pick(rnd, "GET", "POST", "HEAD", "PUT", "get", "BREW", "OTHER", ""),
				Bot: pick(rnd, Bot{}, Bot{}, Bot{Name: "b", State: Claimed},
					Bot{Name: "g", Categories: []string{"search"}, State: Verified}, Bot{Name: "g", State: Forged}),
				UserAgent: pick(rnd, "curl", "", "Mozilla"),
				Via:       pick(rnd, netip.Addr{}, netip.Addr{}, netip.MustParseAddr("10.0.0.1")),
				Robots:    pick(rnd, Robots{}, Robots{Delay: time.Second}),
			}
			switch rnd.IntN(3) {
			case 0:
				req.Header = http.Header{"Cookie": {"a=1"}, "Referer": {"https://example.org/a"}}
			case 1:
				req.Header = http.Header{"Referer": {"https://example.com/"}}
			}
			req.SetTarget(pick(rnd, "/", "/a", "/a/", "/a/b.css", "/b/login", "/a/login", "/a/login/", "/bx/c",
				"/x.git/config", "/a//b", "/a/../b.css", "/a/b.CSS", "/%C3%84/x", "*", "/y/a/z/b", "/A/") +
				pick(rnd, "", "", "?x=1", "?y=2&x"))
			var applied [2][]int32
			var blocks [2]*compiledRule
			var verdicts [2]Verdict
			var takes [2][]Take
			for i, walk := range [2]func(*decision, *Verdict) *compiledRule{g.walk, g.walkAll} {
				d := g.decisions.New().(*decision)
				d.reset(&req, req.Time)
				if i == 0 && d.set.index.candidates(d, d.candidates) {
					indexed++
				}
				blocks[i] = walk(d, &verdicts[i])
				applied[i], takes[i] = d.matched, d.takes
			}
			if !slices.Equal(applied[0], applied[1]) || blocks[0] != blocks[1] ||
				verdicts[0].DryRunFinding != verdicts[1].DryRunFinding || !reflect.DeepEqual(takes[0], takes[1]) {
				t.Fatalf("%s %s: rules %v with the index, %v without it; takes %v and %v", req.Method, req.Path,
					applied[0], applied[1], takes[0], takes[1])
			}
		}
	}
	if indexed < 1000 {
		t.Errorf("only %d walks used the index", indexed)
	}
}
