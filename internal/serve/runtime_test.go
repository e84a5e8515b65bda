package serve

import (
	"testing"

	"fairshare/policyfile"
)

func TestHostsMatterToRulesThatMatchOrCountThem(t *testing.T) {
	for _, c := range []struct {
		rule string
		want bool
	}{
		{"match: {path: /a}, block: true", false},
		{"match: {host: a.example}, block: true", true},
		{"match: {not: {host: a.example}}, block: true", true},
		{"match: {not: [{path: /a}, {not: {host: a.example}}]}, block: true", true},
		{"limit: {requests: 1, per: 1s, by: [addr, host]}", true},
		{"limit: {requests: 1, per: 1s}, ban: {after: 9, for: 1m, unless: {host: a.example}}", true},
		{"match: {hostname: a.example}, limit: {requests: 1, per: 1s}, ban: {after: 9, for: 1m, unless: {path: /}}",
			false},
	} {
		file, err := policyfile.Parse("site.yaml", []byte("rules: [{name: a, "+c.rule+"}]"))
		if err != nil {
			t.Fatal(c.rule, err)
		}
		if got := hostsJudged(&file.Policy); got != c.want {
			t.Errorf("%s: %v", c.rule, got)
		}
	}
}
