package fairshare_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairshare"
	"fairshare/limittest"
	"fairshare/membans"
	"fairshare/memlimit"
)

func TestParseClientID(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"203.0.113.9", "203.0.113.9"},
		{"203.0.113.9/24", "203.0.113.0/24"},
		{"::ffff:203.0.113.9", "203.0.113.9"},
		{"::ffff:203.0.113.9/120", "203.0.113.0/24"},
		{"2001:db8::1", "2001:db8::1"},
		{"2001:db8::1/64", "2001:db8::/64"},
		{"fe80::1%eth0", "fe80::1"},
		{"Googlebot", "googlebot"},
		{"yahoo! slurp", "yahoo! slurp"},
		{"203.0.113.999", ""},
		{"203.0.113.0/33", ""},
		{"2001:db8:::/64", ""},
		{"google/24", ""},
		{"", ""},
		{"a\nb", ""},
	} {
		id, err := fairshare.ParseClientID(c.in)
		if (err != nil) != (c.want == "") || id.String() != c.want {
			t.Errorf("ParseClientID(%q) = %q, %v; want %q", c.in, id, err, c.want)
		}
		if again, err := fairshare.ParseClientID(id.String()); c.want != "" && (err != nil || again != id) {
			t.Errorf("%q read again: %v, %v", id, again, err)
		}
	}
}

// An operator's word stands before everything else.
func TestOverridesTakePrecedenceOverRules(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	policy.Rules = append(policy.Rules, fairshare.Rule{Name: "no", Match: fairshare.Match{Path: []string{"/no"}},
		Action: fairshare.Block})
	with := func(path string, w fairshare.Override) fairshare.Request {
		req := from(alice)
		req.Path, req.Override = path, w
		return req
	}
	g := newGuard(t, policy)
	repeat(t, g, 0, from(alice), 2)
	if v := repeat(t, g, 0, from(alice), 1); v.Ban != fairshare.BanInForce {
		t.Fatalf("before the word: %s, want a ban", describeFinding(v.Finding))
	}
	for _, c := range []struct {
		path string
		word fairshare.Override
		want string
	}{
		{"/", fairshare.Override{Action: fairshare.Allow}, "allow"},
		{"/no", fairshare.Override{Action: fairshare.Allow}, "allow"},
		{"/", fairshare.Override{Action: fairshare.Refuse, Wait: 90 * time.Minute},
			"refuse ban by an operator 1h30m0s banned"},
		{"/", fairshare.Override{Action: fairshare.Block}, "block ban by an operator"},
		{"/", fairshare.Override{Labels: []string{"partner"}}, "refuse rapid"},
	} {
		v := repeat(t, g, 0, with(c.path, c.word), 1)
		got := describeFinding(v.Finding)
		if c.want == "refuse rapid" {
			got = v.Action.String() + " " + v.Rule.Name
		}
		if got != c.want {
			t.Errorf("%s with %v: %s, want %s", c.path, c.word, got, c.want)
		}
	}
	// It costs nothing: the ceiling has not counted who is allowed.
	for range 300 {
		repeat(t, g, 0, with("/", fairshare.Override{Action: fairshare.Allow}), 1)
	}
	if v := repeat(t, g, time.Hour, from(alice), 1); v.Action != fairshare.Allow {
		t.Errorf("an hour later: %s", describeFinding(v.Finding))
	}
}

func TestLabel(t *testing.T) {
	limiter := func(p *fairshare.Policy) fairshare.Limiter { return limittest.NewModel(p.Limits()) }
	for _, c := range []struct {
		match  fairshare.Match
		labels []string
		want   bool
	}{
		{fairshare.Match{Label: []string{"good-partner"}}, nil, false},
		{fairshare.Match{Label: []string{"good-partner"}}, []string{"a", "good-partner"}, true},
		{fairshare.Match{Label: []string{"Good-Partner"}}, []string{"good-partner"}, true},
		{fairshare.Match{Label: []string{"good"}}, []string{"good-partner"}, false},
		{fairshare.Match{Label: []string{"re:^good"}}, []string{"good-partner"}, true},
		{fairshare.Match{Not: []fairshare.Match{{Label: []string{"known"}}}}, []string{"known"}, false},
		{fairshare.Match{Not: []fairshare.Match{{Label: []string{"known"}}}}, nil, true},
	} {
		policy := fairshare.Policy{Rules: []fairshare.Rule{{Name: "it", Match: c.match, Action: fairshare.Block}}}
		g, err := fairshare.NewGuard(&policy, limiter(&policy), nil)
		if err != nil {
			t.Fatal(err)
		}
		req := from(alice)
		req.Override.Labels = c.labels
		if v := repeat(t, g, 0, req, 1); (v.Action == fairshare.Block) != c.want {
			t.Errorf("%+v for %q: %s, want it to hold: %v", c.match, c.labels, v.Action, c.want)
		}
	}
}

// A label identifies clients: bans do not hold for those that an allow rule names
// by a label.
func TestAllowByLabelExemptsFromBans(t *testing.T) {
	policy := banPolicy(nil)
	policy.Rules = slices.Insert(policy.Rules, 1, fairshare.Rule{Name: "partners",
		Match: fairshare.Match{Label: []string{"partner"}}, Action: fairshare.Allow})
	g := newGuard(t, policy)
	repeat(t, g, 0, from(alice), 4)
	req := from(alice)
	req.Override.Labels = []string{"partner"}
	if v := repeat(t, g, 0, req, 1); v.Action != fairshare.Allow {
		t.Errorf("with the label: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, 0, from(alice), 1); v.Ban != fairshare.BanInForce {
		t.Errorf("without: %s, want the ban", describeFinding(v.Finding))
	}
}

// watched returns a guard whose bans are noted.
func watched(t *testing.T, p fairshare.Policy) (
	g *fairshare.Guard, bans *membans.Bans, reported *[]fairshare.BanRecord) {
	t.Helper()
	limiter, err := memlimit.New(p.Limits(), memlimit.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	bans, reported = membans.New(0), new([]fairshare.BanRecord)
	bans.Observe(func(b fairshare.BanRecord) { *reported = append(*reported, b) })
	if g, err = fairshare.NewGuard(&p, limiter, bans); err != nil {
		t.Fatal(err)
	}
	return g, bans, reported
}

func at(addr string) fairshare.Request {
	return fairshare.Request{Addr: netip.MustParseAddr(addr), Path: "/x", Host: "h", Method: "GET"}
}

func describeBan(b fairshare.BanRecord) string {
	return fmt.Sprintf("%s by %s, number %d, kind %d, dry %v", b.Client, b.Rule, b.Number, b.Kind, b.DryRun)
}

func TestBansAreReportedAndRestored(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	g, _, reported := watched(t, policy)
	first := repeat(t, g, 0, from(alice), 2).Wait
	if len(*reported) != 1 || describeBan((*reported)[0]) != "192.0.2.1 by rapid, number 1, kind 1, dry false" ||
		!(*reported)[0].Began.Equal(start) || !(*reported)[0].Until.Equal(start.Add(first)) {
		t.Fatalf("reported: %+v", *reported)
	}
	// Another guard, of another process, goes on where this one stopped.
	again, bans, more := watched(t, policy)
	bans.Restore((*reported)[0])
	if v := repeat(t, again, first-1, from(alice), 1); describeFinding(v.Finding) != "refuse rapid 1ns banned" {
		t.Errorf("after a restart: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, again, first, from(alice), 1); v.Action != fairshare.Allow {
		t.Errorf("after the ban: %s", describeFinding(v.Finding))
	}
	// The offender is known: the next ban is twice as long.
	if v := repeat(t, again, first, from(alice), 1); v.Ban != fairshare.BanStarted || !around(v.Wait, 2*time.Minute) {
		t.Errorf("the next ban: %s", describeFinding(v.Finding))
	}
	if len(*more) != 1 || describeBan((*more)[0]) != "192.0.2.1 by rapid, number 2, kind 1, dry false" {
		t.Errorf("reported: %+v", *more)
	}
	// A ban that is older than the known one is ignored.
	bans.Restore((*reported)[0])
	if v := repeat(t, again, first, from(alice), 1); v.Ban != fairshare.BanInForce || !around(v.Wait, 2*time.Minute) {
		t.Errorf("after the older was restored: %s", describeFinding(v.Finding))
	}
}

// A former offender that is refused again is remembered longer. This is reported
// at most once a minute.
func TestLaterForgivenessIsReported(t *testing.T) {
	g, _, reported := watched(t, banPolicy(func(r *fairshare.Rule) { r.Ban.Within = 2 * time.Second }))
	repeat(t, g, 0, from(alice), 4)
	for i := range 5 {
		repeat(t, g, 10*time.Minute+time.Duration(i)*3*time.Second, from(alice), 2) // the second is refused
	}
	if len(*reported) != 2 || !(*reported)[1].Since.Equal(start.Add(10*time.Minute)) || (*reported)[1].Number != 1 {
		t.Errorf("reported: %+v; want the ban, and one refusal ten minutes later", *reported)
	}
}

func TestManyBannedClientsBanNewcomersOfTheirNetwork(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	client := func(i int) fairshare.Request { return at(fmt.Sprintf("2001:db8:1:%x::%x", i, i+1)) }
	g, bans, reported := watched(t, policy)
	for i := range 127 {
		repeat(t, g, 0, client(i), 2)
	}
	if v := repeat(t, g, 0, client(500), 1); v.Action != fairshare.Allow {
		t.Fatalf("127 are banned, and another: %s", describeFinding(v.Finding))
	}
	// The newcomer is counted by the limit for newcomers of the network, too.
	next := client(501)
	next.Time = start
	open, err := g.Decide(t.Context(), &next)
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	named := func(r *fairshare.Rule, l *fairshare.Limit, _ fairshare.Tally) {
		if tested++; r == nil || r.Name != "rapid" && r.Name != "ceiling" || l == nil {
			t.Errorf("limit %d: rule %v, limit %v", tested, r, l)
		}
	}
	open.Limits(named)
	if err := g.Peek(t.Context(), &open, start, named); err != nil || tested != 6 {
		t.Errorf("%d limits were named, %v; want three, twice", tested, err)
	}
	v := repeat(t, g, 0, client(127), 2)
	if len(*reported) != 129 || describeBan((*reported)[128]) != fmt.Sprintf(
		"2001:db8:1::/48 by rapid, number 1, kind %d, dry false", fairshare.ByNetwork) {
		t.Fatalf("reported: %+v; want 128 clients and their network", *reported)
	}
	longer := slices.MaxFunc((*reported)[127:], func(a, b fairshare.BanRecord) int { return a.Until.Compare(b.Until) }).
		Until.Sub(start)
	if v.Ban != fairshare.BanStarted || v.Wait != longer {
		t.Errorf("the last: %s, want the longer wait %v", describeFinding(v.Finding), longer)
	}
	v = repeat(t, g, time.Second, client(1000), 1)
	if describeFinding(v.Finding) != fmt.Sprintf("refuse rapid %v banned",
		(*reported)[128].Until.Sub(start)-time.Second) {
		t.Errorf("another client of the network: %s", describeFinding(v.Finding))
	}
	if v = repeat(t, g, time.Second, through(netip.MustParseAddr("127.0.0.1"), "2001:db8:1:999::1"), 1); v.Ban !=
		fairshare.BanInForce {
		t.Errorf("a provisional client of the network: %s", describeFinding(v.Finding))
	}
	if v = repeat(t, g, time.Second, at("2001:db8:2::1"), 1); v.Action != fairshare.Allow {
		t.Errorf("another network: %s", describeFinding(v.Finding))
	}
	req := client(1000)
	req.Path = ""
	if v = repeat(t, g, time.Second, req, 1); v.Action != fairshare.Allow {
		t.Errorf("a request that the rule does not match: %s", describeFinding(v.Finding))
	}

	// A restart in between changes nothing.
	again, restored, more := watched(t, policy)
	for _, b := range (*reported)[:127] {
		restored.Restore(b)
	}
	repeat(t, again, 0, client(127), 2)
	if len(*more) != 2 || (*more)[1].Kind != fairshare.ByNetwork {
		t.Errorf("after a restart with 127 banned: %+v; want the last and the network", *more)
	}
	again, restored, _ = watched(t, policy)
	restored.Restore((*reported)[128])
	if v = repeat(t, again, time.Second, client(1000), 1); v.Ban != fairshare.BanInForce {
		t.Errorf("after a restart with the network banned: %s", describeFinding(v.Finding))
	}

	// An operator lifts the network's ban, and those of its clients.
	id := fairshare.PrefixID(netip.MustParsePrefix("2001:db8:1::/48"))
	if n := bans.Lift(id, start.Add(time.Second), nil); n != 129 {
		t.Errorf("lifted %d, want 129", n)
	}
	if v = repeat(t, g, 2*time.Second, client(1000), 1); v.Action != fairshare.Allow {
		t.Errorf("after it was lifted: %s", describeFinding(v.Finding))
	}
	repeat(t, g, 2*time.Second, client(1000), 1)
	if last := (*reported)[len(*reported)-1]; last.Kind != fairshare.ByAddr {
		t.Errorf("one banned client after all was lifted bans the network: %+v", last)
	}
}

func TestNetworksOfIPv4AreNotBannedForTheirClients(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fairshare.Policy)
		client func(i int) string
	}{
		{"IPv4", func(*fairshare.Policy) {}, func(i int) string { return fmt.Sprintf("192.0.2.%d", 150+i) }},
		{"a client is a /48", func(p *fairshare.Policy) { p.IPv6Prefix = 48 },
			func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }},
		{"eight networks", func(*fairshare.Policy) {}, func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }},
		{"seven clients", func(*fairshare.Policy) {}, func(
			i int) string {
			return fmt.Sprintf("2001:db8:1:%x::1", min(i, 6))
		}},
	} {
		policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
		c.change(&policy)
		g, _, reported := watched(t, policy)
		for i := range 20 {
			repeat(t, g, 0, at(c.client(i)), 2)
		}
		for _, b := range *reported {
			if b.Kind == fairshare.ByNetwork {
				t.Errorf("%s: %s", c.name, describeBan(b))
			}
		}
	}
}

func TestNetworkIsBannedForBansInForceOnly(t *testing.T) {
	g, _, reported := watched(t, banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 }))
	for i := range 240 { // a minute each, some 110 at a time
		repeat(t, g, time.Duration(i)*600*time.Millisecond, at(fmt.Sprintf("2001:db8:1:%x::1", i)), 2)
	}
	if len(*reported) != 240 {
		t.Errorf("reported: %d bans, want those of 240 clients", len(*reported))
	}
}

func TestDryRunReportsBansWithoutEffect(t *testing.T) {
	g, bans, reported := watched(t, banPolicy(func(r *fairshare.Rule) { r.Ban.After, r.DryRun = 1, true }))
	for i := range 128 {
		if v := repeat(t, g, 0, at(fmt.Sprintf("2001:db8:1:%x::1", i)), 3); v.Action != fairshare.Allow {
			t.Errorf("client %d: %s", i, describeFinding(v.Finding))
		}
	}
	if len(*reported) != 129 || slices.ContainsFunc(*reported, func(b fairshare.BanRecord) bool { return !b.DryRun }) {
		t.Errorf("reported: %+v; want 128 clients and a network, all in dry run", *reported)
	}
	if n := bans.Lift(fairshare.PrefixID(netip.MustParsePrefix("::/0")), start, nil); n != 0 {
		t.Errorf("%d were lifted that banned nobody", n)
	}
}

func TestLift(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	policy.Rules = append(policy.Rules, fairshare.Rule{
		Name: "of networks", Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 2, Window: time.Second,
			By: []fairshare.KeyPart{{Kind: fairshare.ByNetwork}}},
		Ban: &fairshare.BanTerms{After: 1, For: time.Hour},
	}, fairshare.Rule{
		Name: "of bots", Match: fairshare.Match{Bot: []string{"verified"}},
		Limit: &fairshare.Limit{Resource: fairshare.Requests, N: 1, Window: time.Second,
			By: []fairshare.KeyPart{{Kind: fairshare.ByBot}}},
		Ban: &fairshare.BanTerms{After: 1, For: time.Hour},
	})
	long := "a-bot-whose-name-is-longer-than-an-address"
	bot := func(name string) fairshare.Request {
		req := at("198.51.100.7")
		req.Path = ""
		req.Bot = fairshare.Bot{Name: name, State: fairshare.Verified}
		return req
	}
	for _, c := range []struct {
		lift string
		want string // who is let in again
	}{
		{"203.0.113.9", "alice "},
		{"203.0.113.0/24", "alice "},
		{"203.0.114.0/24", "net "},
		{"203.0.114.50", ""}, // the ban is its network's
		{"203.0.0.0/16", "alice net "},
		{"0.0.0.0/0", "alice net "},
		{"::/0", ""},
		{"203.0.113.10", ""},
		{"googlebot", "googlebot "},
		{long, "long "},
		{"bingbot", ""},
	} {
		g, bans, _ := watched(t, policy)
		off := func(path, addr string) fairshare.Request {
			req := at(addr)
			req.Path = path
			return req
		}
		repeat(t, g, 0, off("/x", "203.0.113.9"), 2)
		repeat(t, g, 0, off("", "203.0.114.50"), 3)
		repeat(t, g, 0, bot("googlebot"), 2)
		repeat(t, g, 2*time.Second, bot(long), 2)
		id, err := fairshare.ParseClientID(c.lift)
		if err != nil {
			t.Fatal(err)
		}
		bans.Lift(id, start.Add(4*time.Second), nil)
		got := ""
		for _, who := range []struct {
			name string
			req  fairshare.Request
		}{{"alice", off("/x", "203.0.113.9")}, {"net", off("", "203.0.114.77")}, {"googlebot", bot("googlebot")},
			{"long", bot(long)}} {
			v := repeat(t, g, 10*time.Second, who.req, 1)
			if v.Action == fairshare.Allow {
				got += who.name + " "
			}
		}
		if got != c.want {
			t.Errorf("lift %s: let in %q, want %q", c.lift, got, c.want)
		}
	}
	// A ban that begins later is not lifted.
	g, bans, _ := watched(t, policy)
	repeat(t, g, 10*time.Second, at("203.0.113.9"), 2)
	if n := bans.Lift(fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")), start, nil); n != 0 {
		t.Errorf("lifted %d that began later", n)
	}
	if v := repeat(t, g, 11*time.Second, at("203.0.113.9"), 1); v.Ban != fairshare.BanInForce {
		t.Errorf("a ban that began after it was lifted: %s", describeFinding(v.Finding))
	}
	// The refusals that led to a ban are forgotten with it: as many are needed
	// for the next.
	policy = banPolicy(nil)
	g, _, _ = watched(t, policy)
	repeat(t, g, 0, at("203.0.113.9"), 4)
	if n, err := g.Lift(t.Context(), fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")),
		start.Add(time.Second), start.Add(time.Second)); n != 1 || err != nil {
		t.Errorf("lifted %d, %v; want one", n, err)
	}
	if v := repeat(t, g, 5*time.Second, at("203.0.113.9"), 3); v.Action != fairshare.Refuse ||
		v.Ban != fairshare.NotBanned {
		t.Errorf("the second refusal after the ban was lifted: %s", describeFinding(v.Finding))
	}
	if v := repeat(t, g, 5*time.Second, at("203.0.113.9"), 1); v.Ban != fairshare.BanStarted {
		t.Errorf("the third: %s", describeFinding(v.Finding))
	}
}

// The refusals of a client are forgotten where no ban is known, as after a
// restart; not those of others.
func TestForgive(t *testing.T) {
	for _, c := range []struct {
		client, prefix string
		forgiven       bool
	}{
		{"203.0.113.9", "203.0.113.9/32", true},
		{"203.0.113.9", "203.0.113.0/24", false},
		{"203.0.113.9", "203.0.113.10/32", false},
		{"2001:db8:1:2::9", "2001:db8:1:2::/64", true},
		{"2001:db8:1:2::9", "2001:db8:1:2::9/128", false}, // a client is a /64
	} {
		g, _, _ := watched(t, banPolicy(nil))
		repeat(t, g, 0, at(c.client), 3)
		if err := g.Forgive(t.Context(), fairshare.PrefixID(netip.MustParsePrefix(c.prefix)),
			start.Add(time.Second)); err != nil {
			t.Error(err)
		}
		want := fairshare.BanStarted
		if c.forgiven {
			want = fairshare.NotBanned
		}
		if v := repeat(t, g, 5*time.Second, at(c.client), 2); v.Action != fairshare.Refuse || v.Ban != want {
			t.Errorf("%s forgiven: the next refusal of %s: %s", c.prefix, c.client, describeFinding(v.Finding))
		}
	}
}

func TestLiftResetsTheBanNumber(t *testing.T) {
	policy := banPolicy(func(r *fairshare.Rule) { r.Ban.After = 1 })
	g, bans, _ := watched(t, policy)
	repeat(t, g, 10*time.Second, at("203.0.113.9"), 2)
	// History goes with it: the next ban is a first one.
	bans.Lift(fairshare.PrefixID(netip.MustParsePrefix("203.0.113.9/32")), start.Add(12*time.Second), nil)
	if v := repeat(t, g, 13*time.Second, at("203.0.113.9"), 2); v.Ban != fairshare.BanStarted ||
		!around(v.Wait, time.Minute) {
		t.Errorf("the ban after it was lifted: %s", describeFinding(v.Finding))
	}
}

// With SitesApart each site has refusals of its own that count towards a ban.
func TestLiftForgetsRefusalsOfAllSites(t *testing.T) {
	policy := banPolicy(nil)
	policy.SitesApart = true
	policy.Sites = []fairshare.Site{{Name: "shop", Hosts: []string{"shop.example"}},
		{Name: "blog", Hosts: []string{"blog.example"}, OwnRules: true}}
	own := banPolicy(nil).Rules[3]
	own.Name, own.Site = "rapid in the blog", "blog"
	policy.Rules = append(policy.Rules, own)
	for _, host := range []string{"shop.example", "blog.example", "other.example"} {
		g := newGuard(t, policy)
		req := from(alice)
		req.Host = host
		if v := repeat(t, g, 0, req, 4); v.Ban != fairshare.BanStarted {
			t.Fatalf("%s: no ban starts: %s", host, describeFinding(v.Finding))
		}
		now := start.Add(time.Second)
		if _, err := g.Lift(t.Context(), fairshare.PrefixID(netip.MustParsePrefix(alice+"/32")), now, now); err != nil {
			t.Fatal(err)
		}
		if v := repeat(t, g, time.Second, req, 2); v.Ban != fairshare.NotBanned || v.Action != fairshare.Refuse {
			t.Errorf("%s: the first refusal after the ban was lifted: %s", host, describeFinding(v.Finding))
		}
	}
}
