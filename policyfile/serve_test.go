package policyfile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("site.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// Parse returns the settings of serve in the fields of the file, host names in
// lower case.
func TestParseReadsSettingsOfServe(t *testing.T) {
	got := parsed(t, `
upstream: {url: "h2c://127.0.0.1:3000", cancels: true, timeout: 1h}
hosts: [Shop.Example., "*.SHOP.example", shop.example, 192.0.2.1, "::1", "[2001:DB8::0]", xn--bcher-kva.example]
underscores: keep
keep_headers: X-HTTP-Method-Override
h2c: true
fast_lane: false
abandon: 10m
journal: {format: text, file: log/refusals.log, max: 1000GB, keep: 0, query: true}
bounds: {connections: 16, connections_per_addr: 6, fields: 1000, header: 1MiB, streams: 8}
clients: {unnamed_proxies: ignore}
fail: open
rules: []
`)
	want := &File{
		Name: "site.yaml", Memory: DefaultMemory, Policy: fairshare.Policy{},
		IgnoreUnnamed: true, FailOpen: true,
		Serve: Serve{
			Upstream: "h2c://127.0.0.1:3000", Cancels: true, Timeout: time.Hour, Abandon: 10 * time.Minute,
			Hosts: []string{"shop.example", "*.shop.example", "192.0.2.1", "[::1]", "[2001:db8::]",
				"xn--bcher-kva.example"},
			KeepHeaders:     []string{"X-HTTP-Method-Override"},
			KeepUnderscores: true, H2C: true, NoFastLane: true,
			Journal: Journal{Format: "text", File: "log/refusals.log", Max: 1e12, KeepFiles: -1, Query: true},
			Bounds:  Bounds{Connections: 16, PerAddr: 6, Fields: 1000, Header: 1 << 20, Streams: 8},
		},
	}
	if diff := cmp.Diff(want, got, compareFiles, cmpopts.IgnoreFields(File{}, "Warnings")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Missing keys have their defaults, also in a map that has some of its keys.
func TestParseSetsDefaults(t *testing.T) {
	for _, text := range []string{"rules: []",
		"journal: {keep: 4}\nbounds: {}\nunderscores: drop\nfail: closed\nclients: {unnamed_proxies: provisional}\nrules: []"} {
		f := parsed(t, text)
		if want := (Journal{Format: "json", Max: 256e6, KeepFiles: 4}); f.Journal != want {
			t.Errorf("%s: journal %+v, want %+v", text, f.Journal, want)
		}
		if f.Abandon != time.Minute || f.Timeout != 0 || f.Hosts != nil || f.Bounds != (Bounds{}) ||
			f.KeepUnderscores || f.KeepHeaders != nil || f.IgnoreUnnamed || f.FailOpen || f.H2C || f.Cancels {
			t.Errorf("%s: %+v", text, f)
		}
	}
	if f := parsed(t, "abandon: 0s\nrules: []"); f.Abandon != 0 || !f.Cancels {
		t.Errorf("abandon: 0s is %v, and a request ends with its client: %v", f.Abandon, f.Cancels)
	}
}

// A header that cannot be kept is a fault at its position, with the reason from
// Options.KeepHeader.
func TestKeepHeadersAreChecked(t *testing.T) {
	options := Options{KeepHeader: func(name string) error {
		if name == "X-Good" {
			return nil
		}
		return fmt.Errorf("%s passes anyway", name)
	}}
	for text, want := range map[string]string{
		"keep_headers: X-Good":          "",
		"keep_headers: [X-Good, X-Bad]": "site.yaml:1:24: keep_headers: X-Bad passes anyway",
		"keep_headers: []":              "site.yaml:1:15: keep_headers: the list is empty",
		"keep_headers: 'X Bad'":         `site.yaml:1:15: keep_headers: "X Bad" is not the name of a header`,
		"keep_headers: {X-Good: 1}":     "site.yaml:1:16: keep_headers: a text is needed, not a map",

		"keep_headers: [" + strings.Repeat("X-Good, ", 101) + "]": "site.yaml:1:15: keep_headers: more than 100 names",
	} {
		_, err := options.Parse("site.yaml", []byte(text+"\nrules: []"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

// Parse returns the bounds of the registry without defaults.
func TestParseReadsTheRegistrysBounds(t *testing.T) {
	for text, want := range map[string]Registry{
		"": {},
		"registry: {clients: 1000, stories: 100, age: 1h}": {Clients: 1000, Stories: 100, Age: time.Hour},
		"registry: {clients: 100000000, stories: 10000000, age: 3650d}": {Clients: 100_000_000,
			Stories: 10_000_000, Age: 3650 * 24 * time.Hour},
		"registry: {url: \"postgres://db/shop\", password_file: p, listen_url: \"postgres://db2/shop\", schema: s_1}": {
			URL: "postgres://db/shop", PasswordFile: "p", ListenURL: "postgres://db2/shop", Schema: "s_1"},
		"registry: {age: 30d}": {Age: 30 * 24 * time.Hour},
	} {
		if got := parsed(t, text+"\nrules: []").Registry; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// Labels are in lower case, as in the registry.
func TestParseReadsLabels(t *testing.T) {
	rules := parsed(t, `
rules:
  - {name: a, match: {label: Good-Partner, not: [{label: [VIP, "re:^[A-Z]"]}]}, limit: {requests: 600, per: 1m}, ban: {after: 3, for: 1m, unless: {label: x}}}
`).Policy.Rules
	want := fairshare.Match{Label: []string{"good-partner"},
		Not: []fairshare.Match{{Label: []string{"vip", "re:^[A-Z]"}}}}
	if diff := cmp.Diff(want, rules[0].Match); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := rules[0].Ban.Unless.Label; len(got) != 1 || got[0] != "x" {
		t.Errorf("unless: %q", got)
	}
}

// ProxyLists returns only lists that trusted_proxies names, whatever the order of
// the keys.
func TestProxyListsReturnsListsOfTrustedProxies(t *testing.T) {
	f := parsed(t, `
clients: {trusted_proxies: [loopback, cloudflare, nobody, 192.0.2.1]}
rules: []
lists: {cloudflare: [198.51.100.7/24, "::ffff:203.0.113.9"], nobody: [], office: 192.0.2.0/24}
`)
	want := map[string][]netip.Prefix{
		"cloudflare": {netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.9/32")},
		"nobody":     nil,
	}
	if diff := cmp.Diff(want, f.ProxyLists(), cmp.Comparer(
		func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := f.TrustedProxies; len(got) != 4 || got[1] != "cloudflare" {
		t.Errorf("trusted proxies %v", got)
	}
}

// Parse warns of a list that contains the whole internet, as it does for a prefix.
func TestListsCountAsTrustedProxies(t *testing.T) {
	f := parsed(t, "clients: {trusted_proxies: [all]}\nlists: {all: [0.0.0.0/0]}\nrules: [{use: default}]")
	if len(f.Warnings) != 1 {
		t.Errorf("warnings %v, want one", f.Warnings)
	}
}
