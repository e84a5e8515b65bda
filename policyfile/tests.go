package policyfile

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"fairshare"
	"fairshare/internal/prose"
)

// Bounds of the tests of a policy file.
const (
	maxTests     = 1000
	maxTestTimes = 100_000 // requests of one test
	maxTestSpan  = 366 * 24 * time.Hour
)

// A Test is a request and the verdict that the policy should give it. Only fairshare check runs tests.
type Test struct {
	Name string

	Request   string             // a method and a path, or a path
	Addr      string             // of the client; "" means 203.0.113.1
	Through   string             // the peer that names Addr and that the policy does not name; "" for none
	Host      string             // "" means none
	UserAgent string             // "" means none
	Cookie    string             // the Cookie header, or the name of one cookie
	Header    map[string]string  // other headers
	Form      map[string]string  // the fields of the form in its body
	Attempts  []string           // as check --attempt; nil: what the method and the path show
	Browser   string             // as check --browser; "": what the headers show
	Labels    []string           // of the client
	BotState  fairshare.BotState // of the bot that the user agent names; NoBot: what the address shows
	Busy      bool               // the upstream is busy

	Times int           // how many such requests come; 0 means 1
	Every time.Duration // between one and the next

	// Expect is the verdict on the last request.
	Expect Expectation

	at ParseError // its position
}

// An Expectation is what a test expects.
type Expectation struct {
	Action fairshare.Action // Allow, Refuse or Block
	Rule   string           // the rule that decides; "" means any or none
	Status int              // of the answer; 0 means any
	DryRun bool             // a rule in dry run would do it, and the request passes
}

// Fault returns an error of a test as a fault of the policy at its position.
func (t *Test) Fault(err error, hint string) *ParseError {
	fault := t.at
	fault.Err, fault.Hint = err, hint
	return &fault
}

func testKeys() []key[Test] {
	text := func(name string, field func(*Test) *string) key[Test] {
		return key[Test]{name, func(r *reader, n *node, t *Test) { *field(t) = r.line(n, name) }}
	}
	return []key[Test]{
		text("name", func(t *Test) *string { return &t.Name }),
		{"request", func(r *reader, n *node, t *Test) { t.Request = r.testRequest(n) }},
		{"addr", func(r *reader, n *node, t *Test) { t.Addr = r.testAddr(n, "addr") }},
		{"through", func(r *reader, n *node, t *Test) { t.Through = r.testAddr(n, "through") }},
		text("host", func(t *Test) *string { return &t.Host }),
		text("user_agent", func(t *Test) *string { return &t.UserAgent }),
		text("cookie", func(t *Test) *string { return &t.Cookie }),
		{"header", func(r *reader, n *node, t *Test) { t.Header = r.testMap(n, "header") }},
		{"form", func(r *reader, n *node, t *Test) { t.Form = r.testMap(n, "form") }},
		{"attempt", func(r *reader, n *node, t *Test) {
			for _, item := range r.list(n, "attempt") {
				t.Attempts = append(t.Attempts, r.choice(item, "attempt",
					[]string{"login", "comment", "credentials", "excess", "known"}, nil))
			}
		}},
		{"browser", func(r *reader, n *node, t *Test) {
			t.Browser = r.choice(n, "browser", []string{"likely", "claimed", "contradicted"}, nil)
		}},
		{"label", func(r *reader, n *node, t *Test) {
			for _, item := range r.list(n, "label") {
				label, err := ParseLabel(r.line(item, "label"))
				if err != nil && item.kind == scalarNode {
					r.fault(item, err.(*LabelError).Hint(), "label: %v", err)
				}
				t.Labels = append(t.Labels, label)
			}
		}},
		{"state", func(r *reader, n *node, t *Test) { t.BotState = r.testState(n) }},
		{"busy", func(r *reader, n *node, t *Test) { t.Busy = r.boolean(n, "busy") }},
		{"times", func(r *reader, n *node, t *Test) { t.Times = int(r.integer(n, "times", 1, maxTestTimes)) }},
		{"every", func(r *reader, n *node, t *Test) {
			t.Every = r.duration(n, "every", time.Millisecond, 24*time.Hour)
		}},
		{"expect", readExpectation},
	}
}

func expectationKeys() []key[Expectation] {
	return []key[Expectation]{
		{"action", func(r *reader, n *node, e *Expectation) { e.Action = r.testAction(n) }},
		{"rule", func(r *reader, n *node, e *Expectation) { e.Rule = r.testRule(n) }},
		{"status", func(r *reader, n *node, e *Expectation) { e.Status = int(r.integer(n, "status", 100, 599)) }},
		{"dry_run", func(r *reader, n *node, e *Expectation) { e.DryRun = r.boolean(n, "dry_run") }},
	}
}

const testExample = `- {name: no secrets, request: GET /secret, expect: block}`

// readTests reads the tests. The rules were read before.
func readTests(r *reader, n *node, f *File) {
	if n.kind != listNode {
		r.fault(n, testExample, "tests: a list is needed, not %s", n.describe())
		return
	}
	if len(n.items) > maxTests {
		r.fault(n, "", "tests: more than %d", maxTests)
		return
	}
	names := map[string]*node{}
	for _, item := range n.items {
		file, line := r.locate(item.line)
		t := Test{at: ParseError{File: file, Line: line, Column: item.column, Source: r.source(item.line)}}
		got := readMap(r, item, "a test", testExample, testKeys(), &t)
		if got == nil {
			continue
		}
		for _, name := range []string{"name", "request", "expect"} {
			if !got.has(name) {
				r.missing(item, testExample, "a test needs %s", name)
			}
		}
		if first := names[t.Name]; first != nil && t.Name != "" {
			r.fault(got.values["name"], "", "the test %s is in the list twice, first in line %d", quote(t.Name),
				r.lineOf(first))
		}
		names[t.Name] = item
		method, _, found := strings.Cut(t.Request, " ")
		if t.Form != nil && (!found || method == "GET" || method == "HEAD") {
			r.fault(got.at("form"), "request: POST /login", "form: a form needs a method with a body")
		}
		switch {
		case t.Every > 0 && t.Times < 2:
			r.fault(got.at("every"), "times: 10", "every: times is needed too: how many requests come")
		case t.Every > 0 && time.Duration(t.Times-1) > maxTestSpan/t.Every:
			r.fault(got.at("every"), "", "every: the last request would come more than 366 days after the first")
		}
		f.Tests = append(f.Tests, t)
	}
}

// readExpectation reads an action, or a map with it.
func readExpectation(r *reader, n *node, t *Test) {
	if n.kind == scalarNode {
		t.Expect.Action = r.testAction(n)
		return
	}
	got := readMap(r, n, "expect", "{action: block, rule: no ai}", expectationKeys(), &t.Expect)
	if got != nil && !got.has("action") {
		r.missing(n, "expect: {action: block, rule: no ai}", "expect: an action is needed")
	}
}

func (r *reader) testAction(n *node) fairshare.Action {
	switch r.choice(n, "expect", []string{"allow", "refuse", "block"}, map[string]string{
		"pass": "allow", "ok": "allow", "200": "allow", "limit": "refuse", "429": "refuse", "ban": "refuse",
		"deny": "block", "403": "block",
	}) {
	case "allow":
		return fairshare.Allow
	case "refuse":
		return fairshare.Refuse
	case "block":
		return fairshare.Block
	}
	return fairshare.Undecided
}

// testRule reads the name of a rule of the policy.
func (r *reader) testRule(n *node) string {
	name := r.line(n, "rule")
	known := make([]string, len(r.file.Policy.Rules))
	for i := range r.file.Policy.Rules {
		if known[i] = r.file.Policy.Rules[i].Name; known[i] == name {
			return name
		}
	}
	if name != "" && !r.broken {
		r.fault(n, prose.DidYouMean(name, known), "rule: the policy has no rule %s", quote(name))
	}
	return ""
}

// testRequest reads a method and a path.
func (r *reader) testRequest(n *node) string {
	s := r.line(n, "request")
	method, target, found := strings.Cut(s, " ")
	if !found {
		method, target = "GET", s
	}
	if s != "" && (!isToken(method) || !strings.HasPrefix(target, "/") && target != "*" ||
		strings.ContainsAny(target, " #")) {
		r.fault(n, "request: GET /search?q=x", "request: a method and a path are needed, not %s", quote(s))
		return ""
	}
	return s
}

func (r *reader) testAddr(n *node, what string) string {
	s := r.line(n, what)
	if _, err := netip.ParseAddr(s); s != "" && err != nil {
		r.fault(n, what+": 203.0.113.7", "%s: %s is not an address", what, quote(s))
		return ""
	}
	return s
}

func (r *reader) testState(n *node) fairshare.BotState {
	states := []fairshare.BotState{fairshare.Claimed, fairshare.Pending, fairshare.Verified, fairshare.Forged}
	var words []string
	for _, s := range states {
		words = append(words, s.String())
	}
	word := r.choice(n, "state", words, nil)
	for _, s := range states {
		if s.String() == word {
			return s
		}
	}
	return fairshare.NoBot
}

// testMap reads a map from names to texts.
func (r *reader) testMap(n *node, what string) map[string]string {
	if n.kind != mapNode || len(n.entries) == 0 {
		r.fault(n, fmt.Sprintf("%s: {NAME: VALUE}", what), "%s: a map of texts is needed, not %s", what, n.describe())
		return nil
	}
	all := map[string]string{}
	for _, e := range n.entries {
		value, ok := r.text(e.value, what)
		switch {
		case !ok:
		case what == "header" && (!isToken(e.key.text) || strings.ContainsFunc(value, control)):
			r.fault(e.key, "", "header: %s is not a header with a value of one line", quote(e.key.text))
		default:
			all[e.key.text] = value
		}
	}
	return all
}
