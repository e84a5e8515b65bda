package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A fileContent is a copy of the results of a whole file.
type fileContent struct {
	Entries []Entry
	Skipped []Skip
	Format  string
	Note    error
}

// readAll reads a file to its end.
func readAll(t *testing.T, path string, opts Options) fileContent {
	t.Helper()
	f, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	got := drain(t, f)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	return got
}

func drain(t *testing.T, f *File) fileContent {
	t.Helper()
	got := fileContent{Format: f.Format()}
	for {
		batch, err := f.Next()
		if errors.Is(err, io.EOF) {
			got.Note = f.Note()
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Entries {
			for _, s := range []*string{&e.Forwarded, &e.Method, &e.Target, &e.Host, &e.Referer, &e.UserAgent,
				&e.Cookie} {
				*s = strings.Clone(*s)
			}
			got.Entries = append(got.Entries, e)
		}
		for _, s := range batch.Skipped {
			s.Sample = strings.Clone(s.Sample)
			got.Skipped = append(got.Skipped, s)
		}
		batch.Release()
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func zstded(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

// line returns the i-th line of a made-up log, with its line end.
func line(i int) string {
	return fmt.Sprintf(
		"192.0.2.%d - - [10/Oct/2000:13:%02d:%02d -0700] \"GET /%d HTTP/1.1\" 200 %d \"-\" \"agent \\\"%d\\\"\"\n",
		i%256, i/60%60, i%60, i, i, i%7)
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i))
	}
	return b.String()
}

// wantLines checks that got is lines(n), numbered from first on.
func wantLines(t *testing.T, got fileContent, n int, first int64) {
	t.Helper()
	if len(got.Entries) != n {
		t.Fatalf("%d entries, want %d; skipped: %v", len(got.Entries), n, got.Skipped)
	}
	for i, e := range got.Entries {
		if e.Target != fmt.Sprint("/", i) || e.UserAgent != fmt.Sprintf("agent \"%d\"", i%7) ||
			e.Line != first+int64(i) {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
}

func TestLinesKeepTheirOrder(t *testing.T) {
	const n = 20_000
	path := writeFile(t, "access.log", lines(n))
	for _, workers := range []int{1, 2, 7} {
		for _, size := range []int{100, 1000, 64 << 10, 0} {
			got := readAll(t, path, Options{Workers: workers, BlockSize: size})
			wantLines(t, got, n, 1)
		}
	}
}

// Blocks of any size give the same result as one block.
func TestBlockSizeDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 3000 {
		switch rng.IntN(12) {
		case 0:
			text.WriteString("\n")
		case 1:
			text.WriteString("garbage " + strings.Repeat("x", rng.IntN(500)) + "\n")
		case 2:
			text.WriteString("# a comment\r\n")
		case 3:
			text.WriteString(strings.TrimSuffix(line(i), "\n") + "\r\n")
		case 4:
			text.WriteString("host.example - - [10/Oct/2000:13:00:00 -0700] \"GET / HTTP/1.1\" 200 1\n")
		case 5:
			text.WriteString("  \t \n")
		default:
			text.WriteString(line(i))
		}
	}
	text.WriteString("192.0.2.1 - - [10/Oct/2000:13:00:00 -0700] \"GET /half HTTP/1.1\" 20")
	path := writeFile(t, "access.log", text.String())
	want := readAll(t, path, Options{Workers: 1, BlockSize: 16 << 20})
	if len(want.Entries) < 1000 || len(want.Skipped) < 100 {
		t.Fatalf("%d entries, %d skipped", len(want.Entries), len(want.Skipped))
	}
	for _, size := range []int{1, 77, 1024, 5000, 100_000} {
		got := readAll(t, path, Options{Workers: 3, BlockSize: size, Format: "combined"})
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b Entry) bool { return a == b })); diff != "" {
			t.Fatalf("block size %d:\n%s", size, diff[:min(len(diff), 3000)])
		}
	}
}

// A cutter returns each line once and in order, and at most mostLines of them in a block.
func TestBlocksHaveBoundedLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := ""
	for range 200 { // runs of short lines, and long lines
		random += strings.Repeat(strings.Repeat("x", rng.IntN(9))+"\n", rng.IntN(500))
		random += strings.Repeat("y", rng.IntN(3000))
	}
	for name, text := range map[string]string{
		"empty lines":              strings.Repeat("\n", 10*mostLines),
		"one block":                strings.Repeat("a\n", mostLines),
		"and an incomplete line":   strings.Repeat("a\n", mostLines) + "b",
		"and one line":             strings.Repeat("a\n", mostLines) + "b\n",
		"short lines":              strings.Repeat("1.2.3.4\n", 5*mostLines+17),
		"before a long line":       strings.Repeat("a\n", 3*mostLines) + strings.Repeat("z", maxLine-1) + "\nb",
		"behind a long line":       strings.Repeat("z", maxLine-1) + "\n" + strings.Repeat("a\n", 3*mostLines),
		"runs of short lines":      random,
		"without the end of lines": strings.Repeat("z", 5000),
	} {
		for _, size := range []int{100, 5000, blockSize, 4 << 20} {
			c, b := cutter{src: iotest.HalfReader(strings.NewReader(text)), size: size, line: 1}, newBlock()
			var got strings.Builder
			for blocks := 0; c.next(b); blocks++ {
				if blocks > len(text) {
					t.Fatalf("%s, size %d: does not end", name, size)
				}
				if want := int64(1 + strings.Count(got.String(), "\n")); b.first != want {
					t.Fatalf("%s, size %d: first line %d, want %d", name, size, b.first, want)
				}
				n := bytes.Count(bytes.TrimSuffix(b.text, []byte("\n")), []byte("\n")) + 1
				if n > mostLines || len(b.text) == 0 || len(b.text) > max(2*size, 2*maxLine) {
					t.Fatalf("%s, size %d: a block of %d lines, %d bytes", name, size, n, len(b.text))
				}
				got.Write(b.text)
			}
			if got.String() != text || !ended(c.err) {
				t.Errorf("%s, size %d: %d bytes of %d, %v", name, size, got.Len(), len(text), c.err)
			}
		}
	}
}

// Many short lines do not make a batch large, and none is lost.
func TestBatchesOfShortLines(t *testing.T) {
	const n = 60_000
	f, err := Open(writeFile(t, "log", strings.Repeat("::1 1700000000.000\n", n)),
		Options{Format: "$remote_addr $msec", Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	next, entries := int64(1), 0
	for {
		b, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.Lines() > mostLines || cap(b.Entries)+cap(b.Skipped) > 2*mostLines {
			t.Fatalf("a batch of %d lines, room for %d entries", b.Lines(), cap(b.Entries))
		}
		entries += len(b.Entries)
		numbers := make([]int64, 0, mostLines)
		for i := range b.Entries {
			numbers = append(numbers, b.Entries[i].Line)
		}
		for i := range b.Skipped {
			numbers = append(numbers, b.Skipped[i].Line)
		}
		for _, number := range numbers {
			if number != next {
				t.Fatalf("line %d, want %d", number, next)
			}
			next++
		}
		b.Release()
	}
	if next != n+1 || entries != n {
		t.Errorf("%d lines, %d entries, want %d", next-1, entries, n)
	}
}

// Every batch is prepared once before Next returns it, by one function for each goroutine.
func TestPrepare(t *testing.T) {
	var text bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&text, "192.0.2.1 - - [02/Mar/2026:10:00:00 +0000] \"GET /%d HTTP/1.1\" 200 5\n", i)
	}
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	type work struct{ lines, times int }
	made := 0
	f, err := Open(path, Options{Workers: 3, BlockSize: 4 << 10, Prepare: func() func(*Batch) {
		made++
		return func(b *Batch) {
			done, _ := b.Data.(*work)
			if done == nil {
				done = new(work)
				b.Data = done
			}
			done.lines = len(b.Entries)
			done.times++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, again := 0, false
	seen := map[*work]int{}
	for {
		b, err := f.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		done := b.Data.(*work)
		if seen[done]++; done.lines != len(b.Entries) || done.times != seen[done] {
			t.Fatalf("prepared %d lines for the %dth time, want %d and %d", done.lines, done.times, len(b.Entries),
				seen[done])
		}
		lines, again = lines+done.lines, again || done.times > 1
		b.Release()
	}
	if made != 3 || lines != 20_000 || !again {
		t.Errorf("%d functions, %d lines, memory used again: %v", made, lines, again)
	}
}

func TestPackedFiles(t *testing.T) {
	const n = 5000
	text := lines(n)
	for name, packed := range map[string]string{
		"gzip":            gzipped(t, text),
		"gzip in members": gzipped(t, text[:len(text)/3]) + gzipped(t, text[len(text)/3:]),
		"zstd":            zstded(t, text),
		"zstd in frames":  zstded(t, text[:100]) + zstded(t, text[100:]),
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, writeFile(t, "no-such-ending", packed), Options{})
			wantLines(t, got, n, 1)
			if got.Note != nil {
				t.Error(got.Note)
			}
		})
	}
}

func TestTruncatedCompressedFileIsReadInPart(t *testing.T) {
	const n = 50_000
	for name, packed := range map[string]string{"gzip": gzipped(t, lines(n)), "zstd": zstded(t, lines(n))} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, writeFile(t, "log", packed[:len(packed)*3/4]), Options{})
			if got.Note == nil || !strings.Contains(got.Note.Error(), "damaged or truncated") {
				t.Errorf("note is %v", got.Note)
			}
			if len(got.Skipped) > 1 {
				t.Errorf("skipped %v", got.Skipped)
			}
			if len(got.Entries) < n/2 {
				t.Errorf("%d entries of about %d", len(got.Entries), n*3/4)
			}
			wantLines(t, got, len(got.Entries), 1)
		})
	}
	t.Run("gzip cut in its header", func(t *testing.T) {
		got := readAll(t, writeFile(t, "log", "\x1f\x8b\x08"), Options{})
		if got.Note == nil || len(got.Entries)+len(got.Skipped) > 0 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("damaged in the middle", func(t *testing.T) {
		packed := []byte(gzipped(t, lines(n)))
		for i := range 100 {
			packed[len(packed)/2+i] ^= 0x5A
		}
		got := readAll(t, writeFile(t, "log", string(packed)), Options{})
		if got.Note == nil || len(got.Entries) < n/4 {
			t.Errorf("%d entries, note %v", len(got.Entries), got.Note)
		}
	})
}

func TestLineNumbersCountAllLines(t *testing.T) {
	text := "\xEF\xBB\xBF# made by hand\r\n\r\n" + strings.ReplaceAll(lines(3), "\n", "\r\n") + " \t\r\n" +
		"garbage\r\n# end\r\n"
	got := readAll(t, writeFile(t, "log", text), Options{})
	wantLines(t, got, 3, 3)
	if want := []Skip{{Line: 7, Reason: reasonShape, Sample: "garbage"}}; !cmp.Equal(want, got.Skipped) {
		t.Errorf("skipped %+v, want %+v", got.Skipped, want)
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	fits := strings.Replace(line(2), "GET /2", "GET /2?"+strings.Repeat("y", 900<<10), 1)
	tooLong := strings.Replace(line(3), "GET /3", "GET /3?"+strings.Repeat("y", 1<<20), 1)
	text := line(0) + long + "\n" + line(1) + fits + tooLong + long + "\n" + line(4) + long
	for _, size := range []int{0, 4 << 10, 4 << 20} {
		got := readAll(t, writeFile(t, "log", text), Options{BlockSize: size})
		var at []int64
		for _, e := range got.Entries {
			at = append(at, e.Line)
		}
		if want := []int64{1, 3, 4, 7}; !cmp.Equal(want, at) {
			t.Errorf("block size %d: entries in lines %v, want %v", size, at, want)
		}
		at = nil
		for _, s := range got.Skipped {
			at = append(at, s.Line)
			if s.Reason != reasonLong || len(s.Sample) != maxSample {
				t.Errorf("skipped %q, %d bytes of sample", s.Reason, len(s.Sample))
			}
		}
		if want := []int64{2, 5, 6, 8}; !cmp.Equal(want, at) {
			t.Errorf("block size %d: skipped lines %v, want %v", size, at, want)
		}
	}
}

func TestGrowingFileEndsInAPartialLine(t *testing.T) {
	for _, c := range []struct {
		half   string
		read   int
		reason string
	}{
		{`192.0.2.9 - - [10/Oct/2000:13:00:00 -0700] "GET /3 HTTP/1.1" 200 3 "-" "age`, 4, ""},
		{`192.0.2.9 - - [10/Oct/2000:13:00:00 -0700] "GET /3 HTTP/1.1" 200 `, 3, reasonCut},
		{`192.0.2.9 - - [10/Oct/20`, 3, reasonCut},
		{`192.0.2.9`, 3, reasonShape},
	} {
		got := readAll(t, writeFile(t, "log", lines(3)+c.half), Options{})
		if len(got.Entries) != c.read || c.reason == "" && len(got.Skipped) > 0 ||
			c.reason != "" && (len(got.Skipped) != 1 || got.Skipped[0].Reason != c.reason) {
			t.Errorf("%s: %d entries, skipped %+v", c.half, len(got.Entries), got.Skipped)
		}
	}
}

func TestEmptyFilesAreNotAnError(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# nothing\n", "\xEF\xBB\xBF", gzipped(t, ""), zstded(t, "")} {
		got := readAll(t, writeFile(t, "log", text), Options{})
		if len(got.Entries)+len(got.Skipped) > 0 || got.Note != nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestGarbageFirst(t *testing.T) {
	for _, n := range []int{1, 100, 5000} {
		text := strings.Repeat("starting up …\n", n) + lines(200)
		for _, size := range []int{0, 1000} {
			got := readAll(t, writeFile(t, "log", text), Options{BlockSize: size})
			wantLines(t, got, 200, int64(n)+1)
			if got.Format != "combined" || len(got.Skipped) != n {
				t.Errorf("format %q, %d skipped", got.Format, len(got.Skipped))
			}
		}
	}
}

// A log that was truncated while its writer continued begins with zeros.
func TestZerosFirst(t *testing.T) {
	got := readAll(t, writeFile(t, "log", strings.Repeat("\x00", 3<<20)+"\n"+lines(20)), Options{})
	wantLines(t, got, 20, 2)
	if len(got.Skipped) != 1 || got.Skipped[0].Reason != reasonLong {
		t.Errorf("skipped %+v", got.Skipped)
	}
}

func TestFormatsAreDetected(t *testing.T) {
	shop := strings.ReplaceAll(lines(5), "192.0.2.", "shop.example.org:443 192.0.2.")
	for _, c := range []struct{ want, text string }{
		{"combined", lines(5)},
		{"combined", seeds[1] + "\n" + lines(2)}, // the majority
		{"common", seeds[1] + "\n" + seeds[1] + "\n" + lines(1)},
		// no client address, but the format is clear
		{"common", strings.ReplaceAll(seeds[1], "192.0.2.7", "host.example.org")},
		{"vhost-combined", shop},
		{"combined-host", strings.ReplaceAll(lines(5), ` "-" "agent`, ` wiki.example.org "-" "agent`)},
		{"traefik-clf", strings.ReplaceAll(lines(5), "\\\"\"\n", "\" 7 \"web@file\" \"http://10.0.0.1\" 3ms\n")},
		{"caddy-json", seeds[5]},
		{"traefik-json", seeds[6]},
		{"azure-json", seeds[7]},
		{"nginx-json", seeds[8]},
		{"cloudfront", seeds[9]},
		{"iis-w3c", seeds[10] + "\n" + seeds[11]},
		{"iis-w3c", "#Fields: date time cs-method\n2000-10-10 20:55:36 GET\n"},
		{"haproxy-http", seeds[12]},
		{"aws-alb", seeds[13]},
		{"aws-elb", seeds[14]},
		{"squid", seeds[15]},
		{"atlassian", seeds[16]},
		{"tsv", seeds[17]},
	} {
		f, err := Open(writeFile(t, "log", c.text), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		if f.Format() != c.want {
			t.Errorf("%q\nhas the format %q, want %q", c.text, f.Format(), c.want)
		}
		f.Close()
	}
}

func TestFormatsByName(t *testing.T) {
	for name := range aliases {
		if f, err := parseFormat(strings.ToUpper(name)); err != nil || f.name != aliases[name] {
			t.Errorf("%s: %q, %v", name, f.name, err)
		}
	}
	for _, name := range Formats() {
		if f, err := parseFormat(strings.ReplaceAll(name, "-", "_")); err != nil || f.name != name {
			t.Errorf("%s: %q, %v", name, f.name, err)
		}
	}
}

func TestUnknownFormatGivesAHint(t *testing.T) {
	for _, text := range []string{"hello\nworld\n", "\xFF\xFEh\x00i\x00", strings.Repeat("z", 3<<20)} {
		_, err := Open(writeFile(t, "log", text), Options{})
		var unknown *FormatError
		if !errors.As(err, &unknown) || unknown.Hint == "" {
			t.Errorf("%.20q: error %v", text, err)
		}
	}
	_, err := Open(writeFile(t, "log", lines(1)), Options{Format: "combinde"})
	var unknown *FormatError
	if !errors.As(err, &unknown) || !strings.Contains(unknown.Hint, "combined") {
		t.Errorf("error %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{}); !errors.Is(err, errDirectory) {
		t.Errorf("folder: %v", err)
	}
}

func TestCloseInTheMiddleOfAFile(t *testing.T) {
	f, err := Open(writeFile(t, "log", lines(50_000)), Options{BlockSize: 1000, Workers: 3})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := f.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil { // waits for the goroutines
		t.Fatal(err)
	}
	if batch.Entries[0].Target != "/0" {
		t.Errorf("the batch that is in use became %+v", batch.Entries[0])
	}
	batch.Release()
	batch.Release()
	if _, err := f.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// While the writer of a pipe writes nothing, Close ends the read and a waiting Next.
func TestCloseWhilePipeIsIdle(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	src := &source{name: "pipe", file: r}
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w, lines(600)) // enough to detect the format
		written <- err
	}()
	if err := src.unpack(countingReader{src}); err != nil {
		t.Fatal(err)
	}
	f, err := newFile(src, Options{BlockSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := f.Next(); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("Next returned no error")
	}
}

func TestFacts(t *testing.T) {
	path := writeFile(t, "log", strings.ReplaceAll(lines(10), "\"\n", "\" 0.010\n"))
	f, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := HasMethod | HasPath | HasQuery | HasReferer | HasUserAgent | HasStatus | HasBytes | HasDuration
	if f.Has() != want {
		t.Errorf("has %b, want %b", f.Has(), want)
	}
	if f.Resolution() != time.Second || !f.Zoned() || f.Format() != "combined" {
		t.Errorf("unit %v, zone known %v, format %q", f.Resolution(), f.Zoned(), f.Format())
	}
	drain(t, f)
	read, size := f.Progress()
	if read == 0 || read != size {
		t.Errorf("read %d of %d bytes", read, size)
	}
}

// Has reports the logged parts of the request line, and these parts are read without the others.
func TestPartsOfTheRequestLine(t *testing.T) {
	const w3c = "#Fields: date time c-ip sc-status"
	for _, c := range []struct {
		name, format, lines string
		want                Fields
		method, target      string
	}{
		{"nothing", `$remote_addr [$time_local] $status`, `192.0.2.1 [17/May/2015:10:00:00 +0000] 200`, 0, "", ""},
		{"Apache, nothing", `%h %t %>s`, `192.0.2.1 [17/May/2015:10:00:00 +0000] 200`, 0, "", ""},
		{"request line", `$remote_addr [$time_local] "$request"`,
			`192.0.2.1 [17/May/2015:10:00:00 +0000] "GET /a HTTP/1.1"`, hasRequest, "GET", "/a"},
		{"request line, none sent", `$remote_addr [$time_local] "$request"`,
			`192.0.2.1 [17/May/2015:10:00:00 +0000] ""`, hasRequest, "", ""},
		{"target", `$remote_addr [$time_local] $request_uri`, `192.0.2.1 [17/May/2015:10:00:00 +0000] /a`,
			HasPath | HasQuery, "", "/a"},
		{"path", `$remote_addr [$time_local] $uri $status`, `192.0.2.1 [17/May/2015:10:00:00 +0000] /a 200`, HasPath,
			"", "/a"},
		{"path and query", `$remote_addr [$time_local] $uri$is_args$args $status`,
			`192.0.2.1 [17/May/2015:10:00:00 +0000] /a 200`, HasPath | HasQuery, "", "/a"},
		{"path and query apart", `%h %t %U %q %>s`, `192.0.2.1 [17/May/2015:10:00:00 +0000] /a ?b=c 200`,
			HasPath | HasQuery, "", "/a?b=c"},
		{"method", `%h %t %m %>s`, `192.0.2.1 [17/May/2015:10:00:00 +0000] POST 200`, HasMethod, "POST", ""},
		{"method and path", `%h %t %m %U`, `192.0.2.1 [17/May/2015:10:00:00 +0000] POST /a`, HasMethod | HasPath,
			"POST", "/a"},
		{"JSON format", `{"t":"$msec","a":"$remote_addr","u":"$uri"}`,
			`{"t":"1431856800.000","a":"192.0.2.1","u":"/a"}`, HasPath, "", "/a"},
		{"JSON, nothing", "", `{"msec":"1431856800.000","remote_addr":"192.0.2.1","status":200}`, 0, "", ""},
		{"JSON, request line", "",
			`{"msec":"1431856800.000","remote_addr":"192.0.2.1","request_line":"GET /a HTTP/1.1"}`, hasRequest, "GET",
			"/a"},
		{"JSON, request line that is not HTTP", "",
			`{"msec":"1431856800.000","remote_addr":"192.0.2.1","request":"junk","method":"GET"}`, hasRequest, "", ""},
		{"JSON, some URI", "", `{"msec":"1431856800.000","remote_addr":"192.0.2.1","method":"GET","uri":"/a"}`,
			HasMethod | HasPath, "GET", "/a"},
		{"JSON, some URI with a query", "",
			`{"msec":"1431856800.000","remote_addr":"192.0.2.1","method":"GET","uri":"/a?b"}`, hasRequest, "GET",
			"/a?b"},
		{"JSON, URI as sent", "",
			`{"msec":"1431856800.000","remote_addr":"192.0.2.1","method":"GET","request_uri":"/a"}`, hasRequest,
			"GET", "/a"},
		{"W3C, nothing", "", w3c + "\n2015-05-17 10:00:00 192.0.2.1 200", 0, "", ""},
		{"W3C, method and path", "", w3c + " cs-method cs-uri-stem\n2015-05-17 10:00:00 192.0.2.1 200 GET /a",
			HasMethod | HasPath, "GET", "/a"},
		{"W3C, all", "", w3c + " cs-method cs-uri-stem cs-uri-query\n2015-05-17 10:00:00 192.0.2.1 200 GET /a -",
			hasRequest, "GET", "/a"},
		{"Squid", "",
			"1431856800.123 12 192.0.2.1 TCP_MISS/200 512 GET http://a.example/b? - HIER_DIRECT/203.0.113.1 text/html", HasMethod | HasPath, "GET", "http://a.example/b?"},
		{"common", "", `192.0.2.1 - - [17/May/2015:10:00:00 +0000] "-" 408 -`, hasRequest, "", ""},
		{"HAProxy", "",
			`192.0.2.1:80 [17/May/2015:10:00:00.000] f b/s 0/0/0/1/1 200 12 - - ---- 1/1/0/0/0 0/0 "GET /a HTTP/1.1"`,
			hasRequest, "GET", "/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Open(writeFile(t, "log", c.lines+"\n"), Options{Format: c.format})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			b, err := f.Next()
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			if len(b.Entries) != 1 {
				t.Fatalf("skipped: %+v", b.Skipped)
			}
			e := b.Entries[0]
			if got := e.Has & hasRequest; got != c.want || f.Has()&hasRequest != c.want || e.Method != c.method ||
				e.Target != c.target {
				t.Errorf("%s: has %b, method %q, target %q; want %b, %q, %q", f.Format(), got, e.Method, e.Target,
					c.want, c.method, c.target)
			}
		})
	}
}

// A caller may hold several batches, and release them together.
func TestBatchesAreUsedAgain(t *testing.T) {
	const line = `192.0.2.7 - - [02/Jan/2026:03:04:05 +0000] "GET / HTTP/1.1" 200 10 "-" "-"` + "\n"
	path := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(path, []byte(strings.Repeat(line, 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Options{Workers: 1, BlockSize: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const most = 10 // held at once
	blocks, batches := map[*block]bool{}, 0
	var held []*Batch
	for {
		b, err := f.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		batches++
		blocks[b.block] = true
		if held = append(held, b); len(held) == most {
			for _, b := range held {
				b.Release()
			}
			held = held[:0]
		}
	}
	// Two wait to be parsed, two to be read, and one is on its way to each.
	if batches < 900 || len(blocks) > most+6 {
		t.Errorf("%d blocks for %d batches, at most %d were held", len(blocks), batches, most)
	}
}
