package fairshare_test

import (
	"slices"
	"strings"
	"testing"

	"fairshare"
)

// A restriction holds for what a client claims, a permission only for what it has shown.
func TestMatchBrowser(t *testing.T) {
	const (
		n = fairshare.NotBrowser
		c = fairshare.BrowserClaimed
		l = fairshare.BrowserLikely
		x = fairshare.BrowserContradicted
	)
	for _, test := range []struct {
		words       []string
		restriction []fairshare.Browser // for which it holds
		permission  []fairshare.Browser
	}{
		{[]string{"likely"}, []fairshare.Browser{l}, []fairshare.Browser{l}},
		{[]string{"claimed"}, []fairshare.Browser{c, x}, nil},
		{[]string{"contradicted"}, []fairshare.Browser{x}, nil},
		{[]string{"claimed", "likely"}, []fairshare.Browser{c, l, x}, []fairshare.Browser{l}},
		{[]string{}, nil, nil},
	} {
		blocks := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "block",
			Match: fairshare.Match{Browser: test.words}, Action: fairshare.Block}}})
		excepts := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "block",
			Match: fairshare.Match{Not: []fairshare.Match{{Browser: test.words}}}, Action: fairshare.Block}}})
		for _, b := range []fairshare.Browser{n, c, l, x} {
			req := from(alice)
			req.Browser = b
			v, err := blocks.Decide(t.Context(), &req)
			if err != nil || (v.Action == fairshare.Block) != slices.Contains(test.restriction, b) {
				t.Errorf("a block of %q, browser %s: %s, %v", test.words, b, v.Action, err)
			}
			v, err = excepts.Decide(t.Context(), &req)
			if err != nil || (v.Action != fairshare.Block) != slices.Contains(test.permission, b) {
				t.Errorf("a block of all but %q, browser %s: %s, %v", test.words, b, v.Action, err)
			}
			for name, change := range map[string]func(*fairshare.Request){
				"provisional": func(r *fairshare.Request) { r.Via = nginx },
				"a proxy":     func(r *fairshare.Request) { r.Proxy = true },
			} {
				other := req
				change(&other)
				if v, err := excepts.Decide(t.Context(), &other); err != nil || v.Action != fairshare.Block {
					t.Errorf("a block of all but %q, browser %s, %s: %s, %v", test.words, b, name, v.Action, err)
				}
			}
		}
	}
	policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "a", Match: fairshare.Match{Browser: []string{"real"}},
		Action: fairshare.Block}}}
	if err := policy.Check(); err == nil || !strings.Contains(err.Error(), `"real" is not one of`) {
		t.Errorf("an unknown word: %v", err)
	}
}
