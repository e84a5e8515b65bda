package policyfile

import (
	"testing"
	"time"
)

// Ranges are fetched once a day if a rule looks at bots, and never if the policy says so.
func TestRangesAreRefreshedForRulesThatLookAtBots(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{"rules: [{use: default}]", 24 * time.Hour},
		{"{bots: {refresh: never}, rules: [{use: default}]}", 0},
		{"{bots: {refresh: 6h}, rules: [{use: default}]}", 6 * time.Hour},
		{"rules: [{name: a, limit: {requests: 600, per: 1m}}]", 0},
		{"{bots: {refresh: 6h}, rules: [{name: a, limit: {requests: 600, per: 1m}}]}", 6 * time.Hour},
		{"rules: [{name: a, match: {not: {bot: search}}, limit: {requests: 600, per: 1m}}]", 24 * time.Hour},
		{"rules: [{name: a, limit: {requests: 600, per: 1m, by: operator}}]", 24 * time.Hour},
		{"rules: [{name: a, match: {path: /x}, trap: true}]", 24 * time.Hour},
		{"rules: [{name: a, match: {path: /x}, limit: {requests: 9, per: 1m}, ban: {after: 1, for: 1h}}]", 0},
		{"rules: [{name: a, match: {operator: openai, path: /x}, limit: {bytes: 9MB, per: 1m, by: network}}]", 24 * time.Hour},
	} {
		text, want := c.text, c.want
		f, err := Options{Bots: someBots}.Parse("site.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := f.RefreshRanges(); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
