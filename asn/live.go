package asn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"fairshare"
)

// pollEvery is the time between two checks of the files.
const pollEvery = 2 * time.Second

// A Live is a table that Run reads again when its files change. Call Run in a
// goroutine; it returns when ctx ends. A Live is safe for concurrent use.
type Live struct {
	files Files
	log   func(string)
	table atomic.Pointer[Table]

	mu      sync.Mutex
	read    []stamp // of the version in use
	broken  []stamp // of a version that could not be read
	seen    []stamp // of the last check
	problem string  // the last one logged; "": there is none
}

// A stamp tells versions of a file apart without reading it.
type stamp struct{ info os.FileInfo }

func (a stamp) same(b stamp) bool {
	if a.info == nil || b.info == nil {
		return a.info == nil && b.info == nil
	}
	return a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
}

func same(a, b []stamp) bool {
	for i := range a {
		if i >= len(b) || !a[i].same(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

// stamps returns the stamps of all files; the error is of the first file that
// is missing.
func (f *Files) stamps() (all []stamp, err error) {
	for _, name := range f.all() {
		info, fault := os.Stat(name)
		if fault != nil && err == nil {
			err = &FileError{name, bare(fault)}
		}
		all = append(all, stamp{info})
	}
	return all, err
}

// Open reads the files. If previous has read the same versions of the same
// files, its table is used again; previous may be nil. [Live.Run] calls log with
// a line for each new version and each problem; nil means that nothing is logged.
func Open(files Files, previous *Live, log func(string)) (*Live, error) {
	l := &Live{files: files, log: log}
	before, err := files.stamps()
	if err != nil {
		return nil, err
	}
	if table, ok := previous.unchanged(files, before); ok {
		l.table.Store(table)
		l.read = before
		return l, nil
	}
	table, err := Load(files)
	if err != nil {
		return nil, err
	}
	l.table.Store(table)
	l.read = settled(before, time.Now())
	return l, nil
}

// settled returns stamps without those of files that changed just now: a change
// within the same clock tick has the same stamp, so they are read again.
func settled(stamps []stamp, now time.Time) []stamp {
	for i := range stamps {
		if info := stamps[i].info; info != nil {
			if age := now.Sub(info.ModTime()); age >= 0 && age < pollEvery {
				stamps[i] = stamp{}
			}
		}
	}
	return stamps
}

// unchanged returns the table if it is of these versions of the files.
func (l *Live) unchanged(files Files, stamps []stamp) (*Table, bool) {
	if l == nil || files.Hosting != l.files.Hosting || len(files.Tables) != len(l.files.Tables) {
		return nil, false
	}
	for i, name := range files.Tables {
		if name != l.files.Tables[i] {
			return nil, false
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.Load(), same(l.read, stamps)
}

// Owner returns who owns an address; the zero Owner if nobody is known. It
// allocates nothing, and takes some tens of nanoseconds.
func (l *Live) Owner(addr netip.Addr) fairshare.Owner {
	if l == nil {
		return fairshare.Owner{}
	}
	return l.table.Load().Owner(addr)
}

// Table returns the table in use; nil if l is nil.
func (l *Live) Table() *Table {
	if l == nil {
		return nil
	}
	return l.table.Load()
}

// Run reads the files again when they change, until ctx ends. While one of them
// is missing or broken, the table in use stays.
func (l *Live) Run(ctx context.Context) {
	if l == nil {
		return
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.check(now)
		}
	}
}

// check reads files that have changed and were the same in two checks, because
// writing them may take some time.
func (l *Live) check(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stamps, err := l.files.stamps()
	if err != nil {
		l.seen = stamps
		l.report(err)
		return
	}
	if same(stamps, l.read) {
		l.seen = stamps
		l.over()
		return
	}
	if same(stamps, l.broken) || !same(stamps, l.seen) {
		l.seen = stamps
		return
	}
	table, err := Load(l.files)
	if after, _ := l.files.stamps(); !same(stamps, after) {
		l.seen = nil // it is being written
		return
	}
	if err != nil {
		l.broken = settled(stamps, now)
		l.report(err)
		return
	}
	l.read, l.broken = settled(stamps, now), nil
	before := l.table.Swap(table)
	if l.problem != "" {
		l.over()
	} else if before.ranges != table.ranges || before.Len() != table.Len() {
		l.logLine("asn: read again: " + table.String())
	}
}

// report logs a problem once.
func (l *Live) report(err error) {
	text := fmt.Sprintf("asn: %v; the table in use stays: %s", err, l.table.Load())
	if text != l.problem {
		l.problem = text
		l.logLine("warning: " + text)
	}
}

// over logs the end of a problem.
func (l *Live) over() {
	if l.problem != "" {
		l.problem = ""
		l.logLine("asn: the files can be read again: " + l.table.Load().String())
	}
}

func (l *Live) logLine(text string) {
	if l.log != nil {
		l.log(text)
	}
}

// String returns the size of the table.
func (t *Table) String() string {
	if t == nil {
		return "none"
	}
	return fmt.Sprintf("%d ranges of %d owners", t.Ranges(), t.Len())
}

// Hint says what to do about an error of Open or Load; "" if that is not known.
func Hint(err error) string {
	if errors.Is(err, errNoOwners) {
		return "use a table of autonomous systems, such as GeoLite2-ASN or the npm package @ip-location-db/asn"
	}
	return ""
}

// Faulty returns the name of the file that an error of Open or Load is about,
// "" if it is about several.
func Faulty(err error) string {
	if file := (*FileError)(nil); errors.As(err, &file) {
		return file.File
	}
	return ""
}
