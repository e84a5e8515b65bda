package policyfile_test

import (
	"reflect"
	"strings"
	"testing"

	"fairshare/policyfile"
)

func TestChangesOfAPolicy(t *testing.T) {
	const before = `contact: a@example.org
lists: {office: [192.0.2.1]}
rules:
  - {name: one, match: {path: /one}, block: true}
  - {name: two, limit: {requests: 5, per: 1m}}
  - {name: three, match: {addr: office}, allow: true}
`
	for _, c := range []struct {
		name, from, to string // replaced in before
		want           policyfile.Changes
	}{
		{"nothing", "", "", policyfile.Changes{}},
		{"another way to write it", "lists: {office: [192.0.2.1]}", "lists:\n  # ours\n  office:\n    - \"192.0.2.1\"",
			policyfile.Changes{}},
		{"a setting", "a@example.org", "b@example.org", policyfile.Changes{Settings: []string{"contact"}}},
		{"a setting that is new", "rules:", "grace: 5s\nrules:", policyfile.Changes{Settings: []string{"grace"}}},
		{"a setting that is gone", "contact: a@example.org\n", "", policyfile.Changes{Settings: []string{"contact"}}},
		{"a rule that is gone", "  - {name: one, match: {path: /one}, block: true}\n", "",
			policyfile.Changes{Removed: []string{"one: a request to path /one is blocked with 403."}}},
		{"a new rule", "rules:\n", "rules:\n  - {name: zero, match: {path: /z}, block: true}\n",
			policyfile.Changes{Added: []string{"zero: a request to path /z is blocked with 403."}}},
		{"another number", "requests: 5", "requests: 6", policyfile.Changes{Changed: []policyfile.RuleChange{{
			Name: "two",
			Was:  "two: a client (by addr) may send 5 requests in 1m; then 429.",
			Now:  "two: a client (by addr) may send 6 requests in 1m; then 429.",
			Keys: []string{"limit"}}}}},
		{"a text that no sentence shows", "block: true}", "block: true, answer: {body: x}}", policyfile.Changes{
			Changed: []policyfile.RuleChange{{Name: "one", Was: "one: a request to path /one is blocked with 403.",
				Now: "one: a request to path /one is blocked with 403, with a custom text.", Keys: []string{"answer"}}}}},
		{"a list that rules use", "192.0.2.1", "192.0.2.2", policyfile.Changes{Settings: []string{"lists"}}},
		{"the order", "  - {name: two, limit: {requests: 5, per: 1m}}\n" +
			"  - {name: three, match: {addr: office}, allow: true}\n",
			"  - {name: three, match: {addr: office}, allow: true}\n" +
				"  - {name: two, limit: {requests: 5, per: 1m}}\n", policyfile.Changes{Moved: true}},
	} {
		after := strings.Replace(before, c.from, c.to, 1)
		if c.from != "" && after == before {
			t.Fatalf("%s: %q is not in the policy", c.name, c.from)
		}
		a, b := mustParse(t, before), mustParse(t, after)
		if got := a.Changes(b); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
		if same := a.Sum() == b.Sum(); same != (after == before) {
			t.Errorf("%s: the sums are equal: %v", c.name, same)
		}
	}
}

// The text of an answer may differ although the sentences do not.
func TestChangesNameWhatASentenceHides(t *testing.T) {
	const policy = "rules: [{name: a, block: true, match: {path: /a}, answer: {body: one}}, {use: default}]"
	a, b := mustParse(t, policy), mustParse(t, strings.Replace(policy, "one", "two", 1))
	changes := a.Changes(b)
	if len(changes.Changed) != 1 || changes.Changed[0].Was != changes.Changed[0].Now ||
		!reflect.DeepEqual(changes.Changed[0].Keys, []string{"answer"}) {
		t.Errorf("%+v", changes)
	}
	c := mustParse(t, strings.Replace(policy, "{use: default}",
		"{use: default, override: {pages: {dry_run: true}}}", 1))
	changes = a.Changes(c)
	if len(changes.Changed) != 1 || changes.Changed[0].Name != "pages" ||
		!strings.Contains(changes.Changed[0].Now, "Dry run") {
		t.Errorf("%+v", changes)
	}
}

func mustParse(t *testing.T, text string) *policyfile.File {
	t.Helper()
	f, err := policyfile.Parse("site.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
