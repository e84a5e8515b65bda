package policyfile

import (
	"net/netip"
	"testing"

	"fairshare"

	"pgregory.net/rapid"
)

// If a covers b, every request that matches b matches a. If a and b do not overlap,
// no request matches both.
func TestCoversAndOverlapAreSound(t *testing.T) {
	sets := map[string]*AddrSet{}
	for _, s := range []string{"192.0.2.0/24", "192.0.2.7", "192.0.2.128/25", "0.0.0.0/0"} {
		p, err := parsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		sets[s] = &AddrSet{}
		sets[s].add(p)
	}
	// Two sets contain an external list, whose prefixes are known only later.
	list := &AddrSet{external: true}
	sets["list"], sets["list and more"] = &AddrSet{}, &AddrSet{}
	sets["list"].addList("list", list)
	sets["list and more"].add(netip.MustParsePrefix("198.51.100.1/32"))
	sets["list and more"].addList("list", list)
	texts := func(values ...string) *rapid.Generator[[]string] {
		return rapid.OneOf(rapid.Just([]string(nil)), rapid.SliceOfN(rapid.SampledFrom(values), 1, 2))
	}
	path, host := texts("/a", "/a*", "*", "/a/b", "*b", "/*/b", "re:^/a"),
		texts("a.example", "*.example", "A.example", "*", "re:A")
	agent, cookie := texts("", "*", "bot", "Bot/1", "b", "re:b"), texts("none", "any", "sid", "s*", "*")
	method, value := texts("GET", "get", "POST"), texts("*", "", "x", "XY")
	label := texts("good", "GOOD", "oo", "bad", "re:^g", "re:.")
	bot := texts("known", "verified", "forged", "googlebot", "search", "re:^g")
	listing := rapid.Custom(func(t *rapid.T) fairshare.Listing {
		if rapid.Bool().Draw(t, "http:BL") {
			return fairshare.Listing{
				List: "honeypot", HTTPBL: true, Types: rapid.Uint8Range(0, 7).Draw(t, "types"),
				Threat: rapid.SampledFrom([]uint8{0, 25}).Draw(t, "threat"),
				Days:   rapid.SampledFrom([]uint8{0, 9, 30}).Draw(t, "days"),
			}
		}
		codes := map[string][]netip.Prefix{
			"any": nil, "3": {netip.MustParsePrefix("127.0.0.3/32")}, "small": {netip.MustParsePrefix("127.0.0.0/30")},
			"two": {netip.MustParsePrefix("127.0.0.3/32"), netip.MustParsePrefix("127.0.0.9/32")},
		}
		return fairshare.Listing{List: "dronebl", Codes: codes[rapid.SampledFrom(
			[]string{"any", "3", "small", "two"}).Draw(t, "codes")]}
	})
	asMap := func(name string, v []string) map[string][]string {
		if v == nil {
			return nil
		}
		return map[string][]string{name: v}
	}
	focus := -1 // the field of most matches, so that matches often overlap
	var match func(depth int) *rapid.Generator[fairshare.Match]
	match = func(depth int) *rapid.Generator[fairshare.Match] {
		return rapid.Custom(func(t *rapid.T) fairshare.Match {
			var m fairshare.Match
			field := rapid.IntRange(0, 11).Draw(t, "field")
			if focus >= 0 && rapid.IntRange(0, 9).Draw(t, "focused") > 0 {
				field = focus
			}
			switch field { // few fields, so that coverage is not rare
			case 0:
				m.Addr = sets[rapid.SampledFrom([]string{"192.0.2.0/24", "192.0.2.7", "192.0.2.128/25", "0.0.0.0/0",
					"list", "list and more"}).Draw(t, "addr")]
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
				m.Header = asMap(rapid.SampledFrom([]string{"X-A", "x-a"}).Draw(t, "name"),
					texts("", "*", "x", "XY").Draw(t, "header"))
			case 8:
				m.Bot = bot.Draw(t, "bot")
			case 9:
				m.Hostname = host.Draw(t, "hostname")
			case 10:
				if m.Listed = rapid.SliceOfN(listing, 0, 2).Draw(t, "listed"); len(m.Listed) == 0 {
					m.Listed = nil
				}
			case 11:
				m.Label = label.Draw(t, "label")
			}
			if depth > 0 && rapid.Bool().Draw(t, "more") {
				m.Not = rapid.SliceOfN(match(depth-1), 1, 2).Draw(t, "not")
			}
			return m
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		list.Replace(nil)
		focus = rapid.IntRange(-1, 11).Draw(t, "focus")
		of := func(name string) condition {
			m := match(2).Draw(t, name)
			return condition{&m, rapid.Bool().Draw(t, name+" is favorable")}
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
				Addr: netip.MustParseAddr(rapid.SampledFrom(
					[]string{"192.0.2.7", "192.0.2.200", "198.51.100.1", "::1"}).Draw(t, "from")),
				Method:    rapid.SampledFrom([]string{"GET", "POST", ""}).Draw(t, "verb"),
				Host:      rapid.SampledFrom([]string{"a.example", "A.EXAMPLE:80", "b.example", ""}).Draw(t, "to"),
				UserAgent: rapid.SampledFrom([]string{"", "bot", "BOT/1.0", "x", "*"}).Draw(t, "says"),
				Path:      rapid.SampledFrom([]string{"/a", "/a/b", "/b", "/x/b", ""}).Draw(t, "target"),
				Query:     rapid.SampledFrom([]string{"", "q=", "q=x", "q=xyz&q=", "p=1"}).Draw(t, "behind"),
				Header: rapid.SampledFrom([]headers{nil, {"Cookie": {"sid=1"}},
					{"Cookie": {"a=1; s=2"}, "X-A": {"x"}}, {"X-A": {"xyz"}}, {"X-A": {""}}, {"X-A": {"*/*"}}}).
					Draw(t, "headers"),
				Bot: rapid.SampledFrom([]fairshare.Bot{
					{}, {Name: "googlebot", Categories: []string{"search"}},
					{Name: "bingbot", Categories: []string{"search"}}, {Name: "curl", Categories: []string{"tool"}},
				}).Draw(t, "is"),
				Lookups: rapid.SampledFrom([]lookups{
					{}, {name: "a.example", answer: netip.MustParseAddr("127.0.0.3")},
					{name: "b.example", list: "honeypot", answer: netip.MustParseAddr("127.9.30.2")},
				}).Draw(t, "looked up"),
				Override: fairshare.Override{Labels: rapid.SampledFrom(
					[][]string{nil, {"good"}, {"bad"}, {"bad", "good"}, {"other"}}).Draw(t, "labels")},
			}
			if req.Bot.Name != "" {
				req.Bot.State = rapid.SampledFrom([]fairshare.BotState{fairshare.Claimed, fairshare.Pending,
					fairshare.Verified, fairshare.Forged}).Draw(t, "state")
				req.Bot.UserTriggered = rapid.Bool().Draw(t, "user-triggered")
			}
			if !holds(t, b, req) {
				continue
			}
			// Of several readings a permission needs all, and a restriction one.
			several := req.Query == "q=xyz&q=" && a.favorable && !b.favorable
			if fits := holds(t, a, req); covered && !fits && !several {
				t.Fatalf("%+v\ndoes not match %+v (%v)\nbut matches %+v (%v)", req, *a.Match,
					a.favorable, *b.Match, b.favorable)
			} else if apart && fits {
				t.Fatalf("%+v\nmatches %+v (%v)\nand %+v (%v)", req, *a.Match, a.favorable, *b.Match, b.favorable)
			}
		}
	})
}

// holds reports whether a condition holds, by the guard's own code.
func holds(t interface{ Fatal(...any) }, m condition, req *fairshare.Request) bool {
	p := fairshare.Policy{Rules: []fairshare.Rule{{Name: "x", Match: *m.Match, Action: fairshare.Block}}}
	if m.favorable {
		p.Rules[0].Action = fairshare.Allow
	}
	steps, err := p.Explain(req)
	if err != nil {
		t.Fatal(err)
	}
	return steps[0].Holds
}

// All pairs of conditions on bots, DNS lists and labels are compared, with all
// kinds of clients.
func TestConditionsOnClientsCoverSoundly(t *testing.T) {
	inOneGoroutine(t)
	try := func(tests []condition, clients []*fairshare.Request) (covered, apart int) {
		fits := make([][]bool, len(tests))
		for i, m := range tests {
			for _, req := range clients {
				fits[i] = append(fits[i], holds(t, m, req))
			}
		}
		for i, a := range tests {
			for j, b := range tests {
				inside, outside := covers(a, b), !overlap(a, b)
				if inside {
					covered++
				}
				if outside {
					apart++
				}
				for k, req := range clients {
					if inside && fits[j][k] && !fits[i][k] || outside && fits[j][k] && fits[i][k] {
						t.Fatalf("%+v (favorable: %v) and %+v (favorable: %v): covers %v, apart %v; but %+v matches %v and %v",
							*a.Match, a.favorable, *b.Match, b.favorable, inside, outside, req, fits[i][k], fits[j][k])
					}
				}
			}
		}
		return covered, apart
	}

	words := []string{"known", "verified", "forged", "googlebot", "search", "re:^goo"}
	var ofBots []condition
	for i := range words {
		for j := range words[:i+1] {
			for _, kind := range []bool{false, true} {
				ofBots = append(ofBots, condition{&fairshare.Match{Bot: []string{words[i], words[j]}}, kind})
				ofBots = append(ofBots, condition{&fairshare.Match{Bot: []string{words[i]},
					Not: []fairshare.Match{{Bot: []string{words[j]}}}}, kind})
			}
		}
	}
	for _, states := range [][]string{nil, {"verified"}, {"known"}, {"forged", "pending"}, {"verified", "forged"},
		stateWords} {
		for _, operator := range [][]string{nil, {"google"}, {"re:^m"}, {"google", "microsoft"}} {
			for _, word := range []string{"", "known", "verified", "googlebot", "search"} {
				m := fairshare.Match{State: states, Operator: operator}
				if word != "" {
					m.Bot = []string{word}
				}
				if m.TestsBots() {
					ofBots = append(ofBots, condition{&m, false}, condition{&m, true},
						condition{&fairshare.Match{Not: []fairshare.Match{m}}, false})
				}
			}
		}
	}
	clients := []*fairshare.Request{{}}
	for _, bot := range []fairshare.Bot{{Name: "googlebot", Categories: []string{"search"}, Operator: "google"},
		{Name: "bingbot", Categories: []string{"search"}, Operator: "microsoft"},
		{Name: "curl", Categories: []string{"tool"}}} {
		for bot.State = fairshare.Claimed; bot.State <= fairshare.Forged; bot.State++ {
			for _, bot.UserTriggered = range []bool{false, true} {
				clients = append(clients, &fairshare.Request{Bot: bot})
			}
		}
	}
	if covered, apart := try(ofBots, clients); covered < 1000 || apart < 500 {
		t.Errorf("of bots %d cover, %d are apart", covered, apart)
	}

	var ofLists []condition
	add := func(l fairshare.Listing) {
		ofLists = append(ofLists, condition{&fairshare.Match{Listed: []fairshare.Listing{l}}, false})
	}
	for types := range uint8(8) {
		for _, threat := range []uint8{0, 25} {
			for _, days := range []uint8{0, 9, 30} {
				add(fairshare.Listing{List: "honeypot", HTTPBL: true, Types: types, Threat: threat, Days: days})
			}
		}
	}
	for _, codes := range [][]string{nil, {"127.0.0.3/32"}, {"127.0.0.0/30"}, {"127.0.0.3/32", "127.0.0.9/32"}} {
		for _, list := range []string{"dronebl", "other"} {
			l := fairshare.Listing{List: list}
			for _, code := range codes {
				l.Codes = append(l.Codes, netip.MustParsePrefix(code))
			}
			add(l)
		}
	}
	ofLists = append(ofLists, condition{&fairshare.Match{Listed: []fairshare.Listing{ofLists[0].Listed[0],
		ofLists[len(ofLists)-1].Listed[0]}}, false})
	clients = []*fairshare.Request{{}}
	for _, list := range []string{"honeypot", "dronebl", "other"} {
		for _, answer := range []string{"127.0.0.1", "127.0.0.3", "127.0.0.9", "127.9.30.2", "127.20.25.4",
			"127.40.9.5", "127.30.200.7", "127.1.255.0"} {
			clients = append(clients, &fairshare.Request{Addr: netip.MustParseAddr("192.0.2.7"),
				Lookups: lookups{list: list, answer: netip.MustParseAddr(answer)}})
		}
	}
	if covered, _ := try(ofLists, clients); covered < len(ofLists) {
		t.Errorf("of DNS lists %d cover", covered)
	}

	names := []string{"good", "GOOD", "oo", "bad", "re:^g", "re:."}
	var ofLabels []condition
	for i := range names {
		for j := range names[:i+1] {
			ofLabels = append(ofLabels, condition{&fairshare.Match{Label: []string{names[i], names[j]}}, false})
			ofLabels = append(ofLabels, condition{&fairshare.Match{Label: []string{names[i]},
				Not: []fairshare.Match{{Label: []string{names[j]}}}}, false})
		}
	}
	clients = []*fairshare.Request{{}}
	for _, labels := range [][]string{{"good"}, {"bad"}, {"oo"}, {"bad", "good"}, {"other"}} {
		clients = append(clients, &fairshare.Request{Override: fairshare.Override{Labels: labels}})
	}
	if covered, apart := try(ofLabels, clients); covered < 250 || apart < 200 {
		t.Errorf("of labels %d cover, %d are apart", covered, apart)
	}
}

// lookups has the same results for every address.
type lookups struct {
	name   string
	list   string // the DNS list that has every address; "" means all lists
	answer netip.Addr
}

func (l lookups) Hostnames(netip.Addr) []string {
	if l.name == "" {
		return nil
	}
	return []string{l.name}
}

func (l lookups) Listed(list string, _ netip.Addr) []netip.Addr {
	if !l.answer.IsValid() || l.list != "" && l.list != list {
		return nil
	}
	return []netip.Addr{l.answer}
}
