package durable

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestSyncFolder(t *testing.T) {
	for _, folder := range []string{t.TempDir(), ""} {
		if err := SyncFolder(folder); err != nil {
			t.Errorf("SyncFolder(%q): %v", folder, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if err := SyncFolder(missing); canSync && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SyncFolder of a missing folder: %v, want %v", err, fs.ErrNotExist)
	}
}
