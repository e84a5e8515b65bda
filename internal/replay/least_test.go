package replay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
)

// peopleLog is a log of people and of a program that sends more than they do.
func peopleLog(t testing.TB, seed uint64) string {
	random := rand.New(rand.NewPCG(seed, 1))
	type line struct {
		at   int
		text string
	}
	var all []line
	add := func(at int, client, path string, status int, referer, agent string) {
		all = append(all, line{at, entryAt(client, fmt.Sprintf("%02d:%02d:%02d", 10+at/3600, at/60%60, at%60),
			fmt.Sprintf(`"GET %s HTTP/1.1" %d 700 "%s" "%s"`, path, status, referer, agent))})
	}
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"
	for i := range 12 {
		at := random.IntN(1800)
		for range 10 + random.IntN(30) {
			at += random.IntN(40)
			status := 200
			if random.IntN(9) == 0 {
				status = 404
			}
			client := fmt.Sprintf("203.0.113.%d", i)
			add(at, client, fmt.Sprintf("/page/%d", random.IntN(90)), status, "http://www.example/", firefox)
			add(at, client, "/style.css", 200, "http://www.example/page", firefox)
		}
	}
	for i := range 900 {
		add(i*4, "198.51.100.1", fmt.Sprintf("/page/%d", i), 200+204*(i%2), "-", "program/1")
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at - b.at })
	var lines []string
	for _, l := range all {
		lines = append(lines, l.text)
	}
	return writeLines(t, "access.log", lines...)
}

// With the least amounts nobody who looks like a person is refused. With one less of any limit,
// somebody is.
func TestLeastAmounts(t *testing.T) {
	for seed := range uint64(5) {
		path := peopleLog(t, seed)
		limits := func() []fairshare.Rule {
			return []fairshare.Rule{
				{Name: "a minute", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 40, Window: time.Minute}},
				{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 4, Window: 10 * time.Minute}},
				{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 9000, Window: 5 * time.Minute}},
				{Name: "quiet", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: 5 * time.Second,
					Algorithm: fairshare.Quiet}},
				{Name: "steady", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 9, Window: time.Minute,
					Algorithm: fairshare.GCRA}},
			}
		}
		opts := func(rules []fairshare.Rule) Options {
			return Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20), Client: clientFunc(t),
				Logs: []string{path}}
		}
		people := map[netip.Addr]bool{}
		o := opts(limits())
		o.Person = func(addr netip.Addr) { people[addr] = true }
		replayAll(t, o)
		o = opts(limits())
		o.Measure = func(addr netip.Addr) bool { return people[addr] }
		least := replayAll(t, o).Least
		if len(people) != 12 || len(least) != 4 {
			t.Fatalf("%d people, amounts %+v", len(people), least)
		}
		for _, l := range least {
			rule := limits()[slices.IndexFunc(limits(), func(r fairshare.Rule) bool { return r.Name == l.Rule })]
			for _, less := range []int64{0, 1} {
				rule.Limit.N = l.Least - less
				if r := replayAll(t, opts([]fairshare.Rule{rule})); (r.People.Refused > 0) != (less > 0) {
					t.Errorf("seed %d: %q with %d refuses people %d times; the least amount is %d", seed, l.Rule,
						rule.Limit.N,
						r.People.Refused, l.Least)
				}
			}
		}
	}
}

// A comparison finds what the verdicts of two runs say.
func TestDifferenceMatchesTheVerdicts(t *testing.T) {
	path := peopleLog(t, 9)
	old := []fairshare.Rule{{Name: "old", Limit: requests(12, time.Minute)}}
	now := []fairshare.Rule{{Name: "now", Match: fairshare.Match{Path: []string{"/page/*"}}, Limit: requests(3,
		time.Minute)}}
	run := func(rules []fairshare.Rule, set func(*Options)) (*Report, []string) {
		var verdicts bytes.Buffer
		o := Options{Policy: &fairshare.Policy{Rules: rules}, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{path}, Verdicts: &verdicts, Top: 1000}
		set(&o)
		r := replayAll(t, o)
		return r, strings.Split(strings.TrimSpace(verdicts.String()), "\n")[1:]
	}
	trail := new(Trail)
	_, before := run(old, func(o *Options) { o.Trail = trail })
	report, after := run(now, func(o *Options) { o.Before = trail })
	var want [comparisons]int64
	clients := [comparisons]map[string]bool{{}, {}, {}}
	for i := range before {
		b, a := strings.Split(before[i], "\t"), strings.Split(after[i], "\t")
		which := -1
		switch was, is := b[3] == "refuse", a[3] == "refuse"; {
		case was && is:
			which = refusedByBoth
		case is:
			which = refusedByNew
		case was:
			which = refusedByOld
		default:
			continue
		}
		want[which]++
		clients[which][a[2]] = true
	}
	d := report.Difference
	for which, c := range []Change{d.Both, d.OnlyNew, d.OnlyOld} {
		if want[which] == 0 {
			t.Errorf("no request for case %d", which)
		}
		if c.Requests != want[which] || c.Clients != int64(len(clients[which])) || c.Bytes != 700*want[which] {
			t.Errorf("case %d: %+v, the verdicts say %d requests of %d clients", which, c, want[which],
				len(clients[which]))
		}
		var named int64
		for i, n := range c.Named {
			named += n.Changed
			if !clients[which][n.Client] || i > 0 && n.Person && !c.Named[i-1].Person {
				t.Errorf("case %d: client %+v", which, n)
			}
		}
		if which != refusedByBoth && named != want[which] {
			t.Errorf("case %d: the clients have %d requests, want %d", which, named, want[which])
		}
	}
	var out bytes.Buffer
	if err := report.WriteDifference(&out, "old.yaml", "new.yaml", Style{}); err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(out.String(), "\n") {
		if len([]rune(l)) > 80 {
			t.Errorf("line %d is too long: %q", i+1, l)
		}
	}
	if !strings.Contains(out.String(), "looks like a person") {
		t.Errorf("people are not marked:\n%s", &out)
	}
}

// The server's answers to connections without a request are not errors of the client.
func TestConnectionsWithoutARequestAreNoErrors(t *testing.T) {
	var lines []string
	for i := range 20 {
		lines = append(lines, entryAt("192.0.2.1", fmt.Sprintf("10:00:%02d", i), `"-" 408 0 "-" "-"`),
			entryAt("192.0.2.2", fmt.Sprintf("10:00:%02d", i), `"GET /x HTTP/1.1" 400 0 "-" "-"`))
	}
	policy := &fairshare.Policy{Rules: []fairshare.Rule{{Name: "errors",
		Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 5, Window: time.Hour}}}}
	r := replayAll(t, Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
		Logs: []string{writeLines(t, "log", lines...)}})
	if r.Verdicts.Refuse != 15 || r.RefusedClients != 1 || r.Empty != 20 {
		t.Errorf("%+v of %d clients refused, %d lines without a request", r.Verdicts, r.RefusedClients, r.Empty)
	}
	for _, c := range r.Top {
		if want := map[string]int64{"192.0.2.1": 0, "192.0.2.2": 20}[c.Client]; c.Statuses.Client != want {
			t.Errorf("%s has %d errors, want %d", c.Client, c.Statuses.Client, want)
		}
	}
	if len(r.Paths) != 1 {
		t.Errorf("paths %+v", r.Paths)
	}
}

// No hint says that a crawler is a proxy or should be allowed: both would let it do what it wants.
func TestCrawlersAreNotProxies(t *testing.T) {
	for _, c := range []struct {
		name    string
		bot     fairshare.Bot
		agents  int
		has     string
		hasNot  []string
		noAgent bool
	}{
		{"verified crawler", fairshare.Bot{Name: "gptbot", Categories: []string{"ai"}, State: fairshare.Verified}, 1,
			"gptbot (verified)",
			[]string{"proxy", "proxies", "allow"}, false},
		{"claimed crawler", fairshare.Bot{Name: "gptbot", Categories: []string{"ai"}, State: fairshare.Pending}, 1,
			"gptbot (pending)",
			[]string{"proxy", "proxies", "allow"}, false},
		{"monitor", fairshare.Bot{Name: "probe", Categories: []string{"monitor"}, State: fairshare.Claimed}, 1,
			"allow it by addr",
			[]string{"proxy", "proxies"}, false},
		{"browser", fairshare.Bot{}, 1, "allow it by addr", []string{"proxy", "proxies"}, false},
		{"many browsers", fairshare.Bot{}, 40, "trusted_proxies", nil, false},
		{"crawler at a known network", fairshare.Bot{Name: "gptbot", Categories: []string{"ai"},
			State: fairshare.Verified}, 1, "gptbot",
			[]string{"proxy", "proxies"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var lines []string
			for i := range 100 {
				lines = append(lines, entryAt("198.51.100.1", "10:00:00",
					fmt.Sprintf(`"GET / HTTP/1.1" 200 1 "-" "agent %d"`, i%c.agents)))
			}
			lines = append(lines, entryAt("198.51.100.77", "10:00:01", ""))
			o := Options{Policy: &fairshare.Policy{}, Limiter: memory(1 << 20), Client: clientFunc(t),
				Logs: []string{writeLines(t, "log", lines...)}, Bot: func(addr netip.Addr, _ string) fairshare.Bot {
					if addr.String() == "198.51.100.1" {
						return c.bot
					}
					return fairshare.Bot{}
				}}
			if c.noAgent {
				o.Known = []Network{{Name: "Example", Trust: "example",
					Addrs: fairshare.Prefixes{netip.MustParsePrefix("198.51.100.0/26")}}}
			}
			r, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			report, err := r.Run(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			for _, w := range report.Warnings {
				text += w.Text + " " + w.Hint + "\n"
			}
			if !strings.Contains(text, c.has) {
				t.Errorf("the warnings do not contain %q:\n%s", c.has, text)
			}
			for _, not := range c.hasNot {
				if strings.Contains(text, not) {
					t.Errorf("the warnings contain %q:\n%s", not, text)
				}
			}
		})
	}
}
