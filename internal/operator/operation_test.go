package operator

import (
	"os"
	"path/filepath"
	"testing"

	"fairshare/internal/setup"
)

func TestDefaultFolderIsTheServicesIfItHasARegistry(t *testing.T) {
	home, service := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	t.Setenv("STATE_DIRECTORY", "")
	own := filepath.Join(home, "fairshare")
	find := func(named string) string {
		t.Helper()
		dir, err := registryDir(named, service)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if got := find(""); got != own {
		t.Errorf("with none there: %s, want %s", got, own)
	}
	touch := func(dir string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, setup.RegistryFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch(service)
	if got := find(""); got != service {
		t.Errorf("with the service's alone: %s, want %s", got, service)
	}
	if got := find("/elsewhere"); got != "/elsewhere" {
		t.Errorf("named: %s", got)
	}
	touch(own)
	if got := find(""); got != own {
		t.Errorf("with both: %s, want %s", got, own)
	}
	if err := os.Remove(filepath.Join(own, setup.RegistryFile)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STATE_DIRECTORY", "/systemd")
	if got := find(""); got != "/systemd" {
		t.Errorf("under systemd: %s", got)
	}
}
