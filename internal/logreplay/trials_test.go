package logreplay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare/internal/cli"
)

// Rules for clients without a name stop most of what is wrong, and refuse nobody else.
func TestSuggestionsForClientsWithoutAName(t *testing.T) {
	t.Parallel()
	const weak = "rules:\n  - name: wide\n    limit: {requests: 6000, per: 1m, by: addr}\n"
	const chrome = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
	for i, c := range []struct {
		name  string
		write func(b *logBook)
		rule  string  // the beginning of a suggested rule's name
		least float64 // the share of the bad requests that must be refused
	}{
		{"a scraper with a browser's user agent", func(b *logBook) {
			b.crawl(9000, 10, 30_000, chrome, "198.51.100.7")
		}, "", 0.5},
		{"scrapers at many addresses of a network", func(b *logBook) {
			var many []string
			for i := range 60 {
				many = append(many, fmt.Sprintf("198.51.100.%d", i))
			}
			b.crawl(9000, 10, 30_000, chrome, many...)
		}, "", 0.5},
		{"a client that asks for pages that do not exist", func(b *logBook) {
			for i := range 3000 {
				b.add(time.Duration(i)*time.Second, "198.51.100.7", fmt.Sprintf("GET /old/%d.php", i), 404, 300,
					"https://www.example/", chrome, 0.002)
			}
		}, "missing pages", 0.9},
		{"a client that guesses passwords", func(b *logBook) {
			for i := range 400 {
				b.add(time.Duration(i)*time.Minute, "198.51.100.7", "POST /wp-login.php", 200, 5000, "-", chrome, 0.1)
			}
		}, "failed logins", 0.8},
		{"a client that requests one expensive page", func(b *logBook) {
			for i := range 400 {
				b.add(time.Duration(i)*10*time.Second, "198.51.100.7", "GET /report", 200, 9000, "-", chrome, 4)
			}
		}, "", 0.3},
		{"nothing", func(*logBook) {}, "", 0},
		{"an office", func(b *logBook) { // fifty people behind one address
			for i := range 3000 {
				at := time.Hour + time.Duration(i)*7*time.Second
				page := fmt.Sprintf("GET /article/%d", i%900)
				b.add(at, "198.51.101.1", page, 200, 9000, "https://www.example/", chrome, 0.06)
				b.add(at, "198.51.101.1", "GET /style.css", 200, 900, "https://www.example/article", chrome, 0.001)
			}
		}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			skipMost(t, i)
			b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
			b.people(40, 10)
			c.write(b)
			dir := t.TempDir()
			policy := filepath.Join(dir, "site.yaml")
			if err := os.WriteFile(policy, []byte(weak), 0o600); err != nil {
				t.Fatal(err)
			}
			opts := Options{Policy: policy, Logs: []string{b.write(t)}, Format: timedCombined, Top: 10, JSON: true}
			opts.Policy = suggest(t, opts)
			text, err := os.ReadFile(opts.Policy)
			if err != nil {
				t.Fatal(err)
			}
			opts.Verdicts = filepath.Join(dir, "verdicts.tsv")
			replayJSON(t, func(env *cli.Environment) error { return Run(env, opts) })
			verdicts, err := os.ReadFile(opts.Verdicts)
			if err != nil {
				t.Fatal(err)
			}
			var bad, refused float64
			for _, l := range strings.Split(strings.TrimSpace(string(verdicts)), "\n")[1:] {
				fields := strings.Split(l, "\t")
				isBad := strings.HasPrefix(fields[2], "198.51.100.")
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
			if c.least == 0 && !strings.Contains(comments(string(text)), "Nothing needs to be done") ||
				refused < c.least*bad || !strings.Contains(string(text), "name: "+c.rule) {
				t.Errorf("%.0f of %.0f bad requests are refused by\n%s", refused, bad, text)
			}
		})
	}
}
