package census

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

// bot returns a request of the n-th client that is recognized as a bot.
func bot(n int, name, category string, state fairshare.BotState) *fairshare.Request {
	req := request(n, false)
	req.SetBot(fairshare.Bot{Name: name, Categories: []string{category}, State: state})
	return req
}

const engineHint = "; if that is not intended, put a rule with match: {bot: search} and allow: true above, and send SIGHUP"

// A refused verified search engine is reported at once, then every five minutes while
// it lasts. No other client is reported.
func TestRefusedSearchEnginesAreReported(t *testing.T) {
	tr := newTraffic(policyOf(false))
	refuse := func(req *fairshare.Request, rule, times int) {
		for range times {
			tr.Refused(req, finding(tr.policy, rule), tr.policy.Rules[rule].DryRun)
		}
	}
	refuse(bot(1, "googlebot", "search", fairshare.Forged), pages, 9)
	refuse(bot(2, "googlebot", "search", fairshare.Pending), pages, 9)
	refuse(bot(3, "gptbot", "ai", fairshare.Verified), pages, 9)
	refuse(bot(4, "somebot", "search", fairshare.Claimed), pages, 9)
	tr.wait(10 * time.Minute)
	compare(t, "others", tr.lines, nil)

	refuse(bot(1, "googlebot", "search", fairshare.Verified), pages, 1)
	tr.wait(5 * time.Second)
	refuse(bot(1, "googlebot", "search", fairshare.Verified), pages, 1200)
	refuse(bot(2, "googlebot", "search", fairshare.Verified), pages, 34)
	tr.wait(2 * time.Minute)
	refuse(bot(3, "bingbot", "search", fairshare.Verified), badBots, 2)
	refuse(bot(3, "bingbot", "search", fairshare.Verified), tried, 3)
	tr.wait(20 * time.Minute)
	refuse(bot(1, "googlebot", "search", fairshare.Verified), pages, 2)
	tr.wait(20 * time.Minute)
	compare(t, "engines", tr.lines, []string{
		`10m5s WARNING: googlebot (verified) was refused once by rule "pages" in the last 5 seconds: a search engine that is refused crawls less often` + engineHint,
		`15m5s WARNING: googlebot (verified) was refused 1,234 times by rule "pages", bingbot (verified) was blocked twice by rule "bad bots" in the last 5 minutes: a search engine that is blocked drops the pages from its index` + engineHint,
		`15m5s WARNING: bingbot (verified) would have been refused 3 times by rule "tried" in the last 5 minutes: a search engine that is refused crawls less often` + engineHint,
		`32m10s WARNING: googlebot (verified) was refused twice by rule "pages" in the last 5 seconds: a search engine that is refused crawls less often` + engineHint,
	})
}

// Bans by an operator cause no warning, neither about many clients nor about search
// engines. The summary of a dry run contains them.
func TestOperatorsBansCauseNoWarning(t *testing.T) {
	for _, dry := range []bool{false, true} {
		tr := newTraffic(policyOf(dry))
		for n := range 200 {
			tr.Saw(addr(n), netip.Addr{})
			tr.Refused(request(n, true), &fairshare.Finding{Action: fairshare.Refuse, Rule: fairshare.OperatorBan,
				Wait: time.Hour, Ban: fairshare.BanInForce}, dry)
		}
		for n := range 50 {
			tr.Saw(addr(n), netip.Addr{})
			tr.Refused(bot(n, "googlebot", "search", fairshare.Verified),
				&fairshare.Finding{Action: fairshare.Block, Rule: fairshare.OperatorBan, Ban: fairshare.BanInForce},
				dry)
		}
		tr.refused(0, 2, pages, 1, false)
		tr.wait(65 * time.Minute)
		got := tr.end()
		if !dry {
			const refused = `: 252 requests; 2 requests of 2 clients (1 % of 200) were refused or blocked; ` +
				`none of these clients looks like a person; all by rule "pages"; ` +
				`bans by operators are not included: 250 requests of 200 clients`
			const nobody = ": no request would have been refused or blocked; "
			compare(t, "enforced", got, []string{
				"1h0m5s summary, the last hour" + refused,
				"1h0m5s rules in dry run, the last hour" + nobody + "200 clients seen",
				"end rules in dry run, the last 5 minutes" + nobody + "0 clients seen",
				"end summary, from start to end, 65 minutes" + refused,
				"end rules in dry run, from start to end, 65 minutes" + nobody + "200 clients seen",
			})
			continue
		}
		const would = `2 requests of 2 clients (1 % of 200) would have been refused or blocked; none of these clients looks like a person; all by rule "pages"`
		const more = "; bans by operators are not included: 250 requests of 200 clients"
		compare(t, "dry", got, []string{
			"1h0m5s dry run, the last hour: " + would + more,
			"end dry run, the last 5 minutes: no request would have been refused or blocked; 0 clients seen",
			"end dry run, from start to end, 65 minutes: " + would + more,
		})
	}
}

// The number of distinguished engines is bounded, and the length of a line.
func TestReportedEnginesAreBounded(t *testing.T) {
	tr := newTraffic(policyOf(true))
	for n := range 1000 {
		for range 1 + n%10 {
			tr.Refused(bot(n, fmt.Sprintf("engine %d", n), "search", fairshare.Verified), finding(tr.policy, pages),
				true)
		}
	}
	if n := len(tr.engines.refused); n != mostEngines {
		t.Errorf("%d are distinguished, want %d", n, mostEngines)
	}
	lines := tr.engines.warnings(start.Add(5 * time.Second))
	compare(t, "many", lines,
		[]string{`WARNING: engine 19 (verified) would have been refused 10 times by rule "pages", engine 29 (verified) would have been refused 10 times by rule "pages", ` +
			`engine 39 (verified) would have been refused 10 times by rule "pages", engine 49 (verified) would have been refused 10 times by rule "pages" and 60 more in the last 5 seconds: ` +
			`a search engine that is refused crawls less often` + engineHint})
	if tr.engines.refused != nil {
		t.Error("reported engines are kept")
	}
}

// The warning and the summary contain the number of requests from bots.
func TestBotsAmongTheRefused(t *testing.T) {
	tr := newTraffic(policyOf(true))
	for n := range 20 {
		tr.Saw(addr(n), netip.Addr{})
		tr.Refused(bot(n, "gptbot", "ai", fairshare.Verified), finding(tr.policy, pages), true)
		tr.Refused(bot(n, "googlebot", "search", fairshare.Forged), finding(tr.policy, pages), true)
	}
	tr.Refused(bot(1, "bingbot", "search", fairshare.Verified), finding(tr.policy, pages), true)
	tr.Refused(request(1, true), finding(tr.policy, pages), true)
	tr.now = start.Add(40 * time.Second)
	tr.wait(5 * time.Second)
	compare(t, "bots", tr.end(), []string{
		`45s WARNING: MANY CLIENTS WOULD BE REFUSED without dry run: 20 of 20 clients of the last 45 seconds (100 %) would have been refused or blocked, all by rule "pages". 1 of them looks like a person. ` +
			`41 of the 42 requests came from known bots, 1 from verified search engines and 20 from forged ones. ` +
			`If this is not an attack, the rule is too tight to be enforced: raise its limit, and send SIGHUP; fairshare check FILE --try shows its effect on a request, fairshare replay on a whole log`,
		`45s WARNING: bingbot (verified) would have been refused once by rule "pages" in the last 45 seconds: a search engine that is refused crawls less often` + engineHint,
		`end dry run, from start to end, 45 seconds: 42 requests of 20 clients (100 % of 20) would have been refused or blocked; 1 of these clients looks like a person; ` +
			`41 of the 42 requests came from known bots, 1 from verified search engines and 20 from forged ones; all by rule "pages"`,
	})
}

// A bot with all headers of a browser is not a person.
func TestKnownBotIsNotAPerson(t *testing.T) {
	req := request(1, true)
	req.Header.(http.Header).Set("Cookie", "a=b")
	if !Person(req) {
		t.Fatal("the request should look like a person's")
	}
	req.SetBot(fairshare.Bot{Name: "headless", State: fairshare.Claimed})
	if Person(req) {
		t.Error("a known bot looks like a person")
	}
}
