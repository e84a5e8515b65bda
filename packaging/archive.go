package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A file is part of an archive, a package or a layer of the image.
type file struct {
	name string // with slashes
	text []byte
	mode int64
	uid  int
}

// commonFiles returns the files that every archive has next to the program.
func commonFiles(root string) (files []file, err error) {
	for _, name := range []string{"README.md", "CHANGELOG.md", "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: name, text: text, mode: 0o644})
	}
	return files, nil
}

// manualFiles returns the man pages and the completions of shells. The program prints them, built for this machine.
func manualFiles(root, work string) (files []file, err error) {
	p, err := build(root, work, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(work, "man")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.Command(p.path, "man", "--dir", folder).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("fairshare man: %w: %s", err, out)
	}
	pages, err := os.ReadDir(folder) // sorted
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(folder, page.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "man/" + page.Name(), text: text, mode: 0o644})
	}
	for _, script := range [][2]string{{"bash", "fairshare.bash"}, {"zsh", "_fairshare"}, {"fish", "fairshare.fish"}} {
		text, err := exec.Command(p.path, "completion", script[0]).Output()
		if err != nil {
			return nil, fmt.Errorf("fairshare completion %s: %w", script[0], err)
		}
		files = append(files, file{name: "completions/" + script[1], text: text, mode: 0o644})
	}
	return files, nil
}

// writeArchive writes the program and its files as a .tar.gz, for Windows as a .zip.
func writeArchive(p *program, files []file, out string) error {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	name, write, suffix := "fairshare", writeTarGz, ".tar.gz"
	if p.os == "windows" {
		name, write, suffix = "fairshare.exe", writeZip, ".zip"
	}
	var all []file
	for _, f := range append([]file{{name: name, text: text, mode: 0o755}}, files...) {
		f.name = p.base() + "/" + f.name
		all = append(all, f)
	}
	var packed bytes.Buffer
	if err := write(&packed, all, p.at); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, p.base()+suffix), packed.Bytes(), 0o644)
}

func writeTarGz(w io.Writer, files []file, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, files, at); err != nil {
		return err
	}
	return z.Close()
}

// writeTar writes files as a tar archive. A name that ends with a slash is a folder.
func writeTar(w io.Writer, files []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: at, Uid: f.uid, Gid: f.uid,
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.text); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, files []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(os.FileMode(f.mode))
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.text); err != nil {
			return err
		}
	}
	return z.Close()
}
