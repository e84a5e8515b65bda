//go:build unix

package sqlregistry

import (
	"os"
	"path/filepath"
	"syscall"
)

// give hands a file that root made to whom its folder belongs: the server may
// run as somebody else. SQLite does so with the files beside a registry.
func give(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	folder, ok := info.Sys().(*syscall.Stat_t)
	if !ok || folder.Uid == 0 {
		return nil
	}
	return os.Lchown(path, int(folder.Uid), int(folder.Gid))
}
