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
	checkEvery = time.Second // whether the file is still where it was
	sayEvery   = time.Minute // of a fault that lasts
	tearDelay  = 10 * time.Millisecond
	lockDelay  = 10 * time.Millisecond // 20 times at most
)

// An OpenError says why the journal's file could not be opened, and what to
// do about it.
type OpenError struct {
	File string
	Err  error
	Hint string
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("journal: file %s: %v", e.File, e.Err)
}

func (e *OpenError) Unwrap() error { return e.Err }

func newOpenError(path string, err error) *OpenError {
	var bare *fs.PathError
	if errors.As(err, &bare) {
		err = bare.Err
	}
	e := &OpenError{File: path, Err: err}
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = fmt.Sprintf("the directory %s has to be there: mkdir -p %s, and make it ours to write to", dir, dir)
	case errors.Is(err, fs.ErrPermission):
		e.Hint = fmt.Sprintf(
			"the file and its directory %s have to be ours to write to: chown them to the account that fairshare runs as (uid %d)", dir, os.Geteuid())
	case errors.Is(err, syscall.EISDIR):
		e.Hint = "name a file in it: " + filepath.Join(path, "fairshare.log")
	case errors.Is(err, syscall.EROFS):
		e.Hint = fmt.Sprintf(
			"the file system is read-only; in a systemd unit, LogsDirectory=fairshare or ReadWritePaths=%s opens it",
			dir)
	case errors.Is(err, syscall.ENXIO):
		e.Hint = "nobody reads this pipe or socket; start its reader first, or name a plain file"
	default:
		e.Hint = "name another file, or none to have the journal on stderr"
	}
	return e
}

// A file is a sink that is rotated once it is large, and opened anew when
// somebody moved or removed it. Others may append to it too.
type file struct {
	path string
	max  int64
	keep int
	warn func(error) // of what does not keep lines from being written

	f       *os.File
	plain   bool  // a regular file, not a device or a pipe
	size    int64 // -1 when a torn line is to be ended first
	part    int   // bytes of the next line that are written
	checked time.Time
	unable  time.Time // when it could last not be rotated
}

// openFile opens or makes the file, but no directory.
func openFile(o Options, warn func(error)) (*file, error) {
	w := &file{path: o.File, max: o.max(), keep: o.olderFiles(), warn: warn}
	if err := w.open(); err != nil {
		return nil, newOpenError(o.File, err)
	}
	if w.isTorn() { // by a crash, or another process is about to end it
		time.Sleep(tearDelay)
		w.mend()
	}
	return w, nil
}

// open opens the path anew and closes what was open.
func (w *file) open() error {
	// O_NONBLOCK: a named pipe that nobody reads is an error, and not a wait.
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

// isTorn tells whether the file ends within a line.
func (w *file) isTorn() bool {
	if !w.plain {
		return false
	}
	f, err := os.Open(w.path)
	if err != nil {
		return false // it may not be ours to read
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'}
	if err == nil && size > 0 {
		f.ReadAt(last, size-1)
	}
	return last[0] != '\n'
}

// mend ends a line that was left torn. If it cannot now, the size is -1, and
// it is tried again before anything is written.
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

// check opens the file anew if it is no longer where it was.
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
	if size := there.Size(); size != w.size { // somebody else appended, or emptied it
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

// fit returns how many bytes of lines, which are too many, fit into the file:
// whole lines. 0 means that it is to be rotated first.
func (w *file) fit(lines []byte) int {
	room := w.max - w.size + int64(w.part)
	if room > 0 {
		if n := bytes.LastIndexByte(lines[:room], '\n') + 1; n > w.part {
			return n
		}
	}
	if w.size > int64(w.part) && time.Since(w.unable) >= sayEvery {
		return 0
	}
	return bytes.IndexByte(lines, '\n') + 1 // a line longer than a file, or no rotation
}

// rotate renames the file and those before it, and opens a new one. Another
// process may have done so just now.
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
	older := func(n int) string { return w.path + "." + strconv.Itoa(n) }
	if w.keep == 0 {
		err = os.Remove(w.path)
	} else {
		for n := w.keep - 1; n > 0 && err == nil; n-- {
			if err = os.Rename(older(n), older(n+1)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err == nil {
			err = os.Rename(w.path, older(1))
		}
	}
	if err != nil {
		lockfile.Unlock(w.f)
		return w.grow(err)
	}
	return w.open()
}

// grow has the file grow for a while: one that is too long is better than none.
// Its directory is often not ours to write to.
func (w *file) grow(why error) error {
	w.unable = time.Now()
	w.warn(fmt.Errorf("%s is over %d bytes and cannot be rotated: %w", w.path, w.max, why))
	return nil
}

// lock has no other process rotate the file, until it is unlocked or closed.
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

// replace has further lines written to another file.
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

// Close ends the sink; nothing is put any more.
func (s *fileSink) Close() error {
	s.replace(nil)
	return s.file.f.Close()
}

// faults are said at most once a minute.
type faults struct {
	words io.Writer
	said  time.Time
	lasts bool // a write failed, which was said
}

func (f *faults) say(err error, then string) (said bool) {
	now := time.Now()
	if !f.said.IsZero() && now.Sub(f.said) < sayEvery {
		return false
	}
	f.said = now
	fmt.Fprintf(f.words, "fairshare: journal: %v%s\n", err, then)
	return true
}

func (f *faults) failed(err error) {
	if f.say(err, "; until it can be written again, refusals are only counted") {
		f.lasts = true
	}
}

func (f *faults) ended() {
	if f.lasts {
		f.lasts = false
		io.WriteString(f.words, "fairshare: journal: it can be written again\n")
	}
}
