package livepolicy

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/httpguard"
	"fairshare/internal/lockfile"
	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// policyOf returns a policy in force, and what it logs.
func policyOf(t *testing.T, folder, text string) (p *Policy, logged *[]string) {
	t.Helper()
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse(filepath.Join(t.TempDir(), "site.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	logged = new([]string)
	p, err = New(context.Background(), file, Options{Folder: folder, NoRegistry: true, Clock: httpguard.NewClock(),
		Log: func(line string) { *logged = append(*logged, line) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, logged
}

func TestBansThatAreNotExported(t *testing.T) {
	const rapid = "  - {name: rapid, limit: {requests: 9, per: 1m}, ban: {after: 1, for: 1h}}\n"
	const other = "  - {name: rapid, limit: {requests: 9, per: 1m}, ban: {after: 1, for: 1h, unless: %}}\n"
	allow := func(match string) string { return "  - {name: ok, match: {" + match + "}, allow: true}\n" + rapid }
	for _, c := range []struct{ rules, prefix, why string }{
		{rapid, "203.0.113.9/32", ""},
		{rapid, "203.0.113.0/24", ""},
		{rapid, "2001:db8::/64", ""},
		{rapid, "127.0.0.1/32", "this machine itself"},
		// Addresses of proxies stand for all their visitors.
		{rapid, "10.1.2.3/32", "it is of a private network, where one address may be many clients"},
		{rapid, "172.17.0.1/32", "name private in trusted_proxies"},
		{rapid, "172.69.1.1/32", "it is of Cloudflare, where one address may be many clients"},
		{rapid, "172.64.0.0/12", "name cloudflare in trusted_proxies"},
		{rapid, "151.101.1.1/32", "it is of Fastly"},
		{rapid, "13.124.199.0/32", "it is of CloudFront"},
		// Of a network, only addresses can be tested.
		{allow("label: friend"), "203.0.113.0/24", "it is a network, and a rule"},
		{allow("label: friend"), "2001:db8::/48", "it is a network, and a rule"},
		{allow("label: friend"), "2001:db8::/64", ""},
		{allow("hostname: \"*.example.org\""), "203.0.113.0/24", "it is a network"},
		{allow("bot: search"), "203.0.113.0/24", ""},
		{allow("operator: google, state: verified"), "203.0.113.0/24", ""},
		{allow("not: {bot: forged}"), "203.0.113.0/24", "it is a network"},
		// Bans of addresses do not hold for verified bots, whether or not a rule allows them.
		{rapid, "66.249.66.1/32", "it has published addresses of a bot"},
		{rapid, "66.249.64.0/19", "it has published addresses of a bot"},
		{rapid, "66.0.0.0/8", "it has published addresses of a bot"},
		{allow("bot: search"), "2001:4860:4801::/48", "it has published addresses of a bot"},
		{allow("bot: search, path: /a"), "203.0.113.0/24", ""},
		{strings.Replace(other, "%", "{label: friend}", 1), "203.0.113.0/24", "it is a network, and the rule's unless"},
		{strings.Replace(other, "%", "{path: /a}", 1), "203.0.113.0/24", ""},
		{strings.Replace(other, "%", "{label: friend}", 1), "203.0.113.9/32", ""},
	} {
		p, logged := policyOf(t, "", "bans: {export: {nftables: {}}}\nrules:\n"+c.rules)
		p.export.noted = map[string]bool{}
		prefix := netip.MustParsePrefix(c.prefix)
		kind := fairshare.ByAddr
		if prefix.Bits() <= 24 || prefix.Bits() == 48 {
			kind = fairshare.ByNetwork
		}
		p.bans.Restore(fairshare.BanRecord{Client: fairshare.PrefixID(prefix), Rule: "rapid", Kind: kind, Number: 1,
			Began: p.Now(), Until: p.Now().Add(time.Hour)})
		*logged = nil
		got := p.exportedBans()
		switch {
		case c.why == "" && (len(got) != 1 || got[0].Prefix != prefix || len(*logged) != 0):
			t.Errorf("%s with\n%sexported %v, logged %q", c.prefix, c.rules, got, *logged)
		case c.why != "" && (len(got) != 0 || len(*logged) != 1 || !strings.Contains((*logged)[0], c.why)):
			t.Errorf("%s with\n%sexported %v, logged %q, want %q", c.prefix, c.rules, got, *logged, c.why)
		}
	}
}

// A ban is not exported while it would keep out a bot that is verified, or may soon be.
func TestBansOfAddressesOfBotsAreNotExported(t *testing.T) {
	const agent = "Mozilla/5.0 (compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)"
	pending := func(p *Policy, addr string) {
		bot := p.GuardOptions(p.Current(), httpguard.Options{}).Bot(netip.MustParseAddr(addr), agent)
		if bot.State != fairshare.Pending {
			t.Fatalf("%+v", bot)
		}
	}
	saw := func(state fairshare.BotState, ago time.Duration) func(*Policy, string) {
		return func(p *Policy, addr string) {
			bot := fairshare.Bot{Name: "googlebot", State: state}
			p.export.bots.saw(netip.MustParseAddr(addr), &bot, p.Now().Add(-ago))
		}
	}
	for _, c := range []struct {
		name string
		see  func(p *Policy, addr string)
		age  time.Duration // of the ban
		why  string
	}{
		{"nothing", func(*Policy, string) {}, 0, ""},
		{"verified", saw(fairshare.Verified, time.Hour), time.Hour, "the bot googlebot was seen there"},
		{"claim", pending, 0, "a client there may be a bot"},
		{"old claim", pending, 11 * time.Minute, ""},
		{"forged", saw(fairshare.Forged, 0), 0, ""},
		{"many claims later", func(p *Policy, addr string) {
			saw(fairshare.Verified, 0)(p, addr)
			other := netip.MustParseAddr("2001:db8::1")
			for range 3 * mostSights {
				p.export.bots.saw(other, &fairshare.Bot{Name: "baiduspider", State: fairshare.Pending}, p.Now())
				other = other.Next()
			}
			if n := len(p.export.bots.pending.present) + len(p.export.bots.pending.former); n > 2*mostSights {
				t.Errorf("%d addresses are remembered", n)
			}
		}, time.Hour, "the bot googlebot was seen there"},
	} {
		for _, prefix := range []string{"203.0.113.9/32", "203.0.113.0/24"} {
			p, logged := policyOf(t, "", "bans: {export: {nftables: {}}}\nrules:\n"+
				"  - {name: rapid, limit: {requests: 9, per: 1m}, ban: {after: 1, for: 2h}}\n")
			p.export.noted = map[string]bool{}
			kind := fairshare.ByAddr
			if strings.HasSuffix(prefix, "/24") {
				kind = fairshare.ByNetwork
			}
			p.bans.Restore(fairshare.BanRecord{Client: fairshare.PrefixID(netip.MustParsePrefix(prefix)), Rule: "rapid",
				Kind: kind, Number: 1, Began: p.Now().Add(-c.age), Until: p.Now().Add(time.Hour)})
			if got := p.exportedBans(); len(got) != 1 {
				t.Fatalf("before: exported %v", got)
			}
			*logged = nil
			c.see(p, "203.0.113.9")
			if got := p.exportedBans(); (len(got) == 1) != (c.why == "") ||
				!strings.Contains(strings.Join(*logged, "\n"), c.why) {
				t.Errorf("%s: %s: exported %v, logged %q, want %q", c.name, prefix, got, *logged, c.why)
			}
		}
	}
}

// A process that gets the state folder only after its start exports bans from then on.
func TestExportBeginsWithTheStateFolder(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockfile.Take(filepath.Join(dir, setup.ServeLock))
	if err != nil {
		t.Fatal(err)
	}
	p, logged := policyOf(t, dir, "bans: {export: {nginx: {file: "+filepath.Join(dir, "bans.conf")+"}}}\nrules: []\n")
	if err := p.OpenState(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.startExport()
	p.MinuteReport(t.Context())
	if p.export.exporter.Load() != nil {
		t.Error("bans are exported by a process without the state folder")
	}
	lock.Release()
	p.state.saveCounters(p.counters())
	p.MinuteReport(t.Context())
	if p.export.exporter.Load() == nil {
		t.Errorf("bans are not exported; logged %q", *logged)
	}
	p.stopExport()
	p.MinuteReport(t.Context())
	exporter := p.export.exporter.Load()
	p.MinuteReport(t.Context())
	if p.export.exporter.Load() != exporter {
		t.Error("the same terms begin a new export")
	}
	p.stopExport()
}
