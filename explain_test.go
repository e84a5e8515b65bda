package fairshare

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// A label matches in any case.
func TestExplainShowsLabels(t *testing.T) {
	p := &Policy{Rules: []Rule{
		{Name: "one", Match: Match{Label: []string{"Good-Partner"}}, Action: Allow},
		{Name: "several", Match: Match{Label: []string{"vip", "re:^w"}, Not: []Match{{Label: []string{"re:."}}}},
			Action: Block, DryRun: true},
		{Name: "below", Match: Match{Not: []Match{{Label: []string{"vip"}}}}, Action: Block},
	}}
	for _, c := range []struct {
		labels []string
		want   string
	}{
		{nil, `one: false, no label: that is not "Good-Partner"; several: false, no label: that is none of "vip", "re:^w", not does not hold: no label: that is not "re:."; below: true, not does not hold: no label: that is not "vip"`},
		{[]string{"good-partner"},
			`one: true, label "good-partner": that is "Good-Partner"; several: false; below: false`},
		{[]string{"watched", "vip"},
			`one: false, label "watched", "vip": that is not "Good-Partner"; several: false, label "watched", "vip": that is "vip", not holds: label "watched", "vip": that is "re:."; below: false, not holds: label "watched", "vip": that is "vip"`},
		{[]string{"wild"},
			`one: false, label "wild": that is not "Good-Partner"; several: false, label "wild": that is "re:^w", not holds: label "wild": that is "re:."; below: true, not does not hold: label "wild": that is not "vip"`},
	} {
		steps, err := p.Explain(&Request{Override: Override{Labels: c.labels}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, step := range steps {
			text := fmt.Sprintf("%s: %v", p.Rules[step.Rule].Name, step.Holds)
			for _, r := range step.Reasons {
				text += ", " + r.Text
			}
			got = append(got, text)
		}
		if got := strings.Join(got, "; "); got != c.want {
			t.Errorf("labels %q:\n got %s\nwant %s", c.labels, got, c.want)
		}
	}
}

func TestExplainGivesTheReasonsOfEachRule(t *testing.T) {
	limit := func() *Limit { return &Limit{Resource: Requests, N: 1, Window: MinWindow} }
	p := &Policy{Rules: []Rule{
		{Name: "ceiling", Limit: limit()},
		{Name: "office", Match: Match{Addr: Prefixes{netip.MustParsePrefix("192.0.2.0/24")},
			Method: []string{"GET", "HEAD"}}, Action: Allow},
		{Name: "assets", Match: Match{Path: []string{"*.css", "*.js"}}, Action: Allow},
		{Name: "tried", Match: Match{UserAgent: []string{"curl"}}, Action: Block, DryRun: true},
		{Name: "cookie", Match: Match{Cookie: []string{"none", "sid"}, Host: []string{"*.example.org"},
			Query: map[string][]string{"q": {"*"}}}, Limit: limit()},
		{Name: "not", Match: Match{Header: map[string][]string{"accept": {"text/", "*/*"}},
			Not: []Match{{Cookie: []string{"any"}}, {Path: []string{"/b"}}}}, Limit: limit(), Last: true},
		{Name: "below", Action: Block},
	}}
	req := &Request{Addr: netip.MustParseAddr("198.51.100.7"), Method: "GET", Host: "www.Example.org:80",
		UserAgent: "curl/8", Header: http.Header{"Accept": {"*/*"}}}
	req.SetTarget("/a;b.css?q=x")
	got, err := p.Explain(req)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ceiling: true",
		`office: false; + method "GET" is "GET"; - address 198.51.100.7 is not in the set`,
		`assets: false; - path "/a;b.css", which servers may read as "/a", fits none of "*.css", "*.js"`,
		`tried: true; + user agent "curl/8" contains "curl"`,
		`cookie: true; + host "www.Example.org" fits "*.example.org"; + no cookie: that is "none"; + query parameter "q" contains "*"`,
		`not: true; + header Accept contains "*/*"; + not does not hold: no cookie: that is not "any"; + not does not hold: path "/a;b.css", which servers may read as "/a", does not fit "/b"`,
		"below: not reached",
	}
	for i, step := range got {
		text := p.Rules[step.Rule].Name + ": false"
		switch {
		case !step.Reached:
			text = p.Rules[step.Rule].Name + ": not reached"
		case step.Holds:
			text = p.Rules[step.Rule].Name + ": true"
		}
		for _, r := range step.Reasons {
			text += "; " + map[bool]string{true: "+ ", false: "- "}[r.Holds] + r.Text
		}
		if text != want[i] {
			t.Errorf("rule %d:\n got %s\nwant %s", i, text, want[i])
		}
	}

	req.Header, req.UserAgent = http.Header{"Cookie": {"a=1; b=2"}}, strings.Repeat("x", 500)
	req.SetTarget("/b")
	got, err = p.Explain(req)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule, reason int
		text         string
	}{
		{4, 1, `cookie "a", "b": that is none of "none", "sid"`},
		{4, 2, `query parameter "q" is missing`},
		{5, 0, `header Accept contains none of "text/", "*/*"`},
		{5, 1, `not holds: cookie "a", "b": that is "any"`},
		{3, 0, `user agent "` + strings.Repeat("x", 117) + `..." does not contain "curl"`},
	} {
		if text := got[c.rule].Reasons[c.reason].Text; text != c.text {
			t.Errorf("rule %d, reason %d: %s, want %s", c.rule, c.reason, text, c.text)
		}
	}
	if got[6].Reached != true { // the limit above no longer holds
		t.Error("rule 6 was not reached")
	}
	if _, err := (&Policy{Rules: []Rule{{}}}).Explain(req); err == nil {
		t.Error("a faulty policy was explained")
	}
}

// Nobody is known where a request is only explained: it counts as the client's
// first, in plain conditions and below not.
func TestExplainAssumesThatNoPageWasSeen(t *testing.T) {
	p := &Policy{Rules: []Rule{
		{Name: "readers", Match: Match{Seen: []string{"/form"}}, Action: Block},
		{Name: "newcomers", Match: Match{Not: []Match{{Not: []Match{{Seen: []string{"/form", "/list"}}}}}},
			Action: Block},
		{Name: "posts", Match: Match{Not: []Match{{Seen: []string{"/form"}}}}, Action: Block},
	}}
	steps, err := p.Explain(&Request{Method: "POST", Path: "/form"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		holds bool
		text  string
	}{
		{false, `the client has not seen "/form"`},
		{false, `not holds: not does not hold: the client has not seen "/form, /list"`},
		{true, `not does not hold: the client has not seen "/form"`},
	} {
		if got := steps[i]; got.Holds != want.holds || len(got.Reasons) != 1 || got.Reasons[0].Text != want.text {
			t.Errorf("%s: %+v, want %+v", p.Rules[i].Name, got, want)
		}
	}
}
