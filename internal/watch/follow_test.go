package watch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairshare/internal/accesslog"
	"fairshare/internal/journal"
)

// A follower follows logs as a watcher does, and collects what would be judged.
type follower struct {
	t         *testing.T
	positions *positions
	logs      []*log
	got       []string // targets
	now       time.Time
}

func follow(t *testing.T, folder string, fromEnd bool, paths ...string) *follower {
	t.Helper()
	f := &follower{t: t, now: time.Now()}
	var err error
	if f.positions, err = readPositions(folder, func(line string) { t.Log(line) }); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		l := &log{path: path}
		if l.found, err = l.open(f.positions.of(path), fromEnd, f.now); err != nil {
			t.Fatal(err)
		}
		f.logs = append(f.logs, l)
	}
	f.look()
	t.Log("start", f.logs[0].found)
	return f
}

func (f *follower) look() {
	f.t.Helper()
	for _, l := range f.logs {
		if line, err := l.look(f.now); err != nil {
			f.t.Fatal(err)
		} else if line != "" {
			f.t.Log(line)
		}
		l.sweep(f.now)
	}
	f.positions.store(f.now, f.logs)
}

// judge takes lines in chunks, at most n.
func (f *follower) judge(n int) {
	f.t.Helper()
	var chunk []accesslog.Entry
	for range n {
		var sources []source
		for _, l := range f.logs {
			for _, t := range l.files {
				if err := t.fill(f.now, false); err != nil {
					f.t.Fatal(err)
				}
				sources = append(sources, t)
			}
		}
		chunk = next(sources, chunk[:0])
		f.positions.store(f.now, f.logs)
		for i := range chunk {
			f.got = append(f.got, strings.Clone(chunk[i].Target))
		}
	}
}

func (f *follower) close() {
	for _, l := range f.logs {
		l.close()
	}
}

func logLine(n int) string {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	return fmt.Sprintf("192.0.2.1 - - [%s] \"GET /%d HTTP/1.1\" 200 5 \"-\" \"%s\"\n", at.Format("02/Jan/2006:15:04:05 -0700"), n,
		strings.Repeat("x", n%70))
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// Each line is judged exactly once, whatever happens to a log: it grows by parts of lines,
// is renamed, copied and truncated, and has garbage in it. The process is killed and started
// again.
func TestEachLineIsJudgedOnce(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			path := filepath.Join(dir, "access.log")
			f := follow(t, dir, true, path) // it does not exist yet
			defer func() { f.close() }()
			written, rotations := 0, 0
			var half string // of a line
			grow := func() {
				text := half
				for range r.IntN(300) {
					text += logLine(written)
					written++
					if r.IntN(20) == 0 {
						text += "garbage \x00\xff\n"
					}
				}
				half = ""
				if r.IntN(3) == 0 { // the last line is not complete yet
					line := logLine(written)
					written++
					cut := r.IntN(len(line))
					text, half = text+line[:cut], line[cut:]
				}
				appendTo(t, path, text)
			}
			rotate := func() {
				rotations++
				appendTo(t, path, half)
				half = ""
				to := fmt.Sprintf("%s.%d", path, rotations)
				if r.IntN(2) == 0 {
					if err := os.Rename(path, to); err != nil {
						t.Fatal(err)
					}
					for range r.IntN(5) { // the server still writes the old one
						appendTo(t, to, logLine(written))
						written++
					}
					appendTo(t, path, "")
					return
				}
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				appendTo(t, to, string(content))
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			grow()
			for range 40 {
				switch r.IntN(6) {
				case 0, 1:
					grow()
				case 2:
					f.look()
					rotate()
					f.look()
				case 3: // killed
					f.look()
					got := f.got
					f.close()
					if r.IntN(2) == 0 {
						rotate()
						grow()
					}
					f = follow(t, dir, true, path)
					f.got = got
				default:
					f.look()
					f.judge(r.IntN(4))
				}
			}
			appendTo(t, path, half)
			for range 4 {
				f.look()
				f.judge(1000)
				f.now = f.now.Add(time.Minute)
			}
			seen := map[string]int{}
			for _, target := range f.got {
				seen[target]++
			}
			for i := range written {
				if n := seen["/"+strconv.Itoa(i)]; n != 1 {
					t.Fatalf("line %d of %d was judged %d times", i, written, n)
				}
			}
			if len(f.got) != written {
				t.Errorf("%d lines were judged, want %d", len(f.got), written)
			}
		})
	}
}

// Logs are merged by time where their lines are written already.
func TestLogsAreMergedByTime(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 3 {
		path := filepath.Join(dir, fmt.Sprintf("%d.log", i))
		var text bytes.Buffer
		for n := i; n < 9000; n += 3 + i%2*3 {
			text.WriteString(logLine(n))
		}
		appendTo(t, path, text.String())
		paths = append(paths, path)
	}
	f := follow(t, dir, false, paths...)
	defer f.close()
	f.judge(10_000)
	last := -1
	for _, target := range f.got {
		n, err := strconv.Atoi(target[1:])
		if err != nil || n < last {
			t.Fatalf("%s after %d", target, last)
		}
		last = n
	}
	if len(f.got) != 3000+1500+3000 {
		t.Errorf("%d lines", len(f.got))
	}
}

func TestALogIsFollowedFromItsEnd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	appendTo(t, path, logLine(1)+logLine(2)+logLine(3)[:20])
	f := follow(t, dir, true, path)
	defer f.close()
	f.judge(2)
	appendTo(t, path, logLine(3)[20:]+logLine(4))
	f.judge(2)
	if got := strings.Join(f.got, " "); got != "/3 /4" {
		t.Errorf("judged %s", got)
	}
}

// A file with the inode of a removed log is another file.
func TestAnotherFileWithTheSameInodeIsReadFromTheBeginning(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	appendTo(t, path, logLine(1)+logLine(2))
	f := follow(t, dir, false, path)
	f.judge(2)
	f.close()
	f.got = nil
	if err := os.WriteFile(path, []byte(logLine(5)+logLine(6)+logLine(7)), 0o600); err != nil { // the inode stays
		t.Fatal(err)
	}
	f = follow(t, dir, false, path)
	defer f.close()
	f.judge(2)
	if got := strings.Join(f.got, " "); got != "/5 /6 /7" {
		t.Errorf("judged %s", got)
	}
}

// A log that does not exist yet is none of the files next to it.
func TestAnAbsentLogIsNotItsNeighbour(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	appendTo(t, filepath.Join(dir, "access-old.log"), logLine(1)+logLine(2))
	f := follow(t, dir, true, path)
	f.judge(2)
	f.close()
	got := f.got
	f = follow(t, dir, true, path) // the stored position is one of no file
	f.judge(2)
	f.close()
	if got = append(got, f.got...); len(got) != 0 {
		t.Errorf("judged %q of another file", got)
	}
	appendTo(t, path, logLine(5)+logLine(6))
	f = follow(t, dir, true, path)
	defer f.close()
	f.judge(2)
	if got := strings.Join(f.got, " "); got != "/5 /6" {
		t.Errorf("judged %s", got)
	}
}

// A rotated file that was emptied is read to its end.
func TestAnEmptiedRotatedFileIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	appendTo(t, path, logLine(1)+logLine(2))
	f := follow(t, "", false, path)
	defer f.close()
	f.judge(2)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, logLine(3))
	f.look()
	f.judge(2)
	if err := os.Truncate(path+".1", 0); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(2 * time.Minute)
	f.look()
	if n := len(f.logs[0].files); n != 1 || strings.Join(f.got, " ") != "/1 /2 /3" {
		t.Errorf("%d files are open, judged %v", n, f.got)
	}
}

func TestALineThatIsTooLongIsSkipped(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	appendTo(t, path, logLine(1)+strings.Repeat("y", 5<<20))
	f := follow(t, dir, false, path)
	defer f.close()
	f.judge(40)
	appendTo(t, path, "y\n"+logLine(2))
	f.judge(3)
	if got := strings.Join(f.got, " "); got != "/1 /2" {
		t.Errorf("judged %s", got)
	}
}

func TestDamagedPositionsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, filepath.Join(dir, PositionsFile), "{not json")
	var logged []string
	p, err := readPositions(dir, func(line string) { logged = append(logged, line) })
	if err != nil || len(p.Logs) != 0 || len(logged) != 1 || !strings.Contains(logged[0], "cannot be used") {
		t.Errorf("%v, logged %q", err, logged)
	}
}

// A rotated file that cannot be read any more is reported once.
func TestAnUnreadableFileIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	write(t, path, logLine(1))
	l := &log{path: path}
	if _, err := l.open(nil, false, time.Now()); err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(dir) // its size is known, and reading it fails
	if err != nil {
		t.Fatal(err)
	}
	l.files = append([]*file{{log: path, f: folder, retired: time.Now(), grownAt: time.Now()}}, l.files...)
	defer l.close()
	var journaled output
	messages, err := journal.Open(journal.Options{}, &journaled)
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{options: Options{Now: time.Now}, logs: []*log{l}, positions: &positions{}, journal: messages}
	for range 5 {
		w.look()
		if _, err := w.fill(); err != nil {
			t.Fatal(err)
		}
	}
	messages.Close()
	journaled.await(t, "it is tried again")
	if text := journaled.text.String(); strings.Count(text, "it is tried again") != 1 {
		t.Errorf("reported more than once:\n%s", text)
	}
}
