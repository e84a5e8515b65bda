package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Two builds, in different folders and with different settings of Go, give the same bytes. The
// packages and the image hold what they should.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	one, two := t.TempDir(), t.TempDir()
	if err := release("..", one, []string{"linux/amd64"}, false); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-mod=readonly")
	t.Setenv("GOAMD64", "v3")
	t.Setenv("TZ", "Asia/Tokyo")
	if err := release("..", two, []string{"linux/amd64"}, false); err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(one, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	second, _ := os.ReadFile(filepath.Join(two, "SHA256SUMS"))
	if !bytes.Equal(first, second) || bytes.Count(first, []byte("\n")) != 5 {
		t.Errorf("two builds differ, or are not complete:\n%s\n%s", first, second)
	}
	if out, err := command(one, "sha256sum", "-c", "SHA256SUMS"); err != nil {
		t.Errorf("sha256sum: %v: %s", err, out)
	}

	t.Run("bill of materials", func(t *testing.T) {
		bill, err := os.ReadFile(find(t, one, "*.cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"bomFormat": "CycloneDX"`, "pkg:golang/github.com/alecthomas/kong@",
			"pkg:golang/std@go", `"vcs.revision"`} {
			if !bytes.Contains(bill, []byte(want)) {
				t.Errorf("it lacks %s:\n%s", want, bill)
			}
		}
	})
	want := []string{"/usr/bin/fairshare", "/etc/fairshare/fairshare.yaml", "/usr/lib/systemd/system/fairshare.service",
		"/usr/lib/systemd/system/fairshare.socket", "/usr/lib/systemd/system/fairshare-watch.service",
		"/usr/lib/sysusers.d/fairshare.conf", "/usr/share/doc/fairshare/copyright",
		"/usr/share/man/man1/fairshare.1.gz", "/usr/share/man/man1/fairshare-ban.1.gz",
		"/usr/share/bash-completion/completions/fairshare", "/usr/share/zsh/site-functions/_fairshare",
		"/usr/share/fish/vendor_completions.d/fairshare.fish"}
	t.Run("deb", func(t *testing.T) {
		lists(t, want, "dpkg-deb", "-c", find(t, one, "*.deb"))
		unit, err := command(one, "sh", "-c",
			"dpkg-deb --fsys-tarfile *.deb | tar -xO ./usr/lib/systemd/system/fairshare.service")
		if err != nil || !strings.Contains(unit, "ExecStart=/usr/bin/fairshare serve") ||
			strings.Contains(unit, "/usr/local") {
			t.Errorf("the unit has another program: %v: %s", err, unit)
		}
	})
	t.Run("rpm", func(t *testing.T) {
		lists(t, want, "rpm", "-qlp", find(t, one, "*.rpm"))
		lists(t, []string{"/etc/fairshare/fairshare.yaml"}, "rpm", "-qcp", find(t, one, "*.rpm"))
	})
	t.Run("installation", func(t *testing.T) {
		if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") != "1" || os.Getuid() != 0 {
			t.Skip("needs root on Debian, and FAIRSHARE_REQUIRE_SERVICES=1")
		}
		out, err := command(one, "sh", testFile(t, "install.sh"), find(t, one, "*.deb"))
		if err != nil || !strings.Contains(out, "all went well") || strings.Count(out, "# mine") != 2 ||
			!strings.Contains(out, "state of fairshare, mode 700") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("image", func(t *testing.T) {
		image, err := tarball.ImageFromPath(find(t, one, "*_image.tar"), nil) // as docker load reads it
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Config.User != "65532:65532" || config.Architecture != "amd64" {
			t.Fatalf("%v: %+v", err, config)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, layer := range layers {
			text, err := layer.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			for r := tar.NewReader(text); ; {
				h, err := r.Next()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				content, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				found[h.Name] = max(1, bytes.Count(content, []byte("BEGIN CERTIFICATE")))
			}
		}
		if found["usr/bin/fairshare"] == 0 || found["etc/ssl/certs/ca-certificates.crt"] < 100 ||
			found["var/lib/fairshare/"] == 0 {
			t.Errorf("the image has %v", found)
		}
	})
}

func find(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

func testFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func command(folder, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	// As another locale or a hook of git would change what the programs print.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), setsBuild), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lists checks that a program lists files.
func lists(t *testing.T, want []string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("FAIRSHARE_REQUIRE_SERVICES") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	out, err := command(".", name, args...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range want {
		if !strings.Contains(out, file+"\n") {
			t.Errorf("%s is missing:\n%s", file, out)
		}
	}
}
