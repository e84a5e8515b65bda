//go:build unix

package operator

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"
)

// The hint for the folder of another user runs the command as that user.
func TestSudoForTheOwner(t *testing.T) {
	if got := sudoFor(filepath.Join(t.TempDir(), "none")); got != "sudo" {
		t.Errorf("of a folder that cannot be seen: %s", got)
	}
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		self, err := user.Current()
		if err != nil {
			t.Skip(err)
		}
		if got, want := sudoFor(dir), "sudo -u "+shellWord(self.Username); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		return
	}
	for uid, want := range map[int]string{0: "sudo", 654321: "sudo -u '#654321'"} {
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Skip(err)
		}
		if got := sudoFor(dir); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
