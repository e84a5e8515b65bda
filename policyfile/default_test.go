package policyfile

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/browser"
	"fairshare/logins"
	"fairshare/membans"
	"fairshare/memlimit"
)

func TestBuiltInPolicyGivesNoWarnings(t *testing.T) {
	f, err := Parse("default.yaml", BuiltInSource())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range f.Warnings {
		t.Error(w.Long())
	}
	f, err = Parse("site.yaml", []byte("rules: [{use: default}]"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Policy.Rules) != len(BuiltIn().Policy.Rules) || len(f.Warnings) > 0 {
		t.Errorf("{use: default}: %d rules, warnings %v", len(f.Policy.Rules), f.Warnings)
	}
}

// Each limit by address has a limit by network for the same requests that is eight
// times as high. What clients request out of the blue counts for the general limit by network.
func TestBuiltInPolicyCountsNetworksToo(t *testing.T) {
	rules := BuiltIn().Policy.Rules
	by := func(r *fairshare.Rule, kind fairshare.KeyKind) bool {
		return r.Limit != nil && (len(r.Limit.By) == 0 && kind == fairshare.ByAddr ||
			len(r.Limit.By) == 1 && r.Limit.By[0].Kind == kind)
	}
	pairs := 0
	for i := range rules {
		one := &rules[i]
		if !by(one, fairshare.ByAddr) || one.Limit.N == 0 {
			continue
		}
		pairs++
		if by, ok := map[string]string{
			"injections out of the blue": "injections of a network", "holes out of the blue": "holes of a network",
		}[one.Name]; ok {
			if !slices.ContainsFunc(rules, func(r fairshare.Rule) bool {
				return r.Name == by && r.Limit.Window == one.Limit.Window && slices.Equal(r.Match.Path, one.Match.Path)
			}) {
				t.Errorf("%s does not count for %s", one.Name, by)
			}
			continue
		}
		if !slices.ContainsFunc(rules, func(r fairshare.Rule) bool {
			return by(&r, fairshare.ByNetwork) && r.Limit.Resource == one.Limit.Resource &&
				r.Limit.Window == one.Limit.Window &&
				r.Limit.N == 8*one.Limit.N && r.Limit.Burst == 8*one.Limit.Burst &&
				reflect.DeepEqual(r.Match, one.Match) && r.Refund == one.Refund
		}) {
			t.Errorf("%s has none by network", one.Name)
		}
	}
	if pairs < 10 {
		t.Errorf("only %d limits by address", pairs)
	}
}

// A site is a guard with the built-in policy.
type site struct {
	t     *testing.T
	guard *fairshare.Guard
	rule  string // of the last verdict

	logins   *logins.Watcher
	browsers browser.Watcher
}

// decide judges a request, as servers do.
func (s *site) decide(req *fairshare.Request) (fairshare.Verdict, *logins.Attempt, browser.Sighting) {
	s.t.Helper()
	if s.logins == nil {
		s.logins = logins.New(logins.Options{})
	}
	seen := s.browsers.Look(req, browser.Conn{})
	req.Browser = seen.Browser
	attempt := s.logins.Arrived(req, s.guard)
	verdict, err := s.guard.Decide(context.Background(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.rule = ""
	if verdict.Rule != nil {
		s.rule = verdict.Rule.Name
	}
	if attempt != nil && verdict.Action == fairshare.Allow {
		attempt.Passed()
	}
	return verdict, attempt, seen
}

// settle settles a verdict with an answer.
func (s *site) settle(v *fairshare.Verdict, attempt *logins.Attempt, seen browser.Sighting, at time.Time,
	answer logins.Answer) {
	s.t.Helper()
	out := fairshare.Outcome{Time: at, Status: answer.Status, Bytes: answer.Bytes}
	answer.Time = at
	if v.Action == fairshare.Allow {
		s.browsers.Answered(&seen, browser.Answer{Status: answer.Status})
		if attempt != nil {
			out.Failed = attempt.Answered(&answer) == logins.Failed
		}
	}
	if err := s.guard.Settle(context.Background(), v, out); err != nil {
		s.t.Fatal(err)
	}
}

func newSite(t *testing.T) *site {
	t.Helper()
	file := BuiltIn()
	file.Provide(everything)
	policy := &file.Policy
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := fairshare.NewGuard(policy, limiter, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, guard: guard}
}

func (s *site) request(req fairshare.Request, target string, status int) fairshare.Action {
	s.t.Helper()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.SetTarget(target)
	verdict, attempt, seen := s.decide(&req)
	action := verdict.Action
	s.settle(&verdict, attempt, seen, req.Time.Add(50*time.Millisecond), logins.Answer{Status: status, Bytes: 4000})
	return action
}

var begin = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

func TestBuiltInPolicyNeverRefusesCertificates(t *testing.T) {
	s := newSite(t)
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org",
		UserAgent: firefox}
	challenge := func(when string) {
		t.Helper()
		for i := range 2000 {
			if got := s.request(req, fmt.Sprintf("/.well-known/acme-challenge/token_%d-x", i),
				404); got != fairshare.Allow {
				t.Fatalf("%s: challenge %d: %v by %q", when, i, got, s.rule)
			}
		}
	}
	challenge("at first")
	for range 3 {
		s.request(req, "/.env", 404)
	}
	if got := s.request(req, "/", 200); got != fairshare.Refuse {
		t.Fatalf("after /.env three times: %v", got)
	}
	challenge("banned")
	for _, odd := range []string{"/.well-known/acme-challenge/../../admin",
		"/.well-known/acme-challenge/x/../../../admin", `/.well-known/acme-challenge/..\..\admin`,
		"/.well-known/acme-challenge/..%2f..%2fadmin", "/.well-known/acme-challenge/a;b",
		"/.well-known/acme-challenge/"} {
		if got := s.request(req, odd, 200); got != fairshare.Refuse {
			t.Errorf("%s during a ban: %v", odd, got)
		}
	}
	post := req
	post.Method = "POST"
	if got := s.request(post, "/.well-known/acme-challenge/x", 200); got != fairshare.Refuse {
		t.Errorf("POST during a ban: %v", got)
	}
	req.Addr = netip.MustParseAddr("192.0.2.2") // not banned, but far over the ceiling
	for range 3000 {
		s.request(req, "/a.css", 200)
	}
	if got := s.request(req, "/a.css", 200); got != fairshare.Refuse {
		t.Fatalf("after 3000 assets at once: %v", got)
	}
	challenge("over the ceiling")
}

func TestCeilingHoldsForAllRequests(t *testing.T) {
	inOneGoroutine(t)
	for _, header := range []http.Header{{}, {"Cookie": {"wordpress_logged_in_1=admin; session=1"},
		"Referer": {"https://example.org/"}, "Authorization": {"Bearer x"}}} {
		for _, line := range [][2]string{{"GET", "/"}, {"GET", "/a.css"}, {"GET", "/robots.txt"}, {"GET",
			"/feed.xml"},
			{"POST", "/inbox"}, {"GET", "/.well-known/security.txt"}, {"GET", "/favicon.ico"}, {"PROPFIND",
				"/dav/"}} {
			for _, bot := range []fairshare.Bot{{}, {Name: "googlebot", Categories: []string{"search"},
				State: fairshare.Verified}, {Name: "mj12bot", Categories: []string{"seo"},
				State: fairshare.Claimed}} {
				s, passed := newSite(t), 0
				for i := range 4000 {
					req := fairshare.Request{Time: begin.Add(time.Duration(i) * 10 * time.Millisecond),
						Addr: netip.MustParseAddr("192.0.2.1"), Method: line[0], Host: "example.org",
						UserAgent: firefox, Header: header}
					req.SetBot(bot)
					if s.request(req, line[1], 200) == fairshare.Allow {
						passed++
					}
				}
				if passed > 1200 {
					t.Errorf("%s %s as %q: %d in 40 seconds", line[0], line[1], bot.Name, passed)
				}
			}
		}
	}
}

func TestBuiltInPolicyLetsVerifiedSearchEnginesCrawl(t *testing.T) {
	inOneGoroutine(t)
	google := "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	crawl := func(state fairshare.BotState) map[fairshare.Action]int {
		s, got := newSite(t), map[fairshare.Action]int{}
		for i := range 2000 { // dead links, one a second, from fifty addresses
			req := fairshare.Request{Time: begin.Add(time.Duration(i) * time.Second),
				Addr: netip.AddrFrom4([4]byte{66, 249, 66, byte(i % 50)}), Method: "GET", Host: "example.org",
				UserAgent: google}
			req.SetBot(fairshare.Bot{Name: "googlebot", Categories: []string{"search"}, State: state})
			got[s.request(req, fmt.Sprintf("/old/page-%d.php", i), 404)]++
		}
		return got
	}
	if got := crawl(fairshare.Verified); got[fairshare.Allow] != 2000 {
		t.Errorf("verified: %v", got)
	}
	if got := crawl(fairshare.Forged); got[fairshare.Block] != 2000 {
		t.Errorf("forged: %v", got)
	}
	// A pending bot has no more rights than an ordinary client.
	pending, nobody := crawl(fairshare.Pending), crawl(fairshare.NoBot)
	if pending[fairshare.Allow] > nobody[fairshare.Allow] || pending[fairshare.Block] > 0 {
		t.Errorf("pending: %v, nobody: %v", pending, nobody)
	}
	// A verified bot is never blocked, whatever it requests.
	s := newSite(t)
	for i := range 6000 {
		req := fairshare.Request{Time: begin.Add(time.Duration(i) * 10 * time.Millisecond),
			Addr: netip.MustParseAddr("66.249.66.1"), Method: "GET", Host: "example.org", UserAgent: google}
		req.SetBot(fairshare.Bot{Name: "googlebot", Categories: []string{"search"}, State: fairshare.Verified})
		target := []string{"/", "/.env", "/robots.txt", "/wp-login.php"}[i%4]
		if got := s.request(req, target, 404); got == fairshare.Block {
			t.Fatalf("request %d: %v by %q", i, got, s.rule)
		}
	}
}

// Password guesses and forged crawlers from thousands of addresses are counted
// together. People who have opened the login page are not counted with them.
func TestBuiltInPolicyCountsDistributedAttacksTogether(t *testing.T) {
	inOneGoroutine(t)
	s, refused, people := newSite(t), 0, 0
	for i := range 2000 {
		req := fairshare.Request{Time: begin.Add(time.Duration(i) * time.Minute),
			Addr: netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 7}), Method: "POST", Host: "example.org",
			UserAgent: firefox}
		if s.request(req, "/wp-login.php", 200) == fairshare.Refuse {
			refused++
		}
		req.Addr = netip.AddrFrom4([4]byte{12, byte(i >> 8), byte(i), 7})
		req.Method = "GET"
		s.request(req, "/wp-login.php", 200)
		req.Header = http.Header{"Referer": {"https://example.org/wp-login.php"}}
		s.request(req, "/wp-includes/css/login.css", 200)
		req.Method = "POST"
		for mistyped := i % 3; mistyped >= 0; mistyped-- {
			if s.request(req, "/wp-login.php", []int{302, 200, 200}[mistyped]) != fairshare.Allow {
				people++
			}
		}
	}
	if refused < 1900 || people > 0 {
		t.Errorf("guesses from 2000 addresses: %d refused; people with the same browser: %d refused", refused, people)
	}
	refused = 0
	for i := range 3000 {
		req := fairshare.Request{Time: begin.AddDate(0, 0, 9).Add(time.Duration(i) * 20 * time.Millisecond),
			Addr: netip.AddrFrom4([4]byte{13, byte(i >> 8), byte(i), 7}), Method: "GET", Host: "example.org",
			UserAgent: "ClaudeBot/1.0"}
		req.SetBot(fairshare.Bot{Name: "claudebot", Categories: []string{"ai"}, State: fairshare.Forged})
		if s.request(req, fmt.Sprintf("/page/%d", i), 200) == fairshare.Refuse {
			refused++
		}
	}
	if refused < 2850 {
		t.Errorf("a forged crawler of 3000 addresses: %d requests refused", refused)
	}
}

// A ban of one address does not refuse its neighbors.
func TestBuiltInPolicyBansOneAddress(t *testing.T) {
	s := newSite(t)
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org",
		UserAgent: firefox}
	for _, target := range strings.Fields(
		"/.env /.git/config /wp-config.php.bak /vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php /cgi-bin/.%2e/.%2e/.%2e/bin/sh") {
		s.request(req, target, 404)
	}
	if got := s.request(req, "/", 200); got != fairshare.Refuse || s.rule != "secrets out of the blue" {
		t.Errorf("a scanner: %v by %q", got, s.rule)
	}
	req.Addr = netip.MustParseAddr("192.0.2.2")
	if got := s.request(req, "/", 200); got != fairshare.Allow {
		t.Errorf("its neighbour: %v by %q", got, s.rule)
	}
}

// A visit is a series of count requests of one client, at an interval of every.
type visit struct {
	name    string
	addr    string
	method  string
	target  func(i int) string
	status  int
	every   time.Duration
	count   int
	refused [2]int // bounds of the number of refused requests
}

func always(target string) func(int) string { return func(int) string { return target } }

func TestBuiltInPolicyRefusesFloodsAndNotPeople(t *testing.T) {
	inOneGoroutine(t)
	page := func(i int) string { // each page brings 40 assets
		if i%41 == 0 {
			return fmt.Sprintf("/page/%d", i)
		}
		return fmt.Sprintf("/static/%d.css", i)
	}
	for _, v := range []visit{
		{"a hammer", "192.0.2.1", "GET", always("/"), 200, 10 * time.Millisecond, 6000, [2]int{5000, 6000}},
		{"a hammer on assets", "192.0.2.1", "GET", always("/a.css"), 200, 10 * time.Millisecond, 6000,
			[2]int{4000, 6000}},
		{"a person", "192.0.2.1", "GET", page, 200, 150 * time.Millisecond, 4000, [2]int{0, 0}},
		{"an office of twenty", "192.0.2.1", "GET", page, 200, 60 * time.Millisecond, 10000, [2]int{0, 0}},
		{"a monitor", "192.0.2.1", "HEAD", always("/"), 200, 5 * time.Second, 1000, [2]int{0, 0}},
		{"a feed reader", "192.0.2.1", "GET", always("/feed.xml"), 304, time.Minute, 500, [2]int{0, 0}},
		{"a webhook", "192.0.2.1", "POST", always("/pay/callback"), 200, time.Second, 1000, [2]int{0, 0}},
		{"a certificate authority", "192.0.2.1", "GET", always("/.well-known/acme-challenge/x"), 200, time.Second,
			100, [2]int{0, 0}},
		{"payments", "192.0.2.1", "POST", always("/ipn.php"), 200, 150 * time.Millisecond, 3000, [2]int{0, 0}},
		{"a person who mistypes a password", "192.0.2.1", "POST", always("/login"), 401, 10 * time.Second, 10,
			[2]int{0, 0}},
		{"an office that logs in", "192.0.2.1", "POST", always("/login"), 302, 12 * time.Second, 50, [2]int{0, 0}},
		{"map tiles", "192.0.2.1", "GET", func(i int) string { return fmt.Sprintf("/tiles/9/%d.png", i) }, 200,
			60 * time.Millisecond, 3000, [2]int{0, 0}},
		{"a file that is synchronised", "192.0.2.1", "PROPFIND", always("/remote.php/dav/files/anna/"), 207,
			150 * time.Millisecond, 3000, [2]int{0, 0}},
		{"a slow guesser", "192.0.2.1", "POST", always("/wp-login.php"), 200, 2 * time.Hour, 300, [2]int{275, 300}},
		{"a guesser by XML-RPC", "192.0.2.1", "POST", always("//xmlrpc.php"), 200, time.Second, 1000,
			[2]int{950, 1000}},
		{"a spammer", "192.0.2.1", "POST", always("/index.php?title=User:X&action=submit"), 200, 3 * time.Second,
			1000, [2]int{950, 1000}},
		{"a spammer whose edits fail", "192.0.2.1", "POST", always("/index.php?title=User:X&action=submit"), 500,
			time.Minute, 300, [2]int{285, 300}},
		{"a guesser", "192.0.2.1", "POST", always("/wp-login.php"), 200, 2 * time.Second, 1000, [2]int{950, 1000}},
		{"a scanner", "192.0.2.1", "GET", func(i int) string { return fmt.Sprintf("/old-%d.php", i) }, 404,
			300 * time.Millisecond, 2000, [2]int{1800, 2000}},
	} {
		s := newSite(t)
		request := func(now time.Time, addr, method, target string, status int) fairshare.Action {
			return s.request(fairshare.Request{Time: now, Addr: netip.MustParseAddr(addr), Method: method,
				Host: "example.org", UserAgent: "curl/8"}, target, status)
		}
		refused := 0
		for i := range v.count {
			now := begin.Add(time.Duration(i) * v.every)
			if request(now, v.addr, v.method, v.target(i), v.status) == fairshare.Refuse {
				refused++
			}
			if i%100 == 50 && request(now, "192.0.2.77", "GET", "/", 200) != fairshare.Allow {
				t.Errorf("%s: a neighbour was refused after %d requests", v.name, i)
			}
		}
		if refused < v.refused[0] || refused > v.refused[1] {
			t.Errorf("%s: %d of %d requests refused, want %d to %d", v.name, refused, v.count, v.refused[0],
				v.refused[1])
		}
	}
}

// A person who searches a forum for an attack has loaded its style sheet. Without
// it, a link to such a search works three times. Cookies and referers make no
// difference, because any client can send them.
func TestInjectionsAreNotSearches(t *testing.T) {
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org",
		UserAgent: firefox}
	s := newSite(t)
	s.request(req, "/forum.css?v=3", 200)
	for range 30 {
		if got := s.request(req, "/search?q=UNION+select+from+information_schema", 200); got != fairshare.Allow {
			t.Fatalf("a search: %v by %q", got, s.rule)
		}
	}
	for _, header := range []http.Header{nil, {"Cookie": {"session=1"}},
		{"Referer": {"https://example.org/search"}}} {
		s, req.Header = newSite(t), header
		s.request(req, "/forum.css", 404) // it was not shown
		for i := range 6 {
			want := fairshare.Allow
			if i >= 3 {
				want = fairshare.Refuse
			}
			if got := s.request(req, "/article?id=1%20UNION%20SELECT%201", 200); got != want {
				t.Errorf("attack %d with %v: %v by %q, want %v", i, header, got, s.rule, want)
			}
		}
	}
}

// The tests by which sqlmap finds an injection in a search that exists. It sends the user agent of a browser and
// loads nothing else.
func TestBuiltInPolicyStopsTestsOfInjections(t *testing.T) {
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org",
		UserAgent: firefox}
	for name, tests := range map[string][]string{
		"texts":    {"river') AND 9341=7962 AND ('ydiF'='ydiF", `river") AND 2330=5642 AND ("OogC"="OogC`},
		"patterns": {"river') AND 5993=3067 AND ('bNOK' LIKE 'bNOK", "river' AND 9183=9814 AND 'IRJH' LIKE 'IRJH"},
		"cases":    {"river AND 4257=(SELECT (CASE WHEN (4257=3006) THEN 4257 ELSE 1 END))"},
		"errors": {"river AND UPDATEXML(1,2,3)", "river AND 1=CAST((CHR(113)||'x') AS NUMERIC)",
			"x OR FLOOR(RAND(0)*2)"},
		"sorted lists": {"river ORDER BY 1-- qk", "river') ORDER BY 1#", "river' ORDER BY 1-- -"},
	} {
		s := newSite(t)
		passed := 0
		for i := range 40 {
			if s.request(req, "/?s="+url.QueryEscape(tests[i%len(tests)]), 200) == fairshare.Allow {
				passed++
			}
		}
		if passed > 8 {
			t.Errorf("%s: %d of 40 tests passed", name, passed)
		}
	}
	s := newSite(t) // searches of people and catalogs
	for _, search := range []string{`("climate change") AND ("policy" OR "law")`, "rock 'n' roll and 'blues'",
		"x=1&y=2", "title like 'river%'", "order by 12 noon", "what is 1=1", `{"a": "b"}`, "case when in the rain",
		"select (a) or (b)"} {
		for range 2 {
			if got := s.request(req, "/?s="+url.QueryEscape(search), 200); got != fairshare.Allow {
				t.Errorf("%s: %v by %q", search, got, s.rule)
			}
		}
	}
}

// People who open links from mails and bookmarks, without a referer, to pages and pictures whose names
// resemble what scanners look for.
func TestBuiltInPolicyKnowsTutorialsFromScanners(t *testing.T) {
	inOneGoroutine(t)
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org"}
	req.UserAgent = firefox
	for _, target := range []string{"/img/wp-config.png", "/guide/wp-config.html", "/apis/wp-config-php/",
		"/what-is-env", "/search?q=toast.jpg", "/go?to=https://coast.example/", "/search?q=xdebug",
		"/search?q=sleep", "/notes/git/config.html", "/old/", "/backup/", "/blog/union-select-explained"} {
		s := newSite(t)
		for i := range 5 {
			if got := s.request(req, target, 200); got != fairshare.Allow {
				t.Errorf("%s, time %d: %v by %q", target, i+1, got, s.rule)
				break
			}
		}
	}
	s := newSite(t) // one link to such a search passes
	if got := s.request(req, "/search?q=wp-config.php", 200); got != fairshare.Allow {
		t.Errorf("a link to a search: %v by %q", got, s.rule)
	}
	s.request(req, "/style.css", 200)
	for range 20 {
		if got := s.request(req, "/search?q=wp-config.php", 200); got != fairshare.Allow {
			t.Fatalf("searches of a reader: %v by %q", got, s.rule)
		}
	}
}

// A verified bot follows links that anybody may have placed. It is not banned for them.
func TestBuiltInPolicyBansNoVerifiedBotForLinks(t *testing.T) {
	s := newSite(t)
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org",
		UserAgent: "Mozilla/5.0 (compatible; ClaudeBot/1.0)"}
	req.SetBot(fairshare.Bot{Name: "claudebot", Categories: []string{"ai"}, State: fairshare.Verified})
	for i := range 20 {
		s.request(req, fmt.Sprintf("/page/%d/.env", i), 404)
	}
	if got := s.request(req, "/", 200); got != fairshare.Allow {
		t.Errorf("%v by %q", got, s.rule)
	}
}

// A sync client and a mounted folder request files of these names, too.
func TestBuiltInPolicyLetsPeopleStoreTheirFiles(t *testing.T) {
	s := newSite(t)
	req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Host: "example.org",
		UserAgent: "WebDAVFS/3.0.0"}
	for i, file := range []string{".env", ".git/config", "dump.sql", "notes.bak", ".htpasswd", ".DS_Store"} {
		for _, method := range []string{"PROPFIND", "GET", "PUT", "HEAD"} {
			req.Method, req.Time = method, begin.Add(time.Duration(i)*time.Minute)
			if got := s.request(req, "/remote.php/dav/files/anna/project/"+file, 207); got != fairshare.Allow {
				t.Errorf("%s %s: %v by %q", method, file, got, s.rule)
			}
		}
	}
	// The method, which a client makes up, does not let a scanner pass.
	for _, method := range []string{"PROPFIND", "SEARCH", "PUT", "ANY"} {
		s, req.Method = newSite(t), method
		if got := s.request(req, "/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php", 200); got != fairshare.Block {
			t.Errorf("%s of a hole: %v by %q", method, got, s.rule)
		}
	}
}

// What people and their programs do, and what only resembles a scanner.
func TestBuiltInPolicyLeavesFormsDownloadsAndFeedsAlone(t *testing.T) {
	for _, v := range []struct {
		name, method, target, referer, agent string
		status, times                        int
	}{
		{"a form that posts to its own page", "POST", "/admin.php", "https://example.org/admin.php", firefox, 302, 20},
		{"a download", "GET", "/immich/releases/download/v1/example.env", "", "curl/8", 200, 1},
		{"a link preview", "GET", "/.env", "", "Mastodon/4.3 (http.rb/5.2; +https://social.example/)", 404, 1},
		{"a feed of searches", "GET", "/search.rss?q=base64_decode", "", "Miniflux/2.2", 200, 3},
	} {
		s := newSite(t)
		header := http.Header{}
		if v.referer != "" {
			header.Set("Referer", v.referer)
		}
		req := fairshare.Request{Time: begin, Addr: netip.MustParseAddr("192.0.2.1"), Method: v.method,
			Host: "example.org", UserAgent: v.agent, Header: header}
		for i := range v.times {
			if got := s.request(req, v.target, v.status); got != fairshare.Allow {
				t.Errorf("%s, time %d: %v by %q", v.name, i+1, got, s.rule)
				break
			}
		}
	}
}
