//go:build unix

package watch

import (
	"io/fs"
	"syscall"
)

// inodeOf returns the number of a file in its file system.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}
