package census

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/reports"
)

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// policyOf returns a policy with a limit, a block and a limit in dry run.
func policyOf(dry bool) *fairshare.Policy {
	return &fairshare.Policy{DryRun: dry, Rules: []fairshare.Rule{
		{Name: "pages", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}},
		{Name: "bad bots", Action: fairshare.Block},
		{Name: "tried", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Minute}, DryRun: true},
	}}
}

const (
	pages = iota
	badBots
	tried
)

// addr returns the address of the n-th client.
func addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"

func request(n int, person bool) *fairshare.Request {
	req := &fairshare.Request{Addr: addr(n), UserAgent: "curl/8.1"}
	if person {
		req.UserAgent = firefox
		req.Header = http.Header{"Accept-Language": {"de,en-US;q=0.7"}, "Referer": {"https://shop.example/"}}
	}
	return req
}

func finding(p *fairshare.Policy, rule int) *fairshare.Finding {
	f := &fairshare.Finding{Action: fairshare.Refuse, Rule: &p.Rules[rule]}
	if rule == badBots {
		f.Action = fairshare.Block
	}
	return f
}

// A traffic is a census with a clock and some clients.
type traffic struct {
	*Census
	policy *fairshare.Policy
	now    time.Time
	tick   time.Duration
	lines  []string
}

func newTraffic(p *fairshare.Policy) *traffic {
	return &traffic{Census: newCensus(p, start, [2]uint64{0x0123456789ABCDEF, 0xFEDCBA9876543210}), policy: p,
		now: start, tick: 5 * time.Second}
}

// refusal returns a refused request, as Refused gets it.
func refusal(req *fairshare.Request, f *fairshare.Finding, dry bool) *reports.Refusals {
	g := reports.OfReport(&httpguard.Report{Request: req, Finding: *f, DryRun: dry})
	g.Person = req.Fleet == "" && Person(req)
	return g
}

func (t *traffic) Refused(req *fairshare.Request, f *fairshare.Finding, dry bool) {
	t.Census.Refused(refusal(req, f, dry))
}

// A PassedRequest is a request that reached the upstream and has ended.
type PassedRequest = httpguard.Completion

func sender(n int) httpguard.Client { return httpguard.Client{Addr: addr(n)} }

// passage returns a request of a client, as Passed gets it.
func passage(c *PassedRequest, client netip.Prefix) *reports.Passages {
	g := reports.OfCompletion(c)
	g.Client = client
	return g
}

func (t *traffic) Passed(c *PassedRequest, client netip.Prefix, now time.Time) {
	t.Census.Passed(passage(c, client), now)
}

// wait advances the time and calls Tick, as serve does.
func (t *traffic) wait(d time.Duration) {
	for end := t.now.Add(d); t.now.Before(end); {
		t.now = t.now.Add(t.tick)
		for _, line := range t.Tick(t.now) {
			t.lines = append(t.lines, fmt.Sprintf("%v %s", t.now.Sub(start), line))
		}
	}
}

// refused records requests of a range of clients, of which a rule refuses some.
func (t *traffic) refused(from, to, rule int, times int, person bool) {
	for n := from; n < to; n++ {
		for range times {
			t.Saw(addr(n), netip.Addr{})
			t.Refused(request(n, person), finding(t.policy, rule), t.policy.DryRun || t.policy.Rules[rule].DryRun)
		}
	}
}

func (t *traffic) saw(from, to int) {
	for n := from; n < to; n++ {
		t.Saw(addr(n), netip.Addr{})
	}
}

func (t *traffic) end() []string {
	for _, line := range t.End(t.now) {
		t.lines = append(t.lines, "end "+line)
	}
	return t.lines
}

func TestSummaryOfADryRun(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.saw(100, 400)
	tr.refused(0, 35, pages, 33, false)
	tr.refused(33, 35, pages, 1, true)
	tr.refused(35, 37, badBots, 12, false)
	tr.wait(90 * time.Minute)
	tr.refused(36, 38, badBots, 1, false)
	want := []string{
		`1h0m5s dry run, the last hour: 1,181 requests of 37 clients (11 % of 337) would have been refused or blocked; 2 of these clients look like people; by rule "pages": 1,157 requests of 35 clients, 2 like people; "bad bots": 24 requests of 2 clients`,
		`end dry run, the last 30 minutes: 2 requests of 2 clients (100 % of 2) would have been refused or blocked; none of these clients looks like a person; all by rule "bad bots"`,
		`end dry run, from start to end, 90 minutes: 1,183 requests of 38 clients (11 % of 338) would have been refused or blocked; 2 of these clients look like people; by rule "pages": 1,157 requests of 35 clients, 2 like people; "bad bots": 26 requests of 3 clients`,
	}
	compare(t, "an hour and a half", tr.end(), want)
}

func TestSummaryOfADryRunWithoutRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy *fairshare.Policy
		want   []string
	}{
		{"the policy", policyOf(true), []string{
			"1h0m5s dry run, the last hour: no request would have been refused or blocked; 1 client seen",
			"end dry run, the last 15 minutes: no request would have been refused or blocked; 0 clients seen",
			"end dry run, from start to end, 75 minutes: no request would have been refused or blocked; 1 client seen",
		}},
		{"one rule", policyOf(false), []string{
			"1h0m5s summary, the last hour: 1 request; none was refused or blocked; 1 client seen",
			"1h0m5s rules in dry run, the last hour: no request would have been refused or blocked; 1 client seen",
			"end rules in dry run, the last 15 minutes: no request would have been refused or blocked; 0 clients seen",
			"end summary, from start to end, 75 minutes: 1 request; none was refused or blocked; 1 client seen",
			"end rules in dry run, from start to end, 75 minutes: no request would have been refused or blocked; 1 client seen",
		}},
		{"nothing", &fairshare.Policy{}, []string{
			"1h0m5s summary, the last hour: 1 request; none was refused or blocked; 1 client seen",
			"end summary, from start to end, 75 minutes: 1 request; none was refused or blocked; 1 client seen",
		}},
	} {
		tr := newTraffic(c.policy)
		tr.saw(0, 1)
		tr.wait(75 * time.Minute)
		compare(t, c.name, tr.end(), c.want)
	}
}

// Of an enforced policy the summary names all that happened to requests.
func TestSummaryOfAnEnforcedPolicy(t *testing.T) {
	tr := newTraffic(&fairshare.Policy{Rules: policyOf(false).Rules[:2]})
	tr.wait(59 * time.Minute) // without requests there is no summary
	compare(t, "no request", tr.lines, nil)
	tr.saw(0, 40)
	tr.refused(0, 2, pages, 3, true)
	tr.refused(2, 3, badBots, 1, false)
	for n := range 2 {
		tr.Waited()
		tr.Refused(request(n, true), &fairshare.Finding{Action: fairshare.Refuse, Rule: &tr.policy.Rules[pages],
			Ban: fairshare.BanStarted}, false)
		tr.Refused(request(9, false), &fairshare.Finding{Action: fairshare.Block, Rule: fairshare.OperatorBan,
			Ban: fairshare.BanInForce}, false)
		tr.Refused(request(n+10, false),
			&fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.BusyUpstream}, false)
	}
	const rest = `: 47 requests; 9 requests of 3 clients (7.5 % of 40) were refused or blocked; ` +
		`2 of these clients look like people; by rule "pages": 8 requests of 2 clients, 2 like people; ` +
		`"bad bots": 1 request of 1 client; 2 requests waited; 2 bans started; ` +
		`bans by operators are not included: 2 requests of 1 client; ` +
		`a busy upstream refused 2 further requests of 2 clients`
	tr.wait(70 * time.Minute)
	compare(t, "all", tr.end(), []string{"1h0m5s summary, the last hour" + rest,
		"end summary, from start to end, 2 hours" + rest})
}

func TestSummaryOfShortAndOfSingleRules(t *testing.T) {
	tr := newTraffic(policyOf(false))
	tr.saw(0, 600)
	tr.refused(0, 3, tried, 2, false)
	tr.refused(4, 5, tried, 1, true)
	tr.refused(0, 9, pages, 5, false) // these were refused
	tr.wait(12*time.Minute + 10*time.Second)
	compare(t, "one rule", tr.end(), []string{
		`end summary, from start to end, 12 minutes: 652 requests; 45 requests of 9 clients (1.5 % of about 600) were refused or blocked; none of these clients looks like a person; all by rule "pages"`,
		`end rules in dry run, from start to end, 12 minutes: 7 requests of 4 clients (0.7 % of about 600) would have been refused or blocked; 1 of these clients looks like a person; all by rule "tried"`,
	})

	// With the whole policy in dry run, a rule with its own dry run is reported separately:
	// enforcing the policy would not enforce that rule.
	tr = newTraffic(policyOf(true))
	tr.refused(0, 4, tried, 1, false)
	tr.refused(0, 4, pages, 1, true)
	tr.now = start.Add(40 * time.Second)
	compare(t, "both", tr.end(), []string{
		`end dry run, from start to end, 40 seconds: 4 requests of 4 clients (100 % of 4) would have been refused or blocked; 4 of these clients look like people; all by rule "pages"`,
		`end rules in dry run, from start to end, 40 seconds: 4 requests of 4 clients (100 % of 4) would have been refused or blocked; none of these clients looks like a person; all by rule "tried"`,
	})
}

func TestSummaryNamesLargestRulesOnly(t *testing.T) {
	p := &fairshare.Policy{DryRun: true}
	for i := range 11 {
		p.Rules = append(p.Rules, fairshare.Rule{Name: string(rune('a' + i)), Action: fairshare.Block})
	}
	tr := newTraffic(p)
	for i := range p.Rules {
		tr.refused(0, 1, i, 1+i, false)
	}
	compare(t, "eleven rules", tr.end(), []string{
		`end dry run, from start to end, 0 seconds: 66 requests of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; by rule "k": 11 requests of 1 client; "j": 10 requests of 1 client; "i": 9 requests of 1 client; "h": 8 requests of 1 client; "g": 7 requests of 1 client; "f": 6 requests of 1 client; "e": 5 requests of 1 client; "d": 4 requests of 1 client; and 3 rules more`,
	})
}

func TestRefusalWithoutARuleIsNotCounted(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.Refused(request(1, false), finding(tr.policy, badBots), true)
	tr.Refused(request(1, false), &fairshare.Finding{}, true)
	compare(t, "two, one of them by no rule", tr.end(), []string{
		`end dry run, from start to end, 0 seconds: 1 request of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; all by rule "bad bots"`,
	})
}

// Provisional clients differ from clients with the same addresses, and from those that
// another peer named.
func TestProvisionalClientsAreCountedByTheirPeer(t *testing.T) {
	tr := newTraffic(policyOf(true))
	for _, via := range []netip.Addr{{}, netip.MustParseAddr("172.17.0.1"), netip.MustParseAddr("172.17.0.2")} {
		for range 2 {
			req := request(1, false)
			req.Via = via
			tr.Refused(req, finding(tr.policy, badBots), true)
		}
	}
	if got := tr.end(); len(got) != 1 || !strings.Contains(got[0], "6 requests of 3 clients") {
		t.Errorf("%q", got)
	}
}

func TestWarningNamesRuleAndRemedy(t *testing.T) {
	const hint = "; fairshare check FILE --try shows its effect on a request, fairshare replay on a whole log"
	const tight = "If this is not an attack, the rule is too tight: raise its limit or set dry_run: true in it, and send SIGHUP" + hint
	const tooTight = "If this is not an attack, the rule is too tight to be enforced: raise its limit, and send SIGHUP" +
		hint
	for _, c := range []struct {
		name string
		dry  bool
		do   func(*traffic)
		want []string
	}{
		{"nobody is refused", false, func(tr *traffic) {
			tr.saw(0, 1000)
		}, nil},
		{"a fifth", false, func(tr *traffic) {
			tr.saw(0, 100)
			tr.refused(0, 20, pages, 9, true)
		}, nil},
		{"one more", false, func(tr *traffic) {
			tr.saw(0, 100)
			tr.refused(0, 21, pages, 1, false)
		}, []string{`5s WARNING: MANY CLIENTS ARE BEING REFUSED: 21 of 100 clients of the last 5 seconds (21 %) were refused or blocked, all by rule "pages". None of them looks like a person. ` + tight}},
		{"all of a few", false, func(tr *traffic) {
			tr.refused(0, 19, pages, 9, true)
		}, nil},
		{"all of a few more", false, func(tr *traffic) {
			tr.refused(0, 20, pages, 9, true)
		}, []string{`5s WARNING: MANY CLIENTS ARE BEING REFUSED: 20 of 20 clients of the last 5 seconds (100 %) were refused or blocked, all by rule "pages". MOST OF THEM LOOK LIKE PEOPLE (20). ` + tight}},
		{"few are refused, and often", false, func(tr *traffic) {
			tr.saw(0, 20)
			tr.refused(0, 4, pages, 1000, false)
		}, nil},
		{"by two rules", false, func(tr *traffic) {
			tr.saw(0, 1280)
			tr.refused(0, 391, pages, 1, false)
			tr.refused(390, 400, badBots, 50, false)
			tr.refused(400, 410, badBots, 50, true)
		}, []string{`5s WARNING: MANY CLIENTS ARE BEING REFUSED: 410 of about 1,280 clients of the last 5 seconds (32 %) were refused or blocked, most by rule "pages" (391 clients). 10 of them look like people. ` + tight}},
		{"dry run", true, func(tr *traffic) {
			tr.refused(0, 50, pages, 1, true)
			tr.refused(50, 110, badBots, 1, false)
		}, []string{`5s WARNING: MANY CLIENTS WOULD BE REFUSED without dry run: 110 of 110 clients of the last 5 seconds (100 %) would have been refused or blocked, most by rule "bad bots" (60 clients). 50 of them look like people. ` + tooTight}},
		{"a rule in dry run", false, func(tr *traffic) {
			tr.saw(0, 100)
			tr.refused(0, 20, badBots, 1, false)
			tr.refused(0, 30, tried, 1, false)
			tr.refused(30, 31, tried, 1, true)
		}, []string{`5s WARNING: MANY CLIENTS WOULD BE REFUSED by rules in dry run: 31 of 100 clients of the last 5 seconds (31 %) would have been refused or blocked, all by rule "tried". 1 of them looks like a person. ` + tooTight}},
	} {
		tr := newTraffic(policyOf(c.dry))
		c.do(tr)
		tr.wait(20 * time.Second)
		compare(t, c.name, tr.lines, c.want)
	}
}

// A warning is repeated every five minutes while it lasts, and its end is reported. It
// covers the present and the previous five minutes.
func TestWarningLasts(t *testing.T) {
	tr := newTraffic(&fairshare.Policy{Rules: policyOf(false).Rules[:1]})
	minute := func(seen, refused int) {
		tr.saw(0, seen)
		tr.refused(0, refused, pages, 1, false)
		tr.wait(time.Minute)
	}
	for range 3 {
		minute(100, 3)
	}
	for range 12 {
		minute(100, 50)
	}
	for range 30 {
		minute(100, 17) // above the threshold for its end
	}
	for range 12 {
		minute(100, 14)
	}
	got := []string{}
	for _, line := range tr.lines {
		line, _, _ = strings.Cut(line, ", all by rule")
		got = append(got, line)
	}
	compare(t, "a long attack", got, []string{
		"3m5s WARNING: MANY CLIENTS ARE BEING REFUSED: 50 of 100 clients of the last 3 minutes (50 %) were refused or blocked",
		"8m5s WARNING: MANY CLIENTS ARE BEING REFUSED: 50 of 100 clients of the last 8 minutes (50 %) were refused or blocked",
		"13m5s WARNING: MANY CLIENTS ARE BEING REFUSED: 50 of 100 clients of the last 8 minutes (50 %) were refused or blocked",
		"18m5s WARNING: MANY CLIENTS ARE BEING REFUSED: 50 of 100 clients of the last 8 minutes (50 %) were refused or blocked",
		"50m5s fewer clients are refused: 14 % of the clients of the last 5 minutes were refused or blocked",
	})
}

// If refusals stop and return repeatedly, there are few messages.
func TestWarningThatComesAndGoes(t *testing.T) {
	tr := newTraffic(&fairshare.Policy{Rules: policyOf(false).Rules[:1]})
	for i := range 40 {
		tr.saw(i*1000, i*1000+100)
		if i%4 < 2 {
			tr.refused(i*1000, i*1000+90, pages, 1, false)
		} else {
			tr.saw(i*1000, i*1000+900)
		}
		tr.wait(time.Minute)
	}
	if loud := len(tr.lines); loud > 2*40/5 {
		t.Errorf("%d lines in 40 minutes:\n%s", loud, strings.Join(tr.lines, "\n"))
	}
}

func TestClientsAreCutToThePrefixes(t *testing.T) {
	seenBy := func(p *fairshare.Policy, addrs ...string) int64 {
		c := newTraffic(p)
		for _, a := range addrs {
			if a == "" {
				c.Saw(netip.Addr{}, netip.Addr{})
			} else {
				c.Saw(netip.MustParseAddr(a), netip.Addr{})
			}
		}
		return estimate(&c.state.Load().seen)
	}
	for _, c := range []struct {
		bits4, bits6 int
		addrs        []string
		want         int64
	}{
		{0, 0, []string{"192.0.2.1", "192.0.2.2", "192.0.2.1", "0.0.0.0"}, 3},
		{24, 0, []string{"192.0.2.1", "192.0.2.255", "192.0.3.1"}, 2},
		{1, 0, []string{"1.0.0.0", "127.0.0.1", "128.0.0.1"}, 2},
		{0, 0, []string{"2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"}, 2},
		{0, 128, []string{"2001:db8::1", "2001:db8::2", "2001:db8::1"}, 2},
		{0, 72, []string{"2001:db8::1", "2001:db8:0:0:1::", "2001:db8:0:0:100::"}, 2},
		{0, 48, []string{"2001:db8::1", "2001:db8:0:9::1", "2001:db8:1::1"}, 2},
		{0, 1, []string{"::1", "7fff::", "8000::"}, 2},
		{0, 0, []string{"", "", "192.0.2.1"}, 2},
	} {
		if got := seenBy(&fairshare.Policy{IPv4Prefix: c.bits4, IPv6Prefix: c.bits6}, c.addrs...); got != c.want {
			t.Errorf("/%d and /%d: %d clients of %v, want %d", c.bits4, c.bits6, got, c.addrs, c.want)
		}
	}
}

// After a reload all counts continue. Rules that are no longer in dry run are in one
// more summary.
func TestReplaceKeepsCounts(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.refused(0, 2, pages, 3, false)
	tr.wait(30 * time.Minute)
	tr.policy = &fairshare.Policy{Rules: policyOf(false).Rules[:1]}
	tr.Replace(tr.policy)
	tr.refused(0, 1, pages, 3, false)
	tr.wait(2 * time.Hour)
	compare(t, "from dry to enforced", tr.end(), []string{
		`1h0m5s summary, the last hour: 9 requests; 3 requests of 1 client (50 % of 2) were refused or blocked; none of these clients looks like a person; all by rule "pages"`,
		`1h0m5s dry run, the last hour: 6 requests of 2 clients (100 % of 2) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"`,
		`end summary, from start to end, 3 hours: 9 requests; 3 requests of 1 client (50 % of 2) were refused or blocked; none of these clients looks like a person; all by rule "pages"`,
		`end dry run, from start to end, 3 hours: 6 requests of 2 clients (100 % of 2) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"`,
	})
}

// The clock may stand still, run backwards, or jump.
func TestClockThatStopsOrJumps(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.refused(0, 1, pages, 1, false)
	tell := func(at time.Duration) {
		for _, line := range tr.Tick(start.Add(at)) {
			tr.lines = append(tr.lines, fmt.Sprintf("%v %s", at, line))
		}
	}
	tell(0)
	tell(-time.Hour)
	tell(5 * time.Hour) // the machine slept
	tell(5 * time.Hour)
	tell(3 * time.Hour)
	tr.refused(0, 1, badBots, 1, false)
	tell(6*time.Hour + time.Second)
	tell(6*time.Hour + 6*time.Second)
	tr.now = start
	compare(t, "odd clock", tr.end(), []string{
		`5h0m0s dry run, the last 5 hours: 1 request of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"`,
		`6h0m6s dry run, the last hour: 1 request of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; all by rule "bad bots"`,
		`end dry run, the last 6 seconds: no request would have been refused or blocked; 0 clients seen`,
		`end dry run, from start to end, 6 hours: 2 requests of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; by rule "bad bots": 1 request of 1 client; "pages": 1 request of 1 client`,
	})
}

// A request that is recorded while its period ends is counted.
func TestRequestAtTheEndOfAPeriodIsCounted(t *testing.T) {
	tr := newTraffic(policyOf(true))
	before := tr.state.Load()
	tr.wait(periodLength)
	if tr.state.Load() == before {
		t.Fatal("the period has not ended")
	}
	late := &tr.Census.last.tallies[dryPolicy]
	late.requests.Add(1)
	late.clients.add(1<<63, false)
	rule := late.rule("pages")
	rule.requests.Add(1)
	rule.clients.add(1<<63, false)
	tr.wait(time.Minute)
	compare(t, "late", tr.end(), []string{
		`end dry run, from start to end, 6 minutes: 1 request of 1 client (100 % of 1) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"`,
	})
}

// Names of rules are quoted, since lines are shown on terminals.
func TestNamesAreQuoted(t *testing.T) {
	p := &fairshare.Policy{DryRun: true, Rules: []fairshare.Rule{{Name: "a \"b\" \u202E grün",
		Action: fairshare.Block}}}
	tr := newTraffic(p)
	tr.refused(0, 30, 0, 1, false)
	tr.wait(10 * time.Second)
	for _, line := range tr.end() {
		if !strings.Contains(line, `by rule "a \"b\" \u202e grün"`) {
			t.Error(line)
		}
	}
	if len(tr.lines) != 2 {
		t.Errorf("%d lines", len(tr.lines))
	}
}

// A million addresses, each refused by two rules, take bounded memory and are counted
// approximately.
func TestFloodTakesBoundedMemory(t *testing.T) {
	tr := newTraffic(policyOf(true))
	tr.tick = 30 * time.Second
	clients, minutes := 1_000_000, 75
	if raceDetector {
		clients = 100_000
	}
	for n := range clients {
		tr.Saw(addr6(n), netip.Addr{})
		req := fairshare.Request{Addr: addr6(n), UserAgent: firefox}
		tr.Refused(&req, finding(tr.policy, n%2), true)
		if n%(clients/minutes) == 0 {
			tr.wait(time.Minute)
		}
	}
	tr.refused(0, 3, tried, 1, true) // counted in the flood, too
	tr.end()

	if got := tr.memory(); got > 1<<20+3*256<<10 {
		t.Errorf("%d bytes", got)
	}
	sums := tr.run.tallies[dryPolicy].sums()
	all := tr.run.tallies[dryPolicy].clients.amount()
	if !near(all.clients, int64(clients), 2) || !near(estimate(&tr.run.seen), int64(clients), 0.4) ||
		!near(sums[0].clients, int64(clients)/2, 2) || sums[0].requests+sums[1].requests != int64(clients) {
		t.Errorf("all %+v, by rule %+v", all, sums)
	}
	if got := tr.run.tallies[dryRules].clients.amount(); got != (amount{clients: 3, people: 3}) {
		t.Errorf("the other clients: %+v", got)
	}
	warnings := 0
	for _, line := range tr.lines {
		if strings.Contains(line, "WARNING: MANY CLIENTS WOULD BE") {
			warnings++
		}
	}
	if warnings < minutes/5 || warnings > minutes/5+2 {
		t.Errorf("%d warnings", warnings)
	}
}

// memory returns the size of a census in bytes, without the names of rules.
func (c *Census) memory() (n uint64) {
	n = uint64(unsafe.Sizeof(*c) + unsafe.Sizeof(state{}) + 2*unsafe.Sizeof(guessTable{}))
	for _, p := range []*period{c.last, c.state.Load().period, c.hour, c.run} {
		n += uint64(unsafe.Sizeof(*p))
		for k := range p.tallies {
			counts := []*count{&p.tallies[k].count}
			if rules := p.tallies[k].rules.Load(); rules != nil {
				for _, c := range *rules {
					counts = append(counts, c)
					n += uint64(unsafe.Sizeof(*c))
				}
			}
			for _, c := range counts {
				if slots := c.clients.slots.Load(); slots != nil {
					n += uint64(len(*slots)) * 8
				}
			}
		}
	}
	return n
}

// Concurrent requests are all counted, while periods end and policies change.
func TestCensusIsSafeForConcurrentUse(t *testing.T) {
	p := policyOf(true)
	tr := newTraffic(p)
	const workers, each = 8, 5000
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				n := w%2*each + i
				tr.Saw(addr(n), netip.Addr{})
				tr.Refused(request(n, w == 0), finding(p, i%3), true)
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			tr.Tick(start.Add(time.Minute))
			tr.Replace(p)
		}
	})
	wg.Wait()
	tr.end()
	requests := int64(0)
	for k := range kinds {
		requests += tr.run.tallies[k].requests.Load()
		for _, s := range tr.run.tallies[k].sums() {
			if !near(s.clients, 2*each/3, 2) || s.requests < workers*each/3-workers ||
				s.requests > workers*each/3+workers {
				t.Errorf("%+v", s)
			}
		}
	}
	if all := tr.run.tallies[dryPolicy].clients.amount(); requests != workers*each ||
		!near(all.clients, 2*each*2/3, 2) || !near(all.people, each*2/3, 3) ||
		!near(estimate(&tr.run.seen), 2*each, 0.4) {
		t.Errorf("%d requests, %+v", requests, all)
	}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	p := policyOf(false)
	tr := newTraffic(p)
	f := finding(p, pages)
	req, person := refusal(request(1, false), f, false), refusal(request(1, true), f, false)
	if n := testing.AllocsPerRun(100, func() {
		tr.Saw(req.Addr, netip.Addr{})
		tr.Census.Refused(req)
		tr.Census.Refused(person)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNumbersInLines(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{clients(1, false), "1 client"}, {clients(2004, true), "about 2,000 clients"},
		{about(999_600, true), "about 1,000,000"}, {about(12, true), "about 12"},
		{looks("1", 1), "1 looks like a person"}, {looks("2", 2), "2 look like people"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: lines\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func TestMemoryToBeginWith(t *testing.T) {
	if got := newTraffic(policyOf(false)).memory(); got > 200<<10 || got < 180<<10 {
		t.Errorf("%d bytes", got)
	}
}
