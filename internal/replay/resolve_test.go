package replay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fairshare"
	"fairshare/bots"
	"fairshare/internal/lookup"
	"fairshare/internal/lookup/lookuptest"
)

// The test uses the verifier, the resolver and a DNS server with correct, wrong and
// missing answers. Crawlers pass, forged ones are blocked, and clients without an answer
// are ordinary. If the DNS is not asked, all are ordinary.
func TestResolveByARealDNS(t *testing.T) {
	const yandex = `"GET / HTTP/1.1" 200 1 "-" "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)"`
	const reader = `"POST /login HTTP/1.1" 200 1 "-" "Mozilla/5.0 (X11; Linux x86_64; rv:120.0) Gecko/20100101 Firefox/120.0"`
	server := lookuptest.Start(t)
	var lines []string
	add := func(addr, what string) {
		for range 3 {
			lines = append(lines, entryAt(addr, fmt.Sprintf("10:%02d:%02d", len(lines)/60, len(lines)%60), what))
		}
	}
	for i := range 200 { // crawlers in 20 networks
		addr := fmt.Sprintf("198.18.%d.%d", i%20, i)
		server.Host(addr, fmt.Sprintf("spider-%d.yandex.com", i))
		add(addr, yandex)
	}
	server.PTR("198.19.0.1", "spider-1.yandex.com.") // this name does not resolve to the address
	add("198.19.0.1", yandex)
	server.Host("198.19.1.1", "yandex.com.evil.example")
	add("198.19.1.1", yandex)
	server.Set(lookuptest.Reverse("198.19.2.1"), dnsmessage.TypePTR,
		lookuptest.Answer{Code: dnsmessage.RCodeServerFailure})
	add("198.19.2.1", yandex)
	server.Host("198.19.3.1", "desk.example.org")
	add("198.19.3.1", reader)
	server.List("dnsbl.example", "198.19.4.1", "127.0.0.13")
	server.List("dnsbl.example", "127.0.0.2", "127.0.0.2") // the self-test of the list
	add("198.19.4.1", reader)

	policy := &fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "our own", Match: fairshare.Match{Method: []string{"POST"}, Hostname: []string{"*.example.org"}},
			Action: fairshare.Allow},
		{Name: "engines", Match: fairshare.Match{Bot: []string{"yandexbot"}}, Action: fairshare.Allow},
		{Name: "forged", Match: fairshare.Match{Bot: []string{"forged"}}, Action: fairshare.Block},
		{Name: "listed", Match: fairshare.Match{Method: []string{"POST"},
			Listed: []fairshare.Listing{{List: "brute", Codes: []netip.Prefix{netip.MustParsePrefix(
				"127.0.0.13/32")}}}}, Action: fairshare.Block},
	}}
	run := func(change func(*Options)) (found string, report *Report) {
		opts := Options{Policy: policy, Limiter: memory(1 << 20), Client: clientFunc(t),
			Logs: []string{writeLines(t, "log", lines...)}}
		change(&opts)
		report = replayAll(t, opts)
		var all []string
		for _, r := range report.Rules {
			all = append(all, fmt.Sprintf("%s %d", r.Name, r.Matched))
		}
		for _, b := range report.Bots {
			all = append(all, fmt.Sprintf("%s %s %d of %d", b.Name, b.State, b.Requests, b.Clients))
		}
		return strings.Join(all, ", "), report
	}
	verifier := bots.NewVerifier(bots.Options{})
	got, report := run(func(o *Options) { o.Bot = verifier.Look })
	if want := "our own 0, engines 0, forged 0, listed 0, yandexbot pending 609 of 203"; got != want ||
		report.BotSummary.Pending != 609 {
		t.Errorf("by published addresses: %s, %d pending; want %s", got, report.BotSummary.Pending, want)
	}

	resolver, err := lookup.New(lookup.Options{Server: server.Addr(),
		Lists: map[string]lookup.List{"brute": {Zone: "dnsbl.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer resolver.Close()
	verifier = bots.NewVerifier(bots.Options{Names: resolver})
	got, report = run(func(o *Options) {
		o.Bot, o.Lookups = verifier.Look, resolver
		o.Resolve = func(ctx context.Context, addr netip.Addr, list string) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if list == "" {
				resolver.Wait(ctx, addr)
			} else {
				resolver.WaitListed(ctx, list, addr)
			}
		}
	})
	want := "our own 3, engines 600, forged 6, listed 3, yandexbot verified 600 of 200, yandexbot forged 6 of 2, yandexbot pending 3 of 1"
	if got != want || report.BotSummary.Pending != 3 {
		t.Errorf("by the DNS: %s, %d pending; want %s", got, report.BotSummary.Pending, want)
	}
	if slices.ContainsFunc(report.Unmeasured, func(u Unmeasured) bool { return u.Fact != "bot" }) {
		t.Errorf("unmeasured: %+v", report.Unmeasured)
	}
	for _, addr := range []string{"198.18.0.0", "198.18.19.199", "198.19.1.1", "198.19.3.1"} {
		if n := server.Queries(lookuptest.Reverse(addr), dnsmessage.TypePTR); n != 1 {
			t.Errorf("%s: %d questions", addr, n)
		}
	}
}
