//go:build unix

package sqlregistry

import (
	"os"
	"path/filepath"
	"syscall"
)

// chownToFolder makes the owner of the folder the owner of a file that root has
// created: the server may run as another user. SQLite does so with the files next to a
// registry.
func chownToFolder(path string) error {
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
