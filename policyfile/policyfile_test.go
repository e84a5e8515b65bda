package policyfile

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// compareFiles compares two files, and sets of addresses by their prefixes.
var compareFiles = cmp.Options{
	cmpopts.IgnoreFields(fairshare.Policy{}, "Ready"),
	cmp.Transformer("prefixes", func(s *AddrSet) []string {
		var list []string
		if s != nil {
			list = append(list, s.Lists()...)
			for _, p := range s.Prefixes() {
				list = append(list, p.String())
			}
		}
		return list
	}),
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreUnexported(File{}),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func statuses(codes ...int) (s fairshare.StatusSet) {
	for _, c := range codes {
		s.Add(c, c)
	}
	return s
}

func TestLoadReadsEveryKindOfRule(t *testing.T) {
	got, err := Load("testdata/good/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	office := &AddrSet{}
	for _, s := range []string{"192.0.2.0/24", "2001:db8::/32"} {
		p, err := parsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		office.add(p)
	}
	own := &AddrSet{}
	own.addList("office", office)
	byAddr := []fairshare.KeyPart{{Kind: fairshare.ByAddr}}
	want := &File{
		Name:    "testdata/good/shop.yaml",
		Contact: "shop@example.org", TrustedProxies: []string{}, Header: "X-Forwarded-For", Memory: 64 << 20,
		Serve: Serve{Listen: "127.0.0.1:8080", Upstream: "http://127.0.0.1:3000", Abandon: time.Minute,
			Journal: Journal{Format: "json", Max: 256e6, KeepFiles: 4}},
		Lists:         map[string]*AddrSet{"office": office},
		IgnoreUnnamed: true,
		Policy: fairshare.Policy{IPv4Prefix: 32, IPv6Prefix: 64, Rules: []fairshare.Rule{
			{Name: "our own", Match: fairshare.Match{Addr: own}, Action: fairshare.Allow},
			{Name: "bad bots", Match: fairshare.Match{UserAgent: []string{"80legs", "MJ12bot",
				"re:python-(requests|urllib)/"}}, Action: fairshare.Block},
			{Name: "ceiling", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1200, Window: time.Minute,
				By: byAddr}},
			{Name: "assets", Match: fairshare.Match{Path: []string{"/static/*", "*.css", "*.js", "*.png"},
				Method: []string{"GET", "HEAD"}}, Action: fairshare.Allow},
			{
				Name: "rapid requests", Match: fairshare.Match{Cookie: []string{"none"}},
				Limit:  &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 3 * time.Second, By: byAddr},
				Refund: statuses(301, 302, 303, 307, 308),
				Ban:    &fairshare.BanTerms{After: 20, For: 10 * time.Minute, Growth: 2, Max: 24 * time.Hour},
			},
		}},
	}
	if diff := cmp.Diff(want, got, compareFiles, cmpopts.IgnoreFields(File{}, "Warnings")); diff != "" {
		t.Errorf("Load of the shop's policy (-want +got):\n%s", diff)
	}
}
