package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nobody is the user and group in the image, as in the images of distroless.
const nobody = 65532

// writeImage writes one archive with the images of all Linux programs. It is an OCI layout and, for
// older versions of docker load, it lists the images in manifest.json too.
func writeImage(all []*program, out string) error {
	folder, err := os.MkdirTemp("", "fairshare-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	type loaded struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var list []loaded
	var first *program
	for _, p := range all {
		if p.os != "linux" {
			continue
		}
		if first == nil {
			first = p
		}
		image, err := newImage(p)
		if err != nil {
			return err
		}
		manifest, err := image.Manifest()
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
		l := loaded{Config: "blobs/sha256/" + manifest.Config.Digest.Hex,
			RepoTags: []string{"fairshare:" + tag(p) + "-" + p.arch}}
		for _, layer := range manifest.Layers {
			l.Layers = append(l.Layers, "blobs/sha256/"+layer.Digest.Hex)
		}
		list = append(list, l)
	}
	if first == nil {
		return nil
	}
	whole, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := whole.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag(first),
		"io.containerd.image.name":          "docker.io/library/fairshare:" + tag(first)})); err != nil {
		return err
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		inside, _ := filepath.Rel(folder, name)
		files = append(files, file{name: filepath.ToSlash(inside), text: text, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, files, first.at); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "fairshare_"+first.version+"_image.tar"), archive.Bytes(), 0o644)
}

// tag returns the version as a tag of the image.
func tag(p *program) string { return strings.ReplaceAll(p.version, "+", "-") }

// newImage returns the image of one program: the program, the certificates that it checks
// other servers with, and empty folders for the policy, the state and the journal.
func newImage(p *program) (v1.Image, error) {
	binary, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file of certificates cannot say to what a root is restricted
			if err := pem.Encode(&certificates, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	layers := []v1.Layer{}
	for _, files := range [][]file{
		{
			{name: "etc/", mode: 0o755}, {name: "etc/fairshare/", mode: 0o755},
			{name: "etc/passwd", mode: 0o644, text: []byte("fairshare:x:65532:65532:fairshare:/var/lib/fairshare:/sbin/nologin\n")},
			{name: "etc/group", mode: 0o644, text: []byte("fairshare:x:65532:\n")},
			{name: "etc/ssl/", mode: 0o755}, {name: "etc/ssl/certs/", mode: 0o755},
			{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: certificates.Bytes()},
			{name: "tmp/", mode: 0o1777}, {name: "var/", mode: 0o755}, {name: "var/lib/", mode: 0o755},
			{name: "var/lib/fairshare/", mode: 0o700, uid: nobody},
			{name: "var/log/", mode: 0o755}, {name: "var/log/fairshare/", mode: 0o750, uid: nobody},
		},
		{
			{name: "usr/", mode: 0o755}, {name: "usr/bin/", mode: 0o755},
			{name: "usr/bin/fairshare", mode: 0o755, text: binary},
		},
	} {
		var text bytes.Buffer
		if err := writeTar(&text, files, p.at); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(text.Bytes())), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, v1.Time{Time: p.at}
	config.History = nil
	config.Config = v1.Config{
		User: "65532:65532", WorkingDir: "/var/lib/fairshare",
		Entrypoint: []string{"/usr/bin/fairshare"},
		Cmd:        []string{"serve", "-c", "/etc/fairshare/fairshare.yaml", "--listen", ":8080"},
		// STATE_DIRECTORY is where the commands look for the registry, too.
		Env: []string{"PATH=/usr/bin", "STATE_DIRECTORY=/var/lib/fairshare"},
		// SIGTERM lets requests in progress end.
		StopSignal:   "SIGTERM",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/fairshare": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "fairshare",
			"org.opencontainers.image.version":  p.version,
			"org.opencontainers.image.revision": p.commit,
			"org.opencontainers.image.created":  p.at.UTC().Format("2006-01-02T15:04:05Z"),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}
