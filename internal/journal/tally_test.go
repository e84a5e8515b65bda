package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A recorder is a writer that records its input with the time.
type recorder struct {
	mu    sync.Mutex
	out   bytes.Buffer
	lines map[int64]int // by second
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lines == nil {
		r.lines = map[int64]int{}
	}
	r.lines[time.Now().Unix()] += bytes.Count(p, []byte("\n"))
	return r.out.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Reset()
}

// bytesWaiting returns the number of bytes in the queue of entries.
func bytesWaiting(j *Journal) int {
	o := j.settings.Load().out
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting
}

// most returns the number of lines in the busiest second.
func (r *recorder) most() (lines int) {
	for _, n := range r.lines {
		lines = max(lines, n)
	}
	return lines
}

// A line is a line of any kind.
type line struct {
	Time, Since time.Time
	Client      netip.Addr
	Network     string
	Path, Rule  string
	Action      string
	DryRun      bool `json:"dry_run"`
	Ban         Ban
	Status      int
	Repeated    int64
	Summed      int64
	Clients     int64
	Lost        int64
	ID          string
}

// entries returns the number of entries that a line counts.
func (l *line) entries() int64 {
	n := l.Repeated + l.Summed + l.Lost
	if l.Status != 0 {
		n++
	}
	return n
}

// kind returns the values that sums distinguish.
func (l *line) kind() string { return fmt.Sprint(l.Rule, " ", l.Action, " ", l.DryRun) }

// parse returns the lines of entries in out, without messages.
func parse(t *testing.T, out string) (lines []line) {
	t.Helper()
	for text := range strings.Lines(out) {
		if strings.HasPrefix(text, "fairshare: ") {
			continue
		}
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil || !strings.HasSuffix(text, "}\n") {
			t.Fatalf("%q: %v", text, err)
		}
		if l.entries() == 0 || l.Status != 0 && l.entries() != 1 {
			t.Fatalf("a line must count entries in exactly one way: %s", text)
		}
		lines = append(lines, l)
	}
	return lines
}

func total(lines []line) (n int64) {
	for i := range lines {
		n += lines[i].entries()
	}
	return n
}

func noLoad() (float64, bool) { return 0, false }

// open returns a journal without a load average.
func open(t testing.TB, o Options, stderr interface{ Write([]byte) (int, error) }) *Journal {
	t.Helper()
	if o.Load == nil {
		o.Load = noLoad
	}
	j, err := Open(o, stderr)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// now returns the example with a change, at the present time.
func now(change func(*Entry)) *Entry {
	e := example
	e.Time = time.Now()
	change(&e)
	return &e
}

func v4(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// readAll returns all files of a directory, one after another.
func readAll(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names(t, dir) {
		all.WriteString(read(t, filepath.Join(dir, name)))
	}
	return all.String()
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func names(t testing.TB, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}
