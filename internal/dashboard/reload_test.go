package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"fairshare/internal/console"
)

// The page of a reload shows warnings, changes and a button. The button loads what was shown, and nothing else.
func TestReloadPage(t *testing.T) {
	t.Parallel()
	s := open(t, isTheToken)
	plan, loaded := "one", ""
	s.console.Options.Reload = func(_ context.Context, confirmed string, apply bool) (*console.Reload, error) {
		r := console.NewReload("/etc/site.yaml")
		r.Plan = plan
		r.Warnings = append(r.Warnings, "warning: a <b>\u202e\n  of two lines\n")
		r.Added = append(r.Added, "new: a request to path /new<script>alert(1)</script> is blocked with 403.")
		r.Removed = append(r.Removed, "old: a request to path /old is blocked with 403.")
		r.Changed = append(r.Changed, console.RuleChange{Name: "c", Was: "c: before.", Now: "c: now."},
			console.RuleChange{Name: "d", Was: "d: same.", Now: "d: same.", Keys: []string{"answer", "match"}})
		r.Restart, r.Settings = []string{"listen"}, []string{"mode: dry run"}
		switch {
		case !apply:
		case confirmed != plan:
			return nil, console.ErrChanged
		default:
			r.Applied, loaded = true, confirmed
		}
		return r, nil
	}
	if code, _ := s.get("/reload"); code != http.StatusSeeOther {
		t.Errorf("without a session: %d", code)
	}
	s.logIn()
	code, text := s.get("/reload")
	checkPage(t, "/reload", text)
	at := 0
	for _, want := range []string{"/etc/site.yaml", "<h2 id=\"warnings-title\">", `a &lt;b&gt;\u202e`, "New rules",
		"new: a request to path /new&lt;script&gt;", "Removed rules", "old: a", "c: now.", "Before: c: before.",
		"Changed: answer, match", "mode: dry run", "Only after a restart", "listen", "counters: all are kept",
		`name="plan" value="one"`, "Load this policy"} {
		next := strings.Index(text[at:], want)
		if next < 0 {
			t.Fatalf("%d, no %q after %q:\n%s", code, want, text[:at], text[at:])
		}
		at += next
	}
	csrf := s.csrf()
	for what, c := range map[string]struct {
		form   url.Values
		header []string
	}{
		"no csrf token":  {url.Values{"plan": {"one"}}, nil},
		"another site":   {url.Values{"plan": {"one"}, "csrf": {csrf}}, []string{"Sec-Fetch-Site", "cross-site"}},
		"another origin": {url.Values{"plan": {"one"}, "csrf": {csrf}}, []string{"Origin", "http://evil.example"}},
	} {
		if w := s.post("/reload", c.form, c.header...); w.Code != http.StatusForbidden || loaded != "" {
			t.Errorf("%s: %d, loaded %q", what, w.Code, loaded)
		}
	}
	send := func(plan string) string {
		t.Helper()
		w := s.post("/reload", url.Values{"plan": {plan}, "csrf": {csrf}})
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/reload" {
			t.Fatalf("%d %s", w.Code, w.Header())
		}
		_, text := s.get("/reload")
		return text
	}
	plan = "two" // the file was edited
	if text := send("one"); loaded != "" || !strings.Contains(text, "because the policy has changed") ||
		!strings.Contains(text, `value="two"`) {
		t.Errorf("loaded %q:\n%s", loaded, text)
	}
	if text := send(""); loaded != "" || !strings.Contains(text, "needs its plan") {
		t.Errorf("loaded %q:\n%s", loaded, text)
	}
	if text := send("two"); loaded != "two" || !strings.Contains(text, "was loaded and is in force") {
		t.Errorf("loaded %q:\n%s", loaded, text)
	}
}

// A faulty policy, and a listener without a token, have no button.
func TestReloadPageWithoutAButton(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	changes := console.NewReload("/etc/site.yaml")
	changes.Plan = "one"
	s.console.Options.Reload = func(context.Context, string, bool) (*console.Reload, error) { return changes, nil }
	_, text := s.get("/reload")
	if !strings.Contains(text, "No rule and no setting differs") || strings.Contains(text, "<form") {
		t.Error(text)
	}
	if w := s.post("/reload", url.Values{"plan": {"one"}}); w.Code != http.StatusForbidden {
		t.Errorf("without a token: %d", w.Code)
	}
	s = open(t, isTheToken)
	changes = console.NewReload("/etc/site.yaml")
	changes.Faults = append(changes.Faults, "site.yaml:2:15: unknown key: \"alow\"\n    - {alow: true}\n       ^\n")
	s.console.Options.Reload = func(context.Context, string, bool) (*console.Reload, error) { return changes, nil }
	s.logIn()
	_, text = s.get("/reload")
	checkPage(t, "/reload", text)
	if !strings.Contains(text, "cannot be loaded") ||
		!strings.Contains(text, "unknown key: &#34;alow&#34;\n    - {alow") ||
		strings.Contains(text, `action="/reload"`) {
		t.Error(text)
	}
}
