package fairshare_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

func crawlDelay(burst int64) *fairshare.Limit {
	return &fairshare.Limit{CrawlDelay: true, Resource: fairshare.Requests, N: 1, Window: fairshare.MaxCrawlDelay,
		Algorithm: fairshare.GCRA, Burst: burst, By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}}
}

// What robots.txt disallows holds for claims as a restriction, for proof as a permission,
// and never for a client that is not a bot.
func TestRobotsInRestrictionsAndPermissions(t *testing.T) {
	disallowed := fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}}
	restriction := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "r", Match: disallowed, Action: fairshare.Block}}}
	permission := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "p", Match: disallowed, Action: fairshare.Allow},
		{Name: "rest", Action: fairshare.Block}}}
	for _, c := range []struct {
		state         fairshare.BotState
		userTriggered bool
		robots        fairshare.Robots
		blocked       bool // by the restriction
		allowed       bool // by the permission
	}{
		{fairshare.Verified, false, fairshare.Robots{Group: "*", Disallowed: true}, true, true},
		{fairshare.Verified, true, fairshare.Robots{Group: "X", Disallowed: true}, true, false},
		{fairshare.Forged, false, fairshare.Robots{Group: "*", Disallowed: true}, true, false},
		{fairshare.Claimed, false, fairshare.Robots{Group: "*", Disallowed: true}, true, false},
		{fairshare.Pending, false, fairshare.Robots{Group: "*", Disallowed: true}, true, false},
		{fairshare.NoBot, false, fairshare.Robots{Group: "*", Disallowed: true}, false, false},
		{fairshare.Verified, false, fairshare.Robots{Group: "*"}, false, false},
		{fairshare.Verified, false, fairshare.Robots{}, false, false},
	} {
		req := &fairshare.Request{Method: "GET", Path: "/x", Addr: netip.MustParseAddr("192.0.2.1"), Robots: c.robots}
		req.SetBot(fairshare.Bot{Name: "b", State: c.state, UserTriggered: c.userTriggered})
		for policy, want := range map[*fairshare.Policy]bool{restriction: c.blocked, permission: !c.allowed} {
			guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 18})
			if err != nil {
				t.Fatal(err)
			}
			v, err := guard.Decide(context.Background(), req)
			if err != nil || (v.Action == fairshare.Block) != want {
				t.Errorf("%v, user-triggered %v, %+v: %v %v, want blocked %v", c.state, c.userTriggered, c.robots,
					v.Action, err, want)
			}
		}
	}
}

func TestCrawlDelayIsEnforced(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "delay", Limit: crawlDelay(2)}}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_800_000_000, 0)
	decide := func(after time.Duration, addr, via string, bot fairshare.Bot, delay time.Duration) fairshare.Verdict {
		t.Helper()
		req := &fairshare.Request{Time: start.Add(after), Method: "GET", Path: "/x", Addr: netip.MustParseAddr(addr),
			Robots: fairshare.Robots{Group: "*", Delay: delay, DelayLine: 3}}
		if via != "" {
			req.Via = netip.MustParseAddr(via)
		}
		req.SetBot(bot)
		v, err := guard.Decide(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := guard.Settle(context.Background(), &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
			t.Fatal(err)
		}
		return v
	}
	claim := fairshare.Bot{Name: "b", State: fairshare.Claimed}
	verified := fairshare.Bot{Name: "b", State: fairshare.Verified}
	for i, c := range []struct {
		after time.Duration
		addr  string
		bot   fairshare.Bot
		delay time.Duration
		want  fairshare.Action
		wait  time.Duration
	}{
		{0, "192.0.2.1", claim, 10 * time.Second, fairshare.Allow, 0},
		{0, "192.0.2.1", claim, 10 * time.Second, fairshare.Allow, 0},
		{0, "192.0.2.1", claim, 10 * time.Second, fairshare.Refuse, 10 * time.Second},
		{4 * time.Second, "192.0.2.1", claim, 10 * time.Second, fairshare.Refuse, 6 * time.Second},
		{4 * time.Second, "192.0.2.1", claim, 0, fairshare.Allow, 0}, // without a delay
		{4 * time.Second, "192.0.2.1", fairshare.Bot{}, 10 * time.Second, fairshare.Allow, 0},
		{4 * time.Second, "192.0.2.2", claim, 10 * time.Second, fairshare.Allow, 0}, // another client
		{10 * time.Second, "192.0.2.1", claim, 10 * time.Second, fairshare.Allow, 0},
		// All addresses of a verified bot are one.
		{10 * time.Second, "192.0.2.3", verified, 500 * time.Millisecond, fairshare.Allow, 0},
		{10 * time.Second, "192.0.2.4", verified, 500 * time.Millisecond, fairshare.Allow, 0},
		{10 * time.Second, "192.0.2.5", verified, 500 * time.Millisecond, fairshare.Refuse, 500 * time.Millisecond},
		// A delay of years counts as a day.
		{10 * time.Second, "192.0.2.6", claim, 1e5 * time.Hour, fairshare.Allow, 0},
		{10 * time.Second, "192.0.2.6", claim, 1e5 * time.Hour, fairshare.Allow, 0},
		{10 * time.Second, "192.0.2.6", claim, 1e5 * time.Hour, fairshare.Refuse, 24 * time.Hour},
	} {
		if v := decide(c.after, c.addr, "", c.bot, c.delay); v.Action != c.want || v.Wait != c.wait {
			t.Errorf("request %d: %v, wait %v, want %v, %v", i, v.Action, v.Wait, c.want, c.wait)
		}
	}
	// Clients that an unknown peer names have a limit together, 256 times as high.
	refused := 0
	for range 1000 {
		if v := decide(time.Minute, "192.0.2.9", "10.0.0.1", claim, time.Hour); v.Action == fairshare.Refuse {
			refused++
		}
	}
	if refused != 998 {
		t.Errorf("%d of 1000 requests of a provisional client are refused, want 998", refused)
	}
}

func TestExplainNamesTheLineOfRobots(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "delay", Limit: crawlDelay(1)},
		{Name: "robots", Match: fairshare.Match{Robots: []string{fairshare.RobotsDisallowed}},
			Action: fairshare.Block}}}
	req := &fairshare.Request{Method: "GET", Path: "/x", Robots: fairshare.Robots{Group: "GPTBot", Named: true,
		Disallowed: true, Line: 12, Rule: "Disallow: /x", Delay: 10 * time.Second, DelayLine: 13}}
	for _, c := range []struct {
		state fairshare.BotState
		want  string
	}{
		{fairshare.Claimed, `line 13 of robots.txt asks GPTBot for 10s between two requests;` +
			`line 12 of robots.txt, "Disallow: /x", disallows this for GPTBot: that is "disallowed"`},
		{fairshare.NoBot, `no bot, so the delay of robots.txt does not count;` +
			`no bot, so robots.txt does not count: that is not "disallowed"`},
	} {
		req.Bot.State = c.state
		steps, err := policy.Explain(req)
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, step := range steps {
			if step.Holds != (c.state != fairshare.NoBot) {
				t.Errorf("%v: rule %d holds: %v", c.state, step.Rule, step.Holds)
			}
			for _, r := range step.Reasons {
				reasons = append(reasons, r.Text)
			}
		}
		if got := strings.Join(reasons, ";"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestCrawlDelayAllocatesNothing(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "delay", Limit: crawlDelay(1000)}}}
	guard, err := memlimit.NewGuard(policy, memlimit.Options{Memory: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	req := &fairshare.Request{Time: time.Unix(1_800_000_000, 0), Method: "GET", Path: "/x",
		Addr: netip.MustParseAddr("192.0.2.1"), Robots: fairshare.Robots{Group: "*", Delay: time.Second}}
	req.SetBot(fairshare.Bot{Name: "b", State: fairshare.Claimed})
	ctx := context.Background()
	n := testing.AllocsPerRun(200, func() {
		v, err := guard.Decide(ctx, req)
		if err != nil || v.Action != fairshare.Allow {
			t.Fatal(v.Action, err)
		}
		if err := guard.Settle(ctx, &v, fairshare.Outcome{Time: req.Time, Status: 200}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 && !raceDetector {
		t.Errorf("%v allocations", n)
	}
}
