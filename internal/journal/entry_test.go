package journal

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

var example = Entry{
	Time:   time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC),
	Client: netip.MustParseAddr("2001:db8::1"),
	Method: "GET", Host: "example.org", Path: "/a", Query: "q=secret", UserAgent: "Mozilla/5.0 (X11)", Cookies: 2,
	Rule: "rapid requests", Action: "refuse", Status: 429, RetryAfter: 3, Resource: "requests", Used: 5, Allowed: 5,
	ID: "0123456789",
}

// with returns the example with a change.
func with(change func(*Entry)) Entry {
	e := example
	change(&e)
	return e
}

func TestEntryLine(t *testing.T) {
	for _, test := range []struct {
		entry      Entry
		query      bool
		load       int64
		json, text string
	}{
		{
			example, false, 52,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"load":0.52,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="rapid requests" action=refuse dry_run=false status=429 retry_after=3 resource=requests used=5 allowed=5 load=0.52 id=0123456789`,
		},
		{
			with(func(e *Entry) {
				e.Used, e.Allowed, e.DryRun, e.Ban, e.Path = 0, 0, true, BanInForce,
					"/a b\x1b[2J"
			}), true, 1205,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a b\u001b[2J","query":"q=secret","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":true,"status":429,"retry_after":3,"ban":"in force","load":12.05,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path="/a b\u001b[2J" query="q=secret" user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="rapid requests" action=refuse dry_run=true status=429 retry_after=3 ban="in force" load=12.05 id=0123456789`,
		},
		{
			with(func(e *Entry) { e.Bot, e.BotState = "googlebot", "forged" }), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","bot":"googlebot","bot_state":"forged","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" bot=googlebot bot_state=forged cookies=2 ` +
				`rule="rapid requests" action=refuse dry_run=false status=429 retry_after=3 resource=requests used=5 allowed=5 id=0123456789`,
		},
		{
			with(func(e *Entry) { e.ASN, e.Owner = 64500, "Example, Inc." }), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","asn":64500,"owner":"Example, Inc.","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" asn=64500 owner="Example, Inc." cookies=2 ` +
				`rule="rapid requests" action=refuse dry_run=false status=429 retry_after=3 resource=requests used=5 allowed=5 id=0123456789`,
		},
		{
			with(func(e *Entry) {
				e.Rule, e.Status, e.RetryAfter, e.Room = fairshare.BusyUpstream.Name, 503, 4, true
				e.Used, e.Allowed = 0, 0
			}), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"share of a busy upstream","action":"refuse","dry_run":false,"status":503,"retry_after":4,"waiting_room":true,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="share of a busy upstream" action=refuse dry_run=false status=503 retry_after=4 waiting_room=true id=0123456789`,
		},
		{ // an operator's ban with an end
			with(func(e *Entry) {
				e.Rule, e.Ban, e.RetryAfter, e.Used, e.Allowed = fairshare.OperatorBan.Name, BanInForce, 7200, 0, 0
			}), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"ban by an operator","action":"refuse","dry_run":false,"status":429,"retry_after":7200,"ban":"in force","id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="ban by an operator" action=refuse dry_run=false status=429 retry_after=7200 ban="in force" id=0123456789`,
		},
		{ // and without an end
			with(func(e *Entry) {
				e.Rule, e.Ban, e.Action, e.Status, e.RetryAfter, e.Used, e.Allowed = fairshare.OperatorBan.Name,
					BanInForce, "block", 403, 0, 0, 0
			}), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"ban by an operator","action":"block","dry_run":false,"status":403,"ban":"in force","id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="ban by an operator" action=block dry_run=false status=403 ban="in force" id=0123456789`,
		},
		{ // CPU time is written in seconds
			with(func(e *Entry) {
				e.Rule, e.Status, e.Resource, e.Used, e.Allowed = "seven percent", 503, "cpu", 1_234_567, 1_050_000
			}), false, 391,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"seven percent","action":"refuse","dry_run":false,"status":503,"retry_after":3,"resource":"cpu","used":1.234567,"allowed":1.05,"load":3.91,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="seven percent" action=refuse dry_run=false status=503 retry_after=3 resource=cpu used=1.234567 allowed=1.05 load=3.91 id=0123456789`,
		},
		{ // no error yet, but the allowed number of errors is reserved for requests in progress
			with(func(e *Entry) {
				e.Rule, e.Resource, e.Used, e.Allowed, e.InProgress, e.RetryAfter = "pages out of the blue", "errors",
					0, 12, 12, 1
			}), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"pages out of the blue","action":"refuse","dry_run":false,"status":429,"retry_after":1,"resource":"errors","used":0,"allowed":12,"in_progress":12,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="pages out of the blue" action=refuse dry_run=false status=429 retry_after=1 resource=errors used=0 allowed=12 in_progress=12 id=0123456789`,
		},
		{ // a busy upstream has no limit
			with(func(e *Entry) {
				e.Rule, e.Status, e.Resource, e.Used, e.Allowed = fairshare.BusyUpstream.Name, 503, "", 0, 0
			}), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"Mozilla/5.0 (X11)","cookies":2,` +
				`"rule":"share of a busy upstream","action":"refuse","dry_run":false,"status":503,"retry_after":3,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="Mozilla/5.0 (X11)" cookies=2 ` +
				`rule="share of a busy upstream" action=refuse dry_run=false status=503 retry_after=3 id=0123456789`,
		},
		{ // a name from the operator's own table
			with(func(e *Entry) { e.Bot, e.BotState, e.UserAgent = "my bot\x1b", "known", "" }), false, -1,
			`{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"","bot":"my bot\u001b","bot_state":"known","cookies":2,` +
				`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"resource":"requests","used":5,"allowed":5,"id":"0123456789"}`,
			`2026-11-20T12:00:00.123Z client=2001:db8::1 method=GET host=example.org path=/a user_agent="" bot="my bot\u001b" bot_state=known cookies=2 ` +
				`rule="rapid requests" action=refuse dry_run=false status=429 retry_after=3 resource=requests used=5 allowed=5 id=0123456789`,
		},
		{
			Entry{Action: "block", Status: 403, BotState: "pending"}, true, -1,
			`{"time":"0001-01-01T00:00:00.000Z","client":"","method":"","host":"","path":"","user_agent":"","cookies":0,"rule":"","action":"block","dry_run":false,"status":403,"id":""}`,
			`0001-01-01T00:00:00.000Z client="" method="" host="" path="" user_agent="" cookies=0 rule="" action=block dry_run=false status=403 id=""`,
		},
		{ // the zone of an address is not written
			Entry{Client: netip.MustParseAddr("fe80::1").WithZone("\x1b"), Action: "block", Status: 403}, true, 0,
			`{"time":"0001-01-01T00:00:00.000Z","client":"fe80::1","method":"","host":"","path":"","user_agent":"","cookies":0,"rule":"","action":"block","dry_run":false,"status":403,"load":0.00,"id":""}`,
			`0001-01-01T00:00:00.000Z client=fe80::1 method="" host="" path="" user_agent="" cookies=0 rule="" action=block dry_run=false status=403 load=0.00 id=""`,
		},
	} {
		var st stamps
		if got := string(layout{}.entry(nil, &st, &test.entry, test.query, test.load)); got != test.json+"\n" {
			t.Errorf("got  %swant %s", got, test.json)
		}
		if got := string(layout{text: true}.entry(nil, &st, &test.entry, test.query, test.load)); got != test.text+
			"\n" {
			t.Errorf("got  %swant %s", got, test.text)
		}
	}
}

func TestAmountsAreInTheUnitOfTheResource(t *testing.T) {
	for _, test := range []struct {
		resource string
		n        int64
		want     string
	}{
		{"cpu", 0, "0"}, {"cpu", 1, "0.000001"}, {"time", 50_000, "0.05"}, {"time", 30_000_000, "30"},
		{"cpu", 1_200_300, "1.2003"},
		{"cpu", fairshare.MaxMicros, "1125899906.842624"},
		{"bytes", 1_234_567, "1234567"}, {"requests", 3, "3"}, {"cost", 1_000_000, "1000000"}, {"", 7, "7"},
	} {
		if got, want := string(layout{}.amount(nil, "used", test.resource, test.n)), `,"used":`+test.want; got != want {
			t.Errorf("%s: %s, want %s", test.resource, got, want)
		}
	}
}
