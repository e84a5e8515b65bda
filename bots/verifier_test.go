package bots

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fairshare"

	"github.com/google/go-cmp/cmp"
)

const (
	googlebotUA = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	bingbotUA   = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"
	yandexUA    = "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)"
	baiduUA     = "Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)"
	gptbotUA    = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"
	chatgptUA   = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; ChatGPT-User/1.0; +https://openai.com/bot"
	claudebotUA = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ClaudeBot/1.0; +claudebot@anthropic.com)"
	ahrefsUA    = "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)"
	facebookUA  = "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"
	mj12UA      = "Mozilla/5.0 (compatible; MJ12bot/v1.4.8; http://mj12bot.com/)"
	firefoxUA   = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
)

// dns is a Names with answers. Other addresses are not known yet.
type dns struct {
	names   map[netip.Addr][]string
	lookups []netip.Addr
}

func (d *dns) Confirmed(addr netip.Addr) ([]string, bool) {
	d.lookups = append(d.lookups, addr)
	names, known := d.names[addr]
	return names, known
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var snapshot = NewRanges()

func TestRangesAreCheckedFirst(t *testing.T) {
	names := &dns{}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	for _, c := range []struct {
		userAgent, addr, name string
		userTriggered         bool
	}{
		{googlebotUA, "66.249.64.1", "googlebot", false},
		{googlebotUA, "::ffff:66.249.64.1", "googlebot", false},
		{googlebotUA, "2001:4860:4801:10::1", "googlebot", false},
		{googlebotUA, "2001:4860:4801:10::1%eth0", "googlebot", false},
		{bingbotUA, "40.77.167.9", "bingbot", false},
		{yandexUA, "5.255.253.9", "yandexbot", false},
		{gptbotUA, "20.171.206.7", "gptbot", false},
		{claudebotUA, "216.73.216.9", "claudebot", false},
		{facebookUA, "31.13.64.1", "facebookexternalhit", true}, // but user-triggered
	} {
		got := v.Look(addr(c.addr), c.userAgent)
		if got.Name != c.name || got.State != fairshare.Verified || got.UserTriggered != c.userTriggered ||
			len(got.Categories) == 0 {
			t.Errorf("%s from %s: %+v", c.userAgent, c.addr, got)
		}
	}
	if len(names.lookups) > 0 {
		t.Errorf("the DNS was asked about %v", names.lookups)
	}
}

func TestNamesAreCheckedOutsideOfRanges(t *testing.T) {
	names := &dns{names: map[netip.Addr][]string{
		addr("192.0.2.1"):  {"crawl-192-0-2-1.googlebot.com"},
		addr("192.0.2.2"):  {"googlebot.com"},
		addr("192.0.2.3"):  {"host.example.org", "geo-crawl-1.geo.googlebot.com"},
		addr("192.0.2.10"): {"evilgooglebot.com"},
		addr("192.0.2.11"): {"googlebot.com.evil.org"},
		addr("192.0.2.12"): {"crawl.googlebot.comm", "googlebot.com-x.org", "xgooglebot.com", "googlebot.co"},
		addr("192.0.2.13"): {".googlebot.com"},
		addr("192.0.2.14"): {""},
		addr("192.0.2.15"): {}, // no name resolves to the address
		addr("192.0.2.16"): {"1.2.3.4.bc.googleusercontent.com", "x.1e100.net"},
		addr("66.249.1.1"): {}, // in a network of Google, but the DNS decides
		addr("192.0.2.20"): {"baiduspider-1.crawl.baidu.com"},
	}}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	for _, c := range []struct {
		userAgent, addr string
		want            fairshare.BotState
	}{
		{googlebotUA, "192.0.2.1", fairshare.Verified},
		{googlebotUA, "192.0.2.2", fairshare.Verified},
		{googlebotUA, "192.0.2.3", fairshare.Verified},
		{googlebotUA, "192.0.2.10", fairshare.Forged},
		{googlebotUA, "192.0.2.11", fairshare.Forged},
		{googlebotUA, "192.0.2.12", fairshare.Forged},
		{googlebotUA, "192.0.2.13", fairshare.Forged},
		{googlebotUA, "192.0.2.14", fairshare.Forged},
		{googlebotUA, "192.0.2.15", fairshare.Forged},
		{googlebotUA, "192.0.2.16", fairshare.Forged},
		{googlebotUA, "66.249.1.1", fairshare.Forged},
		{googlebotUA, "192.0.2.99", fairshare.Pending}, // a missing answer proves nothing
		{baiduUA, "192.0.2.20", fairshare.Verified},
		{baiduUA, "192.0.2.1", fairshare.Forged}, // a name of Google does not verify Baidu
		{baiduUA, "192.0.2.98", fairshare.Pending},
		{yandexUA, "192.0.2.1", fairshare.Forged},
		{bingbotUA, "66.249.64.1", fairshare.Pending}, // Googlebot's addresses are not bingbot's
	} {
		if got := v.Look(addr(c.addr), c.userAgent); got.State != c.want {
			t.Errorf("%s from %s: %v, want %v", got.Name, c.addr, got.State, c.want)
		}
	}
}

// partly is a Names that has confirmed one name and waits for others.
type partly string

func (p partly) Confirmed(netip.Addr) ([]string, bool) { return []string{string(p)}, false }

func TestOneConfirmedNameIsEnough(t *testing.T) {
	for name, want := range map[string]fairshare.BotState{"crawl-1.googlebot.com": fairshare.Verified,
		"host.example.org": fairshare.Pending} {
		v := NewVerifier(Options{Ranges: snapshot, Names: partly(name)})
		if got := v.Look(addr("192.0.2.1"), googlebotUA); got.State != want {
			t.Errorf("with %s, and others unknown: %v, want %v", name, got.State, want)
		}
	}
}

func TestNamesAreLookedUpOnlyIfNeeded(t *testing.T) {
	names := &dns{}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	for _, userAgent := range []string{firefoxUA, mj12UA, gptbotUA, chatgptUA, ahrefsUA, "", "curl/8.5.0",
		strings.Repeat("Googlebot ", 200)} {
		v.Look(addr("192.0.2.1"), userAgent)
	}
	v.Look(addr("66.249.64.1"), googlebotUA) // in its ranges
	v.Look(netip.Addr{}, googlebotUA)
	if len(names.lookups) > 0 {
		t.Errorf("lookups of %v", names.lookups)
	}
	v.Look(addr("::ffff:192.0.2.1"), googlebotUA)
	if want := []netip.Addr{addr("192.0.2.1")}; !slices.Equal(names.lookups, want) {
		t.Errorf("lookups of %v, want %v", names.lookups, want)
	}
}

// Without DNS, only complete ranges prove a forgery, and not in networks that the bot's
// operator owns or rents.
func TestWithoutDNS(t *testing.T) {
	v := NewVerifier(Options{Ranges: snapshot})
	for _, c := range []struct {
		userAgent, addr string
		want            fairshare.BotState
	}{
		{googlebotUA, "177.37.188.215", fairshare.Forged},
		{googlebotUA, "221.231.6.195", fairshare.Forged},
		{googlebotUA, "34.1.2.3", fairshare.Pending},       // Google's cloud
		{googlebotUA, "203.208.60.105", fairshare.Pending}, // Google in China
		{googlebotUA, "2001:db8::1", fairshare.Forged},
		{bingbotUA, "157.56.92.151", fairshare.Pending}, // of Microsoft; in 2015 of bingbot
		{bingbotUA, "63.141.245.74", fairshare.Forged},
		{yandexUA, "192.0.2.1", fairshare.Pending}, // its list may be incomplete
		{baiduUA, "192.0.2.1", fairshare.Pending},  // only its host name could decide
		{gptbotUA, "192.0.2.1", fairshare.Forged},
		{claudebotUA, "192.0.2.1", fairshare.Forged},
		{claudebotUA, "3.128.204.151", fairshare.Pending}, // its network in 2025
		{ahrefsUA, "192.0.2.1", fairshare.Forged},
		{ahrefsUA, "51.255.65.46", fairshare.Pending}, // its network in 2018
		{facebookUA, "192.0.2.1", fairshare.Pending},  // phones send it for previews, too
		{mj12UA, "192.0.2.1", fairshare.Claimed},      // cannot be verified
		{"curl/8.5.0", "192.0.2.1", fairshare.Claimed},
		{firefoxUA, "66.249.64.1", fairshare.NoBot}, // the address alone does not make a bot
		// its list is not in the snapshot
		{"Mozilla/5.0 (compatible; Qwantbot/1.0; +https://help.qwant.com/bot/)", "192.0.2.1", fairshare.Pending},
	} {
		if got := v.Look(addr(c.addr), c.userAgent); got.State != c.want {
			t.Errorf("%s from %s: %v, want %v", got.Name, c.addr, got.State, c.want)
		}
	}
	if got := v.Look(netip.Addr{}, googlebotUA); got.State != fairshare.Pending || got.Name != "googlebot" {
		t.Errorf("without address: %+v", got)
	}
	if got := v.Look(netip.Addr{}, mj12UA); got.State != fairshare.Claimed {
		t.Errorf("without address: %+v", got)
	}
}

// Behind a proxy that the configuration does not name, all clients have one address of
// this machine or its network. No claim is forged there. The operator's own DNS can verify
// a local address.
func TestLocalAddressesProveNoForgery(t *testing.T) {
	names := &dns{names: map[netip.Addr][]string{}}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	without := NewVerifier(Options{Ranges: snapshot})
	for _, s := range []string{"127.0.0.1", "::1", "10.1.2.3", "::ffff:192.168.0.1", "172.17.0.1", "fd00::1",
		"fe80::1%eth0", "169.254.1.1"} {
		names.names[plain(addr(s))] = nil
		for _, ua := range []string{googlebotUA, gptbotUA, baiduUA} {
			for _, v := range []*Verifier{v, without} {
				if got := v.Look(addr(s), ua); got.State != fairshare.Pending {
					t.Errorf("%s from %s: %v", ua, s, got.State)
				}
			}
		}
	}
	e := v.Explain(t.Context(), addr("10.1.2.3"), googlebotUA)
	if text := strings.Join(e.Steps, "\n"); !strings.Contains(text,
		"10.1.2.3 is of this machine or a private network") ||
		!strings.HasSuffix(text, "pending: treated as an ordinary client until the check is complete") {
		t.Errorf("explained as\n%s", text)
	}
	known := NewVerifier(Options{Ranges: snapshot, Names: names, LocalNames: true})
	if got := known.Look(addr("127.0.0.1"), googlebotUA); got.State != fairshare.Forged {
		t.Errorf("without a name in a DNS that knows the local networks: %v", got.State)
	}
	names.names[addr("10.1.2.3")] = []string{"crawl.googlebot.com"}
	if got := v.Look(addr("10.1.2.3"), googlebotUA); got.State != fairshare.Verified {
		t.Errorf("with a name of the operator's DNS: %v", got.State)
	}
}

// Thousands of addresses claim to be Googlebot, while the real one has an address that is
// not in a list yet. Only the real one is verified, by the answer for its own address.
func TestForgedClaimsDoNotAffectTheVerifiedBot(t *testing.T) {
	names := &dns{names: map[netip.Addr][]string{}}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	actual := addr("192.0.2.1")
	check := func(when string, want fairshare.BotState) {
		t.Helper()
		if got := v.Look(actual, googlebotUA); got.State != want {
			t.Errorf("%s: the real one is %v, want %v", when, got.State, want)
		}
	}
	check("at first", fairshare.Pending)
	forged := addr("198.18.0.0")
	for i := range 5000 {
		forged = forged.Next()
		want := fairshare.Pending
		switch i % 3 {
		case 1: // its reverse zone names googlebot.com, and the name does not resolve to it
			names.names[forged] = nil
			want = fairshare.Forged
		case 2:
			names.names[forged] = []string{"crawl.googlebot.com.example.net"}
			want = fairshare.Forged
		}
		if got := v.Look(forged, googlebotUA); got.State != want {
			t.Fatalf("%s: %v, want %v", forged, got.State, want)
		}
	}
	check("after the flood", fairshare.Pending)
	names.names[actual] = []string{"crawl-192-0-2-1.googlebot.com"}
	check("once the DNS has answered", fairshare.Verified)
}

// These clients claimed to be crawlers in a log of May 2015. The ranges of 2026 verify all
// of Googlebot, except for three that were forged. Crawlers from their former networks are
// not forged.
func TestClaimsInALogAreVerified(t *testing.T) {
	data, err := os.ReadFile("ranges/testdata/claims.tsv")
	if err != nil {
		t.Fatal(err)
	}
	v := NewVerifier(Options{Ranges: snapshot})
	got := map[string]int{}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		bot := v.Look(addr(fields[1]), "Mozilla/5.0 (compatible; "+fields[0]+"/2.0)")
		got[bot.Name+" "+bot.State.String()] += n
	}
	want := map[string]int{"googlebot verified": 539, "googlebot forged": 3, "bingbot pending": 58,
		"ahrefsbot pending": 34, "facebookexternalhit verified": 14}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnderDomain(t *testing.T) {
	for _, c := range []struct {
		name, domain string
		want         bool
	}{
		{"googlebot.com", "googlebot.com", true},
		{"a.googlebot.com", "googlebot.com", true},
		{"a.b.googlebot.com", "googlebot.com", true},
		{"evilgooglebot.com", "googlebot.com", false},
		{"-googlebot.com", "googlebot.com", false},
		{".googlebot.com", "googlebot.com", false},
		{"googlebot.com.evil.org", "googlebot.com", false},
		{"com", "googlebot.com", false},
		{"", "googlebot.com", false},
	} {
		if got := underDomain(c.name, c.domain); got != c.want {
			t.Errorf("%q under %q: %v", c.name, c.domain, got)
		}
	}
}

// For any host name, only whole labels count.
func FuzzUnderDomain(f *testing.F) {
	f.Add("crawl.googlebot.com", "googlebot.com")
	f.Add("evilgooglebot.com", "googlebot.com")
	f.Fuzz(func(t *testing.T, name, domain string) {
		if domain == "" || strings.Trim(domain, ".") != domain {
			t.Skip()
		}
		labels, want := strings.Split(name, "."), strings.Split(domain, ".")
		fits := len(labels) >= len(want) && slices.Equal(labels[len(labels)-len(want):], want) &&
			(len(labels) == len(want) || name[:len(name)-len(domain)] != ".")
		if got := underDomain(name, domain); got != fits {
			t.Errorf("%q under %q: %v", name, domain, got)
		}
	})
}

// A verified client is in the ranges or has a confirmed name, and Look never panics.
func FuzzLook(f *testing.F) {
	f.Add([]byte{66, 249, 64, 1}, googlebotUA, "crawl.googlebot.com")
	f.Add([]byte{192, 0, 2, 1}, bingbotUA, "a.search.msn.com")
	f.Add([]byte{}, "", "")
	f.Fuzz(func(t *testing.T, ip []byte, userAgent, name string) {
		from, _ := netip.AddrFromSlice(ip)
		names := &dns{names: map[netip.Addr][]string{plain(from): {name}}}
		v := Verifier{table: BuiltIn(), ranges: snapshot, names: names, checks: checksOfBuiltIn}
		got := v.Look(from, userAgent)
		b := v.table.Bot(got.Name)
		if got.State == fairshare.NoBot != (b == nil) {
			t.Fatalf("%+v", got)
		}
		if got.State != fairshare.Verified {
			return
		}
		fits := slices.ContainsFunc(b.Domains, func(domain string) bool { return underDomain(name, domain) })
		in := slices.ContainsFunc(b.Ranges, func(set string) bool { in, _ := snapshot.Contains(set, from); return in })
		if !in && !fits {
			t.Errorf("%s from %s (%s): %+v", userAgent, from, name, got)
		}
	})
}

var checksOfBuiltIn = NewVerifier(Options{Ranges: snapshot}).checks

// laterNames is a Names whose answers come later.
type laterNames struct {
	dns
	later map[netip.Addr][]string
}

func (w *laterNames) Wait(_ context.Context, addr netip.Addr) ([]string, bool) {
	names, known := w.later[addr]
	return names, known
}

func TestExplain(t *testing.T) {
	names := &laterNames{later: map[netip.Addr][]string{
		addr("192.0.2.1"): {"crawl-1.googlebot.com"},
		addr("192.0.2.2"): {"dsl-2.example.net"},
		addr("192.0.2.3"): {},
	}}
	with, without := NewVerifier(Options{Ranges: snapshot, Names: names}), NewVerifier(Options{Ranges: snapshot})
	for _, c := range []struct {
		v               *Verifier
		userAgent, addr string
		want            fairshare.BotState
		steps           string
	}{
		{with, googlebotUA, "66.249.64.1", fairshare.Verified,
			`it claims to be googlebot (search), by "Googlebot"; 66.249.64.1 is in the published ranges of googlebot (66.249.64.0/23; snapshot of 2026-08-22); verified`},
		{with, googlebotUA, "192.0.2.1", fairshare.Verified,
			`…; 192.0.2.1 is in none of the 65 published ranges of googlebot (snapshot of 2026-08-22); its host name crawl-1.googlebot.com resolves to 192.0.2.1, and is under googlebot.com; verified`},
		{with, googlebotUA, "192.0.2.2", fairshare.Forged,
			`…; …; its host name dsl-2.example.net resolves to 192.0.2.2, but is not under googlebot.com; forged: the client is not googlebot`},
		{with, googlebotUA, "192.0.2.3", fairshare.Forged,
			`…; …; 192.0.2.3 has no host name that resolves to it; a real one has a name under googlebot.com; forged: the client is not googlebot`},
		{with, googlebotUA, "192.0.2.4", fairshare.Pending,
			`…; …; the DNS has not answered for the host name of 192.0.2.4, which proves nothing; pending: treated as an ordinary client until the check is complete`},
		{without, googlebotUA, "192.0.2.1", fairshare.Forged,
			`…; 192.0.2.1 is in none of the 65 published ranges of googlebot (snapshot of 2026-08-22); forged: the client is not googlebot`},
		{without, googlebotUA, "34.1.2.3", fairshare.Pending,
			`…; …; 34.1.2.3 is in a network of google, where the bot may get addresses before its list has them; pending: treated as an ordinary client until the check is complete`},
		{without, yandexUA, "192.0.2.1", fairshare.Pending,
			`…; …; the list of yandexbot may be incomplete, so an address outside of it proves nothing; pending: treated as an ordinary client until the check is complete`},
		{without, baiduUA, "192.0.2.1", fairshare.Pending,
			`…; the host name of 192.0.2.1 would decide (crawl.baidu.com or crawl.baidu.jp), but DNS lookups are off; pending: treated as an ordinary client until the check is complete`},
		{without, chatgptUA, "192.0.2.1", fairshare.Forged,
			`…; …; forged: the client is not chatgpt-user; rules give it no advantage: anybody can make chatgpt-user fetch a page`},
		{without, mj12UA, "192.0.2.1", fairshare.Claimed,
			`…; no ranges or names of mj12bot are known to check the claim; known: the claim cannot be checked`},
		{without, "", "192.0.2.1", fairshare.Claimed, `it has no user agent; …; known: the claim cannot be checked`},
		{without, firefoxUA, "192.0.2.1", fairshare.NoBot, `its user agent names no known bot`},
	} {
		got := c.v.Explain(context.Background(), addr(c.addr), c.userAgent)
		if got.Bot.State != c.want || !fitsSteps(got.Steps, c.steps) {
			t.Errorf("%.60s from %s: %v\n got %s\nwant %s", c.userAgent, c.addr, got.Bot.State,
				strings.Join(got.Steps, "; "), c.steps)
		}
	}
	if got := without.Explain(context.Background(), netip.Addr{}, googlebotUA); got.Bot.State != fairshare.Pending ||
		!slices.Contains(got.Steps, "without an address the claim cannot be checked") {
		t.Errorf("without address: %+v", got)
	}
}

// fitsSteps compares steps with the wanted ones; … stands for any step.
func fitsSteps(steps []string, want string) bool {
	for _, step := range steps {
		if rest, found := strings.CutPrefix(want, step); found {
			want = strings.TrimPrefix(rest, "; ")
		} else if rest, found := strings.CutPrefix(want, "…"); found {
			want = strings.TrimPrefix(rest, "; ")
		} else {
			return false
		}
	}
	return want == ""
}

func TestLookDoesNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	names := fixed{"crawl.googlebot.com"}
	v := NewVerifier(Options{Ranges: snapshot, Names: names})
	inside, outside := addr("66.249.64.1"), addr("192.0.2.1")
	v.Look(inside, googlebotUA)
	v.Look(inside, firefoxUA)
	for name, look := range map[string]func() fairshare.Bot{
		"ranges": func() fairshare.Bot { return v.Look(inside, googlebotUA) },
		"names":  func() fairshare.Bot { return v.Look(outside, googlebotUA) },
		"no bot": func() fairshare.Bot { return v.Look(inside, firefoxUA) },
	} {
		if n := testing.AllocsPerRun(100, func() { look() }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// fixed is a Names with one fixed answer.
type fixed []string

func (f fixed) Confirmed(netip.Addr) ([]string, bool) { return f, true }

func BenchmarkLook(b *testing.B) {
	v := NewVerifier(Options{Ranges: snapshot, Names: fixed{"crawl.googlebot.com"}})
	for _, c := range []struct {
		name, userAgent, addr string
		want                  fairshare.BotState
	}{
		{"ranges", googlebotUA, "66.249.64.1", fairshare.Verified},
		{"names", googlebotUA, "192.0.2.1", fairshare.Verified},
		{"browser", firefoxUA, "192.0.2.1", fairshare.NoBot},
	} {
		b.Run(c.name, func(b *testing.B) {
			from := addr(c.addr)
			b.ReportAllocs()
			for b.Loop() {
				if got := v.Look(from, c.userAgent); got.State != c.want {
					b.Fatal(got.State)
				}
			}
		})
	}
}
