package policyfile

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Parse returns conditions on clients in the fields of the file: words of bots in
// lower case, host names without a final dot.
func TestParseReadsConditionsOnClients(t *testing.T) {
	got := parsed(t, `
rules:
  - name: a
    match:
      bot: [Known, GoogleBot, forged]
      hostname: ["*.Example.ORG.", 're:\.example$']
      listed: [dronebl, {honeypot: {type: [spammer, harvester], threat: 25, age: 30d}, dronebl: {codes: [3, 127.0.0.8/30]}}, {honeypot: }]
    limit: {requests: 600, per: 1m, by: [bot, host]}
  - {name: b, match: {method: POST, listed: honeypot, not: {bot: verified}}, limit: {requests: 600, per: 1m, by: bot}, ban: {after: 3, for: 1h}}
sessions: {cookies: [JSESSIONID, "ASPSESSIONID*"], bots: share}
dns: {server: "[2001:db8::1]", lists: {honeypot: {httpbl: keys/honeypot.key}, dronebl: {zone: DNSBL.dronebl.org.}}}
bots: {table: bots.json, refresh: 1d}
lists: {drop: {file: /etc/drop.txt}, scanners: {url: "https://example.org/scanners.txt"}, often: {url: "http://[::1]:8000/", every: 1m}}
`)
	dronebl := fairshare.Listing{List: "dronebl"}
	honeypot := fairshare.Listing{List: "honeypot", HTTPBL: true}
	bad := fairshare.Listing{List: "honeypot", HTTPBL: true, Types: 6, Threat: 25, Days: 30}
	codes := fairshare.Listing{List: "dronebl", Codes: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32"),
		netip.MustParsePrefix("127.0.0.8/30")}}
	want := &File{
		Name: "site.yaml", Memory: DefaultMemory,
		Bots: Bots{Table: "bots.json", Refresh: 24 * time.Hour},
		DNS: DNS{Server: "[2001:db8::1]:53",
			Lists: map[string]DNSList{"honeypot": {KeyFile: "keys/honeypot.key"},
				"dronebl": {Zone: "dnsbl.dronebl.org"}}},
		Serve: Serve{Abandon: DefaultAbandon, Journal: defaultJournal(),
			Sessions: &Sessions{Cookies: []string{"JSESSIONID", "ASPSESSIONID*"}, Share: true, Bot: 2 * time.Minute,
				Person: 30 * time.Minute}},
		Lists: map[string]*AddrSet{"drop": {}, "scanners": {}, "often": {}},
		Sources: []Source{
			{Name: "drop", File: "/etc/drop.txt", Set: &AddrSet{}},
			{Name: "scanners", URL: "https://example.org/scanners.txt", Every: 24 * time.Hour, Set: &AddrSet{}},
			{Name: "often", URL: "http://[::1]:8000/", Every: time.Minute, Set: &AddrSet{}},
		},
		Policy: fairshare.Policy{Rules: []fairshare.Rule{
			{
				Name: "a",
				Match: fairshare.Match{
					Bot: []string{"known", "googlebot", "forged"}, Hostname: []string{"*.example.org", `re:\.example$`},
					Listed: []fairshare.Listing{dronebl, bad, codes, honeypot},
				},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 600, Window: time.Minute,
					By: []fairshare.KeyPart{{Kind: fairshare.ByBot}, {Kind: fairshare.ByHost}}},
			},
			{
				Name: "b",
				Match: fairshare.Match{Method: []string{"POST"}, Listed: []fairshare.Listing{honeypot},
					Not: []fairshare.Match{{Bot: []string{"verified"}}}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 600, Window: time.Minute,
					By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}},
				Ban: &fairshare.BanTerms{After: 3, For: time.Hour},
			},
		}},
	}
	if diff := cmp.Diff(want, got, compareFiles, cmpopts.IgnoreFields(File{}, "Warnings")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, set := range got.Lists {
		if set == nil || !set.external {
			t.Errorf("the list %s does not wait for its prefixes", name)
		}
	}
	if got.Sources[0].Set != got.Lists["drop"] {
		t.Error("Replace of a source's set does not change the list")
	}
}

// Without a table, Parse accepts any name that a bot could have, and still reports
// misspelled states.
func TestNamesAreNotCheckedWithoutATable(t *testing.T) {
	for word, fault := range map[string]bool{
		"nobody-knows-it": false, "Google Favicon": false, "x.y_z-1": false, "example.com": false, "re:^google": false,
		"good": true, "pending": true, "": true, "a/b": true, "é": true, strings.Repeat("a", 41): true,
	} {
		_, err := Parse("site.yaml", []byte("rules: [{name: a, match: {bot: \""+word+"\"}, block: true}]"))
		if (err != nil) != fault {
			t.Errorf("bot: %q: %v", word, err)
		}
	}
}

// Parse loads the table of a policy once, relative to the policy's folder. Without
// a table it loads the built-in one, and only if the policy names bots.
func TestParseLoadsTheTableOfThePolicyOnce(t *testing.T) {
	for text, want := range map[string][]string{
		"rules: []": nil,
		"rules: [{name: a, match: {bot: ai}, block: true}, {name: b, match: {bot: seo}, block: true}]": {""},

		"bots: {table: t/bots.json}\nrules: []": {
			filepath.Join("etc", "t", "bots.json"),
		},
		"rules: [{name: a, match: {bot: ai}, block: true}]\nbots: {table: /bots.json}": {"/bots.json"},
	} {
		var loaded []string
		options := Options{Bots: func(table string) ([]BotName, error) {
			loaded = append(loaded, table)
			return someBots(table)
		}}
		if _, err := options.Parse("etc/site.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, loaded); diff != "" {
			t.Errorf("%s: (-want +loaded)\n%s", text, diff)
		}
	}
}

// An access key in a policy is a fault, and no fault of any line shows the key.
func TestKeysInAPolicyAreNotShown(t *testing.T) {
	for _, text := range []string{
		"dns: {lists: {pot: {httpbl: abcdefghijkl}}}\nrules: []",
		"dns: {lists: {pot: abcdefghijkl}}\nrules: []",
		"dns: {server: x, lists: {pot: {httpbl: abcdefghijkl, x: y}}}\nrules: []",
		"dns: {lists: {pot: {zone: abcdefghijkl.dnsbl.httpbl.org, x: y}}}\nrules: []",
		"dns: {lists: {pot: {zone: dnsbl.httpbl.org, httpbl: abcdefghijkl}}}\nrules: []",
	} {
		_, err := Parse("site.yaml", []byte(text))
		if len(Faults(err)) == 0 {
			t.Errorf("%s: %v", text, err)
		}
		for _, fault := range Faults(err) {
			if strings.Contains(fault.Text(), "abcdef") {
				t.Errorf("%s\nshows the key:\n%s", text, fault.Text())
			}
		}
	}
}

// A program that reads the files of a policy can report their errors as faults of
// the policy.
func TestFaultsOfNamedFilesHaveThePositionInThePolicy(t *testing.T) {
	f, err := Parse("etc/site.yaml",
		[]byte("lists:\n  drop: {file: drop.txt}\ndns: {lists: {pot: {httpbl: /run/pot.key}}}\nrules: []"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"drop.txt":     "etc/site.yaml:2:16: no such file\n      drop: {file: drop.txt}\n                   ^\nhint: make it\n",
		"/run/pot.key": "etc/site.yaml:3:29: no such file\n    dns: {lists: {pot: {httpbl: /run/pot.key}}}\n                                ^\nhint: make it\n",
		"other":        "etc/site.yaml: no such file\nhint: make it\n",
	} {
		if got := f.Fault(name, errors.New("no such file"), "make it").Text(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	for name, want := range map[string]string{"drop.txt": filepath.Join("etc", "drop.txt"),
		"/run/pot.key": "/run/pot.key", "": ""} {
		if got := f.ResolvePath(name); got != want {
			t.Errorf("ResolvePath(%q) = %q, want %q", name, got, want)
		}
	}
}

// A list from a file can name trusted proxies. ProxyLists returns its current
// prefixes.
func TestProxyListsMayComeFromFiles(t *testing.T) {
	f := parsed(t,
		"clients: {trusted_proxies: [loopback, edge]}\nlists: {edge: {file: edge.txt}}\nrules: [{use: default}]")
	if got := f.ProxyLists()["edge"]; len(got) > 0 {
		t.Errorf("prefixes %v of a list that is not read", got)
	}
	edge := netip.MustParsePrefix("192.0.2.0/24")
	f.Sources[0].Set.Replace([]netip.Prefix{edge})
	if got := f.ProxyLists()["edge"]; len(got) != 1 || got[0] != edge {
		t.Errorf("prefixes %v, want %s", got, edge)
	}
}
