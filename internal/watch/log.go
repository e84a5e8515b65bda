package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"fairshare/internal/accesslog"
)

const (
	retiredFor  = 30 * time.Second // a rotated file is read until it has not grown for so long
	mostRetired = 8                // rotated files of a log that are read at once
)

// A source has lines of a log, in the order of the log.
type source interface {
	// fill reads more lines if there are none. It does not wait.
	fill(now time.Time, last bool) error
	// pending returns the lines that were not taken yet, and whether more may be read at
	// once when they are taken.
	pending() (lines []accesslog.Entry, more bool)
	// take takes the first n lines.
	take(n int)
}

// A log is a path to follow, with the files that are or were there.
type log struct {
	path  string
	opts  accesslog.Options
	files []*file // rotated ones first, the one at path last
	note  string  // the problem that was reported last; "" for none
	found string  // what was found at the start, for people

	unread string // the problem at the last read; "" for none
}

// current returns the file that has its place at the path; nil if there is none.
func (l *log) current() *file {
	if n := len(l.files); n > 0 && l.files[n-1].retired.IsZero() {
		return l.files[n-1]
	}
	return nil
}

// open opens the files of a log at the start. saved are the positions in its files. If
// there are none and fromEnd is set, the present content is not judged.
func (l *log) open(saved []position, fromEnd bool, now time.Time) (found string, err error) {
	for i := range saved {
		p := &saved[i]
		path := p.find()
		if path == "" && (p.Rotated || p.isNone()) {
			continue // it was read to its end, most likely, or there was none
		}
		if path == "" {
			found += fmt.Sprintf(", an earlier file was removed after byte %d, its other lines are not judged", p.Offset)
			continue
		}
		t, err := openFile(l.path, path, p.Offset, l.opts)
		if err != nil {
			return "", err
		}
		if path != l.path {
			t.retired = now
			found += ", the rest of " + filepath.Base(path) + " first"
		} else {
			found += fmt.Sprintf(", continued at byte %d", p.Offset)
		}
		l.files = append(l.files, t)
	}
	if l.current() != nil {
		return found, nil
	}
	t, err := openFile(l.path, l.path, 0, l.opts)
	if errors.Is(err, fs.ErrNotExist) {
		l.note = err.Error()
		return found + ", does not exist yet", nil
	}
	if err != nil {
		return "", err
	}
	l.files = append(l.files, t)
	if len(saved) > 0 || !fromEnd {
		return found + ", from its beginning", nil
	}
	end, err := lastLineEnd(t.f, t.size)
	if err != nil {
		return "", err
	}
	t.f.Close()
	l.files = l.files[:len(l.files)-1]
	if t, err = openFile(l.path, l.path, end, l.opts); err != nil {
		return "", err
	}
	l.files = append(l.files, t)
	return found + ", new lines", nil
}

// lastLineEnd returns the end of the last whole line of a file.
func lastLineEnd(f *os.File, size int64) (int64, error) {
	for size > 0 {
		n := min(size, blockSize)
		text := make([]byte, n)
		if _, err := f.ReadAt(text, size-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
			return size - n + int64(i) + 1, nil
		}
		size -= n
	}
	return 0, nil
}

// look finds out whether the log was rotated or truncated. The returned text, if any, is
// for people.
func (l *log) look(now time.Time) (line string, err error) {
	t := l.current()
	if t != nil {
		replaced, err := t.replaced()
		if err != nil {
			return "", err
		}
		if replaced {
			line = l.truncated(t, now)
			t = l.current()
		}
	}
	info, err := os.Stat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return line, nil // its successor is about to be made; t is still read
	case err != nil:
		return line, err
	}
	if t != nil {
		if own, err := t.f.Stat(); err == nil && os.SameFile(own, info) {
			return line, nil
		}
		t.retired, t.grownAt = now, now
	}
	next, err := openFile(l.path, l.path, 0, l.opts)
	if errors.Is(err, fs.ErrNotExist) {
		return line, nil
	}
	if err != nil {
		return line, err
	}
	l.files = append(l.files, next)
	switch {
	case t != nil:
		line = l.path + " was rotated: its new file is read from the beginning"
	case l.note != "":
		line = l.path + " exists now: it is read from the beginning"
	}
	l.note = ""
	return line, nil
}

// truncated begins a truncated file again. Lines that were copied before and not judged yet
// are read from the copy.
func (l *log) truncated(t *file, now time.Time) (line string) {
	line = l.path + " was truncated: it is read from the beginning"
	rest := t.position()
	rest.Inode = 0
	t.retired, t.done, t.more = now, true, false // without a copy, the lines that were read are still judged
	if path := rest.find(); path != "" && path != l.path {
		if old, err := openFile(l.path, path, t.judged, l.opts); err == nil {
			old.retired, old.grownAt = now, now
			l.files, t.lines = append(l.files, old), nil
			line += ", and its rest from " + path
		}
	}
	if next, err := openFile(l.path, l.path, 0, l.opts); err == nil { // else look finds it later
		l.files = append(l.files, next)
	}
	return line
}

// sweep closes rotated files that were read to the end and are not written any more.
func (l *log) sweep(now time.Time) {
	kept := l.files[:0]
	retired := 0
	for _, t := range l.files {
		if !t.retired.IsZero() {
			retired++
		}
	}
	for _, t := range l.files {
		done := !t.retired.IsZero() && len(t.lines) == 0 && t.readAll()
		if done && t.done {
			t.f.Close()
			continue
		}
		quiet := now.Sub(t.retired) > retiredFor && now.Sub(t.grownAt) > retiredFor
		if done && (quiet || retired > mostRetired) {
			retired--
			t.f.Close()
			continue
		}
		kept = append(kept, t)
	}
	clear(l.files[len(kept):])
	l.files = kept
}

func (l *log) close() {
	for _, t := range l.files {
		t.f.Close()
	}
}
