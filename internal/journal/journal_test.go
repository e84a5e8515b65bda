package journal

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"
)

var example = Entry{
	Time:   time.Date(2026, 11, 20, 12, 0, 0, 123456789, time.UTC),
	Client: netip.MustParseAddr("2001:db8::1"),
	Method: "GET", Host: "example.org", Path: "/a", UserAgent: "curl/8",
	Rule: "rapid requests", Action: "refuse", Status: 429, RetryAfter: 3, Used: 5, Allowed: 5, ID: "0123456789",
}

func TestLine(t *testing.T) {
	banned := example
	banned.Used, banned.Allowed, banned.DryRun = 0, 0, true
	for _, test := range []struct {
		entry Entry
		want  string
	}{
		{example, `{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"curl/8",` +
			`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"used":5,"allowed":5,"id":"0123456789"}`},
		{banned, `{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"curl/8",` +
			`"rule":"rapid requests","action":"refuse","dry_run":true,"status":429,"retry_after":3,"id":"0123456789"}`},
		{Entry{Action: "block", Status: 403}, `{"time":"0001-01-01T00:00:00.000Z","client":"","method":"","host":"","path":"","user_agent":"",` +
			`"rule":"","action":"block","dry_run":false,"status":403,"id":""}`},
	} {
		if got := string(test.entry.append(nil)); got != test.want+"\n" {
			t.Errorf("got  %swant %s", got, test.want)
		}
	}
}

func TestClientTextIsCutAndEscaped(t *testing.T) {
	long := strings.Repeat("x", 511)
	for _, test := range []struct{ in, want string }{
		{`a"b\c`, `"a\"b\\c"`},
		{"a\nb\x1b[31m\x7f", `"a\u000ab\u001b[31m\u007f"`},
		{"a\u202eb\u2066c\u200bd\u0085\u2028\ufeff", `"a\u202eb\u2066c\u200bd\u0085\u2028\ufeff"`}, // directions, no width, ends of lines
		{"\U000E0041", `"\udb40\udc41"`}, // a tag: not to be seen
		{"Käse 漢 🧀", `"Käse 漢 🧀"`},
		{"a\xffb", `"a` + "\uFFFD" + `b"`},
		{long + "yy", `"` + long + `y…"`},
		{long + "ä", `"` + long + `…"`}, // never half a character
	} {
		if got := string(appendText(nil, test.in)); got != test.want {
			t.Errorf("%q becomes %s, want %s", test.in, got, test.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("/wp-login.php")
	f.Add("a\x00\u202e\xf0\x9f")
	f.Add(strings.Repeat("ä", 300))
	f.Fuzz(func(t *testing.T, s string) {
		b := appendText(nil, s)
		var back string
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if len(s) <= maxText && back != strings.ToValidUTF8(s, "\uFFFD") && utf8.ValidString(s) {
			t.Errorf("%q came back as %q", s, back)
		}
		for _, r := range string(b) {
			if !unicode.IsGraphic(r) {
				t.Errorf("%q holds %U", b, r)
			}
		}
		if len(b) > 6*maxText+len(`"…"`) {
			t.Errorf("%d bytes became %d", len(s), len(b))
		}
	})
}

func TestCloseWritesAll(t *testing.T) {
	var out bytes.Buffer
	j := New(&out)
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				j.Add(&example)
			}
		})
	}
	wg.Wait()
	j.Close()
	j.Close() // does no harm
	if got := bytes.Count(out.Bytes(), []byte(`"rule":"rapid requests"`)); got != writers*each {
		t.Errorf("%d lines, want %d", got, writers*each)
	}
}

func TestLinesComeByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := New(&out)
		defer j.Close()
		for want := range 3 {
			j.Add(&example)
			time.Sleep(time.Second)
			synctest.Wait()
			if got := bytes.Count(out.Bytes(), []byte("\n")); got != want+1 {
				t.Errorf("%d lines a second after entry %d", got, want+1)
			}
		}
	})
}

// A stalled writer, as a full pipe is, holds up nobody; what has no room is
// counted.
func TestStalledWriterLosesAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		j := New(write)
		const n = 20_000
		for range n {
			j.Add(&example)
		}
		read2 := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(read)
			read2 <- all
		}()
		j.Close()
		write.Close()
		all := <-read2
		kept := int64(bytes.Count(all, []byte(`"rule":`)))
		lost := int64(0)
		for line := range bytes.Lines(all) {
			var v struct{ Lost int64 }
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			lost += v.Lost
		}
		if kept+lost != n || lost == 0 || kept == 0 {
			t.Errorf("%d kept and %d lost of %d", kept, lost, n)
		}
		if len(all) > 3*maxPending {
			t.Errorf("%d bytes were kept", len(all))
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	j := New(io.Discard)
	defer j.Close()
	b.ReportAllocs()
	for b.Loop() {
		j.Add(&example)
	}
}
