package policyfile

import (
	"net/netip"
	"testing"

	"fairshare"

	"pgregory.net/rapid"
)

// What covers and overlap claim is true: where a covers b, no request that b
// holds for escapes a; where they do not overlap, none fits both.
func TestWhatIsCoveredEscapesNot(t *testing.T) {
	sets := map[string]*AddrSet{}
	for _, s := range []string{"192.0.2.0/24", "192.0.2.7", "192.0.2.128/25", "0.0.0.0/0"} {
		p, err := parsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		sets[s] = &AddrSet{}
		sets[s].add(p)
	}
	texts := func(values ...string) *rapid.Generator[[]string] {
		return rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.SampledFrom(values), 1, 2))
	}
	path, host := texts("/a", "/a*", "*", "/a/b", "*b", "/*/b", "re:^/a"), texts("a.example", "*.example", "A.example", "*", "re:A")
	agent, cookie := texts("", "*", "bot", "Bot/1", "b", "re:b"), texts("none", "any", "sid", "s*", "*")
	method, value := texts("GET", "get", "POST"), texts("*", "", "x", "XY")
	asMap := func(name string, v []string) map[string][]string {
		if v == nil {
			return nil
		}
		return map[string][]string{name: v}
	}
	var match func(depth int) *rapid.Generator[fairshare.Match]
	match = func(depth int) *rapid.Generator[fairshare.Match] {
		return rapid.Custom(func(t *rapid.T) fairshare.Match {
			var m fairshare.Match
			switch rapid.IntRange(0, 7).Draw(t, "field") { // few fields, so that coverage is not rare
			case 0:
				m.Addr = sets[rapid.SampledFrom([]string{"192.0.2.0/24", "192.0.2.7", "192.0.2.128/25", "0.0.0.0/0"}).Draw(t, "addr")]
			case 1:
				m.Path = path.Draw(t, "path")
			case 2:
				m.Host = host.Draw(t, "host")
			case 3:
				m.Method = method.Draw(t, "method")
			case 4:
				m.UserAgent = agent.Draw(t, "agent")
			case 5:
				m.Cookie = cookie.Draw(t, "cookie")
			case 6:
				m.Query = asMap("q", value.Draw(t, "query"))
			case 7:
				m.Header = asMap(rapid.SampledFrom([]string{"X-A", "x-a"}).Draw(t, "name"), texts("", "*", "x", "XY").Draw(t, "header"))
			}
			if depth > 0 && rapid.Bool().Draw(t, "more") {
				m.Not = rapid.SliceOfN(match(depth-1), 1, 2).Draw(t, "not")
			}
			return m
		})
	}
	holds := func(t *rapid.T, m fairshare.Match, req *fairshare.Request) bool {
		p := fairshare.Policy{Rules: []fairshare.Rule{{Name: "x", Match: m, Action: fairshare.Block}}}
		steps, err := p.Explain(req)
		if err != nil {
			t.Fatal(err)
		}
		return steps[0].Holds
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := match(2).Draw(t, "a"), match(2).Draw(t, "b")
		covered, apart := covers(&a, &b), !overlap(&a, &b)
		if !covered && !apart {
			return
		}
		for range 20 {
			req := &fairshare.Request{
				Addr:      netip.MustParseAddr(rapid.SampledFrom([]string{"192.0.2.7", "192.0.2.200", "198.51.100.1", "::1"}).Draw(t, "from")),
				Method:    rapid.SampledFrom([]string{"GET", "POST", ""}).Draw(t, "verb"),
				Host:      rapid.SampledFrom([]string{"a.example", "A.EXAMPLE:80", "b.example", ""}).Draw(t, "to"),
				UserAgent: rapid.SampledFrom([]string{"", "bot", "BOT/1.0", "x", "*"}).Draw(t, "says"),
				Path:      rapid.SampledFrom([]string{"/a", "/a/b", "/b", "/x/b", ""}).Draw(t, "target"),
				Query:     rapid.SampledFrom([]string{"", "q=", "q=x", "q=xyz&q=", "p=1"}).Draw(t, "behind"),
				Header: rapid.SampledFrom([]headers{nil, {"Cookie": {"sid=1"}}, {"Cookie": {"a=1; s=2"}, "X-A": {"x"}}, {"X-A": {"xyz"}}, {"X-A": {""}}, {"X-A": {"*/*"}}}).
					Draw(t, "headers"),
			}
			if !holds(t, b, req) {
				continue
			}
			if fits := holds(t, a, req); covered && !fits {
				t.Fatalf("%+v\nescapes %+v\nand not %+v", req, a, b)
			} else if apart && fits {
				t.Fatalf("%+v\nfits %+v\nand %+v", req, a, b)
			}
		}
	})
}
