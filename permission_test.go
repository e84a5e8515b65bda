package fairshare_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairshare"
	"fairshare/memlimit"
)

// holdsAs reports for a match whether a block, an allow, and the nots of each
// hold: "block allow" and so on, in that order.
func holdsAs(t *testing.T, m fairshare.Match, req fairshare.Request, foldPaths bool) string {
	t.Helper()
	var held []string
	for _, rule := range []fairshare.Rule{
		{Name: "block", Match: m, Action: fairshare.Block},
		{Name: "allow", Match: m, Action: fairshare.Allow},
		// below not: a permission
		{Name: "exempt", Match: fairshare.Match{Not: []fairshare.Match{m}}, Action: fairshare.Block},
		// a restriction
		{Name: "barred", Match: fairshare.Match{Not: []fairshare.Match{m}}, Action: fairshare.Allow},
		// a restriction again
		{Name: "twice", Match: fairshare.Match{Not: []fairshare.Match{{Not: []fairshare.Match{m}}}},
			Action: fairshare.Block},
		// ends the walk as a permission
		{Name: "last", Match: m, Limit: requests(1, time.Minute), Last: true},
		// a permission
		{Name: "unless", Limit: requests(1, time.Hour),
			Ban: &fairshare.BanTerms{After: 1, For: time.Hour, All: true, Unless: &m}},
	} {
		policy := fairshare.Policy{Rules: []fairshare.Rule{rule, {Name: "end", Limit: requests(9, time.Minute)}},
			FoldPaths: foldPaths}
		g := newGuard(t, policy)
		matched := func() (rules string) {
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			if v.Ban == fairshare.BanInForce {
				return "banned"
			}
			v.Matched(func(i int) { rules += policy.Rules[i].Name })
			return rules
		}
		first := matched()
		switch rule.Name {
		case "last":
			if ended := first == "last"; ended {
				held = append(held, "last")
			}
		case "unless":
			matched() // over the limit, which bans
			if matched() != "banned" {
				held = append(held, "unless")
			}
		case "exempt", "barred":
			if !strings.HasPrefix(first, rule.Name) {
				held = append(held, rule.Name)
			}
		default:
			if strings.HasPrefix(first, rule.Name) {
				held = append(held, rule.Name)
			}
		}
	}
	return strings.Join(held, " ")
}

const (
	asRestriction = "block barred twice"
	asBoth        = "block allow exempt barred twice last unless"
	never         = ""
)

func TestRestrictionsMatchAnyReadingPermissionsNeedAll(t *testing.T) {
	path := func(patterns ...string) fairshare.Match { return fairshare.Match{Path: patterns} }
	query := func(texts ...string) fairshare.Match { return fairshare.Match{Query: map[string][]string{"a": texts}} }
	named := func(name string) fairshare.Match { return fairshare.Match{Query: map[string][]string{name: {"x"}}} }
	host := fairshare.Match{Host: []string{"*.shop.example"}}
	cookie := func(names ...string) fairshare.Match { return fairshare.Match{Cookie: names} }
	header := fairshare.Match{Header: map[string][]string{"X-Token": {"secret"}}}
	for _, c := range []struct {
		match fairshare.Match
		req   fairshare.Request
		want  string
	}{
		{path("/login"), asking(alice, "/login"), asBoth},
		{path("/login"), asking(alice, "//x/login"), asRestriction},
		{path("/login"), asking(alice, "/login;x=1"), asRestriction},
		{path("/login"), asking(alice, "/login#x"), asRestriction},
		{path("/login"), asking(alice, "/login/"), asRestriction},
		{path("/login"), asking(alice, "/login/x"), never},
		{path("/login", "/x/login"), asking(alice, "//x/login"), asBoth}, // each reading fits one of them
		{path("/x/*"), asking(alice, "//x/login"), asRestriction},
		{path("/static/*"), asking(alice, "/static//a.css"), asBoth},
		{path("/static/*"), asking(alice, "/static/a;v=1.css"), asBoth},
		{path("/static/*"), asking(alice, "//static/login"), asRestriction},
		{path("/static/*"), asking(alice, "/static/../login"), asRestriction},
		{path("/LOGIN"), asking(alice, "/login"), never},
		// too many readings
		{path("/any/page/at/all"), asking(alice, "/%"+strings.Repeat("25", 100)+"41"), asRestriction},

		{query("x"), asking(alice, "/?a=x"), asBoth},
		{query("x"), asking(alice, "/?a=y&a=x"), asRestriction},
		{query("x"), asking(alice, "/?a=x&a=x"), asBoth},
		{query("x"), asking(alice, "/?a[]=x"), asRestriction},
		{query("x"), asking(alice, "/?a%5B%5D=x"), asRestriction},
		{query("x"), asking(alice, "/?+a=x"), asRestriction},
		{query("x"), asking(alice, "/?%61=x"), asBoth},
		{query("x"), asking(alice, "/?b=1;a=x"), asRestriction},
		{query("x"), asking(alice, "/?a=y;a=x"), asRestriction},
		{query("x"), asking(alice, "/?b=1#&a=x"), asRestriction},
		{query("x"), asking(alice, "/?a=%78"), asBoth},
		{query("x"), asking(alice, "/?a=%2578"), asRestriction},
		{query("x y"), asking(alice, "/?a=x+y"), asRestriction},
		{query("x y"), asking(alice, "/?a=x%20y"), asBoth},
		{query("x y"), asking(alice, "/?a=%zz+x%20y"), asBoth}, // one bad escape hides nothing
		{query("x y"), asking(alice, "/?a=%zz+x+y"), asRestriction},
		{query("x+y"), asking(alice, "/?a=x+y"), asRestriction},
		{query(""), asking(alice, "/?a"), asBoth},
		{query(""), asking(alice, "/?a=#x"), asRestriction},
		{query("x"), asking(alice, "/?A=x"), never},
		{query("x"), asking(alice, "/?ab=x&b=x"), never},
		{named("a_b"), asking(alice, "/?a.b=x"), asRestriction},
		{named("a[c]"), asking(alice, "/?a[c]=x"), asBoth},
		{named("*"), asking(alice, "/?b=1&c=x"), asBoth},

		{host, fairshare.Request{Host: "WWW.Shop.Example.:443"}, asBoth},
		{host, fairshare.Request{Host: "www.shop.example:"}, asBoth},
		{host, fairshare.Request{Host: "www.shop.example.evil.test"}, never},

		{cookie("sid"), with(from(alice), "Cookie", "sid=1"), asBoth},
		{cookie("sid"), with(from(alice), "Cookie", "sid=1; sid=2"), asBoth},
		{cookie("sid"), with(from(alice), "Cookie", "sid=a\x01b"), asRestriction},
		{cookie("sid"), with(from(alice), "Cookie", "a=1,sid=2"), asRestriction},
		{cookie("sid"), with(from(alice), "Cookie", "sid"), asRestriction},
		{cookie("s_id"), with(from(alice), "Cookie", "s.id=1"), asRestriction},
		{cookie("any"), with(from(alice), "Cookie", "=1"), asRestriction},
		{cookie("none"), with(from(alice), "Cookie", "junk"), asRestriction},
		{cookie("none"), from(alice), asBoth},

		{header, with(from(alice), "X-Token", "secret"), asBoth},
		{header, with(from(alice), "X-Token", "secret", "X-Token", "y"), asRestriction},
		{header, with(from(alice), "X-Token", "y"), never},
	} {
		if got := holdsAs(t, c.match, c.req, false); got != c.want {
			t.Errorf("%+v\nfor %q %q %q %v holds as %q, want %q", c.match, c.req.Path, c.req.Query, c.req.Host,
				c.req.Header, got, c.want)
		}
	}
}

func TestCaseInsensitivePaths(t *testing.T) {
	for _, c := range []struct {
		pattern, target string
		want            string
	}{
		{"/login", "/LOGIN", asBoth},
		{"/Login", "/login", asBoth},
		{"*.CSS", "/a.css", asBoth},
		{"re:^/Ad[a-z]+$", "/aDMIN", asBoth},
		{"/Ärger", "/%C3%A4rger", asBoth},
		{"/login", "/LOGIN;x", asRestriction},
		{"/login", "//X/LOGIN", asRestriction},
		{"/login", "/LOGOUT", never},
	} {
		if got := holdsAs(t, fairshare.Match{Path: []string{c.pattern}}, asking(alice, c.target), true); got != c.want {
			t.Errorf("%s for %s holds as %q, want %q", c.pattern, c.target, got, c.want)
		}
	}
	name := fairshare.Match{Query: map[string][]string{"action": {"edit"}}}
	if got := holdsAs(t, name, asking(alice, "/?Action=edit"), true); got != asRestriction {
		t.Errorf("a parameter in upper case holds as %q", got)
	}
}

// Spelling a key otherwise, or sending it twice, is not another allowance.
func TestSpellingsOfAPathShareAnAllowance(t *testing.T) {
	for name, c := range map[string]struct {
		by   fairshare.KeyPart
		reqs []fairshare.Request
	}{
		"path": {fairshare.KeyPart{Kind: fairshare.ByPath}, []fairshare.Request{
			asking(alice, "/Login.php"), asking(bob, "/login.php/x"), asking(carol, "//a/login.php"),
			asking(alice, "//b/login.php;c"), asking(bob, "/login.php/"), asking(carol, "/x/../login%252ephp")}},
		"cookie": {fairshare.KeyPart{Kind: fairshare.ByCookie, Name: "sid"}, []fairshare.Request{
			with(from(alice), "Cookie", "sid=A1"), with(from(bob), "Cookie", "sid=%411"),
			with(from(carol), "Cookie", `sid="A1"`), with(from(bob), "Cookie", "sid=A1; sid=%41%31")}},
		// counted by address
		"cookie, two values": {fairshare.KeyPart{Kind: fairshare.ByCookie, Name: "sid"}, []fairshare.Request{
			from(alice), with(from(alice), "Cookie", "sid=A; sid=B"), with(from(alice), "Cookie", "sid=C; sid=A"),
			with(from(alice), "Cookie", "sid=A", "Cookie", "sid=D")}},
		"header, two values": {fairshare.KeyPart{Kind: fairshare.ByHeader, Name: "X-Token"}, []fairshare.Request{
			from(alice), with(from(alice), "X-Token", "A", "X-Token", "B"),
			with(from(alice), "X-Token", "C", "X-Token", "A")}},
		"host": {fairshare.KeyPart{Kind: fairshare.ByHost},
			[]fairshare.Request{{Host: "a.example"}, {Host: "A.Example."}, {Host: "a.example:443"},
				{Host: "a.example.:"}}},
	} {
		g := newGuard(t, fairshare.Policy{Rules: []fairshare.Rule{{Name: "one", Limit: requests(1, time.Hour, c.by)}},
			FoldPaths: true})
		for i, req := range c.reqs {
			req.Time = start
			v, err := g.Decide(t.Context(), &req)
			if want := i == 0; err != nil || (v.Action == fairshare.Allow) != want {
				t.Errorf("%s, request %d: %s (%v)", name, i, v.Action, err)
			}
		}
	}
}

func TestExemptClientsAreThoseThatAnAllowRuleNames(t *testing.T) {
	policy := fairshare.Policy{Rules: []fairshare.Rule{
		{Name: "monitor", Action: fairshare.Allow,
			Match: fairshare.Match{Addr: fairshare.Prefixes{netip.MustParsePrefix("192.0.2.0/24")}}},
		{Name: "assets", Action: fairshare.Allow, Match: fairshare.Match{Path: []string{"*.css"}}},
	}}
	guard, err := memlimit.NewGuard(&policy, memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"192.0.2.9": true, "198.51.100.9": false} {
		req := fairshare.Request{Addr: netip.MustParseAddr(addr), Method: "GET", Path: "/a.css"}
		if got := guard.IsExempt(&req); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}
