package accesslog

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestHAProxyLines(t *testing.T) {
	const rest = ` [10/Oct/2000:20:55:36.143] http-in~ static/srv1 10/0/30/69/109 200 2326 - - ---- 1/1/1/1/0 0/0 `
	const prefix = `Oct 10 20:55:36 lb1 haproxy[14389]: `
	want := func(change func(*Entry)) Entry {
		return entry(func(e *Entry) {
			e.Time, e.Duration, e.Upstream = at("2000-10-10T20:55:36.143Z"), 109*time.Millisecond, 69*time.Millisecond
			if change != nil {
				change(e)
			}
		})
	}
	runLines(t, haproxyParser{}, []lineCase{
		{"plain", prefix + `192.0.2.7:33317` + rest + `"GET /a?b=c HTTP/1.1"`, want(nil), ""},
		{"no syslog", `192.0.2.7:33317` + rest + `"GET /a?b=c HTTP/1.1"`, want(nil), ""},
		{"IPv6", prefix + `2001:db8::7:33317` + rest + `"GET /a?b=c HTTP/1.1"`,
			want(func(e *Entry) { e.Client = netip.MustParseAddr("2001:db8::7") }), ""},
		{"captures", prefix + `192.0.2.7:33317` + rest + `{shop|Mozilla/5.0 (X; #22Y#22)} {} "GET /a?b=c HTTP/1.1"`,
			want(nil), ""},
		{"escapes", prefix + `192.0.2.7:33317` + rest + `"GET /#22#7Bx#7D#ZZ HTTP/1.1"`,
			want(func(e *Entry) { e.Target = `/"{x}#ZZ` }), ""},
		{"cut request", prefix + `192.0.2.7:33317` + rest + `"GET /a?b=c`, want(nil), ""},
		{"cut before the request", prefix + `192.0.2.7:33317` + strings.TrimRight(rest, " "),
			want(func(e *Entry) { e.Method, e.Target = "", "" }), ""},
		{"logasap",
			prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in back/s 10/0/30/69/+109 200 +2326 - - ---- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`, want(nil), ""},
		{"bad request",
			prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in in/<NOSRV> -1/-1/-1/-1/0 400 0 - - PR-- 1/1/0/0/0 0/0 "<BADREQ>"`,
			want(func(e *Entry) {
				e.Method, e.Target, e.Status, e.Bytes, e.Duration, e.Upstream = "", "", 400, 0, 0,
					0
			}), ""},
		{"no status",
			prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in in/<NOSRV> 10/-1/-1/-1/109 -1 0 - - CR-- 1/1/0/0/0 0/0 "GET /a?b=c HTTP/1.1"`,
			want(func(e *Entry) { e.Status, e.Bytes, e.Upstream = 0, 0, 0 }), ""},
		{"the server timed out",
			prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in back/s 10/3/30/-1/50043 504 2326 - - sH-- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`,
			want(func(e *Entry) {
				e.Status, e.Duration, e.Upstream = 504, 50043*time.Millisecond,
					50000*time.Millisecond
			}), ""},
		{"no server available",
			prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in back/s 10/99/-1/-1/109 503 2326 - - SC-- 1/1/1/1/0 0/0 "GET /a?b=c HTTP/1.1"`,
			want(func(e *Entry) { e.Status, e.Upstream = 503, 0 }), ""},
		{"TCP log", prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in back/s 0/0/5007 212 -- 0/0/0/0/3 0/0`,
			Entry{}, reasonMessage},
		{"handshake", prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in/1: SSL handshake failure`, Entry{},
			reasonMessage},
		{"connect", prefix + `Connect from 192.0.2.7:43288 to 10.0.0.1:443 (https-in/HTTP)`, Entry{}, reasonMessage},
		{"start", prefix + `Proxy http_in started.`, Entry{}, reasonMessage},
		{"unix socket",
			prefix + `unix:1 [10/Oct/2000:20:55:36.143] in back/s 10/0/30/69/109 200 2326 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`, Entry{}, reasonClient},
		{"cut before the bytes", prefix + `192.0.2.7:33317 [10/Oct/2000:20:55:36.143] in back/s 10/0/30/69/109 200`,
			Entry{}, reasonCut},
		{"bad time", prefix + `192.0.2.7:33317 [40/Oct/2000:20:55:36.143] in back/s 10/0/30/69/109 200 1 x`, Entry{},
			reasonTime},
	})
}

func TestHAProxyTimesAreInTheZoneGiven(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here: ", err)
	}
	line := "192.0.2.7:1 [10/Oct/2000:22:55:36.143] in back/s 10/0/30/69/109 200 2326 - - ---- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"\n"
	f, err := Open(writeFile(t, "log", line), Options{Zone: zone})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := drain(t, f)
	if want := at("2000-10-10T20:55:36.143Z"); len(got.Entries) != 1 || !got.Entries[0].Time.Equal(want) {
		t.Errorf("got %+v, want time %v", got, want)
	}
	if f.Zoned() || f.Resolution() != time.Millisecond || f.Format() != "haproxy-http" {
		t.Errorf("zone known %v, unit %v, format %q", f.Zoned(), f.Resolution(), f.Format())
	}
}

// In autumn an hour comes twice. A live log must not be an hour late in the second one: its lines would not be judged.
func TestARepeatedHourIsReadAsItsSecond(t *testing.T) {
	for name, want := range map[string]string{
		"Europe/Berlin": "2026-10-25T01:30:00Z", "America/New_York": "2026-11-01T06:30:00Z",
		"Australia/Sydney": "2026-04-04T16:30:00Z", "Australia/Lord_Howe": "2026-04-04T15:15:00Z",
		"UTC": "2026-11-01T06:30:00Z", "Asia/Kolkata": "2026-11-01T06:30:00Z",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Skip("no time zones here: ", err)
		}
		for _, later := range []time.Duration{0, 2 * time.Hour} {
			wall := at(want).Add(later)
			c := clock{zone: zone}
			got, reason := c.moment([]byte(wall.In(zone).Format("02/Jan/2006:15:04:05.000")))
			if reason != "" || !got.Equal(wall) {
				t.Errorf("%s: %s %q, want %s", name, got, reason, wall)
			}
		}
	}
}

func TestLoadBalancerLines(t *testing.T) {
	const times = ` 10.0.0.1:80 0.000036 0.001035 0.000025 200 201 34 2326 `
	want := func(change func(*Entry)) Entry {
		return entry(func(e *Entry) {
			e.Time, e.Duration, e.Upstream = at("2000-10-10T20:55:36.559871Z"), 1096*time.Microsecond,
				1035*time.Microsecond
			e.Target, e.Host, e.UserAgent = "https://shop.example.org:443/a?b=c", "shop.example.org:443", "curl/8 \"x\""
			if change != nil {
				change(e)
			}
		})
	}
	const request = `"GET https://shop.example.org:443/a?b=c HTTP/1.1" "curl/8 \"x\""`
	classic := `2000-10-10T20:55:36.559871Z elb1 192.0.2.7:4586` + times + request +
		` ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2`
	alb := `https 2000-10-10T20:55:36.559871Z app/x/490d 192.0.2.7:4586` + times + request +
		` - - arn:aws:x "Root=1-5" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_x`
	runLines(t, elbParser{}, []lineCase{
		{"classic", classic, want(nil), ""},
		{"application", alb, want(nil), ""},
		{"IPv6", strings.Replace(alb, "192.0.2.7:4586", "2001:db8::7:4586", 1),
			want(func(e *Entry) { e.Client = netip.MustParseAddr("2001:db8::7") }), ""},
		{"IPv6 in brackets", strings.Replace(alb, "192.0.2.7:4586", "[2001:db8::7]:4586", 1),
			want(func(e *Entry) { e.Client = netip.MustParseAddr("2001:db8::7") }), ""},
		{"not dispatched", strings.Replace(classic, times, ` - -1 -1 -1 504 0 0 0 `, 1),
			want(func(e *Entry) { e.Status, e.Bytes, e.Duration, e.Upstream = 504, 0, 0, 0 }), ""},
		{"the target timed out", strings.Replace(strings.Replace(alb, times,
			` 10.0.0.1:80 0.001 -1 -1 504 - 34 2326 `, 1), "2018-07-02T22:22:48.364000Z",
			"2000-10-10T20:54:36.558871Z", 1),
			want(func(e *Entry) { e.Status, e.Duration, e.Upstream = 504, 60001*time.Millisecond, 60*time.Second }),
			""},
		{"cut before the creation", strings.Replace(strings.Replace(alb, times,
			` 10.0.0.1:80 0.001 -1 -1 504 - 34 2326 `, 1), "2018-07-02T22:22:48.364000Z", "", 1),
			want(func(e *Entry) { e.Status, e.Duration, e.Upstream = 504, time.Millisecond, 0 }), ""},
		{"TCP listener",
			`2000-10-10T20:55:36.559871Z elb1 192.0.2.7:4586 10.0.0.1:80 0.001 0.002 0.003 - - 82 305 "- - - " "-" - -`,
			want(func(e *Entry) {
				e.Method, e.Target, e.Host, e.UserAgent, e.Status, e.Bytes = "", "", "", "", 0, 305
				e.Duration, e.Upstream = 6*time.Millisecond, 2*time.Millisecond
			}), ""},
		{"malformed request", strings.Replace(alb, "GET https://shop.example.org:443/a?b=c HTTP/1.1",
			"- http://shop.example.org:80- -", 1),
			want(func(e *Entry) { e.Method, e.Target, e.Host = "", "", "" }), ""},
		{"cut behind the bytes", `2000-10-10T20:55:36.559871Z elb1 192.0.2.7:4586` + times,
			want(func(e *Entry) { e.Method, e.Target, e.Host, e.UserAgent = "", "", "", "" }), ""},
		{"cut before the bytes", `2000-10-10T20:55:36.559871Z elb1 192.0.2.7:4586 10.0.0.1:80 0.000036 0.0010`,
			Entry{}, reasonCut},
		{"no client", strings.Replace(classic, "192.0.2.7:4586", "-", 1), Entry{}, reasonClient},
		{"bad time", strings.Replace(classic, "2000-10-10T20", "2000-13-10T20", 1), Entry{}, reasonTime},
		{"network load balancer",
			`tls 2.0 2022-12-20T02:59:40 net/x/y g3 192.0.2.7:51341 172.100.100.185:443 5 2 98 246`, Entry{},
			reasonShape},
	})
}

func TestSquidLines(t *testing.T) {
	runLines(t, squidParser{}, []lineCase{
		{"plain",
			`971211336.129     12 192.0.2.7 TCP_MISS/200 2326 GET http://shop.example.org/a?b=c - HIER_DIRECT/10.0.0.1 text/html`,
			entry(func(e *Entry) {
				e.Time, e.Target, e.Duration = at("2000-10-10T20:55:36.129Z"), "http://shop.example.org/a?b=c",
					12*time.Millisecond
			}), ""},
		{"connect",
			`971211336.129     12 192.0.2.7 TCP_TUNNEL/200 2326 CONNECT shop.example.org:443 - HIER_DIRECT/10.0.0.1 -`,
			entry(func(e *Entry) {
				e.Time, e.Method, e.Target, e.Duration = at("2000-10-10T20:55:36.129Z"), "CONNECT",
					"shop.example.org:443", 12*time.Millisecond
			}), ""},
		{"no client", `971211336.129     12 - TCP_MISS/200 2326 GET http://x/ - HIER_DIRECT/10.0.0.1 text/html`,
			Entry{}, reasonClient},
		{"garbage", `hello there`, Entry{}, reasonShape},
	})
}

func TestAtlassianLines(t *testing.T) {
	want := entry(func(e *Entry) {
		e.Duration, e.Referer, e.UserAgent = 20*time.Millisecond, "http://x/", "Mozilla/5.0 (X11)"
	})
	const rest = ` GET /a?b=c HTTP/1.1 200 20ms 2326 http://x/ Mozilla/5.0 (X11)`
	withForwarded := want
	withForwarded.Forwarded = "203.0.113.9"
	runLines(t, atlassianParser{}, []lineCase{
		{"plain", `[10/Oct/2000:13:55:36 -0700] ann http-nio-8080-exec-6 192.0.2.7` + rest, want, ""},
		{"with a header", `[10/Oct/2000:13:55:36 -0700] 203.0.113.9 ann http-nio-8080-exec-6 192.0.2.7` + rest,
			withForwarded, ""},
		{"no header", `[10/Oct/2000:13:55:36 -0700] - ann http-nio-8080-exec-6 192.0.2.7` + rest, want, ""},
		{"host name", `[10/Oct/2000:13:55:36 -0700] ann http-nio-8080-exec-6 pc.example.org` + rest, Entry{},
			reasonClient},
		{"cut", `[10/Oct/2000:13:55:36 -0700] ann http-nio-8080-exec-6 192.0.2.7 GET /a?b=c HTTP/1.1 200`, Entry{},
			reasonCut},
		{"another log", `[10/Oct/2000:13:55:36 -0700] shop.example.org 192.0.2.7 0.227 "GET /a HTTP/2.0" 207 125`,
			Entry{}, reasonShape},
	})
}

func TestTabSeparatedLines(t *testing.T) {
	runLines(t, tsvParser{}, []lineCase{
		{"plain", "192.0.2.7\t-\t971211336\tGET\t/a?b=c\t200\t2326\t\t", entry(nil), ""},
		{"seven columns", "192.0.2.7\t-\t971211336\tGET\t/a?b=c\t200\t2326", entry(nil), ""},
		{"host name", "unicomp6.example.net\t-\t971211336\tGET\t/\t200\t2326\t\t", Entry{}, reasonClient},
		{"few columns", "192.0.2.7\t-\t971211336\tGET", Entry{}, reasonShape},
		{"header", "host\tlogname\ttime\tmethod\turl\tresponse\tbytes", Entry{}, "not counted"},
	})
}
