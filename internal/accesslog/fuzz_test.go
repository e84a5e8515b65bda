package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seeds are lines of all formats.
var seeds = []string{
	line(1),
	`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2326`,
	`"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET /\"x\" HTTP/1.1" 200 2326 "-" "a\x22b\\""`,
	`shop:443 192.0.2.7 - a b [10/Oct/2000:13:55:36 -0700] "-" 408 - "-" "-" "203.0.113.9, ::1" 0.5 rt=1.0 urt="0.1, 0.2" server_timing="cpu;dur=3"`,
	`192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 5 wiki "-" "-" 1 "a@b" "http://c" 12ms`,
	`{"ts":971211336.25,"logger":"http.log.access","request":{"client_ip":"192.0.2.7","method":"GET","uri":"/","headers":{"Cookie":["REDACTED"],"User-Agent":["\u00e9\ud83d\ude00"]}},"duration":1e-3,"size":1,"status":200}`,
	`{"ClientAddr":"192.0.2.7:1","ClientHost":"1.2.3.4,5.6.7.8","RequestMethod":"GET","RequestPath":"/","DownstreamStatus":200,"StartUTC":"2000-10-10T20:55:36.1Z","Duration":12}`,
	`{"timeStamp":"2000-10-10T20:55:36Z","properties":{"clientIP":"192.0.2.7","httpStatus":200}}`,
	`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"GET / HTTP/1.1","status":"200","bytes":"-","request_time":"0.1"}`,
	"2000-10-10\t20:55:36\tFRA6\t2326\t192.0.2.7\tGET\td1\t/a\t200\t-\tMozilla%2520(X11)\t-\t-\tHit\tID==\tshop\thttps\t99\t2",
	`#Fields: date time c-ip cs-method cs-uri-stem sc-status`,
	`2000-10-10 20:55:36 192.0.2.7 GET /a 200`,
	`Oct 10 20:55:36 lb1 haproxy[1]: 192.0.2.7:33 [10/Oct/2000:20:55:36.143] in back/s 10/0/30/69/109 200 2326 - - ---- 1/1/1/1/0 0/0 {a|b} "GET /#22 HTTP/1.1"`,
	`https 2000-10-10T20:55:36.559871Z app/x 192.0.2.7:4586 10.0.0.1:80 0.1 0.2 0.3 200 201 34 2326 "GET https://a:443/ HTTP/1.1" "curl" - -`,
	`2000-10-10T20:55:36.559871Z elb1 2001:db8::1:4586 - -1 -1 -1 504 0 0 0 "- - - " "-" - -`,
	`971211336.129     12 192.0.2.7 TCP_MISS/200 2326 GET http://x/ - HIER_DIRECT/10.0.0.1 text/html`,
	`[10/Oct/2000:13:55:36 -0700] ann http-6 192.0.2.7 GET /a HTTP/1.1 200 20ms 2326 http://x/ Mozilla/5.0 (X11)`,
	"192.0.2.7\t-\t971211336\tGET\t/a\t200\t2326\t\t",
	`{"ClientAddr":"192.0.2.7","RequestMethod":"GET","DownstreamStatus":200,"StartUTC":"2000-10-10T20:55:36Z"}`,
	`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"junk","method":"GET"}`,
	`{"time":"2000-10-10T20:55:36Z","ip":"192.0.2.7","request":"junk","path":"/a","query":"b"}`,
	`h2 2000-10-10T20:55:36.559871Z app/x 192.0.2.7:4586 10.0.0.1:80 0.1 -1 -1 504 - 34 0 "GET https://a:443/ HTTP/1.1" "curl" - - arn "Root=1" "-" "-" 0 2000-10-10T20:54:36.559871Z "forward"`,
}

// formatSeeds are format strings.
var formatSeeds = []string{
	`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`,
	`%v:%p %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D`,
	`$msec|$remote_addr|$http_x_forwarded_for|$uri$is_args$args|$cookie_sid|$upstream_response_time $status`,
	`%a %{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t %m %U%q %>s %{sid}C`,
	`{"t":"$time_iso8601","a":"$remote_addr","c":"$cookie_x"}`,
	`log_format main escape=none '$remote_addr' ' $msec';`,
	`LogFormat "%h %t \"%r\"" x`,
}

// FuzzParse passes one line to every parser. No parser may panic, and each entry must be valid. If
// the common parser reads the line, its entry printed in the combined format gives the same entry.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	parsers := []parser{}
	for _, family := range families {
		parsers = append(parsers, family.parser)
	}
	for _, s := range formatSeeds {
		format, err := parseFormat(s)
		if err != nil {
			f.Fatal(err)
		}
		parsers = append(parsers, format.parser)
	}
	l := (*layout)(nil).
		directive(
			[]byte("#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status cs(User-Agent) cs(Cookie) time-taken"))
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.ReplaceAll(text, []byte{'\n'}, nil)
		before := bytes.Clone(text)
		for _, p := range parsers {
			for _, layout := range []*layout{nil, l} {
				w := &worker{parser: p, layout: layout}
				var batch Batch
				w.line(trim(text), 7, &batch)
				for i := range batch.Entries {
					checkEntry(t, &batch.Entries[i])
				}
				for _, s := range batch.Skipped {
					if s.Reason == "" || s.Line != 7 || len(s.Sample) > maxSample {
						t.Errorf("%T: skipped %+v", p, s)
					}
				}
			}
		}
		if !bytes.Equal(text, before) {
			t.Errorf("the line became %q", text)
		}
		e, reason := parseLine(clf, string(text))
		if reason != "" {
			return
		}
		if e.Method != "" && !isTarget(e.Method, e.Target) {
			t.Errorf("%q: target %q", text, e.Target)
		}
		e.Host, e.Forwarded, e.Duration, e.Upstream, e.CPU, e.Has = "", "", 0, 0, 0,
			hasRequest|HasReferer|HasUserAgent|HasStatus|HasBytes
		printed := combined(&e)
		again, reason := parseLine(clf, printed)
		if reason != "" || again != e {
			t.Errorf("%q\nread    %+v\nprinted %q\nread    %+v %s", text, e, printed, again, reason)
		}
	})
}

// combined prints an entry in the combined log format, as Apache escapes.
func combined(e *Entry) string {
	request := "-"
	if e.Method != "" {
		request = e.Method + " " + e.Target + " HTTP/1.1"
	}
	return fmt.Sprintf(`%s - - [%s] "%s" %d %d "%s" "%s"`, e.Client, e.Time.Format("02/Jan/2006:15:04:05 -0700"),
		escaped(request), e.Status, e.Bytes,
		escaped(orDash(e.Referer)), escaped(orDash(e.UserAgent)))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func escaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7F:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// FuzzFormat passes a format string to the compiler, and a line to the parser. Neither may panic.
func FuzzFormat(f *testing.F) {
	for i, s := range formatSeeds {
		f.Add(s, seeds[i%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, format, text string) {
		made, err := parseFormat(format)
		if err != nil {
			var fault *FormatError
			if !errors.As(err, &fault) || fault.Hint == "" || fault.Column < 0 || fault.Column > len(format)+1 {
				t.Errorf("%q: %#v", format, err)
			}
			return
		}
		w := &worker{parser: made.parser}
		var batch Batch
		w.line(trim([]byte(strings.ReplaceAll(text, "\n", ""))), 1, &batch)
		for i := range batch.Entries {
			checkEntry(t, &batch.Entries[i])
		}
	})
}

// FuzzFile reads a whole file, compressed or not. Blocks of all sizes give the same result.
func FuzzFile(f *testing.F) {
	all := strings.Join(seeds, "\n")
	f.Add([]byte(all), 64)
	f.Add([]byte(lines(20)), 1)
	f.Add([]byte("\x1f\x8b\x08\x00"), 5)
	f.Add([]byte("\x28\xb5\x2f\xfd\x04"), 5)
	f.Add([]byte("\xEF\xBB\xBF#Fields: c-ip time\n#Date: 2000-10-10\n1.1.1.1 10:00:00\n"), 9)
	path := filepath.Join(f.TempDir(), "log")
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		read := func(opts Options) (n, skipped int, sum int64) {
			file, err := Open(path, opts)
			if err != nil {
				return -1, -1, -1
			}
			defer file.Close()
			for {
				batch, err := file.Next()
				if errors.Is(err, io.EOF) {
					return n, skipped, sum
				}
				if err != nil {
					t.Fatal(err)
				}
				for i := range batch.Entries {
					e := &batch.Entries[i]
					checkEntry(t, e)
					n++
					sum = sum*31 + e.Line + e.Time.Unix() + int64(len(e.Target))
				}
				skipped += len(batch.Skipped)
				batch.Release()
			}
		}
		format := "combined"
		if bytes.Contains(text, []byte("#Fields")) {
			format = "iis-w3c"
		}
		n1, s1, sum1 := read(Options{Format: format, Workers: 1, BlockSize: 1 << 20})
		n2, s2, sum2 := read(Options{Format: format, Workers: 3, BlockSize: 1 + size&1023})
		if n1 != n2 || s1 != s2 || sum1 != sum2 {
			t.Errorf("in one block %d entries, %d skipped, sum %d; in small ones %d, %d, %d", n1, s1, sum1, n2, s2,
				sum2)
		}
	})
}

// FuzzMoment checks the hand-written time parser against the standard one.
func FuzzMoment(f *testing.F) {
	for _, s := range []string{"10/Oct/2000:13:55:36 -0700", "29/Feb/2000:23:59:59 +1400", "2000-10-10T20:55:36.123Z",
		"2000-10-10 20:55:36", "31/Dec/2261:23:59:59 +0000", "01/Jan/1970:00:00:00 +0100", "971211336.25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c clock
		got, reason := c.moment([]byte(s))
		again, reasonAgain := c.moment([]byte(s))
		if reason != reasonAgain || !got.Equal(again) {
			t.Errorf("%q: %v %s, and again %v %s", s, got, reason, again, reasonAgain)
		}
		if reason == "" && (got.Year() < minYear || got.Year() > maxYear) {
			t.Errorf("%q: %v", s, got)
		}
		for _, layout := range []string{"02/Jan/2006:15:04:05 -0700", time.RFC3339Nano, "2006-01-02 15:04:05"} {
			want, err := time.Parse(layout, s)
			if err != nil || want.Format(layout) != s { // Go also takes "1:00:00" and "dEC"
				continue
			}
			if _, off := want.Zone(); off%60 != 0 || off > 24*3600 || off < -24*3600 {
				continue
			}
			inRange := want.UTC().Year() >= minYear && want.UTC().Year() <= maxYear
			if inRange && (reason != "" || !got.Equal(want)) {
				t.Errorf("%q: %v %s, want %v", s, got, reason, want)
			}
		}
	})
}
