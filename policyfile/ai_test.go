package policyfile

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
)

// A crawl is count requests of one bot, at an interval of every, from addrs addresses.
type crawl struct {
	bot           fairshare.Bot
	addrs         int
	every, took   time.Duration
	bytes         int64
	target        string // with a number in place of %d
	count         int
	busy          bool
	allowed       [2]int // bounds of the number of requests that pass
	rule          string // that refuses the others; "" if all pass
	alsoUntouched []fairshare.Bot
}

var (
	gptbot = fairshare.Bot{Name: "gptbot", Categories: []string{"ai", "ai-training"}, Operator: "openai",
		Purpose: "training", State: fairshare.Verified}
	claudebot = fairshare.Bot{Name: "claudebot", Categories: []string{"ai", "ai-training"}, Operator: "anthropic",
		Purpose: "training", State: fairshare.Verified}
	searchbot = fairshare.Bot{Name: "oai-searchbot", Categories: []string{"ai", "search", "ai-search"},
		Operator: "openai", Purpose: "search", State: fairshare.Verified}
	chatgpt = fairshare.Bot{Name: "chatgpt-user", Categories: []string{"ai", "fetcher", "ai-user"}, Operator: "openai",
		Purpose: "user", State: fairshare.Verified, UserTriggered: true}
	applebot = fairshare.Bot{Name: "applebot", Categories: []string{"search", "ai"}, Operator: "apple",
		State: fairshare.Verified}
	googlebot = fairshare.Bot{Name: "googlebot", Categories: []string{"search"}, Operator: "google",
		State: fairshare.Verified}
	nobot = fairshare.Bot{}
)

func in(b fairshare.Bot, state fairshare.BotState) fairshare.Bot {
	b.State = state
	return b
}

// A budget of an operator, a purpose or a claim is used up, and everybody else still passes.
func TestBuiltInPolicyGivesAICrawlersABudget(t *testing.T) {
	t.Parallel()
	others := []fairshare.Bot{googlebot, applebot, searchbot, chatgpt, nobot}
	claimed := in(gptbot, fairshare.Pending)
	for name, c := range map[string]crawl{
		"requests": {bot: gptbot, addrs: 50, every: 200 * time.Millisecond,
			bytes: 1000, target: "/page/%d", count: 18000,
			allowed: [2]int{3600, 7300}, rule: "AI training", alsoUntouched: others},
		"bytes": {bot: gptbot, addrs: 50, every: 10 * time.Second,
			bytes: 1 << 20, target: "/page/%d", count: 3000,
			allowed: [2]int{200, 350}, rule: "bytes of AI training", alsoUntouched: others},
		"bytes of pictures": {bot: gptbot, addrs: 50, every: 10 * time.Second,
			bytes: 1 << 20, target: "/pic/%d.jpg", count: 3000,
			allowed: [2]int{200, 350}, rule: "bytes of AI training", alsoUntouched: others},
		"time": {bot: gptbot, addrs: 50, every: 4 * time.Second,
			took: 2 * time.Second, bytes: 1000, target: "/page/%d", count: 3000,
			allowed: [2]int{170, 700}, rule: "time of AI training", alsoUntouched: others},
		"a usual crawl": {bot: gptbot, addrs: 50, every: 5 * time.Second,
			took: 50 * time.Millisecond, bytes: 10_000,
			target: "/page/%d", count: 10_000, allowed: [2]int{10_000, 10_000}},
		"a usual crawl of a busy site": {bot: gptbot, addrs: 50, every: 5 * time.Second,
			took:  50 * time.Millisecond,
			bytes: 10_000, target: "/page/%d", count: 3000, busy: true, allowed: [2]int{1400, 1700},
			rule: "AI training while busy", alsoUntouched: others},
		"answers on a busy site": {bot: searchbot, addrs: 50, every: 5 * time.Second,
			took:  50 * time.Millisecond,
			bytes: 10_000, target: "/page/%d", count: 3000, busy: true, allowed: [2]int{3000, 3000}},
		"many answers on a busy site": {bot: searchbot, addrs: 50, every: 500 * time.Millisecond,
			bytes:  1000,
			target: "/page/%d", count: 6000, busy: true, allowed: [2]int{1450, 1800}, rule: "AI answers while busy",
			alsoUntouched: []fairshare.Bot{googlebot, applebot, gptbot, chatgpt, nobot}},
		"robots.txt": {bot: gptbot, addrs: 50, every: 100 * time.Millisecond,
			bytes: 1 << 20, target: "/robots.txt", count: 9000,
			busy: true, allowed: [2]int{9000, 9000}},
		"llms.txt": {bot: gptbot, addrs: 50, every: 100 * time.Millisecond,
			bytes: 1 << 20, target: "/llms.txt", count: 9000,
			busy: true, allowed: [2]int{9000, 9000}},
		"claims": {bot: claimed, addrs: 5000, every: 200 * time.Millisecond,
			bytes: 1000, target: "/page/%d", count: 18000,
			allowed: [2]int{3600, 7300}, rule: "AI training",
			alsoUntouched: append([]fairshare.Bot{gptbot, claudebot}, others...)},
		"search engines": {bot: googlebot, addrs: 50, every: 100 * time.Millisecond,
			took: 2 * time.Second, bytes: 1 << 20,
			target: "/page/%d", count: 9000, busy: true, allowed: [2]int{9000, 9000}},
		"a search engine that also serves AI": {bot: applebot, addrs: 50, every: 100 * time.Millisecond,
			bytes:  1 << 20,
			target: "/page/%d", count: 9000, busy: true, allowed: [2]int{9000, 9000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			busy := false
			s.guard.UseBusy(func() bool { return busy })
			request := func(i int, now time.Time, bot fairshare.Bot, block byte) fairshare.Action {
				target := c.target
				if strings.Contains(target, "%d") {
					target = fmt.Sprintf(target, i)
				}
				addr := [4]byte{block, byte(i % c.addrs >> 8), byte(i % c.addrs), 9}
				req := fairshare.Request{Time: now, Addr: netip.AddrFrom4(addr), Method: "GET",
					Host: "example.org", UserAgent: cmp.Or(bot.Name, firefox), Header: http.Header{}}
				req.SetBot(bot)
				req.SetTarget(target)
				v, err := s.guard.Decide(context.Background(), &req)
				if err != nil {
					t.Fatal(err)
				}
				s.rule = ""
				if v.Rule != nil {
					s.rule = v.Rule.Name
				}
				if err := s.guard.Settle(context.Background(), &v, fairshare.Outcome{Time: now.Add(c.took), Status: 200,
					Bytes: c.bytes, Took: c.took}); err != nil {
					t.Fatal(err)
				}
				return v.Action
			}
			passed, now := 0, begin
			for i := range c.count {
				busy, now = c.busy, begin.Add(time.Duration(i)*c.every)
				if request(i, now, c.bot, 20) == fairshare.Allow {
					passed++
				} else if s.rule != c.rule {
					t.Fatalf("request %d: refused by %q, want %q", i, s.rule, c.rule)
				}
			}
			if passed < c.allowed[0] || passed > c.allowed[1] {
				t.Errorf("%d of %d passed, want %v", passed, c.count, c.allowed)
			}
			for i, other := range c.alsoUntouched {
				if request(i, now, other, byte(30+i)) != fairshare.Allow {
					t.Errorf("%q (%v) is refused by %q", other.Name, other.State, s.rule)
				}
			}
		})
	}
}

// All operators together have a budget, too, so that many operators do not add up.
func TestBuiltInPolicyBoundsAllAICrawlersTogether(t *testing.T) {
	inOneGoroutine(t)
	t.Parallel()
	s := newSite(t)
	passed := 0
	for i := range 40 * 3600 { // forty operators, an hour each, one request a second
		bot := gptbot
		bot.Name, bot.Operator = fmt.Sprintf("bot-%d", i%40), fmt.Sprintf("operator-%d", i%40)
		req := fairshare.Request{Time: begin.Add(time.Duration(i) * 25 * time.Millisecond), Method: "GET",
			Host: "example.org", Addr: netip.AddrFrom4([4]byte{20, byte(i % 40), byte(i % 7), 9}), UserAgent: bot.Name}
		req.SetBot(bot)
		if s.request(req, "/page", 200) == fairshare.Allow {
			passed++
		} else if s.rule != "all AI training" {
			t.Fatalf("refused by %q", s.rule)
		}
	}
	if passed > 2*10_800 {
		t.Errorf("%d requests passed in an hour", passed)
	}
}
