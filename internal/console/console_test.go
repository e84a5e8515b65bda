package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare/httpguard"
	"fairshare/internal/cli"
	"fairshare/internal/console"
	"fairshare/internal/livepolicy"
	"fairshare/internal/setup"
	"fairshare/internal/traffic"
	"fairshare/policyfile"
)

const policy = `rules:
  - {name: ten a minute, limit: {requests: 10, per: 1m, by: addr}}
  - {name: admin, match: {path: /admin}, block: true}
  - {name: few, match: {path: /few}, limit: {requests: 1, per: 1m, by: addr}, dry_run: true}
`

const banning = `rules:
  - {name: our own, match: {addr: 203.0.113.7}, allow: true}
  - name: door
    match: {path: "/door*"}
    limit: {requests: 0, per: 1m, by: addr}
    ban: {after: 1, for: 1h, unless: {path: /door/help}}
  - {name: trap, match: {path: /trap}, block: true, ban: {after: 1, for: 1h, all: true}}
`

// A site is a server with a console.
type site struct {
	*console.Console
	handler http.Handler
}

func open(t *testing.T) *site {
	t.Helper()
	return openWith(t, policy)
}

func openWith(t *testing.T, policy string) *site {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("/etc/site.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	clock := httpguard.NewClock()
	p, err := livepolicy.New(t.Context(), file, livepolicy.Options{Clock: clock, Folder: t.TempDir(),
		Log: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	t.Cleanup(func() { p.Stop(); p.Close() })
	c := console.New(console.Options{Policy: p, Traffic: traffic.New(p.Now()), Version: "1"})
	rt := p.Current()
	guard := httpguard.New(rt.Guard, p.GuardOptions(rt, httpguard.Options{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") }))
	return &site{c, guard}
}

func (s *site) get(addr, path, agent string) int {
	r := httptest.NewRequest("GET", path, nil)
	r.RemoteAddr = addr + ":1234"
	r.Header.Set("User-Agent", agent)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code
}

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"

func TestAServerIsShown(t *testing.T) {
	s, ctx := open(t), context.Background()
	for range 12 {
		s.get("203.0.113.9", "/shop?token=secret", firefox)
	}
	s.get("203.0.113.10", "/admin", "curl/8")
	s.get("203.0.113.10", "/few", firefox)
	s.get("203.0.113.10", "/few", firefox)

	now := s.Now()
	if now.Totals.Passed != 12 || now.Totals.Refused != 2 || now.Totals.Blocked != 1 || now.Totals.DryRun != 1 {
		t.Errorf("totals %+v", now.Totals)
	}
	if now.Mode != "enforcing" || now.Rules != 3 || now.Registry != "ok" || now.Policy != "/etc/site.yaml" {
		t.Errorf("now: %+v", now)
	}

	list, err := s.Top("client", "requests", "1m")
	if err != nil || len(list.Rows) != 2 {
		t.Fatalf("top: %+v, %v", list, err)
	}
	if top := list.Rows[0]; top.Key != "203.0.113.9" || top.Requests != 12 || top.Refused != 2 || top.Share != 0.8 ||
		top.Error != (console.Sums{}) || list.Total.Requests != 15 {
		t.Errorf("top: %+v of %+v", top, list.Total)
	}
	for _, by := range console.Dimensions {
		for _, sort := range console.Sorts {
			for window := range console.Windows {
				if list, err := s.Top(by, sort, window); err != nil || list.By != by || list.Sort != sort {
					t.Errorf("%s by %s in %s: %v", by, sort, window, err)
				}
			}
		}
	}
	if paths, err := s.Top("path", "requests", "1m"); err != nil || paths.Rows[0].Key != "/shop" {
		t.Errorf("paths: %+v, %v", paths, err)
	}

	rules, err := s.Rules(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r := rules.Rules[0]; r.Refused != 2 || r.Nearest == nil || r.Nearest.Client != "203.0.113.9" ||
		r.Nearest.Used != 10 || !r.Nearest.Over || r.Nearest.Text != "10 of 10 requests in 1m" {
		t.Errorf("rule: %+v", r)
	}
	if r := rules.Rules[1]; r.Blocked != 1 || len(r.People) != 0 || r.Nearest != nil {
		t.Errorf("rule: %+v", r)
	}
	if r := rules.Rules[2]; !r.DryRun || r.WouldBe != 1 || len(r.People) != 1 ||
		r.People[0].Client != "203.0.113.10" {
		t.Errorf("rule in dry run: %+v", r)
	}

	journal, err := s.Journal(ctx, console.JournalQuery{Client: "203.0.113.9"})
	if err != nil || sum(journal.Refusals) != 2 {
		t.Fatalf("journal: %+v, %v", journal, err)
	}
	r := journal.Refusals[0]
	if r.Rule != "ten a minute" || r.Status != 429 || r.Path != "/shop" || !r.Browser || r.Counted == "" {
		t.Errorf("refusal: %+v", r)
	}
	if found, err := s.Journal(ctx, console.JournalQuery{ID: " " + strings.ToUpper(r.ID)}); err != nil ||
		sum(found.Refusals) != 2 || found.Refusals[0].ID != r.ID {
		t.Errorf("by reference: %+v, %v", found, err)
	}
	if found, err := s.Journal(ctx, console.JournalQuery{Rule: "admin"}); err != nil || len(found.Refusals) != 1 {
		t.Errorf("by rule: %+v, %v", found, err)
	}

	client, err := s.Client(ctx, "203.0.113.9")
	if err != nil {
		t.Fatal(err)
	}
	if len(client.Limits) != 1 || client.Limits[0].Used != 10 || !client.Limits[0].Over || sum(client.Journal) != 2 ||
		client.Recent[0].Requests != 12 || client.Recent[2].Refused != 2 {
		t.Errorf("client: %+v", client)
	}
	if all := fmt.Sprintf("%+v %+v %+v", client, journal, list); strings.Contains(all, "secret") {
		t.Error("a query is shown")
	}
}

func TestExplainSaysWhatIsCountedNow(t *testing.T) {
	s, ctx := open(t), context.Background()
	for range 11 {
		s.get("203.0.113.9", "/", firefox)
	}
	for _, c := range []struct{ q, verdict string }{
		{"203.0.113.9", `it is refused by rule "ten a minute": 10 of 10 requests in 1m`},
		{"203.0.113.8", "it passes: no rule refuses it"},
	} {
		v, err := s.Explain(ctx, console.Question{Client: c.q})
		if err != nil || v.Verdict != c.verdict {
			t.Errorf("%s: %+v, %v", c.q, v, err)
		}
	}
	v, err := s.Explain(ctx, console.Question{Client: "203.0.113.8", Path: "/admin?a=b"})
	if err != nil || v.Verdict != `it is blocked by rule "admin"` || len(v.Steps) != 3 || v.Steps[2].Reached {
		t.Errorf("%+v, %v", v, err)
	}
	for _, q := range []console.Question{{}, {Client: "203.0.113.0/24"}, {Client: "googlebot"}, {Client: "::x"},
		{Client: "203.0.113.9", Path: "x"}} {
		var usage *cli.UsageError
		if _, err := s.Explain(ctx, q); !errors.As(err, &usage) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// A ban without all holds only for requests that its rule matches, and for none that its unless matches.
func TestExplainSaysForWhichRequestsABanHolds(t *testing.T) {
	s, ctx := openWith(t, banning), context.Background()
	for _, path := range []string{"/door", "/trap"} {
		s.get(map[string]string{"/door": "203.0.113.9", "/trap": "203.0.113.8"}[path], path, "curl/8")
	}
	for _, c := range []struct {
		client, path, verdict string
		status                int
	}{
		{"203.0.113.9", "/door", `it is refused: rule "door" has banned 203.0.113.9`, 429},
		{"203.0.113.9", "/shop", "it passes: no rule refuses it", 200},
		{"203.0.113.8", "/shop", `it is refused: rule "trap" has banned 203.0.113.8`, 429},
		{"203.0.113.7", "/door", `it passes: rule "our own" allows it`, 200},
	} {
		v, err := s.Explain(ctx, console.Question{Client: c.client, Path: c.path})
		if err != nil || v.Verdict != c.verdict {
			t.Errorf("%s of %s: %q, %v, want %q", c.path, c.client, v.Verdict, err, c.verdict)
		}
		if got := s.get(c.client, c.path, "curl/8"); got != c.status {
			t.Errorf("%s of %s: the answer is %d, want %d", c.path, c.client, got, c.status)
		}
	}
	v, err := s.Explain(ctx, console.Question{Client: "203.0.113.9", Path: "/door/help"})
	if err != nil || strings.Contains(v.Verdict, "banned") || len(v.Bans) != 1 {
		t.Errorf("/door/help: %+v, %v", v, err)
	}
}

func TestActionsTakeEffect(t *testing.T) {
	s, ctx := open(t), context.Background()
	const client = "203.0.113.9"
	act := func(a console.Action) *console.Result {
		t.Helper()
		r, err := s.Act(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	until := func(status int) { // the server follows the registry within a second
		t.Helper()
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if s.get(client, "/", firefox) == status {
				return
			}
		}
		t.Fatalf("no answer %d", status)
	}
	for range 11 {
		s.get(client, "/", firefox)
	}
	until(429)
	r := act(console.Action{Do: "reset", Client: client})
	if !strings.HasPrefix(r.Lines[0], "reset: 203.0.113.9: limits count from zero") {
		t.Errorf("%q", r.Lines)
	}
	until(200)
	act(console.Action{Do: "ban", Client: client, Reason: "too many pages"})
	until(403)
	v, err := s.Client(ctx, client)
	if err != nil || v.Decision == nil || v.Decision.Action != "block" || v.Decision.Reason != "too many pages" {
		t.Errorf("%+v, %v", v.Decision, err)
	}
	if e, err := s.Explain(ctx, console.Question{Client: client}); err != nil ||
		e.Verdict != "an operator's decision about 203.0.113.9 comes first: block" {
		t.Errorf("%+v, %v", e, err)
	}
	if bans, err := s.Bans(ctx); err != nil || len(bans.Decisions) != 1 {
		t.Errorf("%+v, %v", bans, err)
	}
	act(console.Action{Do: "unban", Client: client})
	act(console.Action{Do: "allow", Client: client, For: 3600})
	for range 12 {
		until(200)
	}
	act(console.Action{Do: "unallow", Client: client})
	act(console.Action{Do: "label", Client: client, Label: "Partner"})
	act(console.Action{Do: "note", Client: client, Note: "calls on Monday"})
	if v, err = s.Client(ctx, client); err != nil || !slices.Equal(v.Labels, []string{"partner"}) ||
		v.Note != "calls on Monday" || v.Decision != nil {
		t.Errorf("%+v, %v", v, err)
	}
	act(console.Action{Do: "unlabel", Client: client, Label: "partner"})
	act(console.Action{Do: "forget", Client: client})
	for _, a := range []console.Action{{}, {Do: "ban"}, {Do: "ban", Client: "x.*"}, {Do: "delete", Client: client},
		{Do: "ban", Client: client, For: 0.5}, {Do: "ban", Client: client, For: -1}, {Do: "ban", Client: client,
			For: 1e300},
		{Do: "label", Client: client}, {Do: "ban", Client: client, Reason: "a\nb"}} {
		var usage *cli.UsageError
		if r, err := s.Act(ctx, a); !errors.As(err, &usage) {
			t.Errorf("%+v: %v, %v", a, r, err)
		}
	}
	if _, err := s.Act(ctx, console.Action{Do: "ban", Client: "127.0.0.1"}); err == nil {
		t.Error("the machine itself was banned")
	}
}

// sum returns the number of refusals in rows: those reported within 20 ms are one row.
func sum(rows []console.Refusal) (n int64) {
	for _, r := range rows {
		n += r.N
	}
	return n
}
