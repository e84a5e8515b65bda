package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesOfSites(t *testing.T) {
	t.Parallel()
	const sites = `
sites:
  one.example: http://127.0.0.1:1
  two: {hosts: two.example, upstream: http://127.0.0.1:2}
  three: {hosts: "*", upstream: http://127.0.0.1:3, rules: [{name: all, limit: {requests: 9, per: 1m}}], dry_run: true}
rules:
  - {name: friends, match: {addr: 192.0.2.1}, allow: true}
  - {name: all, limit: {requests: 600, per: 1m}}
`
	for text, want := range map[string][]string{
		sites:                           {"friends", "all", "three/all (three, dry run)"},
		"count_sites: together" + sites: {"friends", "all", "three/all (three, dry run)"},
		"count_sites: apart" + sites:    {"friends", "all", "three/all (three, dry run)"},
	} {
		f, err := Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range f.Policy.Rules {
			name := r.Name
			if r.Site != "" {
				name += " (" + r.Site
				if r.DryRun {
					name += ", dry run"
				}
				name += ")"
			}
			got = append(got, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text[:20], diff)
		}
		if f.Policy.SitesApart != strings.Contains(text, "apart") {
			t.Errorf("%.20s: apart %v", text, f.Policy.SitesApart)
		}
		if err := f.Policy.Check(); err != nil {
			t.Error(err)
		}
		if f.Hosts != nil {
			t.Errorf("one site has every other host, and hosts are %v", f.Hosts)
		}
		if len(f.Policy.Sites) != len(f.Sites) {
			t.Errorf("%d sites, want %d", len(f.Policy.Sites), len(f.Sites))
		}
	}
}

// The rules of a site may be in a file of their own. Its faults and warnings have its name and
// its lines.
func TestPolicyOfASiteInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	main := write("main.yaml", `
lists: {office: [192.0.2.0/24]}
sites:
  a.example: {upstream: http://127.0.0.1:1, policy: sites/a.yaml}
  b.example: {upstream: http://127.0.0.1:1, policy: sites/b.yaml}
`)
	write("sites/a.yaml", "rules:\n- {name: office, match: {addr: office}, allow: true}\n- use: default\n")
	write("sites/b.yaml", "rules:\n- {name: x, block: true, match: {path: /x}}\n- use: default\n")
	f, err := Load(main)
	if err != nil {
		t.Fatal(err)
	}
	if f.Policy.Rules[0].Name != "a.example/office" || f.Policy.Rules[0].Site != "a.example" {
		t.Errorf("%+v", f.Policy.Rules[0])
	}

	write("sites/a.yaml", "rules:\n- {name: office, match: {addr: offices}, allow: true}\nlists: {}\n")
	write("sites/b.yaml", "rules:\n- name: x\n   block: true\n")
	_, err = Load(main)
	var got []string
	for _, fault := range Faults(err) {
		got = append(got, fmt.Sprintf("%s:%d", filepath.Base(fault.File), fault.Line))
		if !strings.Contains(fault.Source, "offices") && !strings.Contains(fault.Source, "lists") &&
			!strings.Contains(fault.Source, "block") && !strings.Contains(fault.Source, "name: x") {
			t.Errorf("%s: line %q", fault, fault.Source)
		}
	}
	if !slices.Contains(got, "a.yaml:2") || !slices.Contains(got, "a.yaml:3") ||
		!slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "b.yaml:") }) {
		t.Errorf("faults at %v:\n%v", got, err)
	}
}

// A hundred sites share the built-in rules. With a copy for each there would be too many limits.
func TestHundredSites(t *testing.T) {
	inOneGoroutine(t)
	t.Parallel()
	parse := func(site string) (*File, error) {
		var b strings.Builder
		b.WriteString("count_sites: apart\nrules: [{use: default}]\nsites:\n")
		for i := range 100 {
			fmt.Fprintf(&b, "  site%d.example: {upstream: http://127.0.0.1:%d%s}\n", i, 3000+i, site)
		}
		return Parse("policy.yaml", []byte(b.String()))
	}
	f, err := parse("")
	if err != nil || len(f.Sites) != 100 || len(f.Policy.Rules) != len(BuiltIn().Policy.Rules) {
		t.Fatal(err)
	}
	if f, err = parse(", rules: [{name: all, limit: {requests: 600, per: 1m}}]"); err != nil ||
		len(f.Policy.Rules) != len(BuiltIn().Policy.Rules)+100 {
		t.Fatal(err)
	}
	_, err = parse(", rules: [{use: default}]")
	if err == nil || !strings.Contains(err.Error(), "counters for each client") {
		t.Errorf("a hundred copies of the built-in rules: %v", err)
	}
}

// A rule of the file may have the name that a rule of a site gets: the fault has a position and a hint, as any other.
func TestARuleOfASiteWithTheNameOfAnotherIsAFault(t *testing.T) {
	_, err := Parse("a.yaml", []byte(`rules:
  - {name: shop/x, limit: {requests: 100, per: 10s}}
sites:
  shop:
    upstream: http://127.0.0.1:3000
    hosts: [shop.example.org]
    rules:
      - {name: y, limit: {requests: 5, per: 10s}}
      - {name: x, limit: {requests: 5, per: 10s}}
  other.example.org: http://127.0.0.1:3000
`))
	faults := Faults(err)
	if len(faults) != 1 || faults[0].Line != 9 || !strings.Contains(faults[0].Error(), "line 2") {
		t.Errorf("faults %v of %v", faults, err)
	}
}
