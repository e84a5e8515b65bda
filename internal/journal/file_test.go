//go:build unix

package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// adder returns a function that adds entries of new clients, slowly enough that none is
// summed up.
func adder(j *Journal, n *int) func(entries int) {
	return func(entries int) {
		for range entries {
			*n++
			j.Add(now(func(e *Entry) { e.Client = v4(*n << 8) }))
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func TestFileIsRotated(t *testing.T) {
	for _, test := range []struct {
		keep int
		want []string
	}{
		{0, []string{"log", "log.1", "log.2", "log.3", "log.4"}},
		{2, []string{"log", "log.1", "log.2"}},
		{1, []string{"log", "log.1"}},
		{-1, []string{"log"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir, stderr := t.TempDir(), recorder{}
			const most = 10_000
			j := open(t, Options{File: dir + "/log", Max: most, KeepFiles: test.keep}, &stderr)
			n := 0
			adder(j, &n)(500)
			j.Close()
			if got := names(t, dir); !slices.Equal(got, test.want) {
				t.Errorf("keep %d: files %v, want %v", test.keep, got, test.want)
			}
			newest := n // line by line, from the newest to the oldest
			for i, name := range test.want {
				text := read(t, filepath.Join(dir, name))
				if len(text) > most || i > 0 && len(text) < most-400 {
					t.Errorf("keep %d: %s has %d bytes", test.keep, name, len(text))
				}
				lines := parse(t, text)
				for i := range lines {
					if l := lines[len(lines)-1-i]; l.Client != v4(newest<<8) {
						t.Fatalf("keep %d: %s holds %v, want %v", test.keep, name, l.Client, v4(newest<<8))
					}
					newest--
				}
			}
			if stderr.String() != "" {
				t.Errorf("logged %s", stderr.String())
			}
		})
	}
}

func TestFileIsNotReadableByOthers(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "log")
	j := open(t, Options{File: path}, io.Discard)
	io.WriteString(j, "fairshare: a message\n") // to stderr
	j.Close()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != fileMode || st.Size() != 0 {
		t.Errorf("mode %v, %d bytes", st.Mode(), st.Size())
	}
}

func TestOpenErrorsHaveHints(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		options   Options
		err, hint string
	}{
		{Options{Format: "xml"}, `journal: unknown format "xml"; the formats are json and text`, ""},
		{Options{File: dir + "/no/such/log"}, "journal: file " + dir + "/no/such/log: no such file or directory",
			"the directory " + dir + "/no/such does not exist: run mkdir -p " + dir +
				"/no/such, and let fairshare write to it"},
		{Options{File: dir}, "journal: file " + dir + ": is a directory",
			"name a file in it: " + dir + "/fairshare.log"},
		{Options{File: pipe}, "journal: file " + pipe + ": no such device or address",
			"no program reads this pipe or socket; start its reader first, or name a regular file"},
	} {
		_, err := Open(test.options, io.Discard)
		if err == nil || err.Error() != test.err {
			t.Errorf("%+v: %v, want %s", test.options, err, test.err)
			continue
		}
		var o *OpenError
		if errors.As(err, &o) != (test.hint != "") || o != nil && o.Hint != test.hint {
			t.Errorf("%v: hint %q, want %q", err, o.Hint, test.hint)
		}
	}
	for err, want := range map[error]string{
		syscall.EACCES: "fairshare must be able to write to the file and its directory /var/log: ",
		syscall.EROFS:  "the file system is read-only; in a systemd unit, LogsDirectory=fairshare or ReadWritePaths=/var/log makes it writable",
		syscall.ENOSPC: "name another file, or no file to write to stderr",
	} {
		o := newOpenError("/var/log/fairshare.log", &fs.PathError{Op: "open", Path: "/var/log/fairshare.log", Err: err})
		if !strings.HasPrefix(o.Hint, want) || !errors.Is(o, err) ||
			o.Error() != "journal: file /var/log/fairshare.log: "+err.Error() {
			t.Errorf("%v: hint %q, want %q", o, o.Hint, want)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"pipe"}) {
		t.Errorf("these files remain: %v", got)
	}
}

func TestMovedFileIsOpenedAgain(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"removed": os.Remove,
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, []byte("{\"lost\":1}\n"), 0o600))
		},
		"emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", reopen), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path, stderr := filepath.Join(t.TempDir(), "log"), recorder{}
					j := open(t, Options{File: path}, &stderr)
					n := 0
					add := adder(j, &n)
					add(3)
					time.Sleep(time.Second)
					if err := move(path); err != nil {
						t.Fatal(err)
					}
					if reopen {
						if err := j.Reopen(); err != nil {
							t.Fatal(err)
						}
					} else {
						time.Sleep(checkEvery)
					}
					add(2)
					j.Close()
					text := read(t, path)
					lines := parse(t, text)
					if len(lines) < 2 || lines[len(lines)-2].Client != v4(4<<8) || stderr.String() != "" {
						t.Errorf("%s%s", text, stderr.String())
					}
				})
			})
		}
	}
}

// A removed directory is not created again: entries are counted until it exists.
func TestMissingDirectoryIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, stderr := t.TempDir(), recorder{}
		logs := filepath.Join(dir, "logs")
		path := filepath.Join(logs, "log")
		if err := os.Mkdir(logs, 0o700); err != nil {
			t.Fatal(err)
		}
		j := open(t, Options{File: path}, &stderr)
		n := 0
		add := adder(j, &n)
		add(3)
		time.Sleep(time.Second)
		if err := os.RemoveAll(logs); err != nil {
			t.Fatal(err)
		}
		if err := j.Reopen(); err == nil {
			t.Error("a file was created in a missing directory")
		}
		add(10_000) // for 200 s
		if waiting := bytesWaiting(j); waiting > 2*maxLines*400 {
			t.Errorf("%d bytes wait", waiting)
		}
		fault := "fairshare: journal: open " + path +
			": no such file or directory; until it can be written again, refusals are only counted\n"
		if stderr.String() != strings.Repeat(fault, 4) {
			t.Errorf("logged %s", stderr.String())
		}
		if err := os.Mkdir(logs, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if want := strings.Repeat(fault, 4) + "fairshare: journal: it can be written again\n"; stderr.String() != want {
			t.Errorf("logged %s", stderr.String())
		}
		j.Close()
		if got := total(parse(t, read(t, path))); got != int64(n-3) {
			t.Errorf("%d entries in the new file, want %d", got, n-3)
		}
	})
}

func TestReplaceKeepsTheOldFileAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, stderr := t.TempDir(), recorder{}
		j := open(t, Options{File: dir + "/a"}, &stderr)
		n := 0
		add := adder(j, &n)
		add(1)
		for _, o := range []Options{{File: dir + "/no/such"}, {Format: "yaml", File: dir + "/b"}} {
			if err := j.Replace(o); err == nil {
				t.Errorf("%+v is accepted", o)
			}
			add(1)
		}
		time.Sleep(time.Second)
		if err := j.Replace(Options{File: dir + "/b", Load: noLoad}); err != nil {
			t.Fatal(err)
		}
		add(1)
		if err := j.Replace(Options{Load: noLoad}); err != nil {
			t.Fatal(err)
		}
		add(1)
		if err := j.Replace(Options{File: dir + "/a", Load: noLoad, Format: "text"}); err != nil {
			t.Fatal(err)
		}
		add(1)
		j.Close()
		a, text, _ := strings.Cut(read(t, dir+"/a"), "\n2000")
		for i, part := range []string{a + "\n", read(t, dir+"/b"), stderr.String()} {
			if got, want := len(parse(t, part)), []int{3, 1, 1}[i]; got != want {
				t.Errorf("%d lines in part %d, want %d: %s", got, i, want, part)
			}
		}
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, " client=0.0.6.0 ") {
			t.Errorf("text: %s", text)
		}
	})
}

// Two processes may write one file for a while: lines stay whole, and none is lost even
// when both rotate it.
func TestTwoProcessesOnOneFile(t *testing.T) {
	dir := t.TempDir()
	const each = 2000
	var wg sync.WaitGroup
	for p := range 2 {
		wg.Go(func() {
			var w *file
			w, err := openFile(Options{File: dir + "/log", Max: 10_000, KeepFiles: 1000},
				func(err error) { // on a slow machine the other rotates for long, and then the file grows
					if !strings.Contains(err.Error(), "another process has locked it") {
						t.Error(err)
					}
				})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.f.Close()
			for i := range each {
				w.checked = time.Time{} // as if the last check was a second ago
				e := with(func(e *Entry) { e.Client = v4(p*each + i) })
				line := layout{}.entry(nil, new(stamps), &e, false, -1)
				if n, err := w.put(line); n != len(line) || err != nil {
					t.Errorf("%d of %d bytes: %v", n, len(line), err)
				}
			}
		})
	}
	wg.Wait()
	lines := parse(t, readAll(t, dir))
	seen := map[string]bool{}
	for _, l := range lines {
		seen[l.Client.String()] = true
	}
	if len(lines) != 2*each || len(seen) != 2*each {
		t.Errorf("%d lines of %d clients, want %d", len(lines), len(seen), 2*each)
	}
}

func TestFileThatCannotBeRotatedGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, stderr := t.TempDir(), recorder{}
		if err := os.MkdirAll(dir+"/log.1/in the way", 0o700); err != nil {
			t.Fatal(err)
		}
		j := open(t, Options{File: dir + "/log", Max: 1000, KeepFiles: 1}, &stderr)
		n := 0
		adder(j, &n)(5000) // for 100 s
		j.Close()
		if got := total(parse(t, read(t, dir+"/log"))); got != int64(n) {
			t.Errorf("%d of %d entries", got, n)
		}
		want := "fairshare: journal: " + dir + "/log is over 1000 bytes and cannot be rotated: rename " + dir +
			"/log " + dir + "/log.1: file exists\n"
		if stderr.String() != want+want {
			t.Errorf("logged %s", stderr.String())
		}
	})
}

func TestIncompleteLineOfACrashIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("{}\n{\"ti"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, Options{File: path}, io.Discard)
	j.Add(&example)
	j.Close()
	if rest, found := strings.CutPrefix(read(t, path), "{}\n{\"ti\n"); !found || len(parse(t, rest)) != 1 {
		t.Error(read(t, path))
	}
}

// A fullStream accepts a part of a write, and then nothing for a while.
type fullStream struct {
	strings.Builder
	room int // -1 means no bound
}

func (d *fullStream) Write(p []byte) (int, error) {
	if d.room < 0 || len(p) <= d.room {
		return d.Builder.Write(p)
	}
	n, _ := d.Builder.Write(p[:d.room])
	d.room = 0
	return n, errors.New("no room")
}

func TestIncompleteLineIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stderr := &fullStream{room: 15}
		j := open(t, Options{}, stderr)
		io.WriteString(j, "first line\nsecond line\nthird line\n")
		time.Sleep(2 * time.Second)
		j.Add(&example)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := stderr.String(), "first line\nseco"; got != want {
			t.Errorf("written: %q, want %q", got, want)
		}
		stderr.room = -1
		io.WriteString(j, "last line\n")
		j.Close()
		text, rest, _ := strings.Cut(stderr.String(), "{")
		if text != "first line\nsecond line\nthird line\n" || !strings.HasSuffix(rest, "}\nlast line\n") {
			t.Errorf("written: %q", stderr)
		}
	})
}
