package policyfile

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/logins"
	"fairshare/membans"
	"fairshare/memlimit"
)

const chromium = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36"

// A watchedLimiter records which limits were exceeded.
type watchedLimiter struct {
	fairshare.Limiter
	over map[int]bool
}

func (w *watchedLimiter) Take(ctx context.Context, now time.Time, takes []fairshare.Take,
	tallies []fairshare.Tally) error {
	err := w.Limiter.Take(ctx, now, takes, tallies)
	for i := range tallies {
		if tallies[i].Over {
			w.over[takes[i].Limit] = true
		}
	}
	return err
}

func newWatchedSite(t *testing.T) (*site, *watchedLimiter) {
	t.Helper()
	file := BuiltIn()
	file.Provide(everything)
	policy := &file.Policy
	limiter, err := memlimit.New(policy.Limits(), memlimit.Options{Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := &watchedLimiter{limiter, map[int]bool{}}
	guard, err := fairshare.NewGuard(policy, w, membans.New(0))
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, guard: guard}, w
}

// attack returns a request for which a match holds, and an answer's status that
// counts as an error in the limit.
func attack(t *testing.T, rule *fairshare.Rule) (req fairshare.Request, target string, status int) {
	t.Helper()
	req = fairshare.Request{Method: "GET", Host: "example.org", UserAgent: chromium}
	header := http.Header{}
	req.Header = header
	target, status = "/page", 200
	m := &rule.Match
	if m.Method != nil {
		req.Method = m.Method[0]
	}
	if m.Path != nil {
		target = strings.ReplaceAll(m.Path[0], "*", "/x")
	}
	for name, texts := range m.Query {
		text := strings.ReplaceAll(strings.ReplaceAll(texts[0], " ", "+"), `re:^\d{1,6}$`, "7")
		target += fmt.Sprintf("?%s=%s", strings.ReplaceAll(name, "*", "q"), text)
	}
	if m.UserAgent != nil && !slices.ContainsFunc(m.UserAgent,
		func(text string) bool { return strings.Contains(chromium, text) }) {
		req.UserAgent = m.UserAgent[0]
	}
	for name, texts := range m.Header {
		header.Set(name, texts[0])
	}
	if m.Attempt != nil {
		req.Method, target = "POST", "/wp-login.php"
	}
	if m.Bot != nil {
		req.UserAgent = "Mozilla/5.0 (compatible; ClaudeBot/1.0)"
		req.Bot = fairshare.Bot{Name: "claudebot", State: fairshare.Forged}
	}
	for s := 400; rule.Limit.Resource == fairshare.Errors && !rule.Limit.Statuses.Has(status); s++ {
		status = s
	}
	return req, target, status
}

// A person's visit: pages with their assets, the login page, a wrong password and
// the right one, a link from a mail that resets a password, a comment.
var person = []struct {
	method, target string
	status         int
}{
	{"GET", "/", 200}, {"GET", "/about.php", 200}, {"GET", "/?p=17", 200}, {"GET", "/missing", 404},
	{"GET", "/wp-login.php", 200}, {"POST", "/wp-login.php", 200}, {"POST", "/wp-login.php", 302},
	{"GET", "/wp-login.php?action=lostpassword", 200}, {"POST", "/wp-login.php?action=lostpassword", 302},
	{"GET", "/wp-login.php?action=rp&key=abcdef&login=anna", 200}, {"POST", "/wp-login.php?action=resetpass", 302},
	{"POST", "/wp-comments-post.php", 302},
}

// visit sends the requests of a person's visit, and returns the rule that refuses
// one of them; "" if no rule does.
func (s *site) visit(addr string, at time.Time) string {
	s.t.Helper()
	ask := func(method, target string, status int) bool {
		req := fairshare.Request{Time: at, Addr: netip.MustParseAddr(addr), Method: method, Host: "example.org",
			UserAgent: chromium}
		if strings.HasPrefix(target, "/assets/") {
			req.Header = http.Header{"Referer": {"https://example.org/"}}
		}
		return s.request(req, target, status) == fairshare.Allow
	}
	for i, step := range person {
		if !ask(step.method, step.target, step.status) {
			return fmt.Sprintf("%s %s: %s", step.method, step.target, s.rule)
		}
		for n := range 60 {
			if target := fmt.Sprintf("/assets/%d.png", n); i == 0 && !ask("GET", target, 200) {
				return "GET " + target + ": " + s.rule
			}
		}
	}
	return ""
}

// Whatever attackers send from a network and with a user agent, people in the same
// network and with the same browser are served: new clients, and offices that are
// known.
func TestNoSharedLimitOfTheBuiltInPolicyRefusesAPerson(t *testing.T) {
	inOneGoroutine(t)
	rules := BuiltIn().Policy.Rules
	place, tried := -1, 0
	for i := range rules {
		rule := &rules[i]
		if rule.Limit == nil {
			continue
		}
		place++
		if !rule.Limit.Shared() || rule.Limit.N > 100_000 { // no client reaches these
			continue
		}
		tried++
		s, limiter := newWatchedSite(t)
		s.guard.UseBusy(func() bool { return true })                           // all limits hold
		for _, office := range []string{"192.0.2.250", "2001:db8:1:fff0::1"} { // known before the attack
			s.request(fairshare.Request{Time: begin.Add(-30 * time.Minute), Addr: netip.MustParseAddr(office),
				Method: "GET", Host: "example.org", UserAgent: chromium}, "/", 200)
		}
		req, target, status := attack(t, rule)
		req.SetTarget(target)
		req.Time = begin
		for n := range 100 * (2*rule.Limit.Allowed()/100 + 2) {
			for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(n % 100)}),
				netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 0, byte(n % 100), 15: 1})} {
				req.Addr = addr
				if n < 100 { // a page first, as browsers do
					page := fairshare.Request{Time: begin, Addr: addr, Method: "GET", Host: "example.org",
						UserAgent: chromium}
					s.request(page, "/", 200)
					if rule.Name == "secrets of a network" { // else they are blocked before
						s.request(page, "/logo.png", 200)
					}
				}
				v, attempt, seen := s.decide(&req)
				if rule.Limit.Resource == fairshare.Concurrent && v.Action == fairshare.Allow {
					continue // it stays in progress
				}
				s.settle(&v, attempt, seen, req.Time, logins.Answer{Status: status})
			}
		}
		reached := false // this limit, or a lower limit of newcomers before it
		for k, limit := range BuiltIn().Policy.Limits() {
			reached = reached || limiter.over[k] && (limit.Shared() || limit.Name == "guessing from many addresses")
		}
		if !reached {
			t.Errorf("%s: the attack reaches no limit that is shared", rule.Name)
		}
		at := begin.Add(100 * time.Millisecond)
		for who, addr := range map[string]string{
			"for the first time from the same /24":  "192.0.2.200",
			"for the first time from the same /48":  "2001:db8:1:ffff::1",
			"from elsewhere, with the same browser": "198.51.100.7",
		} {
			if refused := s.visit(addr, at); refused != "" {
				t.Errorf("%s: a person %s is refused: %s", rule.Name, who, refused)
			}
		}
		for _, office := range []string{"192.0.2.250", "2001:db8:1:fff0::1"} {
			for editor := range 5 {
				if refused := s.visit(office, at.Add(time.Duration(editor)*3*time.Minute)); refused != "" {
					t.Errorf("%s: editor %d of an office: %s", rule.Name, editor, refused)
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d limits are shared", tried)
	}
}

// One address cannot use up a limit that unrelated clients share, whatever it
// sends.
func TestOneAddressCannotUseUpSharedLimits(t *testing.T) {
	inOneGoroutine(t)
	rules := BuiltIn().Policy.Rules
	place := -1
	for i := range rules {
		rule := &rules[i]
		if rule.Limit == nil {
			continue
		}
		place++
		if !rule.Limit.Shared() || rule.Limit.N > 100_000 {
			continue
		}
		s, limiter := newWatchedSite(t)
		req, target, status := attack(t, rule)
		req.SetTarget(target)
		req.Time, req.Addr = begin, netip.MustParseAddr("192.0.2.1")
		for range 2*rule.Limit.Allowed() + 2 {
			v, attempt, seen := s.decide(&req)
			s.settle(&v, attempt, seen, req.Time, logins.Answer{Status: status})
		}
		if limiter.over[place] && rule.Match.Bot == nil { // only forged bots are counted together with forged bots
			t.Errorf("%s: one address uses it up", rule.Name)
		}
	}
}

// After a few password guesses unknown clients are refused, whatever cookie and referer they
// send, and although they open the form first. A person's browser can log in.
func TestCookiesAndReferersDoNotAllowMorePasswordGuesses(t *testing.T) {
	s, passed := newSite(t), 0
	made := http.Header{"Cookie": {"wordpress_test_cookie=WP+Cookie+check"},
		"Referer": {"https://example.org/wp-login.php"}}
	ask := func(i int, method, target, addr string, status int) fairshare.Action {
		return s.request(fairshare.Request{Time: begin.Add(time.Duration(i) * time.Minute),
			Addr: netip.MustParseAddr(addr), Method: method, Host: "example.org",
			UserAgent: fmt.Sprintf("Mozilla/5.0 (Windows NT 6.1; rv:%d.0) Gecko/20100101 Firefox/%d.0", i, i),
			Header:    made}, target, status)
	}
	for i := range 200 {
		addr := fmt.Sprintf("198.%d.100.7", i)
		ask(i, "GET", "/wp-login.php", addr, 200)
		if ask(i, "POST", "/wp-login.php", addr, 200) == fairshare.Allow {
			passed++
		}
	}
	if passed > 5 {
		t.Errorf("%d guesses from 200 addresses pass, want at most 5", passed)
	}
	if got := ask(200, "POST", "/wp-login.php", "203.0.113.7", 302); got != fairshare.Refuse {
		t.Errorf("a form that nobody opened: %v", got)
	}
	for _, step := range []struct {
		method, target string
		status         int
	}{{"GET", "/wp-login.php", 200}, {"GET", "/wp-includes/css/login.css", 200}, {"POST", "/wp-login.php", 200},
		{"POST", "/wp-login.php", 302}} {
		if got := ask(200, step.method, step.target, "203.0.113.8", step.status); got != fairshare.Allow {
			t.Errorf("%s %s of a browser: %v by %q", step.method, step.target, got, s.rule)
		}
	}
}

// A client with a false referer or user agent can send at most sixty searches for
// injections.
func TestReferersDoNotAllowMoreSearches(t *testing.T) {
	for _, header := range []http.Header{{}, {"Referer": {"https://example.org/"}},
		{"Referer": {"https://example.org/page"}, "Cookie": {"session=1"}}} {
		for _, agent := range []string{chromium, "Mozilla/5.0 (compatible; mybot/1.0)", "feed reader", "pip/25.0"} {
			s, passed := newSite(t), 0
			for i := range 600 {
				if s.request(fairshare.Request{Time: begin.Add(time.Duration(i) * 50 * time.Millisecond),
					Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org", UserAgent: agent,
					Header: header}, fmt.Sprintf("/word%d", i), 404) == fairshare.Allow {
					passed++
				}
			}
			if passed > 60 {
				t.Errorf("%v as %q: %d wrong words pass", header, agent, passed)
			}
			if got := s.request(fairshare.Request{Time: begin.Add(30 * time.Minute),
				Addr: netip.MustParseAddr("192.0.2.1"), Method: "GET", Host: "example.org", UserAgent: agent,
				Header: header}, "/", 200); got != fairshare.Refuse {
				t.Errorf("%v as %q: half an hour later it is not banned", header, agent)
			}
		}
	}
}

// An attacker needs 128 clients with two requests each to have the newcomers of a
// /48 banned. Clients that came before still pass.
func TestCostOfBanningTheNewcomersOfANetwork(t *testing.T) {
	s := newSite(t)
	ask := func(addr string, at time.Duration, target string, status int) fairshare.Action {
		return s.request(fairshare.Request{Time: begin.Add(at), Addr: netip.MustParseAddr(addr), Method: "GET",
			Host: "example.org", UserAgent: chromium}, target, status)
	}
	const known, newcomer, elsewhere = "2001:db8:1:fff0::1", "2001:db8:1:fff1::1", "2001:db8:2::1"
	ask(known, -30*time.Minute, "/", 200)
	for i := range 127 {
		for range 2 {
			ask(fmt.Sprintf("2001:db8:1:%x::1", i), 0, "/.env", 404)
		}
	}
	for n := range 300 {
		if got := ask(newcomer, time.Second, "/a.png", 200); got != fairshare.Allow {
			t.Fatalf("127 are banned, request %d of a newcomer: %v by %q", n, got, s.rule)
		}
	}
	if got := ask(newcomer, time.Second, "/a.png", 200); got != fairshare.Refuse {
		t.Errorf("127 are banned, a newcomer's 301st request in a minute: %v", got)
	}
	for range 2 {
		ask("2001:db8:1:7f::1", 2*time.Second, "/.env", 404)
	}
	if got := ask(newcomer, 5*time.Minute, "/", 200); got != fairshare.Refuse {
		t.Errorf("128 are banned, a newcomer: %v", got)
	}
	for n := range 600 {
		if got := ask(known, 5*time.Minute, "/a.png", 200); got != fairshare.Allow {
			t.Fatalf("128 are banned, request %d of a client that came before: %v by %q", n, got, s.rule)
		}
	}
	if got := ask(elsewhere, 5*time.Minute, "/", 200); got != fairshare.Allow {
		t.Errorf("another network: %v by %q", got, s.rule)
	}
	for at := 6 * time.Minute; at < 3*time.Hour; at += time.Minute { // more requests give no standing
		if got := ask(newcomer, at, "/", 200); got != fairshare.Refuse {
			t.Fatalf("a newcomer after %v: %v", at, got)
		}
	}
}
