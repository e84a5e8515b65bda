package journal

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/internal/smalldisk"
)

func TestFullDisk(t *testing.T) {
	dir := smalldisk.New(t, 4<<20)
	synctest.Test(t, func(t *testing.T) {
		var stderr recorder
		path := dir + "/log"
		j := open(t, Options{File: path}, &stderr)
		if err := os.WriteFile(dir+"/filler", make([]byte, 4<<20-100_000), 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		add := func(seconds int) {
			for range seconds * 50 {
				n += 3
				for i := range 3 {
					j.Add(now(func(e *Entry) { e.Client = v4((n - i%2) << 8) }))
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		add(90)
		if text := stderr.String(); strings.Count(text, "\n") < 1 || strings.Count(text, "\n") > 2 ||
			!strings.HasPrefix(text, "fairshare: journal: write "+path+": no space left on device; ") {
			t.Errorf("said %s", text)
		}
		if text := read(t, path); strings.HasSuffix(text, "\n") {
			t.Error("no line is torn: nothing to see here")
		}
		if err := os.Remove(dir + "/filler"); err != nil {
			t.Fatal(err)
		}
		add(10)
		if !strings.HasSuffix(stderr.String(), "fairshare: journal: it can be written again\n") {
			t.Errorf("said %s", stderr.String())
		}
		j.Close()
		if got := total(parse(t, read(t, path))); got != int64(n) {
			t.Errorf("%d of %d entries", got, n)
		}
	})
}

// A full disk loses lines of the access log, not requests, and is reported.
func TestAccessLogOnAFullDisk(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	synctest.Test(t, func(t *testing.T) {
		var stderr recorder
		j := open(t, Options{}, &stderr)
		l, err := j.OpenAccessLog(&AccessOptions{File: dir + "/log"})
		if err != nil {
			t.Fatal(err)
		}
		a := access()
		const n = 60_000 // more than the disk and the queue hold
		for i := range n {
			l.Add(&a)
			if i%1000 == 0 {
				time.Sleep(time.Second)
			}
		}
		want := "fairshare: access_log: write " + dir + "/log: no space left on device; further lines are lost\n"
		if stderr.String() != want {
			t.Errorf("said %s, want %s", stderr.String(), want)
		}
		lost := l.Close()
		if written := int64(strings.Count(read(t, dir+"/log"), "\n")); lost+written != n || lost < n/2 {
			t.Errorf("%d written and %d lost of %d", written, lost, n)
		}
		j.Close()
	})
}

// What another process appended to a torn line is not torn as well.
func TestTornLineIsEndedIfSomebodyElseWrote(t *testing.T) {
	dir := smalldisk.New(t, 64<<10)
	w, err := openFile(Options{File: dir + "/log"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer w.f.Close()
	long := "ours" + strings.Repeat("x", 40_000) + "\n"
	if n, err := w.put([]byte(long + long)); n != len(long) || !errors.Is(err, syscall.ENOSPC) || w.part == 0 {
		t.Fatalf("%d bytes: %v", n, err)
	}
	torn := w.part
	if err := os.Truncate(dir+"/log", int64(len(long)+4)); err != nil { // space is freed
		t.Fatal(err)
	}
	other, err := openFile(Options{File: dir + "/log"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer other.f.Close()
	for _, w := range []*file{other, w} {
		if n, err := w.put([]byte("whole\n")); n != 6 || err != nil {
			t.Fatalf("%d bytes: %v (%d were torn)", n, err, torn)
		}
	}
	if got, want := read(t, dir+"/log"), long+"ours\nwhole\nwhole\n"; got != want {
		t.Errorf("got …%q", got[len(long):])
	}
}

func TestCloseReportsLostEntries(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var stderr recorder
		j := open(t, Options{File: "/dev/full"}, &stderr)
		for range 250 {
			for range 2 {
				j.Add(now(func(e *Entry) { e.Client = v4(1) }))
			}
			j.Add(now(func(e *Entry) { e.Client = v4(2) }))
			time.Sleep(time.Second)
		}
		start := time.Now()
		j.Close()
		if waited := time.Since(start); waited > closeDelay {
			t.Errorf("waited %v", waited)
		}
		fault := "fairshare: journal: write /dev/full: no space left on device; until it can be written again, refusals are only counted\n"
		if got, want := stderr.String(), strings.Repeat(fault, 5)+
			"fairshare: journal /dev/full: refusals that could not be written: 750\n"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
