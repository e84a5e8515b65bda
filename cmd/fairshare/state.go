package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// stateDir returns the folder in which serve keeps what outlives it: the one
// named, systemd's, or the one of whoever runs it. It need not exist yet.
func stateDir(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" { // systemd.exec(5): several are joined by colons
		first, _, _ := strings.Cut(dirs, ":")
		return first, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // XDG Base Directory Specification
		return filepath.Join(dir, "fairshare"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", &hintError{errors.New("no state folder is known: $HOME is not set"), "name one: --state /var/lib/fairshare"}
	}
	return filepath.Join(home, ".local", "state", "fairshare"), nil
}
