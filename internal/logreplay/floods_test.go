package logreplay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/replay"
)

// Addresses of the attackers in the logs of these tests begin with this.
const attackers = "198.18."

// manyAddresses returns addresses in as many networks.
func manyAddresses(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d.7", attackers, i))
	}
	return all
}

// Crawlers that break robots.txt, floods by one user agent and crowds of one owner get a rule. Its
// figures are those of a replay, and it refuses nobody else.
func TestSuggestionsForRobotsFloodsAndOwners(t *testing.T) {
	t.Parallel()
	const weak = "rules:\n  - name: wide\n    limit: {requests: 6000, per: 1m, by: addr}\n"
	const chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
	flood := func(agent string) func(b *logBook) {
		return func(b *logBook) {
			for i := range 6000 {
				at, client := 4*time.Hour+time.Duration(i)*time.Second/2, manyAddresses(60)[i%60]
				b.add(at, client, "GET /search", 200, 5000, "-", agent, 0.2)
			}
		}
	}
	for i, c := range []struct {
		name   string
		write  func(b *logBook)
		robots string
		owners bool
		rule   string  // the name of a suggested rule; "" if none is needed
		least  float64 // the share of the attackers' requests that must be refused
	}{
		{name: "a crawler fetches what robots.txt disallows", write: func(b *logBook) {
			b.crawl(300, 10, 4000, seoBot, manyAddresses(3)...)
		}, robots: "User-agent: *\nDisallow: /photo/\n", rule: "robots.txt disallows", least: 1},
		{name: "a crawler does not keep the delay", write: func(b *logBook) {
			b.crawl(18_000, 10, 400, seoBot, attackers+"1.7")
		}, robots: "User-agent: *\nCrawl-delay: 20\n", rule: "robots.txt crawl delay", least: 0.8},
		{name: "a crawler keeps robots.txt", write: func(b *logBook) {
			b.crawl(60, 10, 4000, seoBot, attackers+"1.7")
		}, robots: "User-agent: *\nDisallow: /private/\nCrawl-delay: 20\n"},
		{name: "a search engine breaks robots.txt", write: func(b *logBook) {
			b.crawl(60, 10, 4000, googleBot, "66.249.66.1")
		}, robots: "User-agent: *\nDisallow: /photo/\n"},
		{name: "a flood by one user agent", write: flood("loader 2.1 (x86_64)"),
			rule: "flood by one user agent", least: 0.9},
		{name: "a flood by a library", write: flood("python-requests/2.31.0"),
			rule: "flood by one user agent", least: 0.9},
		{name: "a flood without user agent", write: flood("-"), rule: "flood by one user agent", least: 0.9},
		{name: "an app that people use all day", write: func(b *logBook) {
			b.crawl(6000, 10, 9000, "ShopApp/3.1 (Android 14)", manyAddresses(60)...)
		}},
		{name: "an app of a few people", write: func(b *logBook) {
			b.crawl(3000, 10, 9000, "Depot/3.1", manyAddresses(12)...)
		}},
		{name: "one program with a name of its own", write: func(b *logBook) {
			b.crawl(9000, 10, 9000, "loader/0.1", attackers+"1.7")
		}, rule: "requests of a client for /photo/*.html", least: 0.8},
		{name: "a library at a few addresses", write: func(b *logBook) {
			b.crawl(6000, 10, 9000, "python-requests/2.31.0", manyAddresses(12)...)
		}, rule: "flood by one user agent", least: 0.6},
		{name: "a crowd of one owner with the user agent of a browser", write: func(b *logBook) {
			b.crawl(2400, 10, 30_000, chrome, manyAddresses(200)...)
		}, owners: true, rule: "pages of AS64500 in an hour", least: 0.5},
		{name: "people of one owner", write: func(b *logBook) {
			for i := range 2400 {
				at, client := time.Duration(i)*15*time.Second, manyAddresses(200)[i%200]
				b.add(at, client, fmt.Sprintf("GET /article/%d", i), 200, 9000, "https://www.example/", chrome, 0.06)
				b.add(at, client, "GET /style.css", 200, 900, "https://www.example/article", chrome, 0.001)
			}
		}, owners: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			skipMost(t, i)
			b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
			b.people(40, 10)
			c.write(b)
			dir := t.TempDir()
			file := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return path
			}
			policy := weak
			if c.owners {
				file("owners.csv", "198.18.0.0/15,64500,Example Hosting\n203.0.113.0/24,64501,Example Access\n")
				policy = "asn: {file: owners.csv}\n" + weak
			}
			opts := Options{Policy: file("site.yaml", policy), Logs: []string{b.write(t)}, Format: timedCombined,
				Top: 10, JSON: true}
			if c.robots != "" {
				opts.Robots = file("robots.txt", c.robots)
			}
			text, err := os.ReadFile(suggest(t, opts))
			if err != nil {
				t.Fatal(err)
			}
			opts.Policy = file("suggested.yaml", string(text))
			opts.Verdicts = filepath.Join(dir, "verdicts.tsv")
			after := replayJSON(t, func(env *cli.Environment) error { return Run(env, opts) })
			if c.rule == "" {
				if after.Verdicts.Refuse+after.Verdicts.Block > 0 || len(after.Rules) > 1 {
					t.Errorf("rules are suggested although nothing is wrong:\n%s", text)
				}
				return
			}
			if !slices.ContainsFunc(after.Rules, func(r replay.RuleReport) bool { return r.Name == c.rule }) {
				t.Errorf("no rule %q is suggested:\n%s", c.rule, text)
			}
			for _, row := range after.Rules[:len(after.Rules)-1] {
				stated := replay.AdvisedRule{Refused: row.Saved, Clients: row.Clients, People: row.People}
				if said := comments(string(text)); !strings.Contains(said, stated.Effect()) {
					t.Errorf("%q replays as %q, the suggestion says:\n%s", row.Name, stated.Effect(), said)
				}
			}
			verdicts, err := os.ReadFile(opts.Verdicts)
			if err != nil {
				t.Fatal(err)
			}
			var bad, refused float64
			for _, l := range strings.Split(strings.TrimSpace(string(verdicts)), "\n")[1:] {
				fields := strings.Split(l, "\t")
				isBad := strings.HasPrefix(fields[2], attackers)
				if isBad {
					bad++
				}
				if fields[3] != "allow" {
					refused++
					if !isBad {
						t.Fatalf("%q is refused by\n%s", l, text)
					}
				}
			}
			if refused < c.least*bad {
				t.Errorf("%.0f of %.0f requests of attackers are refused by\n%s", refused, bad, text)
			}
		})
	}
}

// In a log without user agents nobody sends an empty one.
func TestALogWithoutUserAgentsHasNoFlood(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	begin := time.Date(2025, 5, 17, 0, 0, 0, 0, time.UTC)
	for i := range 4000 {
		at := begin.Add(time.Duration(i/3600)*9*time.Hour + time.Duration(i)*time.Second)
		fmt.Fprintf(&text, "203.0.113.%d - - [%s] \"GET /article/%d HTTP/1.1\" 200 9000\n", i%15,
			at.Format("02/Jan/2006:15:04:05 -0700"), i)
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := suggest(t, Options{Logs: []string{path}, Format: "common", Top: 10})
	if data, err := os.ReadFile(policy); err != nil || strings.Contains(string(data), "user_agent") {
		t.Errorf("%v, suggested:\n%s", err, data)
	}
}

// A rule that is estimated from the use in each hour refuses about as much when it is replayed.
func TestEstimatesAreNearTheReplay(t *testing.T) {
	t.Parallel()
	all := books()
	all["scanners"] = func(b *logBook) {
		b.people(40, 10)
		for i := range 5000 {
			b.add(time.Duration(i)*4*time.Second, "198.51.100.8", fmt.Sprintf("GET /a/..%%2f..%%2f%d", i), 404, 900,
				"-", firefox, 0.01)
		}
	}
	all["a flood"] = func(b *logBook) {
		b.people(40, 10)
		for i := range 6000 {
			b.add(4*time.Hour+time.Duration(i)*time.Second/2, manyAddresses(60)[i%60], "GET /search", 200, 5000, "-",
				"loader 2.1", 0.2)
		}
	}
	for name, write := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
			write(b)
			dir := t.TempDir()
			weak := filepath.Join(dir, "site.yaml")
			if err := os.WriteFile(weak, []byte("rules:\n  - name: wide\n    limit: {requests: 6000, per: 1m, by: addr}\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			env, _ := environment(t)
			s, err := open(env, Options{Policy: weak, Logs: []string{b.write(t)}, Format: timedCombined, Top: 10})
			if err != nil {
				t.Fatal(err)
			}
			defer s.identifier.Close(nil)
			options, _, err := s.options()
			if err != nil {
				t.Fatal(err)
			}
			base, err := s.replay(options, nil)
			if err != nil {
				t.Fatal(err)
			}
			advice, err := s.advise(base, false)
			if err != nil {
				t.Fatal(err)
			}
			quiet := slices.Contains(quietBooks, name) && name != "a proved AI crawler takes most bytes"
			if advice.Measured || quiet != (len(advice.Rules) == 0) || advice.Estimated == quiet {
				t.Fatalf("%d rules are estimated: %+v", len(advice.Rules), advice)
			}
			for _, rule := range advice.Rules { // each alone: estimates know nothing of each other
				r, err := s.trialRun([]candidate{{rule: rule}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				row := rowOf(r, rule.Name)
				near := func(a, b float64) bool { return math.Abs(a-b) <= 0.15*max(a, b)+1 }
				if !near(float64(row.Saved.Requests), float64(rule.Refused.Requests)) ||
					!near(float64(row.Saved.Bytes), float64(rule.Refused.Bytes)) ||
					!near(row.Saved.Seconds, rule.Refused.Seconds) {
					t.Errorf("%q: estimated %+v, replayed %+v", rule.Name, rule.Refused, row.Saved)
				}
				if row.People+row.MaybePeople > 0 && name != "scanners" || harmed(base, r) {
					t.Errorf("%q touches people: %+v", rule.Name, row)
				}
			}
		})
	}
}
