package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// writePackages writes a .deb and an .rpm. They hold the program, the units of systemd and a
// policy. The installation starts nothing: the policy does not name the operator's site yet.
func writePackages(p *program, files []file, root, out string) error {
	folder, err := os.MkdirTemp("", "fairshare-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	scripts := filepath.Join(root, "packaging", "scripts")
	info := &nfpm.Info{
		Name: "fairshare", Arch: p.arch, Platform: "linux", Version: p.version, VersionSchema: "semver", MTime: p.at,
		Section: "web", Priority: "optional", License: "Apache-2.0",
		Maintainer: "The fairshare authors <fairshare@localhost>",
		Description: "keeps any one visitor from taking more than its share of a web server\n" +
			"A reverse proxy that limits what one client, crawler or fleet may use of a site,\n" +
			"and a replay of access logs that shows what a policy would have done.",
	}
	info.RPM.BuildHost = "localhost" // not the name of this machine
	info.RPM.Group = "System Environment/Daemons"
	info.Scripts.PostInstall = filepath.Join(scripts, "postinstall.sh")
	info.Scripts.PreRemove = filepath.Join(scripts, "preremove.sh")
	info.Scripts.PostRemove = filepath.Join(scripts, "postremove.sh")
	add := func(source, destination, kind string, mode os.FileMode) {
		info.Contents = append(info.Contents, &nfpmfiles.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &nfpmfiles.ContentFileInfo{Mode: mode, MTime: p.at}})
	}
	// written adds a file that is made here.
	written := func(destination string, text []byte) error {
		source := filepath.Join(folder, strings.ReplaceAll(destination, "/", "_"))
		add(source, destination, nfpmfiles.TypeFile, 0o644)
		return os.WriteFile(source, text, 0o644)
	}
	add(p.path, "/usr/bin/fairshare", nfpmfiles.TypeFile, 0o755)
	add(filepath.Join(root, "packaging", "fairshare.yaml"), "/etc/fairshare/fairshare.yaml",
		nfpmfiles.TypeConfigNoReplace, 0o644)
	for name, destination := range map[string]string{
		"fairshare.service":       "/usr/lib/systemd/system/fairshare.service",
		"fairshare.socket":        "/usr/lib/systemd/system/fairshare.socket",
		"fairshare-watch.service": "/usr/lib/systemd/system/fairshare-watch.service",
		"sysusers.conf":           "/usr/lib/sysusers.d/fairshare.conf",
	} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", name))
		if err != nil {
			return err
		}
		if err := written(destination, unit(text)); err != nil {
			return err
		}
	}
	for _, f := range files {
		destination := "/usr/share/doc/fairshare/" + f.name
		switch { // man pages and scripts of shells have places of their own
		case f.name == "LICENSE":
			destination = "/usr/share/doc/fairshare/copyright"
		case strings.HasPrefix(f.name, "man/"):
			destination, f.text = "/usr/share/man/man1/"+path.Base(f.name)+".gz", packed(f.text)
		case f.name == "completions/fairshare.bash":
			destination = "/usr/share/bash-completion/completions/fairshare"
		case f.name == "completions/fairshare.fish":
			destination = "/usr/share/fish/vendor_completions.d/fairshare.fish"
		case f.name == "completions/_fairshare":
			destination = "/usr/share/zsh/site-functions/_fairshare"
		}
		if err := written(destination, f.text); err != nil {
			return err
		}
	}
	for suffix, packager := range map[string]nfpm.Packager{".deb": deb.Default, ".rpm": rpm.DefaultRPM} {
		copied := *info // Package changes the files
		copied.Contents = append(nfpmfiles.Contents(nil), info.Contents...)
		var text bytes.Buffer
		nfpm.WithDefaults(&copied)
		if err := nfpm.PrepareForPackager(&copied, strings.TrimPrefix(suffix, ".")); err != nil {
			return err
		}
		if err := packager.Package(&copied, &text); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, p.base()+suffix), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unit returns a file of deploy/systemd as a package installs it: the program has another
// place, and the first line, which names the place of the file, is gone.
func unit(text []byte) []byte {
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	return bytes.ReplaceAll(bytes.TrimLeft(rest, "\n"), []byte("/usr/local/bin/"), []byte("/usr/bin/"))
}

func packed(text []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	z.Write(text)
	z.Close()
	return b.Bytes()
}
