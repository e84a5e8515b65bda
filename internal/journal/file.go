package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"fairshare/internal/lockfile"
)

const (
	fileMode   = 0o640
	checkEvery = time.Second // checks that the path still names the open file
	logEvery   = time.Minute // of an error that persists
	tearDelay  = 10 * time.Millisecond
	lockDelay  = 10 * time.Millisecond // between at most 20 tries
)

// An OpenError reports that the journal's file could not be opened.
type OpenError struct {
	Log  string // journal or access_log
	File string
	Err  error  // the cause
	Hint string // what to do about it; never ""
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%s: file %s: %v", e.Log, e.File, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

func newOpenError(path string, err error) *OpenError {
	var bare *fs.PathError
	if errors.As(err, &bare) {
		err = bare.Err
	}
	e := &OpenError{Log: "journal", File: path, Err: err}
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = fmt.Sprintf("the directory %s does not exist: run mkdir -p %s, and let fairshare write to it", dir, dir)
	case errors.Is(err, fs.ErrPermission):
		e.Hint = fmt.Sprintf(
			"fairshare must be able to write to the file and its directory %s: chown them to the account that it runs as (uid %d)",
			dir, os.Geteuid())
	case errors.Is(err, syscall.EISDIR):
		e.Hint = "name a file in it: " + filepath.Join(path, "fairshare.log")
	case errors.Is(err, syscall.EROFS):
		e.Hint = fmt.Sprintf(
			"the file system is read-only; in a systemd unit, LogsDirectory=fairshare or ReadWritePaths=%s makes it writable",
			dir)
	case errors.Is(err, syscall.ENXIO):
		e.Hint = "no program reads this pipe or socket; start its reader first, or name a regular file"
	default:
		e.Hint = "name another file, or no file to write to stderr"
	}
	return e
}

// A file is a sink that is rotated when it is large, and opened again after another
// program has moved or removed it. Other processes may append to it, too.
type file struct {
	path  string
	max   int64       // bytes
	older int         // number of older files
	warn  func(error) // reports errors that do not stop writing

	f       *os.File
	plain   bool  // a regular file, not a device or a pipe
	size    int64 // bytes; -1 if the file ends with an incomplete line, which must be ended first
	part    int   // bytes of the next line that are written
	checked time.Time
	unable  time.Time // of the last failed rotation
}

// openFile opens or creates the file, but no directory.
func openFile(o Options, warn func(error)) (*file, error) {
	w := &file{path: o.File, max: o.max(), older: o.olderFiles(), warn: warn}
	if err := w.open(); err != nil {
		return nil, newOpenError(o.File, err)
	}
	if w.isTorn() { // after a crash, or another process is about to end the line
		time.Sleep(tearDelay)
		w.mend()
	}
	return w, nil
}

// open opens the path again and closes the previous file.
func (w *file) open() error {
	// O_NONBLOCK: a named pipe without a reader is an error instead of a wait.
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK, fileMode)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if w.f != nil {
		w.f.Close()
	}
	w.f, w.plain, w.size, w.part, w.checked = f, st.Mode().IsRegular(), st.Size(), 0, time.Now()
	return nil
}

// isTorn reports whether the file ends with an incomplete line.
func (w *file) isTorn() bool {
	if !w.plain {
		return false
	}
	f, err := os.Open(w.path)
	if err != nil {
		return false // reading may not be allowed
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'}
	if err == nil && size > 0 {
		f.ReadAt(last, size-1)
	}
	return last[0] != '\n'
}

// mend ends an incomplete line. After an error it sets the size to -1, and mend is
// called again before the next write.
func (w *file) mend() error {
	if !w.isTorn() {
		return nil
	}
	if _, err := w.f.Write([]byte("\n")); err != nil {
		w.size = -1
		return err
	}
	w.size++
	return nil
}

// check opens the file again if the path names another file.
func (w *file) check() error {
	w.checked = time.Now()
	if !w.plain {
		return nil
	}
	there, err := os.Stat(w.path)
	if err != nil {
		return w.open()
	}
	ours, err := w.f.Stat()
	if err != nil || !os.SameFile(there, ours) {
		return w.open()
	}
	if size := there.Size(); size != w.size { // another process appended to it, or emptied it
		torn := w.part > 0 || w.size < 0
		if w.size, w.part = size, 0; torn {
			return w.mend()
		}
	}
	return nil
}

func (w *file) put(lines []byte) (done int, err error) {
	if w.size < 0 || w.part > 0 || time.Since(w.checked) >= checkEvery {
		if err := w.check(); err != nil {
			return 0, err
		}
	}
	for done < len(lines) {
		room := len(lines) - done
		if w.plain && w.size+int64(room-w.part) > w.max {
			room = w.fit(lines[done:])
			if room == 0 {
				if err := w.rotate(); err != nil {
					return done, err
				}
				continue
			}
		}
		n, err := w.f.Write(lines[done+w.part : done+room])
		n = max(n, 0)
		w.size += int64(n)
		whole := bytes.LastIndexByte(lines[done:done+w.part+n], '\n') + 1
		w.part += n - whole
		done += whole
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// fit returns how many bytes of the lines, which are too many, fit into the file as
// whole lines. 0 means that the file must be rotated first.
func (w *file) fit(lines []byte) int {
	room := w.max - w.size + int64(w.part)
	if room > 0 {
		if n := bytes.LastIndexByte(lines[:room], '\n') + 1; n > w.part {
			return n
		}
	}
	if w.size > int64(w.part) && time.Since(w.unable) >= logEvery {
		return 0
	}
	return bytes.IndexByte(lines, '\n') + 1 // a line longer than a file, or no rotation
}

// rotate renames the file and the older ones, and opens a new one. If another process
// has just done so, it only opens the new file.
func (w *file) rotate() error {
	err := w.lock()
	if err != nil {
		return w.grow(err)
	}
	there, err := os.Stat(w.path)
	ours, err2 := w.f.Stat()
	if err != nil || err2 != nil || !os.SameFile(there, ours) {
		return w.open()
	}
	olderPath := func(n int) string { return w.path + "." + strconv.Itoa(n) }
	if w.older == 0 {
		err = os.Remove(w.path)
	} else {
		for n := w.older - 1; n > 0 && err == nil; n-- {
			if err = os.Rename(olderPath(n), olderPath(n+1)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err == nil {
			err = os.Rename(w.path, olderPath(1))
		}
	}
	if err != nil {
		lockfile.Unlock(w.f)
		return w.grow(err)
	}
	return w.open()
}

// grow reports a failed rotation. The file may then exceed its bound: that is better
// than losing entries. Often fairshare may not write to the directory.
func (w *file) grow(why error) error {
	w.unable = time.Now()
	w.warn(fmt.Errorf("%s is over %d bytes and cannot be rotated: %w", w.path, w.max, why))
	return nil
}

// lock prevents other processes from rotating the file until it is unlocked or closed.
func (w *file) lock() error {
	for range 20 {
		if lockfile.TryLock(w.f) {
			return nil
		}
		time.Sleep(lockDelay)
	}
	return errors.New("another process has locked it")
}

// A fileSink is a sink whose file can be replaced.
type fileSink struct {
	file   *file
	next   atomic.Pointer[file]
	faults faults
}

// replace makes put write to another file.
func (s *fileSink) replace(f *file) {
	if unused := s.next.Swap(f); unused != nil {
		unused.f.Close()
	}
}

func (s *fileSink) put(lines []byte) (int, error) {
	if next := s.next.Swap(nil); next != nil {
		s.file.f.Close()
		s.file = next
	}
	n, err := s.file.put(lines)
	if err != nil {
		s.faults.failed(err)
	} else {
		s.faults.ended()
	}
	return n, err
}

// Close closes the file. put must not be called after it.
func (s *fileSink) Close() error {
	s.replace(nil)
	return s.file.f.Close()
}

// faults logs errors, at most one a minute.
type faults struct {
	log         io.Writer
	name        string // of the log
	consequence string // of a failed write
	loggedAt    time.Time
	lasts       bool // a failed write was logged
}

// report logs an error and its consequence, and reports whether it did.
func (f *faults) report(err error, consequence string) bool {
	now := time.Now()
	if !f.loggedAt.IsZero() && now.Sub(f.loggedAt) < logEvery {
		return false
	}
	f.loggedAt = now
	fmt.Fprintf(f.log, "fairshare: %s: %v%s\n", f.name, err, consequence)
	return true
}

func (f *faults) failed(err error) {
	if f.report(err, "; "+f.consequence) {
		f.lasts = true
	}
}

func (f *faults) ended() {
	if f.lasts {
		f.lasts = false
		fmt.Fprintf(f.log, "fairshare: %s: it can be written again\n", f.name)
	}
}
