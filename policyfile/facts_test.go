package policyfile

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/membans"
)

var everything = Facts{Lists: true, Bots: true, Lookups: true, Labels: true, Owners: true, Fleets: true, Busy: true,
	Browsers: true, Robots: true, Attempts: true, Forms: true}

// A rule that tests a fact which the program does not provide would never hold.
// NewGuard returns an error with the rule and the fact.
func TestNewGuardRefusesPoliciesWithMissingFacts(t *testing.T) {
	const site = "; open the policy with package site, or "
	for _, c := range []struct {
		policy, want string
		provides     Facts
	}{
		{`
lists: {drop: {file: drop.txt}}
rules: [{name: known attackers, match: {addr: [192.0.2.1, drop]}, block: true}]
`, `site.yaml: rule "known attackers" looks at the list "drop", which was not loaded from drop.txt` + site +
			`give its prefixes to the Set in File.Sources`, Facts{Lists: true}},
		{`
lists: {tor: {url: "https://lists.example/tor?key=secret"}}
rules: [{name: exits, match: {not: {addr: tor}}, block: true}]
`, `site.yaml: rule "exits" looks at the list "tor", which was not loaded from https://lists.example/tor?…` + site +
			`give its prefixes to the Set in File.Sources`, Facts{Lists: true}},
		{`
dns: {lists: {drone: {zone: dnsbl.example}}}
rules: [{name: proxies, match: {listed: drone}, block: true}]
`, `site.yaml: rule "proxies" looks at the DNS list "drone"` + site +
			`set Request.Lookups and call File.Provide(Facts{Lookups: true})`, Facts{Lookups: true}},
		{`
rules: [{name: cloud, match: {hostname: "*.cloud.example"}, block: true}]
`, `site.yaml: rule "cloud" looks at hostnames` + site +
			`set Request.Lookups and call File.Provide(Facts{Lookups: true})`, Facts{Lookups: true}},
		{`
rules: [{name: forged, match: {bot: forged}, block: true}]
`, `site.yaml: rule "forged" looks at bots` + site +
			`set Request.Bot and call File.Provide(Facts{Bots: true})`, Facts{Bots: true}},
		{`
rules:
  - {name: many, limit: {requests: 9, per: 1m}, ban: {after: 3, for: 1h, unless: {label: staff}}}
`, `site.yaml: rule "many" looks at labels` + site +
			`set Request.Override.Labels and call File.Provide(Facts{Labels: true})`, Facts{Labels: true}},
		{`
rules:
  - {name: one, match: {bot: forged}, block: true}
  - {name: two, match: {label: bad}, block: true}
`, `site.yaml: rule "one" looks at bots` + site + `set Request.Bot and call File.Provide(Facts{Bots: true})
site.yaml: rule "two" looks at labels` + site + `set Request.Override.Labels and call File.Provide(Facts{Labels: true})`,
			Facts{Bots: true, Labels: true, Owners: true, Browsers: true}},
	} {
		f, err := Parse("site.yaml", []byte(c.policy))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err == nil || err.Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.policy, err, c.want)
		}
		f.Provide(c.provides)
		if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err != nil {
			t.Errorf("%s\nwith %+v: %v", c.policy, c.provides, err)
		}
	}
}

// A library blocks the same requests as serve, or returns an error.
func TestListsFromFilesBlockAfterReplace(t *testing.T) {
	f, err := Parse("site.yaml", []byte(`
lists: {drop: {file: drop.txt}}
rules: [{name: known attackers, match: {addr: drop}, block: true}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err == nil {
		t.Fatal("a guard without the list, no error")
	}
	f.Sources[0].Set.Replace([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	guard, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := guard.Decide(context.Background(), &fairshare.Request{Time: time.Unix(1e9, 0),
		Addr: netip.MustParseAddr("192.0.2.7"), Method: "GET", Path: "/"})
	if err != nil || verdict.Action != fairshare.Block {
		t.Errorf("%v, %v, want block", verdict.Action, err)
	}
	f.Sources[0].Set.Replace(nil) // an empty list is loaded too
	if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err != nil {
		t.Error(err)
	}
}

func TestGoodPoliciesMakeGuardsWithAllFacts(t *testing.T) {
	inOneGoroutine(t)
	paths, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	incomplete := 0
	for _, path := range paths {
		f, err := Options{Bots: someBots, Cores: 4}.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err != nil {
			incomplete++
			if !strings.Contains(err.Error(), "looks at") {
				t.Errorf("%s: %v", path, err)
			}
		}
		f.Provide(everything)
		if _, err := fairshare.NewGuard(&f.Policy, unlimited{}, membans.New(0)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if incomplete < 10 || incomplete == len(paths) {
		t.Errorf("%d of %d policies are incomplete", incomplete, len(paths))
	}
}
