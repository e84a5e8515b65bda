package journal

import (
	"bytes"
	"encoding/json"
	"errors"
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
	banned.Used, banned.Allowed, banned.DryRun, banned.Ban = 0, 0, true, BanInForce
	for _, test := range []struct {
		entry Entry
		want  string
	}{
		{example, `{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"curl/8",` +
			`"rule":"rapid requests","action":"refuse","dry_run":false,"status":429,"retry_after":3,"used":5,"allowed":5,"id":"0123456789"}`},
		{banned, `{"time":"2026-11-20T12:00:00.123Z","client":"2001:db8::1","method":"GET","host":"example.org","path":"/a","user_agent":"curl/8",` +
			`"rule":"rapid requests","action":"refuse","dry_run":true,"status":429,"retry_after":3,"ban":"in force","id":"0123456789"}`},
		{Entry{Action: "block", Status: 403}, `{"time":"0001-01-01T00:00:00.000Z","client":"","method":"","host":"","path":"","user_agent":"",` +
			`"rule":"","action":"block","dry_run":false,"status":403,"id":""}`},
	} {
		if got := string(test.entry.append(nil, new(stamps))); got != test.want+"\n" {
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

// later returns the example n/1000 seconds later, so that no second has more
// than it may.
func later(n int) *Entry {
	e := example
	e.Time = e.Time.Truncate(time.Second).Add(time.Duration(n/maxRate) * time.Second)
	return &e
}

func TestCloseWritesAll(t *testing.T) {
	var out bytes.Buffer
	j := New(&out)
	const writers, each = 8, 100
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				j.Add(&example)
				io.WriteString(j, "words\n")
			}
		})
	}
	wg.Wait()
	j.Close()
	j.Close() // does no harm
	for _, line := range []string{`"rule":"rapid requests"`, "words\n"} {
		if got := bytes.Count(out.Bytes(), []byte(line)); got != writers*each {
			t.Errorf("%d lines with %q, want %d", got, line, writers*each)
		}
	}
}

// losses adds up the lines that tell of losses, by their reasons.
func losses(t *testing.T, out []byte) (lines int, lost map[string]int64) {
	t.Helper()
	lost = map[string]int64{}
	for line := range bytes.Lines(out) {
		if !bytes.Contains(line, []byte(`"lost":`)) {
			continue
		}
		var v struct {
			Time time.Time
			Lost int64
			Why  string
		}
		if err := json.Unmarshal(line, &v); err != nil || v.Time.IsZero() {
			t.Fatalf("%s: %v", line, err)
		}
		lines++
		lost[v.Why] += v.Lost
	}
	return lines, lost
}

func TestEntriesOfASecondAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := New(&out)
		const seconds, each = 3, 5 * maxRate
		for second := range seconds {
			for range each {
				j.Add(later(second * maxRate))
				j.Add(later(0)) // one that took long counts now
			}
			time.Sleep(time.Second)
		}
		j.Close()
		kept := bytes.Count(out.Bytes(), []byte(`"rule":`))
		lines, lost := losses(t, out.Bytes())
		if want := int64(seconds * (2*each - maxRate)); kept != seconds*maxRate || lost["more than 1000 lines a second"] != want || len(lost) != 1 {
			t.Errorf("%d kept and %v lost, want %d and %d", kept, lost, seconds*maxRate, want)
		}
		if lines > seconds+1 {
			t.Errorf("%d lines tell of losses in %d seconds", lines, seconds)
		}
	})
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
		for i := range n {
			j.Add(later(i))
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
		_, by := losses(t, all)
		lost := by["could not be written in time"]
		if kept+lost != n || lost == 0 || kept == 0 || len(by) != 1 {
			t.Errorf("%d kept and %v lost of %d", kept, by, n)
		}
		if len(all) > 3*maxPending {
			t.Errorf("%d bytes were kept", len(all))
		}
	})
}

func TestCloseGivesUpOnAStalledWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		j := New(write)
		j.Add(&example)
		start := time.Now()
		j.Close()
		if waited := time.Since(start); waited != closeDelay {
			t.Errorf("waited %v, want %v", waited, closeDelay)
		}
		read.Close()
		synctest.Wait()
	})
}

// A full disk takes a part of what is written, and then nothing for a while.
type fullDisk struct {
	bytes.Buffer
	room int // -1 means without a bound
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room < 0 || len(p) <= d.room {
		return d.Buffer.Write(p)
	}
	n, _ := d.Buffer.Write(p[:d.room])
	d.room = 0
	return n, errors.New("no space left on device")
}

func TestFailedWritesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &fullDisk{room: 15}
		j := New(disk)
		io.WriteString(j, "first line\nsecond line\nthird line\n") // "second" is torn
		time.Sleep(2 * time.Second)
		j.Add(&example)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		disk.room = -1
		io.WriteString(j, "last line\n")
		j.Close()
		_, lost := losses(t, disk.Bytes())
		if lost["could not be written in time"] != 3 {
			t.Errorf("%v lost, want 3", lost)
		}
		if !strings.HasPrefix(disk.String(), "first line\nseco\nlast line\n{") {
			t.Errorf("written:\n%s", disk)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	j := New(io.Discard)
	defer j.Close()
	for _, bench := range []struct {
		name string
		step time.Duration
	}{{"written", time.Second}, {"beyond the bound", 0}} {
		b.Run(bench.name, func(b *testing.B) {
			e := example
			b.ReportAllocs()
			for b.Loop() {
				e.Time = e.Time.Add(bench.step)
				j.Add(&e)
			}
		})
	}
}
