package journal

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/accesslog"
)

// access is a request with all fields of a line.
func access() Access {
	return Access{
		Time:   time.Date(2026, 11, 23, 9, 8, 7, 123456789, time.FixedZone("", 3600)),
		Client: netip.MustParseAddr("192.0.2.1"), Method: "GET", Target: "/a%20b;x=1?secret=1", Protocol: "HTTP/1.1",
		Host: "shop.example", Referer: "https://shop.example/search?q=name#top", UserAgent: "Mozilla/5.0 (X11)",
		Status: 429, Bytes: 512, Took: 1234567 * time.Microsecond, Upstream: 200 * time.Millisecond,
		CPU: 12500 * time.Microsecond, Cost: 3, Waited: time.Second, Verdict: "refuse", DryRun: true,
		Rule: "pages", ID: "0123456789",
	}
}

func TestAccessLogLines(t *testing.T) {
	bare := Access{Time: time.Unix(0, 0), Method: "POST", Target: "/", Protocol: "HTTP/2.0", Status: 200, Cost: -1,
		Verdict: "allow"}
	through := bare
	through.Client, through.Through = netip.MustParseAddr("2001:db8::1"), netip.IPv6Unspecified()
	for _, test := range []struct {
		a              Access
		query          bool
		combined, json string
	}{
		{access(), false,
			`192.0.2.1 - - [23/Nov/2026:08:08:07 +0000] "GET /a%20b;x=1 HTTP/1.1" 429 512 "https://shop.example/search" ` +
				`"Mozilla/5.0 (X11)" host="shop.example" rt=1.234567 urt=0.200000 verdict=refuse dry_run=true rule="pages" ` +
				`wait=1.000000 cpu_time=0.012500 cost=3 id=0123456789`,
			`{"time":"2026-11-23T08:08:07.123Z","client":"192.0.2.1","method":"GET","host":"shop.example",` +
				`"target":"/a%20b;x=1","protocol":"HTTP/1.1","status":429,"bytes":512,"referer":"https://shop.example/search",` +
				`"user_agent":"Mozilla/5.0 (X11)","request_time":1.234567,"upstream_response_time":0.200000,` +
				`"verdict":"refuse","dry_run":true,"rule":"pages","wait":1.000000,"cpu_time":0.012500,"cost":3,"id":"0123456789"}`},
		{access(), true,
			`192.0.2.1 - - [23/Nov/2026:08:08:07 +0000] "GET /a%20b;x=1?secret=1 HTTP/1.1" 429 512 ` +
				`"https://shop.example/search?q=name#top" "Mozilla/5.0 (X11)" host="shop.example" rt=1.234567 urt=0.200000 ` +
				`verdict=refuse dry_run=true rule="pages" wait=1.000000 cpu_time=0.012500 cost=3 id=0123456789`, ""},
		{bare, false,
			`- - - [01/Jan/1970:00:00:00 +0000] "POST / HTTP/2.0" 200 0 "-" "-" host="" rt=0.000000 urt=- verdict=allow ` +
				`rule="-" wait=0.000000 id=-`,
			`{"time":"1970-01-01T00:00:00.000Z","client":"","method":"POST","host":"","target":"/","protocol":"HTTP/2.0",` +
				`"status":200,"bytes":0,"referer":"","user_agent":"","request_time":0.000000,"verdict":"allow","dry_run":false,` +
				`"rule":"","wait":0.000000,"id":""}`},
		{through, false,
			`2001:db8::1 - - [01/Jan/1970:00:00:00 +0000] "POST / HTTP/2.0" 200 0 "-" "-" host="" rt=0.000000 urt=- ` +
				`verdict=allow rule="-" wait=0.000000 through=unix id=-`, ""},
	} {
		if got := string(test.a.appendCombined(nil, test.query)); got != test.combined+"\n" {
			t.Errorf("got  %swant %s", got, test.combined)
		}
		if got := string(test.a.appendJSON(nil, new(stamps), test.query)); test.json != "" && got != test.json+"\n" {
			t.Errorf("got  %swant %s", got, test.json)
		}
	}
}

func TestAccessLogShowsNoCredentials(t *testing.T) {
	for target, want := range map[string]string{
		"/x@y?q": "/x@y", "http://u:p@shop.example/a@b?q": "http://shop.example/a@b",
		"u:p@shop.example:443": "shop.example:443",
		"http://shop.example":  "http://shop.example", "*": "*", "": "",
		"http://u:p@shop.example?q@r": "http://shop.example",
		"/a#b":                        "/a",
	} {
		if got := (&Access{Target: target}).target(false); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}

// Each text of a client is in one line and in its own field. This program reads the lines.
func FuzzAccessLog(f *testing.F) {
	f.Add("GET", "/a?b", "HTTP/1.1", "shop.example", "https://example.org/", "Mozilla/5.0")
	f.Add("G\"T", "/\" 200 1 \"\n", "x\r\n1", "a b", "\x00\\", "\u202e\xff\" rt=9")
	f.Fuzz(func(t *testing.T, method, target, protocol, host, referer, agent string) {
		a := access()
		a.Method, a.Target, a.Protocol, a.Host, a.Referer, a.UserAgent = method, target, protocol, host, referer, agent
		for _, query := range []bool{false, true} {
			combined, object := a.appendCombined(nil, query), a.appendJSON(nil, new(stamps), query)
			for _, line := range [][]byte{combined, object} {
				for i, c := range line {
					if c < ' ' && i != len(line)-1 || c == 0x7F {
						t.Fatalf("%q", line)
					}
				}
			}
			if strings.Count(string(combined), `"`) != 10 {
				t.Fatalf("%s", combined)
			}
			var fields map[string]any
			if err := json.Unmarshal(object, &fields); err != nil || fields["verdict"] != "refuse" ||
				len(fields) != 19 {
				t.Fatalf("%s: %v", object, err)
			}
		}
	})
}

// fairshare replay reads both formats, with all that they contain.
func TestAccessLogIsReadable(t *testing.T) {
	a := access()
	a.UserAgent, a.Target, a.Host = `odd "agent" \ é`, `/a"b\é?c=d`, "shop.example:8080"
	for format, line := range map[string][]byte{
		"combined": a.appendCombined(nil, true), "nginx-json": a.appendJSON(nil, new(stamps), true)} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, line, 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := accesslog.Open(path, accesslog.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if log.Format() != format {
			t.Errorf("format %s, want %s", log.Format(), format)
		}
		batch, err := log.Next()
		if err != nil || len(batch.Entries) != 1 {
			t.Fatalf("%s: %+v %v", format, batch, err)
		}
		e := batch.Entries[0]
		if e.Client != a.Client || e.Time.Unix() != a.Time.Unix() || e.Method != "GET" || e.Target != a.Target ||
			e.Host != a.Host || e.Referer != a.Referer || e.UserAgent != a.UserAgent || e.Status != a.Status ||
			e.Bytes != a.Bytes || e.Duration != a.Took || e.Upstream != a.Upstream || e.CPU != a.CPU {
			t.Errorf("%s: %+v", format, e)
		}
	}
}

// A full queue loses lines and counts them. It never makes a request wait.
func TestAccessLogLosesLinesNotTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &blocked{free: make(chan struct{})}
		j := open(t, Options{}, slow)
		l, err := j.OpenAccessLog(&AccessOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a := access()
		const n = 5000 // about 250 bytes each
		for range n {
			l.Add(&a)
		}
		lost := l.Lost()
		if lost < n/2 || lost > n-1000 {
			t.Errorf("%d lines of %d lost", lost, n)
		}
		if n := l.Lost(); n != 0 {
			t.Errorf("%d lines lost again", n)
		}
		j.Add(now(func(*Entry) {})) // the journal has room in the same queue
		close(slow.free)
		l.Close()
		j.Close()
		if got := int64(strings.Count(slow.String(), " rt=")); got != n-lost {
			t.Errorf("%d lines, want %d", got, n-lost)
		}
		if !strings.Contains(slow.String(), `"rule":"rapid requests"`) {
			t.Error("the refusal is lost")
		}
	})
}

// A blocked writer waits until it is free.
type blocked struct {
	recorder
	free chan struct{}
}

func (s *blocked) Write(p []byte) (int, error) {
	<-s.free
	return s.recorder.Write(p)
}

func TestAccessLogIsRotatedAndReplaced(t *testing.T) {
	dir := t.TempDir()
	var stderr recorder
	j := open(t, Options{}, &stderr)
	defer j.Close()
	l, err := j.OpenAccessLog(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := access()
	if l.Add(&a); l.Writes() {
		t.Error("it writes without options")
	}
	replace := func(o *AccessOptions) {
		t.Helper()
		if err := l.Replace(o); err != nil {
			t.Fatal(err)
		}
	}
	add := func(n int) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range n / 4 {
					l.Add(&a)
				}
			})
		}
		all.Wait()
	}
	replace(&AccessOptions{File: dir + "/log", Max: 10_000, KeepFiles: 2})
	add(100)
	replace(&AccessOptions{File: dir + "/log", Max: 10_000, KeepFiles: 2, Format: "json"}) // the same queue
	add(20)
	replace(nil) // writes all that waits
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("files %v", got)
	}
	if got := read(t, dir+"/log"); !strings.HasSuffix(got, "}\n") {
		t.Errorf("the last line: %s", got[max(0, len(got)-300):])
	}
	add(4)
	replace(&AccessOptions{File: dir + "/other"})
	add(40)
	var failed *OpenError
	if err := l.Replace(&AccessOptions{File: dir + "/none/log"}); !errors.As(err, &failed) ||
		!strings.HasPrefix(err.Error(), "access_log: file ") {
		t.Errorf("%v", err)
	}
	add(40)
	if lost := l.Close(); lost != 0 {
		t.Errorf("%d lines lost", lost)
	}
	if got := strings.Count(read(t, dir+"/other"), "\n"); got != 80 {
		t.Errorf("%d lines, want 80", got)
	}
	if l.Add(&a); l.Replace(nil) == nil {
		t.Error("a closed log was replaced")
	}
}

func BenchmarkAccessLog(b *testing.B) {
	j := open(b, Options{}, &recorder{})
	defer j.Close()
	l, err := j.OpenAccessLog(&AccessOptions{File: b.TempDir() + "/log", Max: 1e9})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	a := access()
	b.ReportAllocs()
	for b.Loop() {
		l.Add(&a)
	}
}

func TestPathHasNoQueryAndNoHost(t *testing.T) {
	for target, want := range map[string]string{
		"/a?token=x": "/a", "/a#b?c": "/a", "/": "/", "*": "*", "": "", "http://me:secret@h.example/x/y?z": "/x/y",
		"http://h.example": "/", "http://h.example?x=/y": "/", "/go/http://h.example/x": "/go/http://h.example/x",
		"me:secret@h.example:443":       "h.example:443",
		"/" + strings.Repeat("a", 9999): "/" + strings.Repeat("a", maxTarget-1),
	} {
		if got := (&Access{Target: target}).Path(); got != want {
			t.Errorf("%.60q: %.60q, want %.60q", target, got, want)
		}
	}
}
