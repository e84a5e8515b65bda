package fairshare_test

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/membans"
)

// trapPolicy bans who requests /trap, for an hour, from everything.
func trapPolicy(change func(*fairshare.Rule)) fairshare.Policy {
	trap := fairshare.Rule{
		Name: "trap", Match: fairshare.Match{Path: []string{"/trap"}}, Action: fairshare.Block,
		Ban: &fairshare.BanTerms{After: 1, For: time.Hour, All: true,
			Unless: &fairshare.Match{Bot: []string{"verified"}}},
	}
	if change != nil {
		change(&trap)
	}
	return fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "office", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.99/32")}},
			Action: fairshare.Allow},
		trap,
		{Name: "all", Limit: requests(100, time.Minute)},
	}}
}

func TestBlockedRequestStartsBan(t *testing.T) {
	g := memGuard(t, trapPolicy(nil))
	v := repeat(t, g, 0, target(alice, "/trap"), 1)
	if v.Action != fairshare.Block || v.Ban != fairshare.BanStarted || !around(v.Wait, time.Hour) {
		t.Errorf("the first request: %s", describeFinding(v.Finding))
	}
	length := v.Wait
	for _, path := range []string{"/", "/trap"} {
		v := repeat(t, g, time.Second, target(alice, path), 1)
		if v.Action != fairshare.Refuse || v.Ban != fairshare.BanInForce || v.Wait != length-time.Second ||
			v.Limit != nil {
			t.Errorf("%s during the ban: %s", path, describeFinding(v.Finding))
		}
	}
	if v := repeat(t, g, 0, target(bob, "/"), 1); v.Action != fairshare.Allow {
		t.Errorf("another client: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, length+time.Second, target(alice, "/"), 1); v.Action != fairshare.Allow {
		t.Errorf("after the ban: %s", describeFinding(v.Finding))
	}
}

// A blocked request bans only the client that made it on its own account.
func TestBlockedRequestsThatDoNotBan(t *testing.T) {
	bot := func(r fairshare.Request, state fairshare.BotState) fairshare.Request {
		r.SetBot(fairshare.Bot{Name: "search", Categories: []string{"search"}, State: state})
		return r
	}
	fetched := func(site, mode string) fairshare.Request {
		return with(from(alice), "Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode)
	}
	prefetched := func(purpose string) fairshare.Request {
		return with(from(alice), "Sec-Fetch-Site", "same-origin", "Sec-Purpose", purpose)
	}
	proxy, unnamed, named, unknown := from(alice), from(alice), from(alice), from(alice)
	proxy.Proxy, unnamed.Via, unknown.Addr = true, unnamed.Addr, netip.Addr{}
	named.Via = netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		req  fairshare.Request
		bans bool
	}{
		"no header":    {from(alice), true},
		"script":       {with(from(alice), "User-Agent", "curl"), true},
		"link on site": {fetched("same-origin", "navigate"), true},
		"link on another host of the site": {
			fetched("same-site", "navigate"), true},
		"referer of the site, in an old browser":  {with(from(alice), "Referer", "http://H:80/page"), true},
		"referer without a host":                  {with(from(alice), "Referer", "x"), true},
		"link on another site":                    {fetched("cross-site", "navigate"), false},
		"link in a mail program":                  {fetched("none", "navigate"), false},
		"image on another site":                   {fetched("cross-site", "no-cors"), false},
		"link on another site, in an old browser": {with(from(alice), "Referer", "https://other.example/"), false},
		"prefetch":                        {prefetched("prefetch"), false},
		"prerender":                       {prefetched("prefetch;prerender"), false},
		"prefetch of an old browser":      {with(from(alice), "X-Moz", "prefetch"), false},
		"verified bot":                    {bot(from(alice), fairshare.Verified), false},
		"forged bot":                      {bot(from(alice), fairshare.Forged), true},
		"bot that only claims to be one":  {bot(from(alice), fairshare.Claimed), true},
		"trusted proxy":                   {proxy, false},
		"client that no proxy named":      {unnamed, false},
		"client that a peer named":        {named, true},
		"client whose address is unknown": {unknown, false},
	} {
		g := memGuard(t, trapPolicy(nil))
		c.req.SetTarget("/trap")
		c.req.Host = "h"
		v := repeat(t, g, 0, c.req, 1)
		if v.Action != fairshare.Block {
			t.Errorf("%s: %s, want block", name, v.Action)
		}
		if bans := v.Ban == fairshare.BanStarted; bans != c.bans {
			t.Errorf("%s: bans %v, want %v", name, bans, c.bans)
		}
		c.req.SetTarget("/")
		if v := repeat(t, g, time.Second, c.req, 1); (v.Action == fairshare.Refuse) != c.bans {
			t.Errorf("%s: the next request: %s", name, v.Action)
		}
	}
}

func TestAllowedClientIsNotBannedByBlock(t *testing.T) {
	g := memGuard(t, trapPolicy(nil))
	for _, path := range []string{"/trap", "/"} {
		if v := repeat(t, g, 0, target("192.0.2.99", path), 1); v.Action != fairshare.Allow {
			t.Errorf("%s: %s", path, describeFinding(v.Finding))
		}
	}
}

// A block in dry run bans in dry run; the request goes on to the rules below.
func TestBanOfBlockInDryRun(t *testing.T) {
	for _, whole := range []bool{false, true} {
		policy := trapPolicy(func(r *fairshare.Rule) { r.DryRun = !whole })
		policy.DryRun = whole
		g, _, reported := watched(t, policy)
		v := repeat(t, g, 0, target(alice, "/trap"), 1)
		found := v.DryRunFinding
		if whole {
			found = v.Finding
		}
		if v.Enforced() != fairshare.Allow || found.Action != fairshare.Block || found.Ban != fairshare.BanStarted {
			t.Errorf("the whole policy %v: %s, %s", whole, v.Enforced(), describeFinding(found))
		}
		if len(*reported) != 1 || !(*reported)[0].DryRun || (*reported)[0].Rule != "trap" {
			t.Errorf("reported: %+v", *reported)
		}
		v = repeat(t, g, time.Second, target(alice, "/"), 1)
		if found = v.DryRunFinding; whole {
			found = v.Finding
		}
		if v.Enforced() != fairshare.Allow || found.Ban != fairshare.BanInForce {
			t.Errorf("the next request, the whole policy %v: %s, %s", whole, v.Enforced(), describeFinding(found))
		}
	}
}

func TestBlockBansNetworkOrBot(t *testing.T) {
	g := memGuard(t, trapPolicy(func(r *fairshare.Rule) { r.Ban.By = fairshare.ByNetwork }))
	repeat(t, g, 0, target(alice, "/trap"), 1)
	if v := repeat(t, g, time.Second, target(bob, "/"), 1); v.Ban != fairshare.BanInForce {
		t.Errorf("another client of the network: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, time.Second, target("198.51.100.1", "/"), 1); v.Action != fairshare.Allow {
		t.Errorf("another network: %s", describeFinding(v.Finding))
	}
	g = memGuard(t, trapPolicy(func(r *fairshare.Rule) { r.Ban.By, r.Ban.Unless = fairshare.ByBot, nil }))
	for i, addr := range []string{alice, "198.51.100.1"} {
		req := target(addr, []string{"/trap", "/"}[i])
		req.SetBot(fairshare.Bot{Name: "search", State: fairshare.Verified})
		if v := repeat(t, g, 0, req, 1); v.Action == fairshare.Allow {
			t.Errorf("a verified bot at %s: %s", addr, describeFinding(v.Finding))
		}
	}
}

// Lifting a ban, or restarting with it, works as for the ban of a limit.
func TestBanOfBlockIsLiftedAndRestored(t *testing.T) {
	policy := trapPolicy(func(r *fairshare.Rule) { r.Ban.After = 2 })
	g, _, reported := watched(t, policy)
	v := repeat(t, g, 0, target(alice, "/trap"), 2)
	if v.Ban != fairshare.BanStarted || len(*reported) != 1 || (*reported)[0].Kind != fairshare.ByAddr {
		t.Fatalf("%s, reported %+v", describeFinding(v.Finding), *reported)
	}
	again, bans, _ := watched(t, policy)
	bans.Restore((*reported)[0])
	if v := repeat(t, again, time.Second, target(alice, "/"), 1); v.Ban != fairshare.BanInForce {
		t.Errorf("after a restart: %s", describeFinding(v.Finding))
	}
	now := start.Add(time.Minute)
	if lifted, err := g.Lift(t.Context(), (*reported)[0].Client, now, now); lifted != 1 || err != nil {
		t.Fatalf("lifted %d, %v", lifted, err)
	}
	v = repeat(t, g, time.Minute, target(alice, "/trap"), 1)
	if v.Action != fairshare.Block || v.Ban != fairshare.NotBanned {
		t.Errorf("the first request after an operator lifted the ban: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, time.Minute, target(alice, "/trap"), 1); v.Ban != fairshare.BanStarted {
		t.Errorf("the second: %s", describeFinding(v.Finding))
	}
}

func TestBanWithoutLimitOrBlock(t *testing.T) {
	ban := &fairshare.BanTerms{After: 1, For: time.Hour}
	bot := &fairshare.BanTerms{After: 1, For: time.Hour, By: fairshare.ByBot}
	path := &fairshare.BanTerms{After: 1, For: time.Hour, By: fairshare.ByPath}
	for _, r := range []fairshare.Rule{
		{Name: "allow", Action: fairshare.Allow, Ban: ban},
		{Name: "key in a limit", Limit: requests(1, time.Second), Ban: bot},
		{Name: "key that is not banned", Action: fairshare.Block, Ban: path},
	} {
		policy := fairshare.Policy{Rules: []fairshare.Rule{r}}
		if policy.Check() == nil {
			t.Errorf("%s: no error", r.Name)
		}
	}
	policy := trapPolicy(nil)
	if _, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), nil); err == nil {
		t.Error("a guard without Bans")
	}
	if _, err := fairshare.NewGuard(&policy, limittest.NewModel(policy.Limits()), membans.New(0)); err != nil {
		t.Error(err)
	}
}

// requests: 0 refuses every request, and its ban starts with the first.
func TestLimitOfNoRequests(t *testing.T) {
	never := fairshare.Rule{Name: "never", Match: fairshare.Match{Path: []string{"/old/**"}},
		Limit: requests(0, time.Minute)}
	g := memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{never}})
	for range 3 {
		v := repeat(t, g, 0, target(alice, "/old/a"), 1)
		if v.Action != fairshare.Refuse || v.Wait != time.Minute || v.Tally.Used != 0 {
			t.Errorf("%s, used %d", describeFinding(v.Finding), v.Tally.Used)
		}
	}
	if v := repeat(t, g, 0, target(alice, "/"), 1); v.Action != fairshare.Allow {
		t.Errorf("another path: %s", describeFinding(v.Finding))
	}
	never.Ban = &fairshare.BanTerms{After: 1, For: time.Hour}
	g = memGuard(t, fairshare.Policy{Rules: []fairshare.Rule{never}})
	if v := repeat(t, g, 0, target(alice, "/old/a"), 1); v.Ban != fairshare.BanStarted || !around(v.Wait, time.Hour) {
		t.Errorf("with a ban: %s", describeFinding(v.Finding))
	}
	for _, wrong := range []*fairshare.Limit{
		{Resource: fairshare.Requests, N: -1, Window: time.Minute},
		{Resource: fairshare.Requests, Window: time.Minute, Algorithm: fairshare.GCRA},
		{Resource: fairshare.Requests, Window: time.Minute, Algorithm: fairshare.Quiet},
		{Resource: fairshare.Concurrent},
		{Resource: fairshare.Bytes, Window: time.Minute},
	} {
		if wrong.Check() == nil {
			t.Errorf("%+v: no error", *wrong)
		}
	}
}
