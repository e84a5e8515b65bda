package accesslog

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// parseLine reads one line with p.
func parseLine(p parser, line string) (Entry, string) {
	w := &worker{parser: p}
	var batch Batch
	w.line(trim([]byte(line)), 1, &batch)
	switch {
	case len(batch.Entries) == 1:
		return batch.Entries[0], ""
	case len(batch.Skipped) == 1:
		return Entry{}, batch.Skipped[0].Reason
	}
	return Entry{}, "not counted"
}

// A lineCase is a line and its entry. Other tests compare Has and Line.
type lineCase struct {
	name   string
	line   string
	want   Entry
	reason string
}

func runLines(t *testing.T, p parser, cases []lineCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Helper()
			got, reason := parseLine(p, c.line)
			if reason != c.reason {
				t.Fatalf("%s\nreason %q, want %q", c.line, reason, c.reason)
			}
			if reason != "" {
				return
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{}),
				cmpopts.IgnoreFields(Entry{}, "Has", "Line")); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.line, diff)
			}
		})
	}
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

// entry returns the entry of the lines below, modified by change.
func entry(change func(*Entry)) Entry {
	e := Entry{
		Time: at("2000-10-10T20:55:36Z"), Client: netip.MustParseAddr("192.0.2.7"),
		Method: "GET", Target: "/a?b=c", Status: 200, Bytes: 2326,
	}
	if change != nil {
		change(&e)
	}
	return e
}

func TestCommonLogLines(t *testing.T) {
	const head = `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`
	agent := func(e *Entry) { e.UserAgent = "curl/8" }
	runLines(t, clf, []lineCase{
		{"common", head, entry(nil), ""},
		{"combined", head + ` "-" "curl/8"`, entry(agent), ""},
		{"referer", head + ` "http://x/" "curl/8"`, entry(func(e *Entry) { agent(e); e.Referer = "http://x/" }), ""},
		{"empty texts", head + ` "" ""`, entry(nil), ""},
		{"CRLF", head + ` "-" "curl/8"` + "\r", entry(agent), ""},
		{"byte order mark", "\xEF\xBB\xBF" + head, entry(nil), ""},
		{"no bytes", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 304 -`,
			entry(func(e *Entry) { e.Status, e.Bytes = 304, 0 }), ""},
		{"no status", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" - 5`,
			entry(func(e *Entry) { e.Status, e.Bytes = 0, 5 }), ""},
		{"user with spaces", `192.0.2.7 - John Q. Public [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`,
			entry(nil), ""},
		{"empty user", `192.0.2.7 -  [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`, entry(nil), ""},
		{"user that looks like a time",
			`192.0.2.7 - x [11/Oct/2001:00:00:00 +0000] y [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`, entry(nil), ""},
		{"vhost", `shop.example.org:443 ` + head + ` "-" "curl/8"`,
			entry(func(e *Entry) { agent(e); e.Host = "shop.example.org:443" }), ""},
		{"vhost that is an address", `198.51.100.1:80 ` + head, entry(func(e *Entry) { e.Host = "198.51.100.1:80" }),
			""},
		{"host in the middle", head + ` wiki.example.org "-" "curl/8" "-"`,
			entry(func(e *Entry) { agent(e); e.Host = "wiki.example.org" }), ""},
		{"address in the middle", head + ` 198.51.100.1 "-" "curl/8"`,
			entry(func(e *Entry) { agent(e); e.Host = "198.51.100.1" }), ""},
		{"whole line in quotes", `"` + head + ` "-" "curl/8""`, entry(agent), ""},
		{"whole common line in quotes", `"` + head + `"`, entry(nil), ""},
		{"quoted header first", `"203.0.113.9, 10.0.0.2" ` + head + ` "-" "curl/8"`,
			entry(func(e *Entry) { agent(e); e.Forwarded = "203.0.113.9, 10.0.0.2" }), ""},
		{"quoted empty header first", `"-" ` + head, entry(nil), ""},
		{"in a container's log", `{"log":"` + strings.ReplaceAll(head, `"`, `\"`) +
			` \"-\" \"curl/8\"\n","stream":"stdout","time":"2000-10-10T20:55:37.1Z"}`, entry(agent), ""},
		{"empty line in a container's log", `{"log":"\n","stream":"stdout","time":"2000-10-10T20:55:37.1Z"}`, Entry{},
			reasonShape},
		{"behind syslog", `<190>Nov 20 10:00:00 web1 nginx[12]: ` + head, entry(nil), ""},
		{"behind a container's name", `web-1  | ` + head, entry(nil), ""},

		{"cut behind the bytes", head + ` `, entry(nil), ""},
		{"cut before the referer", head + ` "`, entry(nil), ""},
		{"cut in the referer", head + ` "http://exam`, entry(func(e *Entry) { e.Referer = "http://exam" }), ""},
		{"cut in the user agent", head + ` "-" "curl`, entry(func(e *Entry) { e.UserAgent = "curl" }), ""},
		{"cut before the bytes", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200`, Entry{},
			reasonCut},
		{"cut before the bytes, space", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 `,
			Entry{}, reasonCut},
		{"cut before the status", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1"`, Entry{},
			reasonCut},
		{"cut in the request", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b`, Entry{}, reasonCut},
		{"cut in the time", `192.0.2.7 - - [10/Oct/2000:13:5`, Entry{}, reasonCut},
		{"cut behind the time", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700]`, Entry{}, reasonCut},
		{"garbage", `hello`, Entry{}, reasonShape},
		{"garbage with spaces", `hello there, log`, Entry{}, reasonShape},
		{"no ident", `192.0.2.7 [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`, Entry{}, reasonUser},
		{"no time", `192.0.2.7 - - "GET /a?b=c HTTP/1.1" 200 2326`, Entry{}, reasonNoTime},
		{"no such day", `192.0.2.7 - - [31/Feb/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`, Entry{}, reasonTime},
		{"no such month", `192.0.2.7 - - [10/Okt/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`, Entry{}, reasonTime},
		{"no such hour", `192.0.2.7 - - [10/Oct/2000:24:55:36 -0700] "GET / HTTP/1.1" 200 2326`, Entry{}, reasonTime},
		{"before 1970", `192.0.2.7 - - [10/Oct/1969:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`, Entry{}, reasonYear},
		{"after 2261", `192.0.2.7 - - [10/Oct/2262:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`, Entry{}, reasonYear},
		{"status no number", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 2x0 2326`, Entry{},
			reasonStatus},
		{"bytes no number", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 12k`, Entry{},
			reasonBytes},
		{"host name as client", `unicomp6.example.net - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`,
			Entry{}, reasonClient},
		{"host name as client behind a vhost",
			`site:80 unicomp6.example.net - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, Entry{},
			reasonClient},
		{"no client", `- - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, Entry{}, reasonClient},
		{"four numbers, no address", `1.2.3.400 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5`, Entry{},
			reasonClient},

		{"leap second", `192.0.2.7 - - [10/Oct/2000:13:55:60 -0700] "GET /a?b=c HTTP/1.1" 200 2326`,
			entry(func(e *Entry) { e.Time = at("2000-10-10T20:56:00Z") }), ""},
		{"ISO time", `192.0.2.7 - - [2000-10-10T20:55:36+00:00] "GET /a?b=c HTTP/1.1" 200 2326`, entry(nil), ""},
		{"milliseconds", `192.0.2.7 - - [10/Oct/2000:13:55:36.250 -0700] "GET /a?b=c HTTP/1.1" 200 2326`,
			entry(func(e *Entry) { e.Time = at("2000-10-10T20:55:36.25Z") }), ""},
		{"time without zone", `192.0.2.7 - - [10/Oct/2000:20:55:36] "GET /a?b=c HTTP/1.1" 200 2326`, entry(nil), ""},

		{"request time", head + ` "-" "curl/8" 0.123`,
			entry(func(e *Entry) { agent(e); e.Duration = 123 * time.Millisecond }), ""},
		{"request and upstream time", head + ` "-" "curl/8" 0.123 0.100 .`,
			entry(func(e *Entry) { agent(e); e.Duration = 123 * time.Millisecond }), ""},
		{"number of unknown unit", head + ` "-" "curl/8" 12345`, entry(agent), ""},
		{"rt and kin", head + ` "-" "curl/8" "-" rt=1.5 uct="0.000" uht="0.100" urt="0.100, 0.200"`,
			entry(func(e *Entry) {
				agent(e)
				e.Duration, e.Upstream = 1500*time.Millisecond, 300*time.Millisecond
			}), ""},
		{"urt alone, summed", head + ` "-" "curl/8" urt="0.100, 0.200 : 0.005" ua="10.0.0.1:80"`, entry(func(e *Entry) {
			agent(e)
			e.Duration, e.Upstream = 305*time.Millisecond, 305*time.Millisecond
		}), ""},
		{"forwarded", head + ` "-" "curl/8" "203.0.113.9, 2001:db8::1"`,
			entry(func(e *Entry) { agent(e); e.Forwarded = "203.0.113.9, 2001:db8::1" }), ""},
		{"first of two lists", head + ` "-" "curl/8" "2.5" "203.0.113.9" "203.0.113.10"`,
			entry(func(e *Entry) { agent(e); e.Forwarded = "203.0.113.9" }), ""},
		{"upstream address is not a header", head + ` "-" "curl/8" "10.0.0.3:8080"`, entry(agent), ""},
		{"Server-Timing", head + ` "-" "curl/8" rt=1.5 urt=- server_timing="db;dur=3, cpu;desc=\"a b\";dur=12.5"`,
			entry(func(e *Entry) {
				agent(e)
				e.Duration, e.CPU = 1500*time.Millisecond, 12500*time.Microsecond
			}), ""},
		{"tail without referer", head + ` 0.250`, entry(func(e *Entry) { e.Duration = 250 * time.Millisecond }), ""},
	})
}

func TestRequestLines(t *testing.T) {
	for _, c := range []struct{ request, method, target string }{
		{`GET / HTTP/1.1`, "GET", "/"},
		{`GET /a b HTTP/1.1`, "GET", "/a b"},
		{`GET /c/x`, "GET", "/c/x"},
		{`GET  /x  HTTP/1.1`, "GET", "/x"},
		{`GET http://evil.example/ HTTP/1.1`, "GET", "http://evil.example/"},
		{`CONNECT example.org:443 HTTP/1.1`, "CONNECT", "example.org:443"},
		{`CONNECT [2001:db8::1]:443 HTTP/1.1`, "CONNECT", "[2001:db8::1]:443"},
		{`OPTIONS * HTTP/1.0`, "OPTIONS", "*"},
		{`PRI * HTTP/2.0`, "PRI", "*"},
		{`BREW-IT /pot HTCPCP/1.0`, "BREW-IT", "/pot HTCPCP/1.0"},
		{`get / HTTP/1.1`, "get", "/"},
		{`-`, "", ""},
		{``, "", ""},
		{`GARBAGE`, "", ""},
		{`GET`, "", ""},
		{`GET HTTP/1.1`, "", ""},
		{`GET index.html HTTP/1.1`, "", ""},
		{`GET example.org:80 HTTP/1.1`, "", ""},
		{`GET ?x HTTP/1.1`, "", ""},
		{`CONNECT example.org HTTP/1.1`, "", ""},
		{`\x16\x03\x01\x02\x00\x01\x00`, "", ""},
		{`\x16\x03 / HTTP/1.1`, "", ""},
		{`GET /q\"uote\" HTTP/1.1`, "GET", `/q"uote"`},
		{`GET /q\x22uote\x5C HTTP/1.1`, "GET", `/q"uote\`},
		{`GET /back\\slash\\ HTTP/1.1`, "GET", `/back\slash\`},
		{`GET /bad\xZZ\q HTTP/1.1`, "GET", `/bad\xZZ\q`},
		{`GET /n\x0d\x0aHost:\x20x HTTP/1.1`, "GET", "/n\r\nHost: x"},
		{`GET /raw"quote HTTP/1.1`, "GET", `/raw"quote`},
		{`GET /raw" quote HTTP/1.1`, "GET", `/raw" quote`},
	} {
		line := `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "` + c.request + `" 400 0 "-" "curl/8"`
		e, reason := parseLine(clf, line)
		if reason != "" || e.Method != c.method || e.Target != c.target || e.UserAgent != "curl/8" {
			t.Errorf("%s\ngot %q %q (agent %q, reason %q), want %q %q", line, e.Method, e.Target, e.UserAgent, reason,
				c.method, c.target)
		}
	}
}

func TestQuotedTexts(t *testing.T) {
	for _, c := range []struct{ agent, want string }{
		{`Mozilla\x2F5.0`, "Mozilla/5.0"},
		{`say \"hi\"`, `say "hi"`},
		{`say "hi", you`, `say "hi", you`},
		{`ends in a backslash\\`, `ends in a backslash\`},
		{`tab\there`, "tab\there"},
		{`caf\xc3\xa9`, "café"},
		{`cut \x4`, `cut \x4`},
	} {
		e, reason := parseLine(clf, `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5 "-" "`+c.agent+
			`" 0.5`)
		if reason != "" || e.UserAgent != c.want || e.Duration != 500*time.Millisecond {
			t.Errorf("%s: got %q and %v (reason %q), want %q", c.agent, e.UserAgent, e.Duration, reason, c.want)
		}
	}
}

func TestTraefikLines(t *testing.T) {
	const head = `192.0.2.7 - - [10/Oct/2000:20:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 2326`
	runLines(t, clfTraefik, []lineCase{
		{"dropped headers", head + ` "-" "-" 1 "-" "-" 0ms`, entry(nil), ""},
		{"router and server", head + ` "-" "curl/8" 17 "web@docker" "http://10.0.0.2:80" 12ms`,
			entry(func(e *Entry) { e.UserAgent, e.Duration = "curl/8", 12*time.Millisecond }), ""},
		{"backslashes stay", head + ` "-" "a\nb\"c" 17 "web@docker" "http://10.0.0.2:80" 12ms`,
			entry(func(e *Entry) { e.UserAgent, e.Duration = `a\nb"c`, 12*time.Millisecond }), ""},
	})
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"192.0.2.1", "192.0.2.1"},
		{"192.0.2.1:8080", "192.0.2.1"},
		{"2001:db8::1", "2001:db8::1"},
		{"[2001:db8::1]", "2001:db8::1"},
		{"[2001:db8::1]:443", "2001:db8::1"},
		{"2001:db8:1:2:3:4:5:6:443", "2001:db8:1:2:3:4:5:6"},
		{"fe80::1%eth0", "fe80::1"},
		{"[fe80::1%eth0]:443", "fe80::1"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"::ffff:c000:201", "192.0.2.1"},
		{"::1", "::1"},
		{"0:0:0:0:0:0:0:1", "::1"},
		{"", ""}, {"-", ""}, {"192.0.2", ""}, {"192.0.2.256", ""}, {"192.0.2.01", ""}, {"192.0.2.1.5", ""},
		{"192.0.2.1:", ""},
		{"192.0.2.1:123456", ""}, {"192.0.2.1x", ""}, {"example.org", ""}, {"[192.0.2.1", ""}, {"[]", ""}, {":", ""},
		{"fe80::1%", ""},
		{"[2001:db8::1]x", ""}, {"192.0.2.1,", ""},
	} {
		got, ok := parseAddr([]byte(c.in))
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("parseAddr(%q) = %v, %v, want %q", c.in, got, ok, c.want)
		}
	}
	for _, c := range []struct{ in, want string }{
		{"192.0.2.1:8080", "192.0.2.1"},
		{"2001:db8::1:4586", "2001:db8::1"},
		{"[2001:db8::1]:443", "2001:db8::1"},
		{"192.0.2.1", ""}, {"unix:1", ""}, {":80", ""}, {"-", ""},
	} {
		got, ok := parseAddrPort([]byte(c.in))
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("parseAddrPort(%q) = %v, %v, want %q", c.in, got, ok, c.want)
		}
	}
}
