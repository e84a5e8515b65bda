package fairshare_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
)

func claim(addr, name, category string, state fairshare.BotState) fairshare.Request {
	req := from(addr)
	if state != fairshare.NoBot {
		req.Bot = fairshare.Bot{Name: name, Categories: []string{category, "crawler"}, Operator: "google", State: state}
	}
	return req
}

// allStates returns one client for each state, and a verified one that is
// user-triggered.
func allStates() (reqs []fairshare.Request, names []string) {
	for s := fairshare.NoBot; s <= fairshare.Forged; s++ {
		reqs, names = append(reqs, claim(alice, "googlebot", "search", s)), append(names, s.String())
	}
	triggered := claim(alice, "googlebot", "search", fairshare.Verified)
	triggered.Bot.UserTriggered = true
	return append(reqs, triggered), append(names, "user-triggered")
}

func TestBotRestrictsEveryClaimAndPermitsVerified(t *testing.T) {
	limit := requests(1, time.Minute)
	for _, c := range []struct {
		bot                   string // with "operator" and "state" before other conditions
		permitted, restricted string // states it holds for
	}{
		{"googlebot state verified", "verified", "verified user-triggered"},
		{"googlebot state forged", "", "forged"},
		{"googlebot state pending known", "", "known pending"},
		{"search state verified pending", "verified", "pending verified user-triggered"},
		{"ai state verified", "", ""},
		{"known state known", "", "known"},
		{"forged state verified", "", ""},
		{"state verified", "verified", "verified user-triggered"},
		{"state known", "", "known"},
		{"operator google", "verified", "known pending verified forged user-triggered"},
		{"operator GOOGLE state forged", "", "forged"},
		{"operator openai", "", ""},
		{"search operator google", "verified", "known pending verified forged user-triggered"},
		{"search operator openai", "", ""},
		{"known", "verified", "known pending verified forged user-triggered"},
		{"verified", "verified", "verified user-triggered"},
		{"forged", "", "forged"},
		{"googlebot", "verified", "known pending verified forged user-triggered"},
		{"GoogleBot", "verified", "known pending verified forged user-triggered"},
		{"search", "verified", "known pending verified forged user-triggered"},
		{"crawler", "verified", "known pending verified forged user-triggered"},
		{"re:^google", "verified", "known pending verified forged user-triggered"},
		{"bingbot", "", ""},
		{"ai", "", ""},
	} {
		var match fairshare.Match
		into := &match.Bot
		for word := range strings.FieldsSeq(c.bot) {
			switch word {
			case "state":
				into = &match.State
			case "operator":
				into = &match.Operator
			default:
				*into = append(*into, word)
			}
		}
		not := fairshare.Match{Not: []fairshare.Match{match}}
		for _, p := range []struct {
			name    string
			rule    fairshare.Rule
			negated bool
			want    string
		}{
			{"allow", fairshare.Rule{Match: match, Action: fairshare.Allow}, false, c.permitted},
			{"block", fairshare.Rule{Match: match, Action: fairshare.Block}, false, c.restricted},
			{"limit", fairshare.Rule{Match: match, Limit: limit}, false, c.restricted},
			{"not in an allow", fairshare.Rule{Match: not, Action: fairshare.Allow}, true, c.restricted},
			{"not in a block", fairshare.Rule{Match: not, Action: fairshare.Block}, true, c.permitted},
			{"not in a limit", fairshare.Rule{Match: not, Limit: limit}, true, c.permitted},
		} {
			p.rule.Name = "rule"
			g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{p.rule}})
			var held []string
			reqs, names := allStates()
			for i := range reqs {
				reqs[i].Time = start
				v, err := g.Decide(t.Context(), &reqs[i])
				if err != nil {
					t.Fatal(err)
				}
				found := false
				v.Matched(func(int) { found = true })
				if found != p.negated && names[i] != "" {
					held = append(held, names[i])
				}
			}
			if got := strings.Join(held, " "); got != p.want {
				t.Errorf("%s in %s holds for %q, want %q", c.bot, p.name, got, p.want)
			}
		}
	}
}

// All addresses of a verified bot are one client; nobody else can spend its
// share.
func TestVerifiedBotIsOneClient(t *testing.T) {
	by := fairshare.KeyPart{Kind: fairshare.ByBot}
	for _, name := range []string{"googlebot", "a-bot-with-a-name-that-is-longer-than-an-address"} {
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "crawl",
			Limit: requests(2, time.Minute, by)}}})
		triggered := claim(carol, name, "search", fairshare.Verified)
		triggered.Bot.UserTriggered = true
		play(t, g, []step{
			{0, claim(alice, name, "search", fairshare.Forged), 0, 0, "allow"},
			{0, claim(bob, name, "search", fairshare.Pending), 0, 0, "allow"},
			{0, claim(bob, name, "search", fairshare.Claimed), 0, 0, "allow"},
			{0, claim(alice, name, "search", fairshare.Verified), 0, 0, "allow"},
			{0, claim(carol, name, "search", fairshare.Verified), 0, 0, "allow"},
			{0, claim(bob, name, "search", fairshare.Verified), 0, 0, "refuse crawl 1m30s"},
			{0, claim(bob, "other", "search", fairshare.Verified), 0, 0, "allow"},
			{0, from(bob), 0, 0, "refuse crawl 1m30s"},                                      // with its claims above
			{0, claim(alice, name, "search", fairshare.Forged), 0, 0, "allow"},              // alone
			{0, claim(alice, name, "search", fairshare.Forged), 0, 0, "refuse crawl 1m30s"}, // by its address
			{0, claim(carol, name, "search", fairshare.Pending), 0, 0, "allow"},             // nor by the bot's
			// what is counted is not kind
			{0, triggered, 0, 0, "refuse crawl 1m30s"},
			{2 * time.Minute, claim(carol, name, "search", fairshare.Verified), 0, 0, "allow"}, // two windows later
		})
	}
}

func TestBanOfABot(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{{
		Name: "crawl", Match: fairshare.Match{Bot: []string{"known"}},
		Limit: requests(1, time.Second, fairshare.KeyPart{Kind: fairshare.ByBot}),
		Ban:   &fairshare.BanTerms{After: 2, For: time.Minute},
	}}}
	g := newGuard(t, policy)
	real := claim(alice, "googlebot", "search", fairshare.Verified)
	if v := repeat(t, g, 0, real, 3); v.Ban != fairshare.BanStarted {
		t.Fatalf("the third request: %v", describeFinding(v.Finding))
	}
	elsewhere := claim(carol, "googlebot", "search", fairshare.Verified)
	if v := repeat(t, g, time.Second*10, elsewhere, 1); v.Ban != fairshare.BanInForce {
		t.Errorf("the bot at another address: %v, want the ban", describeFinding(v.Finding))
	}
	for _, req := range []fairshare.Request{claim(carol, "googlebot", "search", fairshare.Forged),
		claim(alice, "bingbot", "search", fairshare.Verified), from(alice)} {
		if v := repeat(t, g, time.Second*10, req, 1); v.Action != fairshare.Allow {
			t.Errorf("%s (%s): %v, want allow", req.Bot.Name, req.Bot.State, describeFinding(v.Finding))
		}
	}
}

// A ban does not hold for clients that an allow rule names by their identity alone,
// and for those of Unless. A bot must be verified for that.
func TestBanExemptsVerifiedBots(t *testing.T) {
	search := fairshare.Match{Bot: []string{"search"}}
	for name, policy := range map[string]fairshare.Policy{
		"allow": banPolicy(nil), "unless": banPolicy(func(r *fairshare.Rule) { r.Ban.Unless = &search }),
	} {
		if name == "allow" {
			rules := policy.Rules
			policy.Rules = append([]fairshare.Rule{rules[0]},
				fairshare.Rule{Name: "engines", Match: search, Action: fairshare.Allow})
			policy.Rules = append(policy.Rules, rules[1:]...)
		}
		g := newGuard(t, policy)
		if v := repeat(t, g, 0, from(alice), 5); v.Ban != fairshare.BanInForce {
			t.Fatalf("%s: no ban: %v", name, describeFinding(v.Finding))
		}
		reqs, names := allStates()
		for i, req := range reqs {
			v := repeat(t, g, 20*time.Second, req, 1)
			if spared := v.Action == fairshare.Allow; spared != (names[i] == "verified") {
				t.Errorf("%s: state %q: %v", name, names[i], describeFinding(v.Finding))
			}
		}
	}
}

func TestSetBot(t *testing.T) {
	for _, c := range []struct {
		change func(*fairshare.Request)
		want   string
	}{
		{func(*fairshare.Request) {}, " known pending verified forged"},
		{func(r *fairshare.Request) { r.Proxy = true }, " known pending pending pending"},
		{func(r *fairshare.Request) { r.Via = netip.MustParseAddr("172.17.0.1") }, " known pending pending pending"},
		{func(r *fairshare.Request) { r.Addr = netip.Addr{} }, " known pending pending pending"},
	} {
		var got []string
		for s := fairshare.NoBot; s <= fairshare.Forged; s++ {
			req := from(alice)
			c.change(&req)
			req.SetBot(fairshare.Bot{Name: "x", State: s})
			got = append(got, req.Bot.State.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("states %q, want %q", got, c.want)
		}
	}
}

// known answers look-ups from tables.
type known struct {
	names  map[string][]string
	listed map[string][]string // list and address → answers
}

func (k known) Hostnames(addr netip.Addr) []string { return k.names[addr.String()] }

func (k known) Listed(list string, addr netip.Addr) (answers []netip.Addr) {
	for _, a := range k.listed[list+" "+addr.String()] {
		answers = append(answers, netip.MustParseAddr(a))
	}
	return answers
}

// holdsFor reports whether a rule with that match holds for a request.
func holdsFor(t *testing.T, m fairshare.Match, req fairshare.Request) bool {
	t.Helper()
	g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "rule", Match: m, Action: fairshare.Block}}})
	req.Time = start
	v, err := g.Decide(t.Context(), &req)
	if err != nil {
		t.Fatal(err)
	}
	return v.Action == fairshare.Block
}

func TestHostname(t *testing.T) {
	names := known{names: map[string][]string{alice: {"host.example.org", "other.example.net"}}}
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"*.example.org", true}, {"*.EXAMPLE.net", true}, {"host.example.org", true},
		{"example.org", false}, {"*.ample.org", false}, {"re:^host\\.", true},
	} {
		m := fairshare.Match{Hostname: []string{c.pattern}}
		req := from(alice)
		req.Lookups = names
		if got := holdsFor(t, m, req); got != c.want {
			t.Errorf("hostname %s: %v", c.pattern, got)
		}
		for what, change := range map[string]func(*fairshare.Request){
			"another address": func(r *fairshare.Request) { r.Addr = netip.MustParseAddr(bob) },
			"no address":      func(r *fairshare.Request) { r.Addr = netip.Addr{} },
			"a proxy":         func(r *fairshare.Request) { r.Proxy = true },
			"unnamed":         func(r *fairshare.Request) { r.Via = r.Addr },
			"no lookups":      func(r *fairshare.Request) { r.Lookups = nil },
		} {
			other := req
			change(&other)
			if holdsFor(t, m, other) {
				t.Errorf("hostname %s holds for %s", c.pattern, what)
			}
		}
	}
}

func TestListed(t *testing.T) {
	for _, c := range []struct {
		listing fairshare.Listing
		answer  string
		want    bool
	}{
		{fairshare.Listing{}, "127.0.0.2", true},
		{fairshare.Listing{}, "127.0.0.2 127.255.255.254", true},
		{fairshare.Listing{}, "127.255.255.254", false}, // the list refuses to answer
		{fairshare.Listing{}, "10.0.0.1", false},        // a provider that answers for all names
		{fairshare.Listing{}, "::1", false},
		{fairshare.Listing{}, "", false},
		{fairshare.Listing{Codes: prefixes("127.0.0.3/32", "127.0.1.0/24")}, "127.0.0.2", false},
		{fairshare.Listing{Codes: prefixes("127.0.0.3/32", "127.0.1.0/24")}, "127.0.0.2 127.0.1.9", true},
		{fairshare.Listing{Codes: prefixes("127.0.0.0/8")}, "127.255.255.254", false},
		{fairshare.Listing{HTTPBL: true}, "127.3.5.1", true},
		{fairshare.Listing{HTTPBL: true}, "127.3.5.0", false}, // a search engine
		{fairshare.Listing{HTTPBL: true}, "126.3.5.1", false},
		{fairshare.Listing{HTTPBL: true, Types: 4}, "127.3.5.1", false},
		{fairshare.Listing{HTTPBL: true, Types: 4}, "127.3.5.5", true},
		{fairshare.Listing{HTTPBL: true, Threat: 25}, "127.3.24.4", false},
		{fairshare.Listing{HTTPBL: true, Threat: 25}, "127.3.25.4", true},
		{fairshare.Listing{HTTPBL: true, Days: 30}, "127.31.25.4", false},
		{fairshare.Listing{HTTPBL: true, Days: 30}, "127.30.25.4", true},
		{fairshare.Listing{HTTPBL: true}, "127.255.255.4", true}, // of 255 days ago and of the greatest threat
	} {
		c.listing.List = "list"
		req := from(alice)
		req.Lookups = known{listed: map[string][]string{"list " + alice: strings.Fields(c.answer)}}
		m := fairshare.Match{Listed: []fairshare.Listing{{List: "other"}, c.listing}}
		if got := holdsFor(t, m, req); got != c.want {
			t.Errorf("%+v, answer %q: %v", c.listing, c.answer, got)
		}
		req.Proxy = true
		if holdsFor(t, m, req) {
			t.Errorf("%+v holds for a proxy", c.listing)
		}
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, s := range texts {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

func TestExplainShowsBots(t *testing.T) {
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "engines", Match: fairshare.Match{Bot: []string{"search"}}, Action: fairshare.Allow},
		{Name: "crawlers", Match: fairshare.Match{Bot: []string{"ai", "search"}}, Limit: requests(1, time.Minute)},
		{Name: "ours", Match: fairshare.Match{Hostname: []string{"*.example.org"}}, Limit: requests(1, time.Minute)},
		{Name: "spam", Match: fairshare.Match{Listed: []fairshare.Listing{{List: "bl"}}},
			Limit: requests(1, time.Minute)},
	}}
	req := claim(alice, "googlebot", "search", fairshare.Claimed)
	req.Lookups = known{names: map[string][]string{alice: {"a.example.org"}},
		listed: map[string][]string{"bl " + alice: {"127.0.0.2"}}}
	got := explained(t, policy, &req)
	want := `engines false: bot googlebot (search, crawler), known, where only a verified one counts: that is not "search"
crawlers true: bot googlebot (search, crawler), known, where its claim counts: that is "search"
ours true: hostname a.example.org fits "*.example.org"
spam true: address 192.0.2.1 is listed by "bl"
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	req = claim(alice, "fetcher", "search", fairshare.Verified)
	req.Bot.UserTriggered = true
	got = explained(t, policy, &req)
	want = `engines false: bot fetcher (search, crawler), verified, whom anybody can send, so that it is treated as any other client: that is not "search"
crawlers true: bot fetcher (search, crawler), verified: that is "search"
ours false: no hostname is known: that does not fit "*.example.org"
spam false: address 192.0.2.1 is not known to be listed as asked for by "bl"
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func explained(t *testing.T, policy *fairshare.Policy, req *fairshare.Request) string {
	t.Helper()
	steps, err := policy.Explain(req)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s %v:", policy.Rules[s.Rule].Name, s.Holds)
		for _, r := range s.Reasons {
			fmt.Fprintf(&b, " %s", r.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// lookupRecorder records the addresses that were looked up.
type lookupRecorder struct{ addrs []string }

func (a *lookupRecorder) Hostnames(addr netip.Addr) []string {
	a.addrs = append(a.addrs, addr.String())
	return nil
}

func (a *lookupRecorder) Listed(_ string, addr netip.Addr) []netip.Addr {
	a.Hostnames(addr)
	return nil
}

// No address is looked up if the rest of the match does not hold.
func TestLookupsComeLastInAMatch(t *testing.T) {
	for _, m := range []fairshare.Match{{Listed: []fairshare.Listing{{List: "bl"}}},
		{Hostname: []string{"*.example.org"}}} {
		m.Method, m.Path, m.Not = []string{"POST"}, []string{"/wp-*"}, []fairshare.Match{{Bot: []string{"search"}}}
		for _, c := range []struct {
			method, target string
			state          fairshare.BotState
			want           int
		}{
			{"POST", "/wp-login.php", fairshare.NoBot, 1},
			{"GET", "/wp-login.php", fairshare.NoBot, 0},
			{"POST", "/", fairshare.NoBot, 0},
			{"POST", "/wp-login.php", fairshare.Verified, 0},
			{"POST", "/wp-login.php", fairshare.Forged, 1},
		} {
			var a lookupRecorder
			req := claim(alice, "googlebot", "search", c.state)
			req.SetTarget(c.target)
			req.Method, req.Lookups = c.method, &a
			holdsFor(t, m, req)
			if len(a.addrs) != c.want {
				t.Errorf("%s %s (%s): asked about %v, want %d", c.method, c.target, c.state, a.addrs, c.want)
			}
		}
	}
}
