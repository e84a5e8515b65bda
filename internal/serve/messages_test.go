package serve

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/livepolicy"
	"fairshare/policyfile"
)

// A reload reports what has changed of the messages at the start.
func TestReloadReportsChanges(t *testing.T) {
	siteOf := func(text string) *runtime {
		t.Helper()
		_, rt := open(t, text)
		return rt
	}
	const rest = "\nrules: [{use: default}]\n"
	old := siteOf("upstream: http://127.0.0.1:3000" + rest)
	if got := changes(old, siteOf("upstream: http://127.0.0.1:3000\ncontact: us@example.org"+rest)); got != nil {
		t.Errorf("a change that is not in the messages at the start is reported: %q", got)
	}
	got := changes(old,
		siteOf("upstream: http://127.0.0.1:3001\nclients: {trusted_proxies: [cloudflare], header: CF-Connecting-IP}\njournal: {format: text, file: j.log}"+rest))
	want := []string{
		"upstream: http://127.0.0.1:3001",
		"clients: by CF-Connecting-IP of cloudflare; clients that another local peer names in a header count provisionally",
		"journal: refusals, as lines of text, in /etc/j.log",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	listed := siteOf(
		fmt.Sprintf(
			"upstream: http://127.0.0.1:3000\nlists: {drop: {file: %q}}\nsessions: {cookies: [PHPSESSID], bots: share}", writeFile(t, "drop.txt", "192.0.2.1\n")) + rest)
	if got, want := changes(old, listed), []string{"lists: drop 1 prefix",
		"sessions: bots share those of PHPSESSID"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := changes(listed, old), []string{"lists: none", "sessions: none are shared"}; !slices.Equal(got,
		want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The source of client addresses is described for each kind of proxy.
func TestClientSource(t *testing.T) {
	const provisional, nobody = "clients that another local peer names in a header count provisionally",
		"headers of other peers are ignored"
	for _, c := range []struct{ clients, want string }{
		{"", "the address that connects; clients that a local peer names in a header count provisionally"},
		{"clients: {trusted_proxies: []}", "the address that connects; no header is used"},
		{"clients: {trusted_proxies: [10.0.0.1]}", "by X-Forwarded-For of 10.0.0.1; " + provisional},
		{"clients: {trusted_proxies: [10.0.0.1], unnamed_proxies: ignore}",
			"by X-Forwarded-For of 10.0.0.1; " + nobody},
		{"clients: {trusted_proxies: [10.0.0.1]}\nproxy_protocol: true",
			"by the PROXY protocol, then X-Forwarded-For, of 10.0.0.1; " + provisional},
		{"clients: {trusted_proxies: [10.0.0.1], unnamed_proxies: ignore}\nproxy_protocol: true",
			"by the PROXY protocol, then X-Forwarded-For, of 10.0.0.1; " + nobody},
	} {
		_, rt := open(t, "upstream: http://127.0.0.1:3000\n"+c.clients+"\nrules: [{use: default}]\n")
		if got := rt.clientSource(); got != c.want {
			t.Errorf("%s: %q, want %q", c.clients, got, c.want)
		}
	}
}

func TestWarningOfAnEndingCertificate(t *testing.T) {
	initial, _ := open(t, "upstream: http://127.0.0.1:3000\nrules: []\n")
	policy := initial.policy
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, test := range []struct {
		until time.Duration // from now
		want  string
	}{{-time.Hour, "site.pem was valid until "}, {time.Hour, "site.pem is valid only until "},
		{30 * 24 * time.Hour, ""}} {
		s, certs := &server{listener: l, policy: policy}, &certificates{certFile: "site.pem"}
		certs.current.Store(&tls.Certificate{Leaf: &x509.Certificate{NotAfter: time.Now().Add(test.until)}})
		s.certs.Store(&siteCertificates{others: certs})
		got := s.warnings(&runtime{Runtime: &livepolicy.Runtime{File: &policyfile.File{}}})
		if (len(got) > 0) != (test.want != "") || len(got) > 0 && !strings.Contains(got[0], test.want) {
			t.Errorf("%v: %q", test.until, got)
		}
	}
}

func TestSharing(t *testing.T) {
	by := []fairshare.KeyPart{{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr}}
	for _, c := range []struct {
		share policyfile.Share
		want  string
	}{
		{policyfile.Share{Capacity: 1, By: by[1:], Wait: time.Second, Queue: 4},
			"the upstream works on 1 request at once; shared by addr while it is busy, up to 4 wait, 1s at most"},
		{policyfile.Share{Min: 2, Max: 64, By: by, Wait: 90 * time.Second, Queue: 9},
			"the upstream works on as many requests at once as it answers well, 2 to 64; shared by network, then addr while it is busy, up to 9 wait, 1m30s at most"},
		{policyfile.Share{Capacity: 8, By: by, Queue: 9},
			"the upstream works on 8 requests at once; shared by network, then addr while it is busy, requests do not wait: without a turn the answer is 503"},
		{policyfile.Share{Capacity: 8, By: by, Wait: time.Second},
			"the upstream works on 8 requests at once; shared by network, then addr while it is busy, requests do not wait: without a turn the answer is 503"},
	} {
		st := &runtime{Runtime: &livepolicy.Runtime{File: &policyfile.File{Share: &c.share}}}
		if got := st.sharing(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestCostSource(t *testing.T) {
	for _, c := range []struct{ policy, want string }{
		{"rules: [{use: default}]", ""},
		{"upstream: {cpu: {from: server-timing, cores: 4}}\nrules: [{use: default}]",
			"CPU time by Server-Timing: cpu of the upstream, 4 cores"},
		{"upstream: {cost: {header: X-Cost, max: 50}}\nrules: [{use: default}]",
			"units by X-Cost of the upstream, 50 of one answer at most"},
		{"upstream: {cost: {header: X-Cost}, cpu: {from: server-timing, cores: 1}}\nrules: [{use: default}]",
			"CPU time by Server-Timing: cpu of the upstream, one core; units by X-Cost of the upstream, 1000000 of one answer at most"},
		{"upstream: {cpu: {cores: 2.5}}\nrules: [{name: a, limit: {cpu: 7%, per: 15s}}, {name: b, limit: {cost: 9, per: 1m}}]",
			"CPU time is not measured: the duration of a request counts instead, 2.5 cores; upstream: {cpu: {from: …}} names a source; units are not reported: each request costs 1; upstream: {cost: {header: …}} names a header"},
	} {
		file, err := policyfile.Parse("test.yaml", []byte(c.policy))
		if err != nil {
			t.Fatal(err)
		}
		st := &runtime{Runtime: &livepolicy.Runtime{File: file}}
		if got := st.costSource(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.policy, got, c.want)
		}
	}
}

func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
