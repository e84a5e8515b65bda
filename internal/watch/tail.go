package watch

import (
	"path/filepath"
	"time"

	"fairshare/internal/accesslog"
)

// A Tail reads the lines that are added to a log, also when the log is rotated or truncated. It
// begins at the end of the log, which need not exist yet. It is not safe for concurrent use.
type Tail struct {
	log   *log
	chunk []accesslog.Entry
}

// OpenTail returns the Tail of the log at a path.
func OpenTail(path string, now time.Time) (*Tail, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	t := &Tail{log: &log{path: path}}
	if t.log.found, err = t.log.open(nil, true, now); err != nil {
		return nil, logError(err)
	}
	return t, nil
}

// String returns the path of the log, and what was found there at the start.
func (t *Tail) String() string { return t.log.path + t.log.found }

// Read returns the next lines, at most 50. It does not wait for lines. They are valid until
// the next call. notes are for people: a rotation, or a problem that is tried again.
func (t *Tail) Read(now time.Time) (lines []accesslog.Entry, notes []string) {
	line, err := t.log.look(now)
	if line != "" {
		notes = append(notes, line)
	}
	var sources []source
	for _, f := range t.log.files {
		if failed := f.fill(now, false); failed != nil {
			err = failed
			continue
		}
		sources = append(sources, f)
	}
	if note := errorText(err); note != t.log.note && (note != "" || t.log.current() != nil) {
		if t.log.note = note; note != "" {
			notes = append(notes, "warning: "+note+"; it is tried again")
		}
	}
	t.chunk = next(sources, t.chunk[:0])
	t.log.sweep(now)
	return t.chunk, notes
}

// Close closes the files.
func (t *Tail) Close() { t.log.close() }
