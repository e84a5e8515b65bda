package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/bots"
	"fairshare/clientaddr"
	"fairshare/internal/accesslog"
	"fairshare/memlimit"
)

// clientFunc returns an Options.Client like that of the command.
func clientFunc(t testing.TB, trusted ...string) func(netip.Addr, string) (netip.Addr, bool, netip.Addr) {
	r, err := clientaddr.New(clientaddr.Config{TrustedProxies: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return func(peer netip.Addr, forwarded string) (netip.Addr, bool, netip.Addr) {
		res := r.ResolveAddr(peer)
		if forwarded != "" {
			res = r.ResolveAddr(peer, forwarded)
		}
		return res.Addr, res.Proxy, res.Via
	}
}

func memory(size int64) func([]fairshare.Limit) (fairshare.Limiter, error) {
	return func(limits []fairshare.Limit) (fairshare.Limiter, error) {
		return memlimit.New(limits, memlimit.Options{Memory: size})
	}
}

// A judged is one line and its result.
type judged struct {
	file  string
	entry accesslog.Entry
	modelVerdict
}

// judgeAll runs the judge and returns each line, with verdicts of full
// precision.
func judgeAll(t testing.TB, opts Options) ([]judged, *judge) {
	t.Helper()
	r, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j, err := newJudge(r)
	if err != nil {
		t.Fatal(err)
	}
	begun := map[*accesslog.Entry][]fairshare.BanRecord{}
	j.observe = func(b fairshare.BanRecord) {
		if b.Began.UnixNano() == j.latest {
			begun[j.header.entry] = append(begun[j.header.entry], b)
		}
		j.countNetworkBan(b)
	}
	var kept []*item
	var all []judged
	chunks := make(chan *chunk)
	var wg sync.WaitGroup
	wg.Go(func() {
		for c := range chunks {
			for _, run := range c.runs {
				if run.last {
					continue // the batch is not released, so that its texts stay
				}
				for i := range run.b.items[run.from:run.to] {
					it := &run.b.items[run.from+i]
					kept = append(kept, it)
					all = append(all, judged{run.feed.log.path, *it.entry,
						modelVerdict{enforced: modelOf(it.enforced), dryRun: modelOf(it.dryRun)}})
				}
			}
		}
	})
	var feeds sync.WaitGroup
	if err := j.run(context.Background(), chunks, &feeds); err != nil {
		t.Fatal(err)
	}
	close(chunks)
	wg.Wait()
	feeds.Wait()
	for i, it := range kept {
		all[i].begun = begun[it.entry]
	}
	return all, j
}

func modelOf(f finding) modelFinding {
	return modelFinding{action: f.action, rule: int(f.rule), wait: f.wait, ban: f.ban}
}

// compare judges all lines with the model, and fails at the first difference.
func compare(t testing.TB, opts Options, lines []judged, j *judge) {
	t.Helper()
	policy := *opts.Policy
	opts.Policy = &policy
	m := newModel(&opts)
	matched := make([]int64, len(policy.Rules))
	for i := range lines {
		got := &lines[i]
		want, err := m.judge(&got.entry, &got.modelVerdict)
		if err != nil || want.enforced != got.enforced || want.dryRun != got.dryRun ||
			len(want.begun) != len(got.begun) {
			t.Fatalf("%s:%d at %s from %v: enforced %+v, dryRun %+v; want enforced %+v, dryRun %+v %v\npolicy:\n%s",
				got.file, got.entry.Line, got.entry.Time.Format(time.RFC3339Nano), got.entry.Client,
				got.enforced, got.dryRun, want.enforced, want.dryRun, errText(err), policyText(&policy))
		}
		for _, r := range want.matched {
			matched[r]++
		}
	}
	if fmt.Sprint(matched) != fmt.Sprint(j.matched) {
		t.Errorf("rules matched %v requests, want %v\npolicy:\n%s", j.matched, matched, policyText(&policy))
	}
	if m.restarts != j.restarts.Count {
		t.Errorf("%d new guards, want %d", j.restarts.Count, m.restarts)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return "(" + err.Error() + ")"
}

// testBot returns the bot of a client with a DNS that has all answers.
func testBot(addr netip.Addr, userAgent string) fairshare.Bot {
	names := testDNS{}.Hostnames(addr)
	by := func(suffix string) fairshare.BotState {
		switch {
		case len(names) == 0:
			return fairshare.Pending
		case strings.HasSuffix(names[0], suffix):
			return fairshare.Verified
		}
		return fairshare.Forged
	}
	switch {
	case strings.Contains(userAgent, "GoodBot"):
		return fairshare.Bot{Name: "goodbot", Categories: []string{"search", "ai"}, State: by(".good.example")}
	case strings.Contains(userAgent, "Preview"):
		return fairshare.Bot{Name: "previewer", Categories: []string{"preview"}, State: by(".good.example"),
			UserTriggered: true}
	case strings.Contains(userAgent, "evilbot"):
		return fairshare.Bot{Name: "evilbot", Categories: []string{"scanner"}, State: fairshare.Claimed}
	case strings.HasPrefix(userAgent, "curl/"):
		return fairshare.Bot{Name: "curl", Categories: []string{"tool"}, State: fairshare.Claimed}
	case userAgent == "":
		return fairshare.Bot{Name: "empty", Categories: []string{"empty"}, State: fairshare.Claimed}
	}
	return fairshare.Bot{}
}

// testDNS is a DNS that answers at once.
type testDNS struct{}

func (testDNS) Hostnames(addr netip.Addr) []string {
	switch addr.String() {
	case "192.0.2.1", "192.0.2.3", "2001:db8::1":
		return []string{"crawl-1.good.example", "other.example"}
	case "192.0.2.2", "203.0.113.5":
		return []string{"office.example.org"}
	}
	return nil
}

func (testDNS) Listed(list string, addr netip.Addr) []netip.Addr {
	switch list + " " + addr.String() {
	case "drone 198.51.100.7":
		return []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.9")}
	case "drone 192.0.2.1":
		return []netip.Addr{netip.MustParseAddr("127.0.0.17")}
	case "drone 203.0.113.5":
		return []netip.Addr{netip.MustParseAddr("127.255.255.254")}
	case "pot 192.0.2.2":
		return []netip.Addr{netip.MustParseAddr("127.40.60.5")}
	case "pot 2001:db8::2":
		return []netip.Addr{netip.MustParseAddr("127.3.20.4")}
	case "pot 192.0.2.1":
		return []netip.Addr{netip.MustParseAddr("127.0.99.0")}
	}
	return nil
}

// A slowDNS has only the answers for which resolve was called.
type slowDNS struct {
	mu    sync.Mutex
	calls map[question]int
	most  int // concurrent calls
	now   int // present calls
}

func (d *slowDNS) resolve(ctx context.Context, addr netip.Addr, list string) {
	d.mu.Lock()
	d.now++
	d.most = max(d.most, d.now)
	d.mu.Unlock()
	runtime.Gosched()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now--
	if d.calls == nil {
		d.calls = map[question]int{}
	}
	d.calls[question{addr, list}]++
}

func (d *slowDNS) knows(addr netip.Addr, list string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[question{addr, list}] > 0
}

func (d *slowDNS) Hostnames(addr netip.Addr) []string {
	if !d.knows(addr, "") {
		return nil
	}
	return testDNS{}.Hostnames(addr)
}

func (d *slowDNS) Listed(list string, addr netip.Addr) []netip.Addr {
	if !d.knows(addr, list) {
		return nil
	}
	return testDNS{}.Listed(list, addr)
}

func (d *slowDNS) bot(addr netip.Addr, userAgent string) fairshare.Bot {
	b := testBot(addr, userAgent)
	if b.State != fairshare.NoBot && b.State != fairshare.Claimed && !d.knows(addr, "") {
		b.State = fairshare.Pending
	}
	return b
}

func policyText(p *fairshare.Policy) string {
	var b strings.Builder
	for _, r := range p.Rules {
		text, _ := json.Marshal(r)
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}

func one[T any](rnd *rand.Rand, of ...T) T { return of[rnd.IntN(len(of))] }

var (
	testAgents = []string{"Mozilla/5.0 (X11; Linux) Firefox/120.0", "GoodBot/1.0 (+http://good.example)", "curl/8.1",
		"evilbot", "", "Mozilla/5.0 (compatible; Previewer/2)", strings.Repeat("long ", 30)}
	testPaths = []string{"/", "/a", "/a.css", "/b.js?v=1", "/cart?item=7&item=8", "/cart?q=a%20B", "/cart?q=a&v=1",
		"/cart?v=1&q=%61", "//a///b",
		"/a/../b.css", "/x%2e%2e/y", "/s;x/a.css", "/p.php/a.css", "/%zz", "/caf%C3%A9", "http://h.example/abs?x",
		"*", "/wp-login.php"}
	testCrowd = strings.Fields(
		"2001:db8:7::1 2001:db8:7:1::1 2001:db8:7:2::1 2001:db8:7:3::1 2001:db8:7:4::1 2001:db8:7:5::1 2001:db8:7:6::1 2001:db8:7:7::1 2001:db8:7:8::1 2001:db8:7:9::1 2001:db8:7:a::1 2001:db8:8::1 192.0.2.1")
	testPeers = []string{"192.0.2.1", "192.0.2.2", "198.51.100.7", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::9",
		"10.0.0.1"}
)

// randomMatch returns a match that holds for some of the test's requests.
func randomMatch(rnd *rand.Rand, depth int) (m fairshare.Match) {
	if rnd.IntN(3) == 0 {
		m.Addr = fairshare.Prefixes{one(rnd, netip.MustParsePrefix("192.0.2.0/24"),
			netip.MustParsePrefix("2001:db8::/64"), netip.MustParsePrefix("198.51.100.7/32"))}
	}
	if rnd.IntN(4) == 0 {
		m.Path = []string{one(rnd, "/a*", "*.css", "/", "re:^/[ab]", "*"), one(rnd, "/cart", "/b*", "*.php")}
	}
	if rnd.IntN(6) == 0 {
		m.Method = []string{one(rnd, "get", "POST")}
	}
	if rnd.IntN(5) == 0 {
		m.UserAgent = []string{one(rnd, "BOT", "", "firefox", "re:^curl/")}
	}
	if rnd.IntN(6) == 0 {
		m.Cookie = []string{one(rnd, "none", "any", "sid")}
	}
	if rnd.IntN(5) == 0 {
		m.Bot = []string{one(rnd, "known", "verified", "forged", "GoodBot", "search", "tool", "re:^(evil|curl)"),
			one(rnd, "ai", "forged", "verified", "empty")}
	}
	if rnd.IntN(8) == 0 {
		m.Label = []string{one(rnd, "partner", "Good-Partner", "re:^go+d", "nobody"), one(rnd, "slow", "nobody")}
	}
	if rnd.IntN(10) == 0 {
		m.Hostname = []string{one(rnd, "*.good.example", "*", "Office.example.org", "re:^crawl-[0-9]+")}
	}
	if rnd.IntN(10) == 0 {
		m.Listed = []fairshare.Listing{one(rnd, fairshare.Listing{List: "drone"},
			fairshare.Listing{List: "drone", Codes: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32"),
				netip.MustParsePrefix("127.0.0.8/29")}},
			fairshare.Listing{List: "pot", HTTPBL: true, Threat: 25},
			fairshare.Listing{List: "pot", HTTPBL: true, Types: 4, Days: 30}),
			{List: "none"}}
	}
	if rnd.IntN(8) == 0 {
		m.Header = map[string][]string{one(rnd, "Referer", "X-Other", "user-agent"): {one(rnd, "", "example", "bot")}}
	}
	if rnd.IntN(8) == 0 {
		m.Query = map[string][]string{one(rnd, "item", "q", "v"): {one(rnd, "*", "7", "a b", "")}}
	}
	if depth > 0 && rnd.IntN(5) == 0 {
		m.Not = []fairshare.Match{randomMatch(rnd, 0)}
		if modelEmpty(&m.Not[0]) {
			m.Not = nil
		}
	}
	return m
}

func modelEmpty(m *fairshare.Match) bool {
	return m.Addr == nil && m.Path == nil && m.Method == nil && m.UserAgent == nil && m.Cookie == nil &&
		m.Header == nil && m.Query == nil && m.Not == nil &&
		m.Bot == nil && m.Hostname == nil && m.Listed == nil && m.Label == nil
}

// randomPolicy returns a policy of up to seven rules with limits that the
// test's lines reach.
func randomPolicy(rnd *rand.Rand) *fairshare.Policy {
	p := &fairshare.Policy{IPv4Prefix: one(rnd, 0, 0, 24), IPv6Prefix: one(rnd, 0, 0, 128, 48)}
	for i := range 1 + rnd.IntN(7) {
		r := fairshare.Rule{Name: fmt.Sprintf("rule %d", i), Match: randomMatch(rnd, 1)}
		switch rnd.IntN(8) {
		case 0:
			r.Action = fairshare.Allow
		case 1:
			r.Action = fairshare.Block
			r.DryRun = rnd.IntN(2) == 0
			if rnd.IntN(2) == 0 {
				r.Ban = &fairshare.BanTerms{
					After: 1 + rnd.Int64N(2), For: one(rnd, time.Second, 20*time.Second, time.Minute),
					Growth: one(rnd, 0, 2, 1.5), All: rnd.IntN(2) == 0,
					By:     one(rnd, 0, fairshare.ByAddr, fairshare.ByNetwork, fairshare.ByBot),
					Unless: one(rnd, nil, &fairshare.Match{Bot: []string{"verified"}}),
				}
			}
		default:
			r.Limit = randomLimit(rnd)
			r.DryRun = rnd.IntN(5) == 0
			r.Last = rnd.IntN(10) == 0
			if r.Limit.Resource == fairshare.Requests && rnd.IntN(4) == 0 {
				r.Refund.Add(301, 303)
			}
			if rnd.IntN(3) == 0 {
				r.Limit.By = one(rnd, nil, []fairshare.KeyPart{{Kind: fairshare.ByNetwork}},
					[]fairshare.KeyPart{{Kind: fairshare.ByBot}})
				r.Ban = &fairshare.BanTerms{
					After: 1 + rnd.Int64N(4), Within: one(rnd, 0, 3*time.Second, time.Minute),
					For:    one(rnd, time.Second, 20*time.Second, time.Minute),
					Growth: one(rnd, 0, 2, 1.5), Max: one(rnd, 0, time.Minute, 5*time.Minute),
					Forgive: one(rnd, 0, 30*time.Second, 5*time.Minute), All: rnd.IntN(2) == 0,
				}
				if rnd.IntN(4) == 0 {
					if unless := randomMatch(rnd, 1); !modelEmpty(&unless) {
						r.Ban.Unless = &unless
					}
				}
			}
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

func randomLimit(rnd *rand.Rand) *fairshare.Limit {
	l := &fairshare.Limit{
		Resource: one(rnd, fairshare.Requests, fairshare.Requests, fairshare.Requests, fairshare.Bytes,
			fairshare.Errors, fairshare.Concurrent,
			fairshare.CPU, fairshare.Time, fairshare.Cost),
		N: 1 + rnd.Int64N(12),
		Window: one(rnd, time.Millisecond, 200*time.Millisecond, time.Second, 3*time.Second, 7*time.Second+13,
			time.Minute, time.Hour, fairshare.MaxWindow),
		Algorithm: one(rnd, fairshare.Window, fairshare.Window, fairshare.GCRA, fairshare.Quiet),
		By: one(rnd, nil, []fairshare.KeyPart{{Kind: fairshare.ByAddr}},
			[]fairshare.KeyPart{{Kind: fairshare.ByNetwork}},
			[]fairshare.KeyPart{{Kind: fairshare.ByUserAgent}}, []fairshare.KeyPart{{Kind: fairshare.ByBot}},
			[]fairshare.KeyPart{{Kind: fairshare.ByBot}, {Kind: fairshare.ByPath}},
			[]fairshare.KeyPart{{Kind: fairshare.ByEveryone}},
			[]fairshare.KeyPart{{Kind: fairshare.ByAddr}, {Kind: fairshare.ByPath}},
			[]fairshare.KeyPart{{Kind: fairshare.ByHeader, Name: "referer"}},
			[]fairshare.KeyPart{{Kind: fairshare.ByUserAgent}, {Kind: fairshare.ByHost}}),
	}
	if l.Resource == fairshare.Bytes {
		l.N = one(rnd, 1, 1000, 5000, int64(1)<<40)
	}
	if l.Resource == fairshare.CPU || l.Resource == fairshare.Time {
		l.N = one(rnd, 1, 50_000, 700_000, 5_000_000, int64(1)<<40)
	}
	if l.Resource == fairshare.Errors && rnd.IntN(2) == 0 {
		l.Statuses.Add(500, 599)
	}
	switch {
	case l.Resource == fairshare.Concurrent:
		l.Algorithm, l.Window, l.N = fairshare.Window, 0, 1+rnd.Int64N(4)
	case l.Algorithm == fairshare.Quiet && l.Resource != fairshare.Requests:
		l.Algorithm = fairshare.Window
	case l.Algorithm == fairshare.GCRA:
		l.Burst = one[int64](rnd, 0, 1, 2, 5)
	case l.Resource == fairshare.Requests && l.Algorithm == fairshare.Window && rnd.IntN(12) == 0:
		l.N = 0
	}
	if l.Resource == fairshare.Requests && l.Algorithm != fairshare.Quiet && l.Window >= time.Second {
		l.Distinct = one(rnd, fairshare.EveryRequest, fairshare.DistinctPaths, fairshare.DistinctQueries)
	}
	return l
}

// randomLog returns lines in combined format with a forwarding header. Some have a
// duration, the upstream's time and CPU time. The times advance in steps, and sometimes
// go backwards, rarely by hours.
func randomLog(rnd *rand.Rand, peers []string, lines int, begin time.Time) []byte {
	var b bytes.Buffer
	at := begin
	for range lines {
		switch rnd.IntN(60) {
		case 0:
			at = at.Add(-time.Duration(rnd.IntN(90)) * time.Second)
		case 1:
			at = at.Add(time.Duration(rnd.IntN(20)) * time.Minute)
		case 2:
			if rnd.IntN(4) == 0 {
				at = at.Add(-time.Duration(50+rnd.IntN(100)) * time.Minute)
			}
		default:
			at = at.Add(time.Duration(rnd.IntN(4)) * time.Duration(rnd.IntN(3)) * time.Second)
		}
		orDash := func(s string) string {
			if s == "" {
				return "-"
			}
			return s
		}
		forwarded := one(rnd, "", "203.0.113.5", "203.0.113.5, 10.0.0.2", "198.51.100.7, 203.0.113.9")
		fmt.Fprintf(&b, `%s - - [%s] "%s %s HTTP/1.1" %d %d "%s" "%s" "%s"`,
			one(rnd, peers...), at.UTC().Format("02/Jan/2006:15:04:05 -0700"), one(rnd, "GET", "GET", "POST"),
			one(rnd, testPaths...),
			one(rnd, 200, 200, 301, 302, 404, 500), one(rnd, 0, 10, 900, 4000, 1<<24),
			one(rnd, "-", "http://www.example/"), orDash(one(rnd, testAgents...)), orDash(forwarded))
		if rnd.IntN(3) > 0 {
			fmt.Fprintf(&b, " rt=%d.%03d", rnd.IntN(5), rnd.IntN(1000))
		}
		switch rnd.IntN(6) {
		case 0:
			b.WriteString(" urt=-")
		case 1, 2:
			fmt.Fprintf(&b, ` urt="0.%03d, %d.%03d"`, rnd.IntN(1000), rnd.IntN(2), rnd.IntN(1000))
		}
		if rnd.IntN(2) == 0 {
			fmt.Fprintf(&b, ` server_timing="db;dur=3, cpu;dur=%d.%d"`, rnd.IntN(200), rnd.IntN(10))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// The test replays random policies over one or several random logs.
func TestModelAgreesOnRandomLogs(t *testing.T) {
	dir := t.TempDir()
	rounds := uint64(80)
	if testing.Short() {
		rounds = 20
	}
	refused, byOperator := 0, map[fairshare.Action]int{}
	for seed := range rounds {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var paths []string
		peers := testPeers
		if seed%4 == 3 {
			peers = testCrowd
		}
		for i := range one(rnd, 1, 1, 1, 2, 3) {
			path := filepath.Join(dir, fmt.Sprintf("%d.log", i))
			begin := time.Unix(1_700_000_000+rnd.Int64N(1000), 0)
			if err := os.WriteFile(path, randomLog(rnd, peers, 200, begin), 0o600); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		opts := Options{
			Policy: randomPolicy(rnd), Limiter: memory(1 << 20), Client: clientFunc(t, "10.0.0.0/8"), Logs: paths,
			Log: accesslog.Options{BlockSize: one(rnd, 0, 700, 5000)}, Bot: testBot, Lookups: testDNS{},
		}
		if seed%4 == 3 {
			opts.Policy.Rules = slices.Insert(opts.Policy.Rules, 0, fairshare.Rule{
				Name: "crowd", Limit: requests(1, time.Minute), DryRun: rnd.IntN(4) == 0,
				Ban: &fairshare.BanTerms{After: one[int64](rnd, 1, 1, 2),
					For: one(rnd, 40*time.Second, 2*time.Minute), Growth: one[float64](rnd, 0, 2),
					Forgive: one(rnd, 0, 30*time.Second), All: rnd.IntN(2) == 0},
			})
		}
		if seed%4 == 0 || seed%8 == 3 {
			opts.Override = randomOverrides(t, rnd, time.Unix(1_700_000_500, 0)).find
		}
		knowing := opts
		switch seed % 3 { // no bots, all answers known from the start, the DNS is asked
		case 0:
			opts.Bot, opts.Lookups = nil, nil
			knowing = opts
		case 1:
			slow := &slowDNS{}
			opts.Bot, opts.Lookups, opts.Resolve = slow.bot, slow, slow.resolve
		}
		lines, j := judgeAll(t, opts)
		if want := 200 * len(paths); len(lines) != want {
			t.Fatalf("seed %d: %d lines, want %d", seed, len(lines), want)
		}
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			compare(t, knowing, lines, j)
		}()
		if t.Failed() {
			return
		}
		for i := range lines {
			f := &lines[i].enforced
			if f.action == fairshare.Refuse {
				refused++
			}
			if f.rule == len(opts.Policy.Rules) {
				byOperator[f.action]++
			}
		}
	}
	if byOperator[fairshare.Refuse] < 100 || byOperator[fairshare.Block] < 100 {
		t.Errorf("operators' bans %v: too few for this test", byOperator)
	}
	t.Logf("refused %d, operators %v", refused, byOperator)
	if share := float64(refused) / float64(rounds*200); share < 0.1 || share > 0.9 {
		t.Errorf("%.0f %% of the requests were refused: the test is not significant", share*100)
	}
}

// realPolicies are policies that refuse many requests of real logs.
func realPolicies() map[string]*fairshare.Policy {
	var redirects, clientErrors fairshare.StatusSet
	for _, c := range []int{301, 302, 303, 307, 308} {
		redirects.Add(c, c)
	}
	clientErrors.Add(400, 499)
	network := []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}
	return map[string]*fairshare.Policy{
		"windows": {Rules: []fairshare.Rule{
			{Name: "own", Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("127.0.0.0/8"),
				netip.MustParsePrefix("::1/128")}}, Action: fairshare.Allow},
			{Name: "bad bots", Match: fairshare.Match{UserAgent: []string{"80legs", "AhrefsBot",
				"re:python-(requests|urllib)/", ""}}, Action: fairshare.Block},
			{Name: "ceiling", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 60, Window: time.Minute}},
			{Name: "network", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 100, Window: 5 * time.Minute,
				By: network}, DryRun: true},
			{Name: "assets", Match: fairshare.Match{Path: []string{"*.css", "*.js", "*.png", "*.jpg", "*.gif",
				"*.ico"}, Method: []string{"GET", "HEAD"}}, Action: fairshare.Allow},
			{Name: "rapid", Match: fairshare.Match{Cookie: []string{"none"}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3, Window: 3 * time.Second}, Refund: redirects,
				Ban: &fairshare.BanTerms{After: 20, For: 10 * time.Minute, Growth: 2}},
			{Name: "volume", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 5_000_000, Window: time.Hour}},
		}},
		"gcra and quiet": {IPv4Prefix: 24, Rules: []fairshare.Rule{
			{Name: "errors", Limit: &fairshare.Limit{Resource: fairshare.Errors, N: 10, Window: time.Minute,
				Algorithm: fairshare.GCRA, Statuses: clientErrors},
				Ban: &fairshare.BanTerms{After: 3, For: time.Minute, All: true}},
			{Name: "posts", Match: fairshare.Match{Method: []string{"POST"},
				Not: []fairshare.Match{{UserAgent: []string{"WordPress"}}}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 5, Window: 20 * time.Second,
					Algorithm: fairshare.Quiet}},
			{Name: "steady", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 7, Window: 10 * time.Second,
				Algorithm: fairshare.GCRA, Burst: 20}},
			{Name: "agents", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 500, Window: 10 * time.Minute,
				By: []fairshare.KeyPart{{Kind: fairshare.ByUserAgent}}}},
			{Name: "at once", Limit: &fairshare.Limit{Resource: fairshare.Concurrent, N: 2}},
		}},
		"costs": {Rules: []fairshare.Rule{
			{Name: "cpu", Limit: &fairshare.Limit{Resource: fairshare.CPU, N: 1_050_000, Window: 15 * time.Second}},
			{Name: "time", Limit: &fairshare.Limit{Resource: fairshare.Time, N: 500_000, Window: time.Minute,
				By: network}},
			{Name: "steady time", Limit: &fairshare.Limit{Resource: fairshare.Time, N: 200_000, Window: time.Minute,
				Algorithm: fairshare.GCRA, Burst: 50_000}, DryRun: true},
			{Name: "bytes", Limit: &fairshare.Limit{Resource: fairshare.Bytes, N: 300_000, Window: time.Minute,
				Algorithm: fairshare.GCRA}, Ban: &fairshare.BanTerms{After: 3, For: time.Minute}},
			{Name: "cost", Limit: &fairshare.Limit{Resource: fairshare.Cost, N: 1, Window: time.Hour}},
		}},
		"bots": {Rules: []fairshare.Rule{
			{Name: "feeds", Match: fairshare.Match{Bot: []string{"feed", "re:^archive"},
				Path: []string{"*.xml", "/blog*", "/"}}, Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 3,
				Window: time.Minute}, Last: true},
			{Name: "engines", Match: fairshare.Match{Bot: []string{"search", "twitterbot"}}, Action: fairshare.Allow},
			{Name: "forged", Match: fairshare.Match{Bot: []string{"forged"}}, Action: fairshare.Block},
			{Name: "one by one", Match: fairshare.Match{Bot: []string{"known"}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 20, Window: 5 * time.Minute,
					By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}},
				Ban: &fairshare.BanTerms{After: 5, For: time.Minute, All: true,
					Unless: &fairshare.Match{Bot: []string{"verified"}}}},
			{Name: "libraries", Match: fairshare.Match{Bot: []string{"library", "empty", "seo"}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: 10 * time.Second,
					Algorithm: fairshare.GCRA}},
			{Name: "others", Match: fairshare.Match{Not: []fairshare.Match{{Bot: []string{"verified"}}}},
				Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 15, Window: 20 * time.Second}},
		}},
	}
}

// The real logs are those in testdata, and those of FAIRSHARE_LOGS, a list of shell
// patterns.
func TestModelAgreesOnRealLogs(t *testing.T) {
	if testing.Short() {
		t.Skip("long: TestModelAgreesOnRandomLogs covers the same goroutines")
	}
	logs := []string{"testdata/*.log.gz"}
	if more := os.Getenv("FAIRSHARE_LOGS"); more != "" {
		logs = strings.Fields(more)
	}
	look := bots.NewVerifier(bots.Options{}).Look // by published addresses
	for _, pattern := range logs {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no log has the name %s: %v", pattern, err)
		}
		for _, path := range paths {
			for name, policy := range realPolicies() {
				t.Run(filepath.Base(path)+" "+name, func(t *testing.T) {
					t.Parallel()
					opts := Options{Policy: policy, Limiter: memory(16 << 20), Client: clientFunc(t),
						Logs: []string{path}, Bot: look}
					lines, j := judgeAll(t, opts)
					compare(t, opts, lines, j)
					refused := 0
					for i := range lines {
						if lines[i].enforced.action != fairshare.Allow {
							refused++
						}
					}
					t.Logf("%d of %d lines refused or blocked", refused, len(lines))
				})
			}
		}
	}
}
