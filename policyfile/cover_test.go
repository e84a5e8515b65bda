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
	// Two sets have a list from elsewhere, of which is known only later what is in it.
	list := &AddrSet{elsewhere: true}
	sets["list"], sets["list and more"] = &AddrSet{}, &AddrSet{}
	sets["list"].addList("list", list)
	sets["list and more"].add(netip.MustParsePrefix("198.51.100.1/32"))
	sets["list and more"].addList("list", list)
	texts := func(values ...string) *rapid.Generator[[]string] {
		return rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.SampledFrom(values), 1, 2))
	}
	path, host := texts("/a", "/a*", "*", "/a/b", "*b", "/*/b", "re:^/a"), texts("a.example", "*.example", "A.example", "*", "re:A")
	agent, cookie := texts("", "*", "bot", "Bot/1", "b", "re:b"), texts("none", "any", "sid", "s*", "*")
	method, value := texts("GET", "get", "POST"), texts("*", "", "x", "XY")
	bot := texts("known", "verified", "forged", "googlebot", "search", "re:^g")
	listing := rapid.Custom(func(t *rapid.T) fairshare.Listing {
		if rapid.Bool().Draw(t, "http:BL") {
			return fairshare.Listing{
				List: "honeypot", HTTPBL: true, Types: rapid.Uint8Range(0, 7).Draw(t, "types"),
				Threat: rapid.SampledFrom([]uint8{0, 25}).Draw(t, "threat"), Days: rapid.SampledFrom([]uint8{0, 9, 30}).Draw(t, "days"),
			}
		}
		codes := map[string][]netip.Prefix{
			"any": nil, "3": {netip.MustParsePrefix("127.0.0.3/32")}, "small": {netip.MustParsePrefix("127.0.0.0/30")},
			"two": {netip.MustParsePrefix("127.0.0.3/32"), netip.MustParsePrefix("127.0.0.9/32")},
		}
		return fairshare.Listing{List: "dronebl", Codes: codes[rapid.SampledFrom([]string{"any", "3", "small", "two"}).Draw(t, "codes")]}
	})
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
			switch rapid.IntRange(0, 12).Draw(t, "field") { // few fields, so that coverage is not rare
			case 0:
				m.Addr = sets[rapid.SampledFrom([]string{"192.0.2.0/24", "192.0.2.7", "192.0.2.128/25", "0.0.0.0/0", "list", "list and more"}).Draw(t, "addr")]
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
			case 8, 9, 10:
				m.Bot = bot.Draw(t, "bot")
			case 11:
				m.Hostname = host.Draw(t, "hostname")
			case 12:
				if m.Listed = rapid.SliceOfN(listing, 0, 2).Draw(t, "listed"); len(m.Listed) == 0 {
					m.Listed = nil
				}
			}
			if depth > 0 && rapid.Bool().Draw(t, "more") {
				m.Not = rapid.SliceOfN(match(depth-1), 1, 2).Draw(t, "not")
			}
			return m
		})
	}
	holds := func(t *rapid.T, m test, req *fairshare.Request) bool {
		p := fairshare.Policy{Rules: []fairshare.Rule{{Name: "x", Match: *m.Match, Action: fairshare.Block}}}
		if m.kind {
			p.Rules[0].Action = fairshare.Allow
		}
		steps, err := p.Explain(req)
		if err != nil {
			t.Fatal(err)
		}
		return steps[0].Holds
	}
	rapid.Check(t, func(t *rapid.T) {
		list.Replace(nil)
		of := func(name string) test {
			m := match(2).Draw(t, name)
			return test{&m, rapid.Bool().Draw(t, name+" is kind")}
		}
		a, b := of("a"), of("b")
		covered, apart := covers(a, b), !overlap(a, b)
		if !covered && !apart {
			return
		}
		if rapid.Bool().Draw(t, "the list comes") {
			list.Replace([]netip.Prefix{netip.MustParsePrefix("192.0.2.200/32"), netip.MustParsePrefix("::/64")})
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
				Bot: rapid.SampledFrom([]fairshare.Bot{
					{}, {Name: "googlebot", Categories: []string{"search"}}, {Name: "bingbot", Categories: []string{"search"}}, {Name: "curl", Categories: []string{"tool"}},
				}).Draw(t, "is"),
				Lookups: rapid.SampledFrom([]lookups{{}, {"a.example", netip.MustParseAddr("127.0.0.3")}, {"b.example", netip.MustParseAddr("127.9.30.2")}}).Draw(t, "looked up"),
			}
			if req.Bot.Name != "" {
				req.Bot.State = rapid.SampledFrom([]fairshare.BotState{fairshare.Claimed, fairshare.Pending, fairshare.Verified, fairshare.Forged}).Draw(t, "state")
				req.Bot.Steered = rapid.Bool().Draw(t, "steered")
			}
			if !holds(t, b, req) {
				continue
			}
			if fits := holds(t, a, req); covered && !fits {
				t.Fatalf("%+v\nescapes %+v (%v)\nand not %+v (%v)", req, *a.Match, a.kind, *b.Match, b.kind)
			} else if apart && fits {
				t.Fatalf("%+v\nfits %+v (%v)\nand %+v (%v)", req, *a.Match, a.kind, *b.Match, b.kind)
			}
		}
	})
}

// lookups is what is known of every address.
type lookups struct {
	name   string
	answer netip.Addr
}

func (l lookups) Hostnames(netip.Addr) []string {
	if l.name == "" {
		return nil
	}
	return []string{l.name}
}

func (l lookups) Listed(string, netip.Addr) []netip.Addr {
	if !l.answer.IsValid() {
		return nil
	}
	return []netip.Addr{l.answer}
}
