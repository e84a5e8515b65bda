package replay

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairshare"
	"fairshare/internal/prose"
)

// botLog is a log with bots of all states, people and a fleet.
func botLog(t testing.TB) string {
	request := func(status, bytes int, agent string) string {
		return fmt.Sprintf(`"GET /item HTTP/1.1" %d %d "-" "%s"`, status, bytes, agent)
	}
	person := `"GET /style.css HTTP/1.1" 200 900 "http://www.example/" "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"`
	const good = "Mozilla/5.0 (compatible; GoodBot/1.0; +http://good.example/bot)"
	var lines []string
	for i := range 60 {
		clock := fmt.Sprintf("10:%02d:%02d", i/10, i%10)
		lines = append(lines,
			entryAt([]string{"192.0.2.1", "192.0.2.3"}[i%2], clock, request(200, 2000, good)), // verified
			entryAt("198.51.100.50", clock, person),
			entryAt(fmt.Sprintf("203.%d.113.7", i), clock, request(200, 10, "collector")))
		if i%2 == 0 {
			lines = append(lines, entryAt("192.0.2.2", clock, request(200, 10, good))) // forged
		}
		if i%3 == 0 {
			lines = append(lines, entryAt("198.51.100.9", clock, request(200, 500, good))) // pending
		}
		if i%10 == 0 {
			lines = append(lines,
				entryAt("198.51.100.8", clock, request(404, 0, "evilbot/7 \\x1b[31m")),
				entryAt("198.51.100.8", clock, request(200, 7, "curl/8.1")),
				entryAt("198.51.100.60", clock, request(200, 70, "-")),
				entryAt("192.0.2.1", clock, request(200, 70, "Mozilla/5.0 (compatible; Previewer/2)")))
		}
	}
	return writeLines(t, "access.log", lines...)
}

func botPolicy() *fairshare.Policy {
	return &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "engines", Match: fairshare.Match{Bot: []string{"search"}}, Action: fairshare.Allow},
		{Name: "forged", Match: fairshare.Match{Bot: []string{"forged"}}, Action: fairshare.Block},
		{Name: "one by one", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 4, Window: 10 * time.Second,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}}},
	}}
}

func TestReportOfBots(t *testing.T) {
	report := replayAll(t, Options{
		Policy: botPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{botLog(t)}, Top: 6,
		Bot: testBot, Lookups: testDNS{},
	})
	report.Files, report.OverTime = []string{"access.log"}, report.OverTime[:1]
	var text, json bytes.Buffer
	if err := report.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "bots.json", json.String())
	for _, width := range []int{60, 80, 100} {
		text.Reset()
		if err := report.WriteText(&text, Style{Policy: "site.yaml", Width: width}); err != nil {
			t.Fatal(err)
		}
		for i, l := range strings.Split(text.String(), "\n") {
			if len([]rune(l)) > width || strings.TrimRight(l, " ") != l || prose.Printable(l) != l {
				t.Errorf("line %d is too long for %d columns, ends with a space, or is not printable: %q", i+1, width,
					l)
			}
		}
		if width == 80 {
			checkGolden(t, "bots.txt", text.String())
		}
	}
	// All shares are of all lines and bytes, and the rows add up.
	var requests, categories int64
	for _, b := range report.Bots {
		requests += b.Requests
	}
	for _, c := range report.BotSummary.Categories {
		categories += c.Requests
	}
	if s := &report.BotSummary; requests != s.Requests || categories+s.Forged.Requests != s.Requests ||
		s.Requests == 0 {
		t.Errorf("rows have %d requests, categories %d and %d forged, all bots %d", requests, categories,
			s.Forged.Requests, s.Requests)
	}
}

// A known bot is not a person, even if it behaves like a browser.
func TestKnownBotsAreNotPeople(t *testing.T) {
	opts := Options{
		Policy: botPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{botLog(t)},
	}
	if p := replayAll(t, opts).People; p.Clients != 1 {
		t.Fatalf("%+v, want one client that looks like a person", p)
	}
	opts.Bot = func(_ netip.Addr, agent string) fairshare.Bot {
		if strings.Contains(agent, "Firefox") {
			return fairshare.Bot{Name: "headless", State: fairshare.Claimed}
		}
		return fairshare.Bot{}
	}
	if p := replayAll(t, opts).People; p.Clients != 0 {
		t.Errorf("%+v, want no client that looks like a person", p)
	}
}

// If a trusted proxy logs no header, the address of the client is unknown.
func TestClaimsOfProxiesArePending(t *testing.T) {
	path := writeLines(t, "log",
		entryAt("192.0.2.1", "10:00:00", `"GET / HTTP/1.1" 200 1 "-" "GoodBot" "-"`),
		entryAt("192.0.2.1", "10:00:01", `"GET / HTTP/1.1" 200 1 "-" "GoodBot" "203.0.113.5"`),
		entryAt("192.0.2.1", "10:00:02", `"GET / HTTP/1.1" 200 1 "-" "GoodBot" "192.0.2.3"`),
		entryAt("0.0.0.0", "10:00:03", `"GET / HTTP/1.1" 200 1 "-" "GoodBot" "-"`),
	)
	report := replayAll(t, Options{Policy: botPolicy(), Limiter: memory(1 << 20),
		Client: clientFunc(t, "192.0.2.0/24"), Logs: []string{path}, Bot: testBot})
	var got []string
	for _, b := range report.Bots {
		got = append(got, fmt.Sprintf("%s %d", b.State, b.Requests))
	}
	if got, want := strings.Join(got, ", "), "pending 3, forged 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if report.BotSummary.Pending != 0 {
		t.Errorf("%d pending: the DNS cannot decide claims behind a proxy", report.BotSummary.Pending)
	}
}

// The report lists the rules that need bots, hostnames or DNS lists, if the log or the
// missing --resolve makes them ineffective.
func TestUnmeasuredBots(t *testing.T) {
	rules := []fairshare.Rule{
		{Name: "match", Match: fairshare.Match{Not: []fairshare.Match{{Bot: []string{"known"}}}},
			Action: fairshare.Block, DryRun: true},
		{Name: "key", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Minute,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}}},
		{Name: "ban", Limit: requests(9, time.Minute),
			Ban: &fairshare.BanTerms{After: 1, For: time.Second,
				Unless: &fairshare.Match{Hostname: []string{"x"}, Bot: []string{"known"}}}},
		{Name: "list", Match: fairshare.Match{Listed: []fairshare.Listing{{List: "drone"}}}, Action: fairshare.Block},
	}
	const common, pending = `192.0.2.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 100`,
		`"GET / HTTP/1.1" 200 1 "-" "GoodBot"`
	const dns, claims, agent = "only the DNS knows: --resolve asks it",
		"1 request of bots could not be verified by published addresses: --resolve asks the DNS",
		"the log holds no user agent"
	slow := &slowDNS{}
	for _, c := range []struct {
		name, line string
		change     func(*Options)
		want       []Unmeasured
	}{
		{"no user agent", common, func(o *Options) {},
			[]Unmeasured{{"match", "bot", agent}, {"key", "bot", agent}, {"ban", "bot", agent},
				{"ban", "hostname", dns}, {"list", "listed", dns}}},
		{"a claim", entryAt("198.51.100.1", "10:00:00", pending), func(o *Options) {},
			[]Unmeasured{{"match", "bot", claims}, {"key", "bot", claims}, {"ban", "bot", claims},
				{"ban", "hostname", dns}, {"list", "listed", dns}}},
		{"all is known", entryAt("192.0.2.1", "10:00:00", pending),
			func(o *Options) { o.Bot, o.Lookups, o.Resolve = slow.bot, slow, slow.resolve }, []Unmeasured{}},
		{"without detection of bots", entryAt("192.0.2.1", "10:00:00", pending),
			func(o *Options) { o.Bot, o.Resolve = nil, slow.resolve },
			[]Unmeasured{{"match", "bot", "nobody was asked who is a bot"},
				{"key", "bot", "nobody was asked who is a bot"}, {"ban", "bot", "nobody was asked who is a bot"}}},
	} {
		opts := Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", c.line)}, Bot: testBot}
		c.change(&opts)
		if diff := cmp.Diff(c.want, replayAll(t, opts).Unmeasured); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A log without user agents has no bots. In a log with user agents, a missing one is the
// bot "empty".
func TestMissingUserAgentsAreNotBots(t *testing.T) {
	const common = `192.0.2.1 - - [17/May/2015:10:00:00 +0000] "GET / HTTP/1.1" 200 100`
	opts := Options{Policy: botPolicy(), Limiter: memory(1 << 20), Client: clientFunc(t), Bot: testBot}
	for line, want := range map[string]int{common: 0, common + ` "-" "-"`: 1} {
		opts.Logs = []string{writeLines(t, "log", line)}
		if r := replayAll(t, opts); len(r.Bots) != want || r.BotSummary.Known != (want == 1) {
			t.Errorf("%s: %+v, want %d bots", line, r.Bots, want)
		}
	}
}

// The log has more bots, and more clients of bots, than are distinguished. Requests stay
// exact, and clients are marked as estimates.
func TestFloodOfBots(t *testing.T) {
	var lines []string
	for i := range 6000 {
		agent := fmt.Sprintf("bot%d", i%3)
		if i%4 == 0 {
			agent = fmt.Sprintf("rare%d", i)
		}
		lines = append(lines, entryAt(fmt.Sprintf("10.0.%d.%d", i/250, i%250),
			fmt.Sprintf("10:%02d:%02d", i/100, i/10%10), `"GET / HTTP/1.1" 200 3 "-" "`+agent+`"`))
	}
	r, err := New(Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)},
		Bot: func(_ netip.Addr, agent string) fairshare.Bot {
			return fairshare.Bot{Name: strings.Clone(agent), State: fairshare.Claimed}
		}})
	if err != nil {
		t.Fatal(err)
	}
	r.bounds.members = 500
	report, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := report.BotSummary.Rows; n != mostBots+1 || len(report.Bots) != mostBotRows ||
		report.BotSummary.Requests != 6000 {
		t.Errorf("%d rows, %d in the report, %d requests", n, len(report.Bots), report.BotSummary.Requests)
	}
	for i, b := range report.Bots[:4] {
		want := int64(1500)
		switch {
		case b.Name == manyBots:
			want = 1500 - (mostBots - 3)
		case !strings.HasPrefix(b.Name, "bot"):
			t.Errorf("%+v is one of the first rows", b)
		}
		if b.Requests != want || b.Bytes != 3*want || !b.Approximate || b.Clients < want*95/100 ||
			b.Clients > want*105/100 {
			t.Errorf("row %d is %+v, want %d requests of as many clients", i, b, want)
		}
	}
}

// One user agent of many addresses in many networks is a fleet. A browser, addresses of
// one network, and a bot that can be verified are not.
func TestFleets(t *testing.T) {
	var lines []string
	add := func(n int, addr func(int) string, agent string) {
		for i := range n {
			lines = append(lines, entryAt(addr(i), "10:00:00", `"GET / HTTP/1.1" 200 1 "-" "`+agent+`"`))
		}
	}
	wide := func(i int) string { return fmt.Sprintf("10.0.%d.1", i) }
	add(49, wide, "few")
	add(50, func(i int) string { return fmt.Sprintf("10.1.%d.%d", i%10, i) }, "enough")
	add(200, func(i int) string { return fmt.Sprintf("10.2.%d.%d", i%9, i) }, "one farm")
	add(90, func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }, "six")
	add(90, func(i int) string { return fmt.Sprintf("10.3.%d.1", i) },
		"Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0")
	add(90, func(i int) string { return fmt.Sprintf("10.4.%d.1", i) }, "-")
	add(90, func(i int) string { return fmt.Sprintf("10.5.%d.1", i) }, "true")
	add(90, func(i int) string { return fmt.Sprintf("10.6.%d.1", i) }, "untold")
	add(60, func(i int) string { return fmt.Sprintf("10.7.%d.1", i) }, "lie")
	states := map[string]fairshare.BotState{"six": fairshare.Claimed, "true": fairshare.Verified,
		"untold": fairshare.Pending, "lie": fairshare.Forged}
	report := replayAll(t, Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)},
		Bot: func(_ netip.Addr, agent string) fairshare.Bot {
			if s := states[agent]; s != fairshare.NoBot {
				return fairshare.Bot{Name: agent, State: s}
			}
			return fairshare.Bot{}
		}})
	want := []Fleet{
		{UserAgent: "six", Bot: "six", Clients: 90, Networks: 90, Requests: 90},
		{UserAgent: "lie", Bot: "lie", Clients: 60, Networks: 60, Requests: 60},
		{UserAgent: "enough", Clients: 50, Networks: 10, Requests: 50},
	}
	if diff := cmp.Diff(want, report.Fleets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The report warns if verified search engines are refused, and not for other bots.
func TestWarningOfRefusedEngines(t *testing.T) {
	var lines []string
	for i := range 8 {
		clock := fmt.Sprintf("10:00:%02d", i)
		lines = append(lines,
			entryAt("192.0.2.1", clock, `"GET / HTTP/1.1" 200 1 "-" "GoodBot"`),   // verified
			entryAt("192.0.2.2", clock, `"GET / HTTP/1.1" 200 1 "-" "GoodBot"`),   // forged
			entryAt("192.0.2.3", clock, `"GET / HTTP/1.1" 200 1 "-" "Previewer"`), // verified, not a search engine
		)
	}
	opts := Options{Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{writeLines(t, "log", lines...)},
		Bot: testBot}
	for _, c := range []struct {
		name string
		rule fairshare.Rule
		want []Warning
	}{
		{"limit", fairshare.Rule{Name: "slow", Limit: requests(3, time.Minute)}, []Warning{{
			"Verified search engines would be refused or blocked: goodbot 5 of 8 requests.",
			"if refused, they crawl less often: if that is not intended, put a rule with match: {bot: search} and allow: true above"}}},
		{"block", fairshare.Rule{Name: "all", Action: fairshare.Block}, []Warning{{
			"Verified search engines would be refused or blocked: goodbot 8 of 8 requests.",
			"if refused, they crawl less often; if blocked, they drop the pages: if that is not intended, put a rule with match: {bot: search} and allow: true above"}}},
		{"others", fairshare.Rule{Name: "forged", Match: fairshare.Match{Bot: []string{"forged", "preview"}},
			Action: fairshare.Block}, []Warning{}},
		{"dry", fairshare.Rule{Name: "all", Action: fairshare.Block, DryRun: true}, []Warning{}},
	} {
		opts.Policy = &fairshare.Policy{Rules: []fairshare.Rule{c.rule}}
		if diff := cmp.Diff(c.want, replayAll(t, opts).Warnings); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
