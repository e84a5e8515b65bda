package watch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairshare/internal/accesslog"
)

const (
	blockSize = 64 << 10 // bytes that are read at once
	maxLine   = 1 << 20  // a longer line is skipped
	headSize  = 1 << 10  // bytes at the beginning of a file that tell it from another one
	leastHead = 64       // bytes of a beginning that identify a copy of a file
	learnSize = 64 << 10 // bytes at the beginning of a file that show its format
)

// A file is one file of a log, read from an offset on. If its log is rotated, it is read
// to its end.
type file struct {
	log    string // path of the log
	f      *os.File
	inode  uint64
	offset int64 // of the next byte to read
	judged int64 // end of the last line that is judged or was judged
	size   int64 // at the last look
	head   []byte
	stream *accesslog.Stream

	lines    []accesslog.Entry // read, not taken yet
	more     bool              // the last read did not reach the end
	partial  int64             // bytes of the unfinished line at the end, when it was last looked at
	skipping bool              // offset is in a line that is too long
	done     bool              // nothing more is read: the file was truncated
	retired  time.Time         // when another file took its place; zero: it has its place
	grownAt  time.Time         // when it last had new lines
	skipped  skips
}

// openFile opens the file of a log, to be read from an offset on.
func openFile(log, path string, offset int64, opts accesslog.Options) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if info.IsDir() {
		f.Close()
		return nil, fmt.Errorf("%s is a directory", path)
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a regular file; a pipe can be read as standard input: -", path)
	}
	t := &file{log: log, f: f, inode: inodeOf(info), offset: offset, judged: offset, size: info.Size(), more: true}
	if t.stream, err = accesslog.NewStream(opts); err != nil {
		f.Close()
		return nil, err
	}
	if offset > 0 {
		learn := make([]byte, min(offset, learnSize))
		n, err := f.ReadAt(learn, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			f.Close()
			return nil, err
		}
		t.stream.Learn(learn[:n])
	}
	if err := t.readHead(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

// readHead reads the bytes that identify the file, as far as they are written.
func (t *file) readHead() error {
	if len(t.head) == headSize {
		return nil
	}
	head := make([]byte, headSize)
	n, err := t.f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	t.head = head[:n]
	return nil
}

// replaced looks at the file again. It reports whether it was truncated, and maybe
// written again, since the last call.
func (t *file) replaced() (bool, error) {
	info, err := t.f.Stat()
	if err != nil {
		return false, err
	}
	size := info.Size()
	if size == t.size && size >= t.offset {
		return false, nil
	}
	if t.size = size; size < t.offset {
		return true, nil
	}
	same, err := hasHead(t.f, t.head)
	if err != nil || !same {
		return !same, err
	}
	return false, t.readHead()
}

// hasHead reports whether a file begins with some bytes.
func hasHead(f *os.File, head []byte) (bool, error) {
	got := make([]byte, len(head))
	n, err := f.ReadAt(got, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(got[:n], head), nil
}

// fill implements source. last says that nothing is written to the file any more: a line
// without its end counts too.
func (t *file) fill(now time.Time, last bool) error {
	if len(t.lines) > 0 || t.done {
		return nil
	}
	last = last || !t.retired.IsZero() && now.Sub(t.retired) > retiredFor/2 && now.Sub(t.grownAt) > retiredFor/2
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	left := info.Size() - t.offset
	if left <= 0 || left == t.partial && !last {
		t.more = false
		return nil
	}
	return t.read(now, left, last)
}

// readAll reports whether all whole lines were read.
func (t *file) readAll() bool {
	info, err := t.f.Stat()
	return t.done || err != nil || info.Size()-t.offset <= t.partial // less: a rotated file was emptied
}

// read reads the next whole lines of a file that has left more bytes.
func (t *file) read(now time.Time, left int64, last bool) error {
	size := min(left, blockSize)
	for {
		text := make([]byte, size)
		n, err := t.f.ReadAt(text, t.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text = text[:n]
		t.more = int64(n) < left && err == nil
		end := bytes.LastIndexByte(text, '\n') + 1
		if last && !t.more {
			end = n
		}
		if end > 0 {
			return t.parse(text[:end], now)
		}
		if !t.more { // the end of the line is not written yet
			t.partial = int64(n)
			return nil
		}
		if size > maxLine {
			t.offset += int64(n)
			t.skipping = true
			return nil
		}
		size = min(left, 2*size)
	}
}

// parse parses whole lines.
func (t *file) parse(text []byte, now time.Time) error {
	base := t.offset
	t.offset += int64(len(text))
	t.grownAt, t.partial = now, 0
	if t.skipping {
		rest := bytes.IndexByte(text, '\n') + 1
		if rest == 0 {
			rest = len(text)
		}
		t.skipped.add("line is longer than 1 MiB", "")
		t.skipping, text, base = false, text[rest:], base+int64(rest)
	}
	t.lines = t.skipped.parse(t.stream, text, base)
	if len(t.lines) == 0 {
		t.judged = t.offset
	}
	return nil
}

func (t *file) pending() ([]accesslog.Entry, bool) { return t.lines, t.more }

func (t *file) take(n int) {
	if n > 0 {
		t.judged = t.lines[n-1].Line
	}
	if t.lines = t.lines[n:]; len(t.lines) == 0 {
		t.judged = t.offset
	}
}

// A position is how far a file was judged, as it is stored.
type position struct {
	Log    string `json:"log"`
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	Head   string `json:"head"`  // hash of the first bytes of the file
	Bytes  int    `json:"bytes"` // how many

	Rotated bool `json:"rotated,omitempty"` // another file is at the path
}

// position returns the position after the lines that were taken.
func (t *file) position() position {
	return position{Log: t.log, Inode: t.inode, Offset: t.judged, Head: hashOf(t.head), Bytes: len(t.head),
		Rotated: !t.retired.IsZero()}
}

// isNone reports whether it is the position of a log that does not exist: any empty
// beginning would be its own.
func (p *position) isNone() bool { return p.Inode == 0 && p.Bytes == 0 }

func hashOf(head []byte) string {
	sum := sha256.Sum256(head)
	return hex.EncodeToString(sum[:16])
}

// isOf reports whether a position is one of a file with this inode; 0 means any.
func (p *position) isOf(path string, inode uint64) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() < p.Offset {
		return false
	}
	if inode != 0 && inodeOf(info) != inode {
		return false
	}
	head := make([]byte, p.Bytes)
	if _, err := f.ReadAt(head, 0); err != nil {
		return false
	}
	return hashOf(head) == p.Head
}

// find returns where the file of a position is now: at the path of its log, or next to it
// under a name that a rotation gives. It is "" if the file is not there, or if there was none.
func (p *position) find() string {
	if p.isNone() {
		return ""
	}
	if p.isOf(p.Log, p.Inode) {
		return p.Log
	}
	dir, name := filepath.Split(p.Log)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return ""
	}
	stem := strings.TrimSuffix(name, filepath.Ext(name)) // access-20261123.log, too
	copied := ""
	for _, e := range entries {
		other := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), stem) || e.Name() == name || !e.Type().IsRegular() {
			continue
		}
		if p.isOf(other, p.Inode) {
			return other
		}
		if p.Bytes >= leastHead && p.isOf(other, 0) { // copytruncate has made it
			copied = other
		}
	}
	return copied
}

// skips counts lines, and those that could not be read.
type skips struct {
	lines  int64 // all
	n      int64
	reason string // of the latest
	sample string
}

func (s *skips) add(reason, sample string) {
	s.n++
	s.reason, s.sample = reason, strings.Clone(sample)
}

// parse parses whole lines, and counts.
func (s *skips) parse(stream *accesslog.Stream, text []byte, base int64) []accesslog.Entry {
	b := stream.Parse(text, base)
	for _, skip := range b.Skipped {
		s.add(skip.Reason, skip.Sample)
	}
	s.lines += int64(b.Lines())
	return b.Entries
}
