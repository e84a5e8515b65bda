//go:build unix

package operator

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// chownToFolder gives a file that root has created to the owner of a folder.
func chownToFolder(dir, path string) {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		_ = os.Lchown(path, int(owner.Uid), int(owner.Gid)) // a folder of another filesystem may have no owners
	}
}

// sudoFor returns the sudo command that runs a program as the owner of a folder,
// such as "sudo -u fairshare". It is "sudo" if the owner is root or cannot be
// seen, as with systemd's DynamicUser=.
func sudoFor(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "sudo"
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return "sudo"
	}
	id := strconv.FormatUint(uint64(owner.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return "sudo -u " + shellWord(u.Username)
	}
	return "sudo -u '#" + id + "'"
}
