package accesslog

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestCaddyLines(t *testing.T) {
	const start = `{"level":"info","ts":971211336.25,"logger":"http.log.access.log0","msg":"handled request","request":`
	const timing = `"Server-Timing":["db;dur=3, cpu;dur=12.5","cpu;desc=\"a, b\";dur=1"]`
	const end = `,"bytes_read":0,"user_id":"","duration":0.000034,"size":2326,"status":200,"resp_headers":{"Server":["Caddy"],"X":["a\"}"]}}`
	caddy := func(change func(*Entry)) Entry {
		return entry(func(e *Entry) {
			e.Time, e.Host, e.Duration = at("2000-10-10T20:55:36.25Z"), "shop.example.org:8443", 34*time.Microsecond
			if change != nil {
				change(e)
			}
		})
	}
	request := func(members string) string {
		return start + `{` + members +
			`"proto":"HTTP/2.0","method":"GET","host":"shop.example.org:8443","uri":"/a?b=c","headers":{}}` + end
	}
	withHeaders := func(headers string) string {
		return start +
			`{"remote_ip":"192.0.2.7","method":"GET","host":"shop.example.org:8443","uri":"/a?b=c","headers":{` +
			headers + `},"tls":{"version":772}}` + end
	}
	withTime := func(ts string) string {
		return `{"ts":` + ts +
			`,"logger":"http.log.access","request":{"remote_ip":"192.0.2.7","method":"GET","host":"shop.example.org:8443","uri":"/a?b=c"}` + end
	}
	second := caddy(func(e *Entry) { e.Time = at("2000-10-10T20:55:36Z") })
	runLines(t, caddyParser{}, []lineCase{
		{"plain", request(`"remote_ip":"10.0.0.1","remote_port":"55","client_ip":"192.0.2.7",`), caddy(nil), ""},
		{"client_ip comes first, whatever the order", request(`"client_ip":"192.0.2.7","remote_ip":"10.0.0.1",`),
			caddy(nil), ""},
		{"no client_ip", request(`"remote_ip":"192.0.2.7",`), caddy(nil), ""},
		{"older Caddy", request(`"remote_addr":"192.0.2.7:5123",`), caddy(nil), ""},
		{"older Caddy, IPv6", request(`"remote_addr":"[2001:db8::1]:5123",`),
			caddy(func(e *Entry) { e.Client = netip.MustParseAddr("2001:db8::1") }), ""},
		{"no client", request(``), Entry{}, reasonClient},
		{"headers",
			withHeaders(
				`"User-Agent":["curl \"8\" \u00e9\ud83d\ude00"],"Referer":["http://x/"],"X-Forwarded-For":["203.0.113.9","10.0.0.2"],"Accept":["*/*"]`),
			caddy(func(e *Entry) {
				e.UserAgent, e.Referer, e.Forwarded = "curl \"8\" é😀", "http://x/", "203.0.113.9, 10.0.0.2"
			}), ""},
		{"hidden cookie", withHeaders(`"Cookie":["REDACTED"]`), caddy(func(e *Entry) { e.Cookie = loggedCookie }), ""},
		{"hidden cookie, older Caddy", withHeaders(`"Cookie":[]`), caddy(func(e *Entry) { e.Cookie = loggedCookie }),
			""},
		{"shown cookies", withHeaders(`"Cookie":["a=b; c=d","e=f"]`),
			caddy(func(e *Entry) { e.Cookie = "a=b; c=d; e=f" }), ""},
		{"behind a container's name", `caddy-1  | ` + request(`"remote_ip":"192.0.2.7",`), caddy(nil), ""},
		{"white space",
			`{ "ts" : 971211336.25 , "request" : { "remote_ip" : "192.0.2.7" , "method" : "GET" , "host":"shop.example.org:8443", "uri" : "/a?b=c" } , "duration":0.000034,"size" : 2326 , "status" : 200 }`, caddy(nil), ""},
		{"ISO 8601", withTime(`"2000-10-10T20:55:36.000Z"`), second, ""},
		{"RFC 3339", withTime(`"2000-10-10T13:55:36-07:00"`), second, ""},
		{"wall clock", withTime(`"2000/10/10 20:55:36"`), second, ""},
		{"common log", withTime(`"10/Oct/2000:13:55:36 -0700"`), second, ""},
		{"CPU time in the answer's headers", strings.Replace(request(`"remote_ip":"192.0.2.7",`), `"resp_headers":{`,
			`"resp_headers":{`+timing+`,`, 1),
			caddy(func(e *Entry) { e.CPU = 13500 * time.Microsecond }), ""},
		{"milliseconds", withTime(`971211336000.5`), caddy(
			func(e *Entry) { e.Time = at("2000-10-10T20:55:36.0005Z") }), ""},
		{"nanoseconds", withTime(`971211336000000000`), second, ""},
		{"no time", withTime(`"noon"`), Entry{}, reasonTime},
		{"time out of range", withTime(`99999999999`), Entry{}, reasonYear},
		{"another message", `{"level":"info","ts":971211336.25,"logger":"tls","msg":"cleaned"}`, Entry{},
			reasonMessage},
		{"an error about a request",
			`{"level":"error","ts":971211336.25,"logger":"http.log.error","msg":"x","request":{"remote_ip":"192.0.2.7"},"status":502}`, Entry{}, reasonMessage},
		{"cut", start + `{"remote_ip":"192.0.2.7","method":"GE`, Entry{}, reasonJSON},
		{"cut behind the request", start + `{"remote_ip":"192.0.2.7"}`, Entry{}, reasonJSON},
		{"no JSON", `hello`, Entry{}, reasonJSON},
	})
}

func TestCaddyDurations(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
	}{
		{`1.5`, 1500 * time.Millisecond}, {`3`, 3 * time.Second}, {`"1.5ms"`, 1500 * time.Microsecond},
		{`"1m2s"`, 62 * time.Second},
		{`34000000`, 34 * time.Millisecond}, {`3.4e-05`, 34 * time.Microsecond}, {`-1`, 0}, {`null`, 0},
	} {
		e, reason := parseLine(caddyParser{}, `{"ts":971211336.25,"request":{"remote_ip":"192.0.2.7"},"duration":`+
			c.in+`,"status":200}`)
		if reason != "" || e.Duration != c.want {
			t.Errorf("%s: %v (%s), want %v", c.in, e.Duration, reason, c.want)
		}
	}
}

func TestTraefikJSONLines(t *testing.T) {
	const tail = `"DownstreamContentSize":2326,"DownstreamStatus":200,"Duration":357313,"OriginStatus":502,"RequestAddr":"shop.example.org:8443","RequestHost":"shop.example.org",` +
		`"RequestMethod":"GET","RequestPath":"/a?b=c","RequestProtocol":"HTTP/1.1","StartLocal":"2001-01-01T00:00:00Z","StartUTC":"2000-10-10T20:55:36.123456789Z","level":"info","msg":"","time":"2000-10-10T20:55:37Z"`
	want := func(change func(*Entry)) Entry {
		return entry(func(e *Entry) {
			e.Time, e.Host, e.Duration = at("2000-10-10T20:55:36.123456789Z"), "shop.example.org:8443",
				357313*time.Nanosecond
			if change != nil {
				change(e)
			}
		})
	}
	runLines(t, traefikParser{}, []lineCase{
		{"plain", `{"ClientAddr":"192.0.2.7:39496","ClientHost":"192.0.2.7",` + tail + `}`, want(nil), ""},
		{"kept headers", `{"ClientAddr":"192.0.2.7:39496","ClientHost":"192.0.2.7",` + tail +
			`,"request_User-Agent":"curl/8","request_Referer":"-","request_Cookie":"a=b"}`,
			want(func(e *Entry) { e.UserAgent, e.Cookie = "curl/8", "a=b" }), ""},
		{"client by a believed header", `{"ClientAddr":"10.0.0.1:39496","ClientHost":"192.0.2.7",` + tail + `}`,
			want(nil), ""},
		{"header with a list", `{"ClientAddr":"192.0.2.7:39496","ClientHost":"203.0.113.9,10.0.0.50",` + tail + `}`,
			want(func(e *Entry) { e.Forwarded = "203.0.113.9,10.0.0.50" }), ""},
		{"origin", `{"ClientAddr":"192.0.2.7:39496","ClientHost":"192.0.2.7","OriginDuration":300000,` + tail +
			`,"downstream_Server-Timing":"cpu;dur=9","origin_Server-Timing":"cpu;dur=0.125"}`,
			want(func(e *Entry) { e.Upstream, e.CPU = 300*time.Microsecond, 125*time.Microsecond }), ""},
		{"another message", `{"level":"info","msg":"Starting","time":"2000-10-10T20:55:37Z"}`, Entry{}, reasonMessage},
		{"cut", `{"ClientAddr":"192.0.2.7:39496","Cli`, Entry{}, reasonJSON},
	})
}

func TestNginxJSONLines(t *testing.T) {
	p := flatJSONParser{names: flatNames}
	runLines(t, p, []lineCase{
		{"variables' own names",
			`{"time_iso8601":"2000-10-10T13:55:36-07:00","remote_addr":"192.0.2.7","request":"GET \/a?b=c HTTP\/1.1","status":"200","body_bytes_sent":"2326","http_referer":"-","http_user_agent":"curl\u002f8","http_x_forwarded_for":"","request_time":"0.250"}`,
			entry(func(e *Entry) { e.UserAgent, e.Duration = "curl/8", 250*time.Millisecond }), ""},
		{"others",
			`{"@timestamp":"2000-10-10T20:55:36.000Z","client":"192.0.2.7","method":"GET","uri":"/a","args":"b=c","status":200,"size":2326,"agent":"curl/8","domain":"shop.example.org","xff":"203.0.113.9","cookie":"a=b","duration":0.25}`,
			entry(func(e *Entry) {
				e.UserAgent, e.Host, e.Forwarded, e.Cookie, e.Duration = "curl/8", "shop.example.org", "203.0.113.9",
					"a=b", 250*time.Millisecond
			}), ""},
		{"upstream",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","status":200,"bytes":2326,"request_time":0.5,"upstream_response_time":"0.100, 0.200 : -","upstream_http_server_timing":"cpu;dur=12.5"}`,
			entry(func(e *Entry) {
				e.Duration, e.Upstream, e.CPU = 500*time.Millisecond, 300*time.Millisecond, 12500*time.Microsecond
			}), ""},
		{"upstream alone",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","status":200,"bytes":2326,"upstream_time":0.5}`,
			entry(func(e *Entry) { e.Duration, e.Upstream = 500*time.Millisecond, 500*time.Millisecond }), ""},
		{"upstream in an unknown unit",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","status":200,"bytes":2326,"upstream_time":5}`, entry(nil), ""},
		{"msec before a coarser time",
			`{"time_local":"10/Oct/2000:13:55:36 -0700","msec":"971211336.250","remote_addr":"192.0.2.7","request_method":"GET","request_uri":"/a?b=c","status":200,"bytes_sent":1,"body_bytes_sent":2326,"duration":17}`,
			entry(func(e *Entry) { e.Time = at("2000-10-10T20:55:36.25Z") }), ""},
		{"not HTTP",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"\u0016\u0003\u0001","status":400,"bytes":0}`,
			entry(func(e *Entry) { e.Method, e.Target, e.Status, e.Bytes = "", "", 400, 0 }), ""},
		{"escape=json forgotten",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET /a?b=\x22 HTTP/1.1","status":200,"bytes":2326}`,
			entry(func(e *Entry) { e.Target = `/a?b="` }), ""},
		{"unknown members",
			`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","geo":{"ip":["x",{"y":"}"}]},"request":"GET /a?b=c HTTP/1.1","status":200,"bytes":2326,"n":null,"t":true}`, entry(nil), ""},
		{"no status", `{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET /a?b=c HTTP/1.1","bytes":2326}`,
			entry(func(e *Entry) { e.Status = 0 }), ""},
		{"status no number", `{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","status":"ok"}`, Entry{}, reasonStatus},
		{"client no address", `{"time":"2000-10-10T20:55:36Z","ip":"host.example","status":200}`, Entry{},
			reasonClient},
		{"no client", `{"time":"2000-10-10T20:55:36Z","msg":"hello"}`, Entry{}, reasonMessage},
		{"a list", `[{"time":"2000-10-10T20:55:36Z"}]`, Entry{}, reasonJSON},
		{"empty", `{}`, Entry{}, reasonMessage},
	})
}

func TestAzureLines(t *testing.T) {
	runLines(t, azureParser{}, []lineCase{{
		"plain", `{"timeStamp": "2000-10-10T20:55:36+00:00","resourceId": "x","properties": {"instanceId": "appgw_2","clientIP": "192.0.2.7","clientPort": 45057,"httpMethod": "GET","originalRequestUriWithArgs": "\/a?b=c","requestUri": "\/a","requestQuery": "b=c","userAgent": "curl\/8","httpStatus": 200,"sentBytes": 2326,"timeTaken": 0.034,"serverResponseLatency":"0.030","host": "10.0.0.1","originalHost": "shop.example.org"}}`,
		entry(func(e *Entry) {
			e.UserAgent, e.Host, e.Duration, e.Upstream = "curl/8", "shop.example.org", 34*time.Millisecond,
				30*time.Millisecond
		}), "",
	}, {
		"older", `{"time": "2000-10-10T20:55:36Z","properties": {"clientIP": "192.0.2.7","httpMethod": "GET","requestUri": "/a","requestQuery": "b=c","httpStatus": 200,"sentBytes": 2326}}`, entry(nil), "",
	}, {
		"another message", `{"time": "2000-10-10T20:55:36Z","properties": {"healthy": 2}}`, Entry{}, reasonMessage,
	}})
}
