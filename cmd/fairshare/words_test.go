package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

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
		st, err := newSite(t.Context(), file, siteTerms{bans: fairshare.NewBans(0), list: func(*policyfile.File, string) {}}, nil)
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

	listed := siteOf(fmt.Sprintf("upstream: http://127.0.0.1:3000\nlists: {drop: {file: %q}}\nsessions: {cookies: [PHPSESSID], bots: share}", writeFile(t, "drop.txt", "192.0.2.1\n")) + rest)
	if got, want := changes(old, listed), []string{"lists: drop 1 prefix", "sessions: bots share those of PHPSESSID"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := changes(listed, old), []string{"lists: none", "sessions: none are shared"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What lists hold and whose sessions are shared is said at start.
func TestListsAndSessionsAreSaidAtStart(t *testing.T) {
	s := startServe(t, fmt.Sprintf("upstream: %s\nlists: {drop: {file: %q}, none: {file: %q}}\nsessions: {cookies: [JSESSIONID, PHPSESSID], bots: share}\nrules: [{use: default}]\n",
		echo(t).URL, writeFile(t, "drop.txt", "192.0.2.1\n198.51.100.0/24\n"), writeFile(t, "none.txt", "")))
	s.stop()
	for _, want := range []string{"fairshare: lists: drop 2 prefixes, none no prefix\n", "fairshare: sessions: bots share those of JSESSIONID, PHPSESSID\n"} {
		if said := s.stderr.String(); !strings.Contains(said, want) {
			t.Errorf("not said: %s\n%s", want, said)
		}
	}
}

func TestEndingCertificateIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, test := range []struct {
		until time.Duration // from now
		want  string
	}{{-time.Hour, "site.pem was good until "}, {time.Hour, "site.pem is good until "}, {30 * 24 * time.Hour, ""}} {
		s, certs := &server{listener: l, memory: &memory{}}, &certificates{certFile: "site.pem"}
		certs.current.Store(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Now().Add(test.until)}})
		s.certs.Store(certs)
		if got := s.warnings(&site{file: &policyfile.File{}}); (len(got) > 0) != (test.want != "") || len(got) > 0 && !strings.Contains(got[0], test.want) {
			t.Errorf("%v: %q", test.until, got)
		}
	}
}
