package main

import (
	"slices"
	"testing"

	"fairshare"
	"fairshare/policyfile"
)

// After a reload, what was said at start and no longer holds is said anew.
func TestReloadTellsWhatElseChanged(t *testing.T) {
	siteOf := func(text string) *site {
		t.Helper()
		file, err := policyfile.Parse("/etc/site.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		st, err := newSite(file, fairshare.NewBans(0), nil)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const rest = "\nrules: [{use: default}]\n"
	old := siteOf("upstream: http://127.0.0.1:3000" + rest)
	if got := changes(old, siteOf("upstream: http://127.0.0.1:3000\ncontact: us@example.org"+rest)); got != nil {
		t.Errorf("nothing changed that was said: %q", got)
	}
	got := changes(old, siteOf("upstream: http://127.0.0.1:3001\nclients: {trusted_proxies: [cloudflare], header: CF-Connecting-IP}\njournal: {format: text, file: j.log}"+rest))
	want := []string{
		"upstream: http://127.0.0.1:3001",
		"clients: by CF-Connecting-IP of cloudflare; from anybody else no header is believed",
		"journal: refusals, as lines of text, in /etc/j.log",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
