package accesslog

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func compiled(t *testing.T, s string) parser {
	t.Helper()
	f, err := parseFormat(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	if f.name != "custom" {
		t.Fatalf("%s: name %q", s, f.name)
	}
	return f.parser
}

func TestNginxFormats(t *testing.T) {
	for _, c := range []struct {
		name, format string
		lines        []lineCase
	}{
		{
			"combined",
			`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`,
			[]lineCase{
				{"plain",
					`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "curl \x22x\x22"`,
					entry(func(e *Entry) { e.UserAgent = `curl "x"` }), ""},
				{"user with spaces",
					`192.0.2.7 - a b [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "-"`, entry(nil),
					""},
				{"cut behind the bytes", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`,
					entry(nil), ""},
				{"cut in the agent",
					`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "cur`,
					entry(func(e *Entry) { e.UserAgent = "cur" }), ""},
				{"cut before the bytes", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200`,
					Entry{}, reasonCut},
				{"cut in the request", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=`, Entry{}, reasonCut},
				{"garbage", `hello world, here is a line`, Entry{}, reasonShape},
				{"no address",
					`somewhere.example - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "-"`,
					Entry{}, reasonClient},
				{"bad time", `192.0.2.7 - - [yesterday] "GET /a?b=c HTTP/1.1" 200 2326 "-" "-"`, Entry{}, reasonTime},
			},
		},
		{
			"all that is known",
			`$msec $remote_addr "$http_x_forwarded_for" $host "$request_method $scheme://$host$request_uri" $status $bytes_sent ` +
				`$request_time $upstream_response_time "$http_cookie" "$http_user_agent" $ssl_protocol`,
			[]lineCase{{
				"plain", `971211336.250 192.0.2.7 "203.0.113.9, 198.51.100.2" shop.example.org "GET https://shop.example.org/a?b=c" 200 2326 0.100 0.020, 0.030 : 0.010 "sid=1; x=2" "curl/8" TLSv1.3`,
				entry(func(e *Entry) {
					e.Time, e.Forwarded, e.Host, e.Cookie, e.UserAgent = at("2000-10-10T20:55:36.25Z"),
						"203.0.113.9, 198.51.100.2", "shop.example.org", "sid=1; x=2", "curl/8"
					e.Duration, e.Upstream = 100*time.Millisecond, 60*time.Millisecond
				}), "",
			}},
		},
		{
			"upstream time, cookies, port",
			"[$time_iso8601]\t$host:$server_port\t${remote_addr}\t$request_method\t$uri$is_args$args\t$status\t$upstream_response_time\t$cookie_sid\t$cookie_lang",
			[]lineCase{
				{
					"plain", "[2000-10-10T13:55:36-07:00]\tshop.example.org:443\t2001:db8::1\tGET\t/a?b=c\t200\t0.020, 0.030\tabc\t-",
					entry(func(e *Entry) {
						e.Client, e.Host, e.Bytes = netip.MustParseAddr("2001:db8::1"), "shop.example.org:443", 0
						e.Duration, e.Upstream, e.Cookie = 50*time.Millisecond, 50*time.Millisecond, "sid=abc"
					}), "",
				},
				{
					"both cookies", "[2000-10-10T13:55:36-07:00]\tx\t192.0.2.7\tGET\t/a?b=c\t200\t-\tabc\tde",
					entry(func(e *Entry) { e.Host, e.Bytes, e.Cookie = "x", 0, "sid=abc; lang=de" }), "",
				},
			},
		},
		{
			"pasted",
			"log_format  main  '$remote_addr - $remote_user [$time_local] \"$request\" '\n    '$status $body_bytes_sent';",
			[]lineCase{{"plain", `192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326`,
				entry(nil), ""}},
		},
		{
			"request without quotes", `$remote_addr $time_local $request $status $body_bytes_sent`,
			[]lineCase{{"plain", `192.0.2.7 10/Oct/2000:13:55:36 -0700 GET /a?b=c HTTP/1.1 200 2326`, entry(nil), ""}},
		},
		{
			"JSON", `log_format j escape=json '{"t":"$time_iso8601","who":"$remote_addr","m":"$request_method","u":"$request_uri","s":$status,"b":$body_bytes_sent,"d":$request_time,"c":"$cookie_sid","x":"$scheme://$host"}';`,
			[]lineCase{
				{
					"plain", `{"t":"2000-10-10T13:55:36-07:00","who":"192.0.2.7","m":"GET","u":"\/a?b=c","s":200,"b":2326,"d":0.250,"c":"abc","x":"https://h"}`,
					entry(func(e *Entry) { e.Duration, e.Cookie = 250*time.Millisecond, "sid=abc" }), "",
				},
				{"cut", `{"t":"2000-10-10T13:55:36-07:00","who":"192.0.2.7","m":"GET`, Entry{}, reasonJSON},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) { runLines(t, compiled(t, c.format), c.lines) })
	}
}

func TestApacheFormats(t *testing.T) {
	agent := func(e *Entry) { e.UserAgent = `curl "x"` }
	for _, c := range []struct {
		name, format string
		lines        []lineCase
	}{
		{
			"combined with microseconds", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D`,
			[]lineCase{
				{"plain",
					`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "curl \"x\"" 2500`,
					entry(func(e *Entry) { agent(e); e.Duration = 2500 * time.Microsecond }), ""},
				{"no bytes",
					`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 - "-" "curl \"x\"" 2500`,
					entry(func(e *Entry) { agent(e); e.Bytes = 0; e.Duration = 2500 * time.Microsecond }), ""},
				{"user with spaces",
					`192.0.2.7 - a b [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "curl \"x\"" 2500`, entry(func(e *Entry) { agent(e); e.Duration = 2500 * time.Microsecond }), ""},
			},
		},
		{
			"as in httpd.conf",
			`LogFormat "%v:%p %a %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\" %{ms}T" mine`,
			[]lineCase{{"plain",
				`shop.example.org:443 192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 "-" "curl \"x\"" 12`, entry(func(e *Entry) {
					agent(e)
					e.Host, e.Duration = "shop.example.org:443", 12*time.Millisecond
				}), ""}},
		},
		{
			"method, path and query",
			`%a %{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t %m %U%q %>s %B %T "%{X-Forwarded-For}i" "%{Cookie}i" %{sid}C %{c}a`,
			[]lineCase{{"plain",
				`192.0.2.7 10/Oct/2000 13:55:36.250 -0700 GET /a?b=c 200 2326 3 "203.0.113.9" "a=b" xyz 10.0.0.1`,
				entry(func(e *Entry) {
					e.Time, e.Duration, e.Forwarded, e.Cookie = at("2000-10-10T20:55:36.25Z"), 3*time.Second,
						"203.0.113.9", "a=b"
				}), ""}},
		},
		{
			"modifiers and unknown directives", `%400,501{User-agent}i %!200,304s %h %P %{PATH}e %^ti{x}i`, nil,
		},
		{
			"ISO time", `%{%Y-%m-%dT%H:%M:%S%z}t|%h|%r|%>s|%%`,
			[]lineCase{{"plain", `2000-10-10T13:55:36-0700|192.0.2.7|GET /a?b=c HTTP/1.1|200|%`,
				entry(func(e *Entry) { e.Bytes = 0 }), ""}},
		},
		{
			"epoch", `%{usec}t %h "%r" %>s %b`,
			[]lineCase{{"plain", `971211336250001 192.0.2.7 "GET /a?b=c HTTP/1.1" 200 2326`,
				entry(func(e *Entry) { e.Time = at("2000-10-10T20:55:36.250001Z") }), ""}},
		},
	} {
		if c.lines != nil {
			t.Run(c.name, func(t *testing.T) { runLines(t, compiled(t, c.format), c.lines) })
		}
	}
}

func TestFormatFaults(t *testing.T) {
	for _, c := range []struct {
		format string
		column int
		msg    string
	}{
		{`%h %t "%r" %Z`, 12, "no such directive: %Z"},
		{`%h %t "%{Refer`, 8, "no } after {"},
		{`%h %t %`, 7, "no directive after %"},
		{`%h %{min}T %t`, 4, "knows s, ms and us"},
		{`%h %{%d. %B}t "%r"`, 4, "cannot be read"},
		{`  %h %t %r%s`, 11, "no text between"},
		{`$remote_addr $time_local $`, 26, "no variable name"},
		{`$remote_addr$time_local`, 13, "no text between"},
		{`$time_local "$request"`, 0, "no client address"},
		{`$remote_addr "$request"`, 0, "no time"},
		{`{"a":"$remote_addr"}`, 0, "no time"},
		{`{"a":"$remote_addr", "t":"$msec"`, 0, "is not one"},
		{`%m %U`, 0, "no client address"},
	} {
		_, err := parseFormat(c.format)
		var fault *FormatError
		if !errors.As(err, &fault) {
			t.Errorf("%s: error %v", c.format, err)
			continue
		}
		if fault.Column != c.column || !strings.Contains(fault.Msg, c.msg) || fault.Hint == "" {
			t.Errorf("%s: column %d, %q, hint %q; want column %d, %q", c.format, fault.Column, fault.Msg, fault.Hint,
				c.column, c.msg)
		}
	}
}

// The standard formats, given as strings, give the same entries as the standard parser.
func TestFormatStringsAgreeWithNames(t *testing.T) {
	text := strings.Split(strings.TrimSpace(lines(50)), "\n")
	for _, format := range []string{
		`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`,
		`%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`,
	} {
		p := compiled(t, format)
		for _, line := range text {
			want, reason1 := parseLine(clf, line)
			got, reason2 := parseLine(p, line)
			if want != got || reason1 != reason2 {
				t.Fatalf("%s\nby name   %+v %s\nby string %+v %s", line, want, reason1, got, reason2)
			}
		}
	}
}
