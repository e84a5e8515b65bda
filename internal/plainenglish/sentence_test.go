package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSentencesAreSplitAtFullStops(t *testing.T) {
	for _, c := range []struct {
		text string
		want []sentence
	}{
		{"One line. Two lines\nof text. Three!", []sentence{{1, "One line."}, {1, "Two lines of text."},
			{2, "Three!"}}},
		{"A limit, e.g. Ten, is one. *Next* is it.", []sentence{{1, "A limit, e.g. Ten, is one."},
			{1, "*Next* is it."}}},
		{"It reads `a. B` and site.yaml. `b` follows.",
			[]sentence{{1, "It reads `a. B` and site.yaml."}, {1, "`b` follows."}}},
		{"Version 1.2 is out (see below.) Then 2 come.",
			[]sentence{{1, "Version 1.2 is out (see below.)"}, {1, "Then 2 come."}}},
		{"", nil},
	} {
		var b block
		for i, line := range strings.Split(c.text, "\n") {
			b.lines = append(b.lines, textLine{i + 1, line})
		}
		if diff := cmp.Diff(c.want, b.sentences(), cmp.AllowUnexported(sentence{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestCodeAndAddressesCountAsOneWord(t *testing.T) {
	for text, want := range map[string]int{
		"":                                       0,
		"One, two - three.":                      3,
		"Use `limit: {requests: 10, per: 1m}`.":  2,
		"See [the page](docs/policy.md#limits).": 3,
		"https://example.org/a/b is there":       3,
		"Pass `a`, `b` and `c d`, then `e`.":     4,
		"10 % of 5 clients":                      4,
	} {
		if got := countWords(text); got != want {
			t.Errorf("%q has %d words, want %d", text, got, want)
		}
	}
}
