package setup

import (
	"context"
	"os"
	"testing"

	"fairshare/policyfile"
)

// DNS lookups survive a reload. They prefer the host names of the new policy, but
// only once it is in force.
func TestReloadPrefersTheHostsOfTheNewPolicy(t *testing.T) {
	parse := func(text string) *policyfile.File {
		t.Helper()
		file, err := policyfile.Parse("site.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	old, err := NewBotIdentifier(parse("dns: {server: 127.0.0.1:1}\nrules: []\n"), BotOptions{UseDNS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(nil)
	next, err := NewBotIdentifier(parse("dns: {server: 127.0.0.1:1}\nrules:\n"+
		"  - {name: ours, match: {addr: 192.0.2.0/24, not: {hostname: '*.example.org'}}, block: true}\n"),
		BotOptions{UseDNS: true, Previous: old})
	if err != nil {
		t.Fatal(err)
	}
	if next.lookups != old.lookups {
		t.Fatal("the DNS cache was lost")
	}
	check := func(when string, host string, want bool) {
		t.Helper()
		if got := (*next.preferred.Load())(host); got != want {
			t.Errorf("%s: %s is preferred: %v, want %v", when, host, got, want)
		}
	}
	check("before", "a.example.org", false)
	check("before", "crawl-1.googlebot.com", true)
	next.Activate()
	check("in force", "a.example.org", true)
	check("in force", "a.example.net", false)
	check("in force", "crawl-1.googlebot.com", true)
}

// A command that only reads the ranges of an earlier serve leaves no folder behind, and a
// policy that does not ask for a refresh is silent about it.
func TestDefaultRefreshLeavesNoTrace(t *testing.T) {
	t.Parallel()
	file, err := policyfile.Parse("site.yaml", []byte("rules: [{use: default}]"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBotIdentifier(file, BotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(nil)
	state := t.TempDir()
	if err := b.LoadRanges(state, func(line string) { t.Error(line) }); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if NeedsStateFolder(file) {
		t.Error("the built-in policy needs a state folder")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a server that ends before the first fetch
	if err := b.RunRanges(ctx, "", func(line string) { t.Error(line) }); err != nil {
		t.Error(err)
	}
}
