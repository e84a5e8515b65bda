// Command packaging builds what a release contains, in one folder: static programs in archives,
// packages for Debian and Red Hat, a container image, a bill of materials of each program, and
// checksums. The same commit and the same version of Go give the same bytes. It needs no
// container daemon and no root.
//
//	make dist                                   # everything
//	go run . -platforms linux/amd64 -o /tmp/x   # in the folder packaging
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// platforms are those that a release has programs for.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,freebsd/amd64,freebsd/arm64,windows/amd64,windows/arm64"

func main() {
	root := flag.String("root", "..", "checkout of fairshare; its latest commit is built")
	out := flag.String("o", "../dist", "folder to write to; its former files are deleted")
	of := flag.String("platforms", platforms, "GOOS/GOARCH, separated by commas")
	imageOnly := flag.Bool("image", false, "build only the container image")
	flag.Parse()
	if err := release(*root, *out, strings.Split(*of, ","), *imageOnly); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// A program is fairshare, built for one platform.
type program struct {
	os, arch string
	path     string
	info     *buildinfo.BuildInfo
	version  string // as in 1.2.3, or 0.0.0-20261122185226-5cca74a68e81 without a tag
	commit   string
	at       time.Time // of the commit: all files have this time
}

// base returns the start of the names of the program's files.
func (p *program) base() string { return fmt.Sprintf("fairshare_%s_%s_%s", p.version, p.os, p.arch) }

func release(root, out string, of []string, imageOnly bool) error {
	work, err := os.MkdirTemp("", "fairshare-packaging-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if root, err = clone(root, filepath.Join(work, "source")); err != nil {
		return err
	}
	if err := emptyFolder(out); err != nil {
		return err
	}
	var all []*program
	for _, platform := range of {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("-platforms: %q is not of the form GOOS/GOARCH", platform)
		}
		if imageOnly && goos != "linux" {
			continue
		}
		fmt.Fprintln(os.Stderr, "building for", platform)
		p, err := build(root, work, goos, arch)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	files, err := commonFiles(root)
	if err != nil {
		return err
	}
	if !imageOnly {
		made, err := manualFiles(root, work)
		if err != nil {
			return err
		}
		files = append(files, made...)
	}
	for _, p := range all {
		if imageOnly {
			break
		}
		if err := writeArchive(p, files, out); err != nil {
			return err
		}
		if err := writeBill(p, filepath.Join(out, p.base()+".cdx.json")); err != nil {
			return err
		}
		if p.os == "linux" {
			if err := writePackages(p, files, root, out); err != nil {
				return err
			}
		}
	}
	if err := writeImage(all, out); err != nil {
		return err
	}
	return writeChecksums(out)
}

// clone copies the latest commit of a checkout, so that nothing else gets into a release.
func clone(root, to string) (string, error) {
	git := func(args ...string) ([]byte, error) {
		cmd := exec.Command("git", args...)
		cmd.Env, cmd.Stderr = slices.DeleteFunc(os.Environ(), setsBuild), os.Stderr
		return cmd.Output()
	}
	changed, err := git("-C", root, "status", "--porcelain")
	if err != nil {
		return "", fmt.Errorf("%s is not a git checkout: a release needs a commit", root)
	}
	if len(changed) > 0 {
		fmt.Fprintln(os.Stderr, "warning: changes that are not committed are not built")
	}
	if _, err := git("-c", "advice.detachedHead=false", "clone", "-q", root, to); err != nil {
		return "", fmt.Errorf("git clone %s: %w", root, err)
	}
	return to, nil
}

// emptyFolder deletes the files of a former release, and nothing else.
func emptyFolder(out string) error {
	old, _ := filepath.Glob(filepath.Join(out, "fairshare_*"))
	for _, file := range append(old, filepath.Join(out, "SHA256SUMS")) {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.MkdirAll(out, 0o755)
}

// build builds the program for one platform. Nothing of the machine is in it, but the
// commit of the checkout is.
func build(root, work, goos, arch string) (*program, error) {
	p := &program{os: goos, arch: arch, path: filepath.Join(work, goos+"-"+arch)}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w -buildid=", "-o", p.path,
		"./cmd/fairshare")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), setsBuild), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	err := cmd.Run()
	if err != nil {
		return nil, fmt.Errorf("go build for %s/%s: %w", goos, arch, err)
	}
	if p.info, err = buildinfo.ReadFile(p.path); err != nil {
		return nil, err
	}
	for _, s := range p.info.Settings {
		switch s.Key {
		case "vcs.revision":
			p.commit = s.Value
		case "vcs.time":
			if p.at, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return nil, err
			}
		}
	}
	if p.commit == "" {
		return nil, errors.New("go build has not recorded the commit")
	}
	p.version = strings.TrimPrefix(p.info.Main.Version, "v")
	return p, nil
}

// setsBuild reports whether a variable changes what go build writes. Variables of git name another
// repository while a hook runs.
func setsBuild(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"GOFLAGS", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140"}, name) ||
		strings.HasPrefix(name, "GIT_")
}

// writeChecksums writes SHA256SUMS, which sha256sum -c reads.
func writeChecksums(out string) error {
	names, err := filepath.Glob(filepath.Join(out, "fairshare_*"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names {
		sum, err := fileSum(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, filepath.Base(name))
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func fileSum(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
