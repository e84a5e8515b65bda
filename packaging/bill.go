package main

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"runtime/debug"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// writeBill writes the modules that are in the program, as CycloneDX.
func writeBill(p *program, path string) error {
	sum, err := fileSum(p.path)
	if err != nil {
		return err
	}
	bill := cyclonedx.NewBOM()
	bill.SerialNumber = uuid.NewSHA1(uuid.Nil, sum).URN()
	main := component(&p.info.Main)
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	main.Properties = &[]cyclonedx.Property{{Name: "cdx:gomod:build:env:GOOS", Value: p.os},
		{Name: "cdx:gomod:build:env:GOARCH", Value: p.arch}, {Name: "vcs.revision", Value: p.commit}}
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	bill.Metadata = &cyclonedx.Metadata{Timestamp: p.at.UTC().Format("2006-01-02T15:04:05Z"), Component: &main}
	standard := component(&debug.Module{Path: "std", Version: strings.Fields(p.info.GoVersion)[0]})
	components := []cyclonedx.Component{standard}
	for _, m := range p.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(m))
	}
	uses := make([]string, len(components))
	for i := range components {
		uses[i] = components[i].BOMRef
	}
	bill.Components = &components
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func component(m *debug.Module) cyclonedx.Component {
	// The character + of a version has another meaning in a URL.
	purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: m.Path, Version: m.Version,
		PackageURL: purl}
	if coded, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		if sum, err := base64.StdEncoding.DecodeString(coded); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
	}
	return c
}
