package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fairshare"
	"fairshare/registry"
)

// testOverrides are the operators' overrides, searched one by one.
type testOverrides struct {
	records []registry.OverrideRecord
	labels  []registry.Label
}

func (w *testOverrides) find(addr netip.Addr, bot fairshare.Bot, now time.Time) (found fairshare.Override) {
	longest := -1
	for _, s := range w.records {
		if !s.Until.IsZero() && !now.Before(s.Until) {
			continue
		}
		bits := s.Client.Prefix.Bits()
		switch {
		case s.Client.Bot != "":
			bits = 0 // an address is nearer than a bot
			if !strings.EqualFold(s.Client.Bot, bot.Name) || longest >= 0 {
				continue
			}
		case !s.Client.Prefix.Contains(addr) || bits < longest:
			continue
		}
		longest = bits
		found.Action, found.Wait = s.Action, 0
		if s.Action == fairshare.Refuse {
			found.Wait = min(s.Until.Sub(now), s.Until.Sub(s.Since))
		}
	}
	for _, l := range w.labels {
		if l.Client.Prefix.IsValid() && l.Client.Prefix.Contains(addr) ||
			l.Client.Bot != "" && l.Client.Bot == bot.Name && bot.State == fairshare.Verified && !bot.UserTriggered {
			found.Labels = append(found.Labels, l.Name)
		}
	}
	return found
}

func clientID(t testing.TB, text string) fairshare.ClientID {
	id, err := fairshare.ParseClientID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// randomOverrides returns overrides of some of the test's clients. Their ends are
// in the time of the test's logs.
func randomOverrides(t testing.TB, rnd *rand.Rand, begin time.Time) *testOverrides {
	w := &testOverrides{}
	for _, text := range []string{"192.0.2.1", "192.0.2.0/24", "198.51.100.7", "203.0.113.5", "2001:db8::/64",
		"2001:db8::/47", "2001:db8:7::/49", "10.0.0.0/8", "goodbot", "curl"} {
		id := clientID(t, text)
		if rnd.IntN(3) == 0 {
			since := begin.Add(time.Duration(rnd.IntN(1200)-600) * time.Second)
			s := registry.OverrideRecord{Client: id, Since: since,
				Action: one(rnd, fairshare.Allow, fairshare.Refuse, fairshare.Refuse, fairshare.Block)}
			if s.Action == fairshare.Refuse || s.Action == fairshare.Allow && rnd.IntN(2) == 0 {
				s.Until = begin.Add(time.Duration(rnd.IntN(900))*time.Second + time.Duration(rnd.IntN(1e9)))
				if !s.Until.After(since) {
					s.Since = s.Until.Add(-time.Minute)
				}
			}
			w.records = append(w.records, s)
		}
		for _, name := range []string{"partner", "good-partner", "slow"} {
			if rnd.IntN(4) == 0 {
				w.labels = append(w.labels, registry.Label{Client: id, Name: name})
			}
		}
	}
	return w
}

// operatorsLog returns a log of clients that operators have banned with or without an end,
// allowed, or labeled.
func operatorsLog(t testing.TB) (lines []string, overrides *testOverrides, policy *fairshare.Policy) {
	at := func(clock string) time.Time {
		at, err := time.Parse(time.DateTime, "2015-05-17 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	const person = `"GET /a.css HTTP/1.1" 200 90 "http://www.example/" "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"`
	const engine = `"GET / HTTP/1.1" 200 90 "-" "GoodBot/1.0"`
	for i := range 4 {
		clock := fmt.Sprintf("10:00:%02d", i*10)
		lines = append(lines,
			entryAt("198.51.100.1", clock, ""),     // banned without an end
			entryAt("198.51.100.2", clock, person), // banned until 10:00:20.5
			entryAt("198.51.100.3", clock, ""),     // banned without an end by its /24, with an end by its address
			entryAt("203.0.113.9", clock, ""),      // allowed
			entryAt("203.0.113.8", clock, ""),      // allowed until 10:00:15
			entryAt("203.0.113.7", clock, ""),      // a partner
			entryAt("192.0.2.1", clock, engine),    // verified, banned by name
			entryAt("203.0.113.6", clock, ""))
	}
	lines = append(lines, entryAt("198.51.100.2", "10:00:00", person)) // late: its time counts as 10:00:30
	ban := func(client, since, until string) registry.OverrideRecord {
		s := registry.OverrideRecord{Client: clientID(t, client), Since: at(since), Action: fairshare.Block}
		if until != "" {
			s.Action, s.Until = fairshare.Refuse, at(until)
		}
		return s
	}
	overrides = &testOverrides{
		records: []registry.OverrideRecord{
			ban("198.51.100.0/24", "09:00:00", ""),
			{Client: clientID(t, "198.51.100.2"), Action: fairshare.Refuse, Since: at("09:00:00"),
				Until: at("10:00:20").Add(500 * time.Millisecond)},
			ban("198.51.100.3", "10:00:25", "10:00:40"), // begins later, never longer than its length
			{Client: clientID(t, "203.0.113.9"), Action: fairshare.Allow, Since: at("09:00:00")},
			{Client: clientID(t, "203.0.113.8"), Action: fairshare.Allow, Since: at("09:00:00"),
				Until: at("10:00:15")},
			ban("goodbot", "09:00:00", ""),
		},
		labels: []registry.Label{{Client: clientID(t, "203.0.113.7"), Name: "partner"}},
	}
	policy = &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "partners", Match: fairshare.Match{Label: []string{"Partner"}}, Action: fairshare.Allow},
		{Name: "one an hour", Limit: requests(1, time.Hour)},
	}}
	return lines, overrides, policy
}

// Overrides apply at the log's own time. The report shows their effects as a rule, in the
// verdicts, and as one line about the allowed clients.
func TestOverridesInTheReport(t *testing.T) {
	lines, overrides, policy := operatorsLog(t)
	var verdicts bytes.Buffer
	opts := Options{
		Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t), Logs: []string{writeLines(t, "log",
			lines...)},
		Bot: testBot, Override: overrides.find, Verdicts: &verdicts, Top: 3,
	}
	report := replayAll(t, opts)
	byClient := map[string][]string{}
	for _, l := range strings.Split(strings.TrimSpace(verdicts.String()), "\n")[1:] {
		f := strings.Split(l, "\t")
		byClient[f[2]] = append(byClient[f[2]], strings.TrimSpace(f[3]+" "+f[4]+" "+f[5]))
	}
	const forever = "block ban by an operator"
	refused := func(wait string) string { return "refuse ban by an operator " + wait }
	for client, want := range map[string][]string{
		"198.51.100.1": {forever, forever, forever, forever},
		"198.51.100.2": {refused("21"), refused("11"), refused("1"), forever, forever},
		"198.51.100.3": {refused("15"), refused("15"), refused("15"), refused("10")},
		"203.0.113.9":  {"allow", "allow", "allow", "allow"},
		"203.0.113.8":  {"allow", "allow", "allow", "refuse one an hour 7170"},
		"203.0.113.7":  {"allow", "allow", "allow", "allow"},
		"192.0.2.1":    {forever, forever, forever, forever},
	} {
		if !slices.Equal(byClient[client], want) {
			t.Errorf("%s: verdicts %q, want %q", client, byClient[client], want)
		}
	}
	wantRules := []RuleReport{
		{Name: "partners", Matched: 4},
		{Name: "one an hour", Matched: 6, Refused: 4, Clients: 2, Resource: "requests",
			Saved: Usage{Requests: 4, Bytes: 400}},
		{Name: "ban by an operator", Matched: 17, Refused: 7, Blocked: 10, Clients: 4,
			Saved: Usage{Requests: 17, Bytes: 1610}, People: 1, MaybePeople: 1},
	}
	if diff := cmp.Diff(wantRules, report.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if want := (OperatorAllowed{Requests: 6, Clients: 2}); report.OperatorAllowed != want {
		t.Errorf("allowed by an operator: %+v, want %+v", report.OperatorAllowed, want)
	}
	if want := (Verdicts{Allow: 12, Refuse: 11, Block: 10}); report.Verdicts != want || report.RefusedClients != 4 ||
		report.BlockedClients != 3 {
		t.Errorf("verdicts %+v of %d and %d clients, want %+v of 4 and 3", report.Verdicts, report.RefusedClients,
			report.BlockedClients, want)
	}
	if diff := cmp.Diff([]PeopleRule{{Rule: "ban by an operator", Clients: 1, Refused: 5}},
		report.People.Rules); diff != "" {
		t.Errorf("people (-want +got):\n%s", diff)
	}
	for _, m := range report.MostRefused {
		if m.Rule != "ban by an operator" {
			t.Errorf("%s was refused most by %q", m.Client, m.Rule)
		}
	}
	for _, w := range report.Warnings {
		if strings.Contains(w.Text, "search engines") {
			t.Errorf("a warning about a search engine that an operator has banned: %s", w.Text)
		}
	}
	if len(report.Unmeasured) != 0 {
		t.Errorf("unmeasured: %+v", report.Unmeasured)
	}
	var text, json bytes.Buffer
	if err := errors.Join(report.WriteText(&text, Style{}), report.WriteJSON(&json)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ban by an operator              17          7         10          –          4",
		"6 requests of 2 clients passed: allowed by an operator (fairshare allow)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	for _, width := range []int{60, 80, 100} {
		var wrapped bytes.Buffer
		if err := report.WriteText(&wrapped, Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for i, l := range strings.Split(wrapped.String(), "\n") {
			if len([]rune(l)) > width {
				t.Errorf("line %d is too long for %d columns: %q", i+1, width, l)
			}
		}
	}
	for _, want := range []string{`"name": "ban by an operator"`, `"operator_allowed": {`} {
		if !strings.Contains(json.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, json.String())
		}
	}
	all, j := judgeAll(t, opts)
	compare(t, opts, all, j)

	// Without overrides the report has none of this, and labels are not measured.
	opts.Override, opts.Verdicts = nil, nil
	report = replayAll(t, opts)
	if len(report.Rules) != 2 || report.OperatorAllowed.Requests != 0 || report.Rules[0].Matched != 0 {
		t.Errorf("without overrides: %+v, allowed by an operator: %+v", report.Rules, report.OperatorAllowed)
	}
	if diff := cmp.Diff([]Unmeasured{{"partners", "label",
		"labels are in the registry of serve: --state DIR names its folder"}}, report.Unmeasured); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text.Reset()
	if err := report.WriteText(&text, Style{}); err != nil || strings.Contains(text.String(), "operator") {
		t.Errorf("without overrides (%v):\n%s", err, text.String())
	}
}

// The DNS has decided the bot before Override is called, and nothing is looked up for
// rules that are not tested.
func TestOverridesAndTheDNS(t *testing.T) {
	dns := &slowDNS{}
	overrides := &testOverrides{
		records: []registry.OverrideRecord{{Client: clientID(t, "203.0.113.0/24"), Action: fairshare.Block}},
		labels:  []registry.Label{{Client: clientID(t, "goodbot"), Name: "partner"}},
	}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "partners", Match: fairshare.Match{Label: []string{"partner"},
			Hostname: []string{"crawl-1.good.example"}}, Action: fairshare.Allow},
		{Name: "office", Match: fairshare.Match{Hostname: []string{"office.example.org"}}, Action: fairshare.Block},
	}}
	const engine = `"GET / HTTP/1.1" 200 90 "-" "GoodBot/1.0"`
	report := replayAll(t, Options{
		Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t), Bot: dns.bot, Lookups: dns,
		Resolve: dns.resolve, Override: overrides.find,
		Logs: []string{writeLines(t, "log", entryAt("192.0.2.1", "10:00:00", engine),
			entryAt("198.51.100.7", "10:00:01", engine), entryAt("203.0.113.5", "10:00:02", ""))},
	})
	if r := report.Rules; len(r) != 3 || r[0].Matched != 1 || r[1].Matched != 0 || r[2].Blocked != 1 {
		t.Errorf("rules %+v", r)
	}
	if n := dns.calls[question{addr: netip.MustParseAddr("203.0.113.5")}]; n != 0 {
		t.Errorf("the hostname of a banned address: %d calls", n)
	}
}

// The log has more clients than are distinguished, all with overrides. The largest ones
// are found, and the sums are exact.
func TestFloodOfOverriddenClients(t *testing.T) {
	begin := time.Date(2015, 5, 17, 10, 0, 0, 0, time.UTC)
	overrides := &testOverrides{records: []registry.OverrideRecord{
		{Client: clientID(t, "10.0.0.0/16"), Action: fairshare.Refuse, Since: begin,
			Until: begin.Add(20 * time.Minute)},
		{Client: clientID(t, "10.0.0.0/15"), Action: fairshare.Block},
		{Client: clientID(t, "10.2.0.0/16"), Action: fairshare.Allow},
	}}
	var lines []string
	for i := range 6000 {
		n := i * i % 3001
		lines = append(lines, entryAt(fmt.Sprintf("10.%d.%d.%d", n%3, n/200, n%200),
			fmt.Sprintf("10:%02d:%02d", i/100%60, i%100*60/100), ""))
	}
	r, err := New(Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)}, Override: overrides.find})
	if err != nil {
		t.Fatal(err)
	}
	r.bounds = bounds{clients: 100, agents: 10, networks: 1000, effects: 70, paths: 10}
	report, err := r.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rules) != 1 {
		t.Fatalf("rules %+v", report.Rules)
	}
	row := report.Rules[0]
	if row.Refused != report.Verdicts.Refuse || row.Blocked != report.Verdicts.Block || row.Refused < 500 ||
		row.Blocked < 2000 || !row.Approximate || !report.OperatorAllowed.Approximate ||
		report.OperatorAllowed.Requests != report.Verdicts.Allow {
		t.Errorf("verdicts %+v, the operators' row %+v, allowed %+v", report.Verdicts, row, report.OperatorAllowed)
	}
	clients := map[string]int64{}
	for _, l := range lines {
		addr, _, _ := strings.Cut(l, " ")
		clients[addr]++
	}
	allowed := int64(0)
	for addr := range clients {
		if strings.HasPrefix(addr, "10.2.") {
			allowed++
		}
	}
	if all := int64(len(clients)); row.Clients < (all-allowed)*95/100 || row.Clients > (all-allowed)*105/100 ||
		report.OperatorAllowed.Clients < allowed*95/100 || report.OperatorAllowed.Clients > allowed*105/100 {
		t.Errorf("about %d banned, %d allowed; want %d and %d", row.Clients, report.OperatorAllowed.Clients,
			all-allowed, allowed)
	}
}

// Bans of networks count as bans of their rule, and are reported.
func TestBansOfNetworksAreReported(t *testing.T) {
	var lines []string
	for i := range 140 {
		for k := range 2 {
			lines = append(lines, entryAt(fmt.Sprintf("2001:db8:0:%x::1", i),
				fmt.Sprintf("10:%02d:%02d", i/30, i%30*2+k), ""))
		}
	}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Hour),
		Ban: &fairshare.BanTerms{After: 1, For: time.Hour}}}}
	opts := Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)}}
	report := replayAll(t, opts)
	want := RuleReport{Name: "one", Matched: 256, Refused: 152, Banned: 129, Clients: 140,
		Saved: Usage{Requests: 152, Bytes: 15200}, Networks: 1,
		Resource: "requests"}
	if report.Rules[0] != want {
		t.Errorf("%+v, want %+v", report.Rules[0], want)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text, Style{}); err != nil ||
		!strings.Contains(text.String(), "1 ban of all newcomers of an IPv6 /48") {
		t.Errorf("the report (%v) does not show the network:\n%s", err, text.String())
	}
	all, j := judgeAll(t, opts)
	compare(t, opts, all, j)
}
