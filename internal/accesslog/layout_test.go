package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runW3C reads a whole W3C log and returns one text for each line.
func runW3C(t *testing.T, text string) (lines []string, f fileContent) {
	t.Helper()
	f = readAll(t, writeFile(t, "log", text), Options{})
	for _, e := range f.Entries {
		lines = append(lines, fmt.Sprintf("%d %s %s %s %q %d %d %v %q %q %q %q %q", e.Line,
			e.Time.Format(time.RFC3339Nano), e.Client, e.Method, e.Target,
			e.Status, e.Bytes, e.Duration, e.UserAgent, e.Referer, e.Cookie, e.Host, e.Forwarded))
	}
	for _, s := range f.Skipped {
		lines = append(lines, fmt.Sprintf("%d skipped: %s", s.Line, s.Reason))
	}
	return lines, f
}

func TestW3CLogs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{
			"IIS", `#Software: Microsoft Internet Information Services 10.0
#Version: 1.0
#Date: 2000-10-10 20:55:36
#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken
2000-10-10 20:55:36 10.0.0.1 GET /a b=c 443 - 192.0.2.7 Mozilla/5.0+(X11;+Linux)+a http://x/?a+b 200 0 0 65
2000-10-10 20:55:37 10.0.0.1 POST /a - 443  dom\ann 2001:db8::7 - - 500 0 64 15
2000-10-10 20:55:38 10.0.0.1 GET /a - 443 - host.example - - 500 0 64 15
2000-10-10 20:55:39 10.0.0.1 GET /a - 443 - 192.0.2.7
2000-10-10 20:55:40 10.0.0.1 GET /a - 443 - 192.0.2.7 - - 404
2000-10-10 20:55:41 10.0.0.1 GET /a - 443 - 192.0.2.7 - - 404 0 0 15 16 17
2000-10-32 20:55:41 10.0.0.1 GET /a - 443 - 192.0.2.7 - - 404 0 0 15
`, []string{
				`5 2000-10-10T20:55:36Z 192.0.2.7 GET "/a?b=c" 200 0 65ms "Mozilla/5.0 (X11; Linux) a" "http://x/?a+b" "" "" ""`,
				`6 2000-10-10T20:55:37Z 2001:db8::7 POST "/a" 500 0 15ms "" "" "" "" ""`,
				`9 2000-10-10T20:55:40Z 192.0.2.7 GET "/a" 404 0 0s "" "" "" "" ""`,
				`7 skipped: ` + reasonClient,
				`8 skipped: ` + reasonFields,
				`10 skipped: ` + reasonFields,
				`11 skipped: ` + reasonTime,
			},
		},
		{
			"fields change", `#Fields: date time c-ip cs-method cs-uri-stem sc-status
2000-10-10 20:55:36 192.0.2.7 GET /a 200
#Fields: date time sc-status cs-uri-stem cs-method c-ip cs(Cookie) cs-host X-Forwarded-For sc-bytes
2000-10-10 20:55:37 404 /b GET 192.0.2.8 a=b;+c=d+e shop.example.org 203.0.113.9,+10.0.0.2 77
`, []string{
				`2 2000-10-10T20:55:36Z 192.0.2.7 GET "/a" 200 0 0s "" "" "" "" ""`,
				`4 2000-10-10T20:55:37Z 192.0.2.8 GET "/b" 404 77 0s "" "" "a=b; c=d+e" "shop.example.org" "203.0.113.9, 10.0.0.2"`,
			},
		},
		{
			"date from #Date", `#Fields: time c-ip cs-method cs-uri-stem sc-status
20:55:35 192.0.2.7 GET /a 200
#Date: 2000-10-10 20:55:36
20:55:36 192.0.2.7 GET /a 200
#Date: 2000-10-11 00:00:00
20:55:36 192.0.2.7 GET /a 200
`, []string{
				`4 2000-10-10T20:55:36Z 192.0.2.7 GET "/a" 200 0 0s "" "" "" "" ""`,
				`6 2000-10-11T20:55:36Z 192.0.2.7 GET "/a" 200 0 0s "" "" "" "" ""`,
				`2 skipped: ` + reasonNoDate,
			},
		},
		{
			"quotes and many spaces",
			`#Fields:   date-local time-local   c-ip  cs-method cs-uri cs(User-Agent) sc-status TimeTakenMS
2000-10-10   20:55:36.250  "192.0.2.7"   GET http://shop/a "Mozilla/5.0 (X11; Linux)"  200  12
2000-10-10   20:55:36.250  "192.0.2.7"   GET http://shop/a "say ""hi"" you"  200  12
`, []string{
				`2 2000-10-10T20:55:36.25Z 192.0.2.7 GET "http://shop/a" 200 0 12ms "Mozilla/5.0 (X11; Linux)" "" "" "" ""`,
				`3 2000-10-10T20:55:36.25Z 192.0.2.7 GET "http://shop/a" 200 0 12ms "say \"\"hi\"\" you" "" "" "" ""`,
			},
		},
		{
			"no client", `#Fields: date time cs-method
2000-10-10 20:55:36 GET
`, []string{`2 skipped: ` + reasonNoClient},
		},
		{
			"CloudFront",
			"#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-host-header time-taken x-forwarded-for\n" +
				"2000-10-10\t20:55:36\tFRA6\t2326\t192.0.2.7\tGET\td1.cloudfront.net\t/a\t200\thttp://x/%2520\tMozilla/5.0%2520(X11)\tb=c%20d\ta=b;%20c=d\tshop.example.org\t0.113\t203.0.113.9,%2010.0.0.2\n" +
				"2000-10-10\t20:55:36\tFRA6\t2326\t192.0.2.7\tGET\td1.cloudfront.net\ta.html\t000\t-\tcurl/8\t-\t-\tshop.example.org\t0.113\t-\n",
			[]string{
				`3 2000-10-10T20:55:36Z 192.0.2.7 GET "/a?b=c%20d" 200 2326 113ms "Mozilla/5.0 (X11)" "http://x/ " "a=b; c=d" "shop.example.org" "203.0.113.9, 10.0.0.2"`,
				`4 2000-10-10T20:55:36Z 192.0.2.7 GET "a.html" 0 2326 113ms "curl/8" "" "" "shop.example.org" ""`,
			},
		},
		{
			"CloudFront without header",
			"2000-10-10\t20:55:36\tFRA6\t2326\t192.0.2.7\tGET\td1.cloudfront.net\t/a\t200\t-\tMozilla/5.0%2520(X11)\t-\t-\tHit\tID==\tshop.example.org\thttps\t99\t2\n",
			[]string{`1 2000-10-10T20:55:36Z 192.0.2.7 GET "/a" 200 2326 2s "Mozilla/5.0 (X11)" "" "" "shop.example.org" ""`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, f := runW3C(t, c.text)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if want := strings.HasPrefix(c.name, "CloudFront"); (f.Format == "cloudfront") != want {
				t.Errorf("format %q", f.Format)
			}
		})
	}
}

// The latest #Fields line also applies to later blocks.
func TestFieldsApplyToLaterBlocks(t *testing.T) {
	var b strings.Builder
	want := 0
	for i := range 40 {
		if i%2 == 0 {
			b.WriteString("#Fields: date time c-ip cs-method cs-uri-stem sc-status\r\n")
		} else {
			b.WriteString("\xEF\xBB\xBF#Fields: sc-status cs-uri-stem cs-method c-ip time date\r\n")
		}
		for n := range 50 {
			if i%2 == 0 {
				fmt.Fprintf(&b, "2000-10-10 20:55:36 192.0.2.7 GET /%d 200\r\n", n)
			} else {
				fmt.Fprintf(&b, "200 /%d GET 192.0.2.7 20:55:36 2000-10-10\r\n", n)
			}
			want++
		}
	}
	path := writeFile(t, "log", b.String())
	for _, size := range []int{1, 60, 700, 0} {
		got := readAll(t, path, Options{BlockSize: size, Workers: 3})
		if len(got.Entries) != want || len(got.Skipped) > 0 {
			t.Fatalf("block size %d: %d entries, want %d; %d skipped", size, len(got.Entries), want, len(got.Skipped))
		}
		for i, e := range got.Entries {
			if e.Target != fmt.Sprint("/", i%50) || e.Status != 200 {
				t.Fatalf("block size %d, line %d: %+v", size, e.Line, e)
			}
		}
	}
}
