package memlimit

import (
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"fairshare/internal/smalldisk"
)

// Saving to a full disk fails with an error and keeps the old file.
func TestFullDisk(t *testing.T) {
	folder := smalldisk.New(t, 65536)
	path := filepath.Join(folder, "counters")
	l := opened(t, 1<<20, perMinute(10))
	take(t, l, 0, number(0), 7, start)
	if err := l.SaveFile(path, start); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		take(t, l, 0, number(i), 1, start)
	}
	for range 2 {
		if err := l.SaveFile(path, start); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a full disk: %v", err)
		}
	}
	if got := names(t, folder); !slices.Equal(got, []string{"counters"}) {
		t.Errorf("left behind: %q", got)
	}
	after := opened(t, 1<<20, perMinute(10))
	if loaded, err := after.LoadFile(path, start); err != nil || loaded.States != 1 {
		t.Errorf("%+v, %v", loaded, err)
	}
	if got := used(t, after, 0, number(0), start); got != 7 {
		t.Errorf("%d are counted, 7 were saved", got)
	}
}
