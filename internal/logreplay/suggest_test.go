package logreplay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/replay"
)

// A logBook collects lines of a log in combined format with the time of requests.
type logBook struct {
	random *rand.Rand
	lines  []bookLine
}

type bookLine struct {
	at   time.Duration
	text string
}

const (
	timedCombined = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" ` +
		`"$http_user_agent" $request_time`
	firefox    = "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"
	gptBot     = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"
	bytespider = "Mozilla/5.0 (Linux; Android 5.0) AppleWebKit/537.36 (KHTML, like Gecko) Mobile Safari/537.36 (compatible; " +
		"Bytespider; https://zhanzhang.toutiao.com/)"
	googleBot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	seoBot    = "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)"
)

func (b *logBook) add(at time.Duration, client, request string, status, size int, referer, agent string,
	took float64) {
	clock := time.Date(2025, 5, 17, 0, 0, 0, 0, time.UTC).Add(at).Format("02/Jan/2006:15:04:05 -0700")
	b.lines = append(b.lines, bookLine{at, fmt.Sprintf(`%s - - [%s] "%s HTTP/1.1" %d %d "%s" "%s" %.3f`, client,
		clock, request,
		status, size, referer, agent, took)})
}

// people adds readers who look at pages with a style sheet for some hours.
func (b *logBook) people(n int, hours int) {
	for i := range n {
		for range 20 {
			at := time.Duration(b.random.IntN(hours*3600)) * time.Second
			client := fmt.Sprintf("203.0.113.%d", i+1)
			b.add(at, client, fmt.Sprintf("GET /article/%d", b.random.IntN(900)), 200, 9000, "https://www.example/",
				firefox, 0.06)
			b.add(at+time.Second, client, "GET /style.css", 200, 900, "https://www.example/article", firefox, 0.001)
		}
	}
}

// crawl adds requests of a crawler, evenly over some hours.
func (b *logBook) crawl(n, hours, size int, agent string, clients ...string) {
	for i := range n {
		at := time.Duration(hours) * time.Hour * time.Duration(i) / time.Duration(n)
		b.add(at, clients[i%len(clients)], fmt.Sprintf("GET /photo/%d.html", i), 200, size, "-", agent, 0.05)
	}
}

func (b *logBook) write(t *testing.T) string {
	t.Helper()
	slices.SortStableFunc(b.lines, func(x, y bookLine) int { return int(x.at - y.at) })
	var text strings.Builder
	for _, l := range b.lines {
		text.WriteString(l.text + "\n")
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// books are logs with something wrong, and logs with nothing wrong.
func books() map[string]func(*logBook) {
	return map[string]func(*logBook){
		"a proved AI crawler takes most bytes": func(b *logBook) {
			b.people(40, 10)
			b.crawl(600, 10, 800_000, gptBot, "20.171.207.17", "20.171.207.104")
			b.crawl(200, 10, 9000, googleBot, "66.249.66.1")
		},
		"AI crawlers, one of them without proof, among many addresses": func(b *logBook) {
			b.people(40, 10)
			b.crawl(900, 10, 300_000, gptBot, "20.171.207.17")
			var many []string
			for i := range 60 {
				many = append(many, fmt.Sprintf("198.51.100.%d", i))
			}
			b.crawl(900, 10, 300_000, bytespider, many...)
		},
		"a crawler for search engine optimisation": func(b *logBook) {
			b.people(20, 10)
			b.crawl(5000, 10, 4000, seoBot, "198.51.100.7", "198.51.100.8")
		},
		"a tool takes most of the time": func(b *logBook) {
			b.people(40, 3)
			for i := range 413 {
				b.add(time.Hour+time.Duration(i)*time.Second/4, "198.51.100.9", "GET /search", 200, 5000, "-",
					"hey/0.0.1", 1.6)
			}
		},
		"a tool at an address that ends in colons": func(b *logBook) {
			b.people(40, 3)
			for i := range 413 {
				b.add(time.Hour+time.Duration(i)*time.Second/4, "2001:db8:7::", "GET /search", 200, 5000, "-",
					"hey/0.0.1", 1.6)
			}
		},
		"people only": func(b *logBook) { b.people(60, 8) },
		"a search engine, a monitor and an assistant are not the problem": func(b *logBook) {
			b.people(10, 8)
			b.crawl(900, 8, 400_000, googleBot, "66.249.66.1")
			b.crawl(900, 8, 4000, "Pingdom.com_bot_version_1.4_(http://www.pingdom.com)", "198.51.100.3")
			b.crawl(900, 8, 400_000,
				"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; "+
					"+https://openai.com/bot", "198.51.100.4")
		},
		"an app of many people": func(b *logBook) {
			b.people(5, 8)
			for i := range 60 {
				b.crawl(60, 8, 90_000, "okhttp/4.9.0", fmt.Sprintf("198.51.100.%d", i))
			}
		},
	}
}

// quietBooks lists the books for which nothing needs to be done.
var quietBooks = []string{"people only", "a search engine, a monitor and an assistant are not the problem",
	"an app of many people",
	"a proved AI crawler takes most bytes"} // the built-in policy limits it

func environment(t *testing.T) (*cli.Environment, *bytes.Buffer) {
	var out, errs bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("stderr:\n%s", &errs)
		}
	})
	return &cli.Environment{Context: t.Context(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}, &out
}

func suggest(t *testing.T, opts Options) string {
	t.Helper()
	env, out := environment(t)
	if err := Suggest(env, opts); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "suggested.yaml")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// skipMost skips all cases but the first in short mode: the goroutines are the same.
func skipMost(t *testing.T, i int) {
	if testing.Short() && i > 0 {
		t.Skip("not in short mode")
	}
}

func replayJSON(t *testing.T, run func(*cli.Environment) error) *replay.Report {
	t.Helper()
	env, out := environment(t)
	if err := run(env); err != nil {
		t.Fatal(err)
	}
	var report replay.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	return &report
}

// comments returns the comments of a policy as one line.
func comments(text string) string {
	var words []string
	for l := range strings.Lines(text) {
		if c, ok := strings.CutPrefix(strings.TrimSpace(l), "#"); ok {
			words = append(words, strings.Fields(c)...)
		}
	}
	return strings.Join(words, " ")
}

// The figures of each suggested rule are those that a replay of the suggestion prints. Nobody who
// looks like a person is refused, and no search engine.
func TestSuggestionsReplayAsStated(t *testing.T) {
	t.Parallel()
	all := books()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			skipMost(t, i)
			b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
			all[name](b)
			opts := Options{Logs: []string{b.write(t)}, Format: timedCombined, Top: 10, JSON: true}
			base := replayJSON(t, func(env *cli.Environment) error { return Run(env, opts) })
			path := suggest(t, opts)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			with := opts
			with.Policy = path
			after := replayJSON(t, func(env *cli.Environment) error { return Run(env, with) })
			more := len(after.Rules) - len(base.Rules)
			if slices.Contains(quietBooks, name) {
				if more != 0 || !strings.Contains(string(text), "Nothing needs to be done") {
					t.Errorf("%d rules are suggested for a log with nothing wrong:\n%s", more, text)
				}
				return
			}
			if more == 0 {
				t.Fatalf("no rule is suggested:\n%s", text)
			}
			var sum int64
			for i, row := range after.Rules[:more] { // the built-in policy has no permissions at its top
				stated := replay.AdvisedRule{Refused: row.Saved, Clients: row.Clients, People: row.People}
				if said := comments(string(text)); !strings.Contains(said, stated.Effect()) {
					t.Errorf("%q replays as %q, the suggestion says:\n%s", row.Name, stated.Effect(), said)
				}
				if row.People+row.MaybePeople > 0 || row.Refused == 0 {
					t.Errorf("%+v touches people, or nobody", row)
				}
				if i < len(base.Advice.Rules) {
					advised := base.Advice.Rules[i]
					if advised.Name != row.Name || advised.Refused != row.Saved || advised.Clients != row.Clients {
						t.Errorf("replay advises %+v, which replays as %+v", advised, row)
					}
				}
				sum += row.Refused + row.Blocked
			}
			if len(base.Advice.Rules) != more {
				t.Errorf("replay advises %d rules, suggest %d", len(base.Advice.Rules), more)
			}
			for _, bot := range after.Bots {
				if bot.Category == "search" && bot.State != "forged" && bot.Refused+bot.Blocked > 0 {
					t.Errorf("%+v is refused", bot)
				}
			}
			if after.People.Refused > base.People.Refused {
				t.Errorf("people are refused %d times, before %d times", after.People.Refused, base.People.Refused)
			}
			if again := after.Advice; len(again.Rules) > 0 {
				t.Errorf("the suggested policy gets more advice: %+v", again.Rules)
			}

			// A comparison finds the same requests.
			both := with
			diff := replayJSON(t, func(env *cli.Environment) error { return Compare(env, BuiltIn, both) }).Difference
			refused := func(r *replay.Report) int64 { return r.Verdicts.Refuse + r.Verdicts.Block }
			if diff.OnlyNew.People != 0 || diff.OnlyNew.Requests == 0 || diff.OnlyNew.Requests > sum ||
				diff.OnlyOld.Requests+diff.Both.Requests != refused(base) ||
				diff.OnlyNew.Requests+diff.Both.Requests != refused(after) {
				t.Errorf("the comparison says %+v; the new rules refuse %d requests", diff, sum)
			}
		})
	}
}

// The rules are inserted below the permissions at the top of the policy, and all else stays.
func TestSuggestionKeepsThePolicy(t *testing.T) {
	t.Parallel()
	b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
	books()["a proved AI crawler takes most bytes"](b)
	log := b.write(t)
	const policy = `# our site
listen: 127.0.0.1:8080

rules:
  - name: our own
    match: {addr: "192.0.2.1"}
    allow: true

  # for everybody
  - name: ceiling
    limit: {requests: 1200, per: 1m, by: addr}
contact: shop@example.org
`
	path := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(path, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{Policy: path, Logs: []string{log}, Format: timedCombined, Top: 10}
	text, err := os.ReadFile(suggest(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	own, crawlers, ceiling := bytes.Index(text, []byte("name: our own")), bytes.Index(text,
		[]byte("name: AI crawlers")),
		bytes.Index(text, []byte("# for everybody\n  - name: ceiling"))
	if own < 0 || crawlers < own || ceiling < crawlers {
		t.Errorf("the rule is not between the permission and the limit:\n%s", text)
	}
	for _, line := range strings.Split(policy, "\n") {
		if !bytes.Contains(text, []byte(line)) {
			t.Errorf("%q is missing in\n%s", line, text)
		}
	}
}

func TestInsertRules(t *testing.T) {
	t.Parallel()
	rule := []string{"# why\n- name: new\n  block: true\n"}
	for _, c := range []struct {
		at         int
		data, want string
	}{
		{0, "rules:\n- {use: default}\n", "rules:\n# why\n- name: new\n  block: true\n\n- {use: default}\n"},
		{1, "rules: # all\n  - name: a\n\n    allow: true\nlisten: x\n",
			"rules: # all\n  - name: a\n\n    allow: true\n  # why\n  - name: new\n    block: true\n\nlisten: x\n"},
		{1, "rules:\n  - {name: a}", "rules:\n  - {name: a}\n  # why\n  - name: new\n    block: true\n\n"},
		{0, "rules: [{use: default}]\n", ""},
		{0, "rules:\n  nothing: here\n", ""},
		{3, "rules:\n  - a\n", ""},
		{0, "listen: x\n", ""},
	} {
		got, ok := insertRules([]byte(c.data), c.at, rule)
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("insertRules(%q, %d) is %v,\n%s\nwant\n%s", c.data, c.at, ok, got, c.want)
		}
	}
}

func TestNiceRoundsUp(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]float64{1: 1, 1.1: 2, 60: 100, 50: 50, 51: 100, 5_000_000: 5_000_000, 0.3: 0.5} {
		if got := nice(x); got < want*0.999 || got > want*1.001 {
			t.Errorf("nice(%v) is %v, want %v", x, got, want)
		}
	}
}

func TestSuggestNeedsLogsThatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	env, _ := environment(t)
	if err := Suggest(env, Options{Logs: []string{"-"}, Top: 10}); err == nil || !strings.Contains(err.Error(),
		"only once") {
		t.Errorf("standard input is accepted: %v", err)
	}
}

func TestCommandHasTheOptions(t *testing.T) {
	s := &session{Options: Options{Robots: "https://www.example/robots.txt", Logs: []string{"access.log"}}}
	want := "fairshare suggest -c site.yaml --robots https://www.example/robots.txt access.log"
	if got := s.command("suggest", "site.yaml"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The report does not depend on its advice.
func TestAnErrorOfTheAdviceIsAWarning(t *testing.T) {
	b := &logBook{random: rand.New(rand.NewPCG(1, 2))}
	books()["a tool takes most of the time"](b)
	var asked atomic.Int32
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 { // when the log is replayed again
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, "User-agent: *\nDisallow: /private\n")
	}))
	defer site.Close()
	opts := Options{Logs: []string{b.write(t)}, Format: timedCombined, Top: 10, JSON: true,
		Robots: site.URL + "/robots.txt"}
	r := replayJSON(t, func(env *cli.Environment) error { return Run(env, opts) })
	warned := slices.ContainsFunc(r.Warnings, func(w replay.Warning) bool {
		return strings.HasPrefix(w.Text, "no rules are suggested: ")
	})
	if r.Lines == 0 || r.Advice != nil || !warned {
		t.Errorf("%d lines, advice %v, warnings %v", r.Lines, r.Advice, r.Warnings)
	}
}
