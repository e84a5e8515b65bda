package policyfile

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A trap is a block with a ban, whose terms a rule may change one by one.
func TestTrapIsBlockWithBan(t *testing.T) {
	for trap, block := range map[string]string{
		`trap: true`: `block: true, ban: {after: 1, for: 24h, growth: 2, max: 30d, all: true,
              unless: {bot: verified}}`,
		`trap: true, ban: {for: 1h, all: false}`: `block: true, ban: {after: 1, for: 1h, growth: 2, max: 30d,
              unless: {bot: verified}}`,
		`ban: {for: 60d}, trap: true`: `block: true, ban: {after: 1, for: 60d, growth: 2, max: 60d, all: true,
              unless: {bot: verified}}`,
		`trap: true, ban: {by: bot}`: `block: true, ban: {after: 1, for: 24h, growth: 2, max: 30d, all: true, by: bot}`,
		`trap: true, ban: {unless: {addr: 192.0.2.1}}`: `block: true, ban: {after: 1, for: 24h, growth: 2, max: 30d,
              all: true, unless: {addr: 192.0.2.1}}`,
	} {
		var rules [2]*File
		for i, action := range []string{trap, block} {
			file, err := Parse("policy", []byte("rules:\n  - {name: a, match: {path: /a}, "+action+"}\n"))
			if err != nil {
				t.Fatalf("%s: %v", action, err)
			}
			rules[i] = file
		}
		got, want := rules[0].Policy.Rules[0], rules[1].Policy.Rules[0]
		if diff := cmp.Diff(want.Ban, got.Ban, cmp.Comparer(func(a, b *AddrSet) bool {
			return a.Contains(netip.MustParseAddr("192.0.2.1")) == b.Contains(netip.MustParseAddr("192.0.2.1"))
		})); diff != "" || got.Action != want.Action {
			t.Errorf("%s: %s, %s", trap, got.Action, diff)
		}
	}
}
