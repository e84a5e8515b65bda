package sqlregistry

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFilesCreatedByRootBelongToTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file for another user")
	}
	dir := t.TempDir()
	check(t, "Chown", os.Chown(dir, 12345, 23456))
	path := filepath.Join(dir, "registry.db")
	r := opened(t, path, Options{})
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "x"))
	check(t, "Close", r.Close())
	more := append(append([]string{}, migrations...), "CREATE TABLE later (a);")
	r, err := open(ctx, path, Options{}, more)
	check(t, "open", err)
	defer r.Close()
	check(t, "Note", r.Note(ctx, id("192.0.2.1"), "y"))
	for _, suffix := range []string{"", "-wal", "-shm", fmt.Sprintf(".v%d", len(migrations))} {
		info, err := os.Stat(path + suffix)
		check(t, "Stat", err)
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 12345 || owner.Gid != 23456 ||
			info.Mode().Perm() != 0o600 {
			t.Errorf("registry.db%s belongs to %d:%d, mode %v", suffix, owner.Uid, owner.Gid, info.Mode())
		}
	}
}
