package memlimit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func names(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "counters")
	l := opened(t, 1<<12, perMinute(10))
	if _, err := l.LoadFile(path, start); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUnusable) {
		t.Errorf("no file: %v", err)
	}
	for _, left := range []string{"counters.new-1", "counters.new-275", "counters.newer", "other.new-1"} {
		if err := os.WriteFile(filepath.Join(folder, left), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for n := range int64(3) {
		take(t, l, 0, []byte("k"), 1, start)
		if err := l.SaveFile(path, start); err != nil {
			t.Fatal(err)
		}
		if got := names(t, folder); !slices.Equal(got, []string{"counters", "counters.newer", "other.new-1"}) {
			t.Errorf("there are %q", got)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		after := opened(t, 1<<12, perMinute(10))
		if loaded, err := after.LoadFile(path, start.Add(time.Second)); err != nil || loaded.States != 1 {
			t.Errorf("%+v, %v", loaded, err)
		}
		if got := used(t, after, 0, []byte("k"), start.Add(time.Second)); got != n+1 {
			t.Errorf("%d are counted, want %d", got, n+1)
		}
	}

	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	after := opened(t, 1<<12, perMinute(10))
	if _, err := after.LoadFile(path, start); !errors.Is(err, ErrUnusable) ||
		err.Error() != path+": "+errCutShort.Error() {
		t.Errorf("cut short: %v", err)
	}
	for _, size := range []int64{100, 0} { // the latest is kept
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		to, err := SetAside(path)
		if err != nil || to != path+".bad" {
			t.Errorf("set aside to %q, %v", to, err)
		}
		if info, err := os.Stat(to); err != nil || info.Size() != size {
			t.Errorf("%v, %v", info, err)
		}
	}
	if _, err := SetAside(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("set aside again: %v", err)
	}
	if _, err := after.LoadFile(path, start); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was set aside: %v", err)
	}
}

func TestSaveFileFails(t *testing.T) {
	folder := t.TempDir()
	l := opened(t, 1<<12, perMinute(10))
	if err := l.SaveFile(filepath.Join(folder, "none", "counters"), start); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	path := filepath.Join(folder, "counters")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.SaveFile(path, start); err == nil {
		t.Error("a folder was replaced")
	}
	if got := names(t, folder); !slices.Equal(got, []string{"counters"}) {
		t.Errorf("left behind: %q", got)
	}
	if _, err := l.LoadFile(path, start); err == nil || errors.Is(err, ErrUnusable) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading a folder: %v", err)
	}
	t.Run("in the working folder", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if err := l.SaveFile("counters", start); err != nil {
			t.Error(err)
		}
		if _, err := l.LoadFile("counters", start); err != nil {
			t.Error(err)
		}
		if to, err := SetAside("counters"); err != nil || to != "counters.bad" {
			t.Errorf("%q, %v", to, err)
		}
	})
}

type faultyWriter struct {
	room int
	err  error
}

func (w *faultyWriter) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		return 0, w.err
	}
	return len(b), nil
}

func TestSaveSaysWhenItCannotWrite(t *testing.T) {
	l := opened(t, 1<<20, perMinute(10))
	for i := range 10_000 {
		take(t, l, 0, number(i), 1, start)
	}
	size, fault := len(snapshotOf(t, l, start)), errors.New("no space")
	for _, room := range []int{0, 1, size / 2, size - 5, size - 1} {
		if err := l.Save(&faultyWriter{room, fault}, start); !errors.Is(err, fault) {
			t.Errorf("room for %d of %d bytes: %v", room, size, err)
		}
	}
	if err := l.Save(&faultyWriter{size, fault}, start); err != nil {
		t.Errorf("room for all: %v", err)
	}
}

func TestSavedAtIsTheTimeOfTheSnapshot(t *testing.T) {
	l, err := New(nil, Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "counters")
	if _, err := SavedAt(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	want := time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)
	if err := l.SaveFile(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := SavedAt(path); err != nil || !got.Equal(want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, content := range []string{"", "fairshare counters 1\n",
		"fairshare counters 9\n" + strings.Repeat("x", 100), strings.Repeat("x", 100)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := SavedAt(path); !errors.Is(err, ErrUnusable) {
			t.Errorf("%q: %v, %v", content, at, err)
		}
	}
}
