package policyfile

import (
	"fmt"
	"strings"
	"testing"
)

// In a long policy, one warning lists the checks that are skipped.
func TestManyRulesAreNotComparedWithOneWarning(t *testing.T) {
	for _, n := range []int{maxCompared - 1, maxCompared} {
		var b strings.Builder
		b.WriteString("rules:\n  - {name: ceiling, limit: {requests: 1200, per: 1m}}\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {name: n%d, match: {path: /%d}, block: true}\n", i, i/2)
		}
		f, err := Parse("long.yaml", []byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		if rules := n + 1; rules <= maxCompared {
			if len(f.Warnings) != n/2 {
				t.Errorf("%d rules, of which %d cannot be reached: %d warnings", rules, n/2, len(f.Warnings))
			}
			continue
		}
		if len(f.Warnings) != 1 || f.Warnings[0].Line != 2 ||
			!strings.Contains(f.Warnings[0].Text, "201 rules are more than 200") {
			t.Errorf("%d rules: warnings %v", n+1, f.Warnings)
		}
	}
}

// A text that no request can have is a mistake: the rule silently has no effect.
func TestPathsAndHostsThatNoRequestHasAreWarned(t *testing.T) {
	for match, want := range map[string]string{
		`path: /caf%C3%A9`:      `write "/café"`,
		`path: "/a%20b/*"`:      `write "/a b/*"`,
		`path: "/100%"`:         "",
		`path: "/a%2Fb"`:        "", // servers read it in two ways, and this is one of them
		`path: "/x%2e/%41"`:     `write "/x./A"`,
		`path: "/café"`:         "",
		`path: "re:^/a%20b"`:    "",
		`host: münchen.example`: "xn--",
		`host: "re:^m.*"`:       "",
		`host: shop.example`:    "",
	} {
		f, err := Parse("a.yaml", []byte("rules:\n  - {name: ceiling, limit: {requests: 1200, per: 1m}}\n"+
			"  - {name: a, match: {"+match+"}, block: true}\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range f.Warnings {
			got += f.Warnings[i].Long()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: warnings %q, want %q", match, got, want)
		}
	}
}

func TestAnIPv6HostMayLackItsBrackets(t *testing.T) {
	for _, host := range []string{"2001:db8::1", "[2001:db8::1]", "2001:DB8:0::1"} {
		f, err := Parse("a.yaml", []byte(`rules: [{name: a, match: {host: "`+host+`"}, block: true}]`))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Policy.Rules[0].Match.Host; len(got) != 1 || got[0] != "[2001:db8::1]" {
			t.Errorf("%s is read as %q", host, got)
		}
	}
}
