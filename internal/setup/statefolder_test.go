package setup

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// Commands look where a server with the same state folder and environment has its socket, and where a systemd unit
// has it whose state folder is named.
func TestAdminSocketsOfServers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such sockets")
	}
	home := t.TempDir()
	for _, c := range []struct {
		runtime, state, want string
	}{
		{"", "/srv/state", "/srv/state"},
		{"/run/own", "/srv/state", "/run/own"},
		{"/run/own:/run/other", "", "/run/own"},
		{"", "", filepath.Join(home, "fairshare")},
	} {
		t.Setenv("XDG_STATE_HOME", home)
		t.Setenv("STATE_DIRECTORY", "")
		t.Setenv("RUNTIME_DIRECTORY", c.runtime)
		folder, err := StateFolder(c.state)
		if err != nil {
			t.Fatal(err)
		}
		socket := AdminSocket(folder)
		if want := filepath.Join(c.want, "admin.sock"); socket != want {
			t.Errorf("%+v: the server has %s, want %s", c, socket, want)
		}
		if all := AdminSockets(c.state); !slices.Contains(all, socket) {
			t.Errorf("%+v: the commands look at %q, and not at %s", c, all, socket)
		}
	}
	t.Setenv("RUNTIME_DIRECTORY", "")
	for _, state := range []string{"/var/lib/site", "/var/lib/private/site/"} { // in the shell of an operator
		if all := AdminSockets(state); !slices.Equal(all, []string{filepath.Join(state, "admin.sock"),
			"/run/site/admin.sock"}) {
			t.Errorf("%s: %q", state, all)
		}
	}
}
