package setup

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairshare/internal/cli"
	"fairshare/policyfile"
)

// StateFolder returns the folder for files that outlive the process: the named
// one, otherwise the one that systemd gives to the service, otherwise the one of
// the user. The folder may not exist yet.
func StateFolder(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if dirs := os.Getenv("STATE_DIRECTORY"); dirs != "" { // systemd.exec(5): colons separate several folders
		first, _, _ := strings.Cut(dirs, ":")
		return first, nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // XDG Base Directory Specification
		return filepath.Join(dir, "fairshare"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", cli.Hint(errors.New("there is no state folder: $HOME is not set"),
			"name one: --state /var/lib/fairshare")
	}
	return filepath.Join(home, ".local", "state", "fairshare"), nil
}

// adminSocket is the name of the socket of a server for its operators.
const adminSocket = "admin.sock"

// AdminSocket returns where a server with a state folder has its socket for operators: there, or in the
// runtime directory of its systemd unit. It is "" without both.
func AdminSocket(state string) string {
	folder, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if folder = cmp.Or(folder, state); folder == "" {
		return ""
	}
	return filepath.Join(folder, adminSocket)
}

// AdminSockets returns where a command looks for the socket of a server. state is the folder that the user
// named; "" means that of the user, and those of a unit with the name fairshare. The runtime directory of a unit is
// known in its own commands, and follows from its state folder if both have one name, as systemd.exec(5) makes them.
func AdminSockets(state string) (all []string) {
	add := func(folder string) {
		if path := filepath.Join(folder, adminSocket); folder != "" && !slices.Contains(all, path) {
			all = append(all, path)
		}
	}
	own, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	if state != "" {
		add(state)
		add(own)
		parent, name := filepath.Split(filepath.Clean(state))
		if parent == "/var/lib/" || parent == "/var/lib/private/" {
			add(filepath.Join("/run", name))
		}
		return all
	}
	add(own)
	if folder, err := StateFolder(""); err == nil {
		add(folder)
	}
	add("/run/fairshare")
	add("/var/lib/fairshare")
	return all
}

// NeedsStateFolder reports whether a policy file has lists or ranges from URLs,
// whose copies are kept in the state folder, or certificates by ACME.
func NeedsStateFolder(file *policyfile.File) bool {
	if file.TLS != nil && file.TLS.ACME != nil {
		return true
	}
	for _, s := range file.Sources {
		if s.URL != "" {
			return true
		}
	}
	return file.Bots.Refresh > 0
}

// subfolder returns a folder in the state folder; "" if there is none.
func subfolder(state, name string) string {
	if state == "" {
		return ""
	}
	return filepath.Join(state, name)
}
