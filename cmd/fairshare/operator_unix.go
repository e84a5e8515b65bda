//go:build unix

package main

import (
	"os"
	"syscall"
)

// giveTo gives a file that root has made to the owner of a folder.
func giveTo(dir, path string) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		_ = os.Lchown(path, int(owner.Uid), int(owner.Gid)) // a folder of another filesystem may have no owners
	}
}
