package cli

import (
	"runtime/debug"
	"testing"
)

func TestVersionOfABuild(t *testing.T) {
	build := func(main string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "5cca74a68e81be73c7b0c459a1ace97ac23074dc"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	for _, c := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"no build information", nil, "development"},
		{"without version control", build("(devel)"), "development"},
		{"no module version", build(""), "development"},
		{"a clone", build("v0.0.0-20261122185226-5cca74a68e81", commit, clean), "development-5cca74a68e81"},
		{"a changed clone", build("v0.0.0-20261122185226-5cca74a68e81+dirty", commit, modified),
			"development-5cca74a68e81-modified"},
		{"before module versions", build("(devel)", commit, clean), "development-5cca74a68e81"},
		{"from a module proxy", build("v0.0.0-20261122185226-5cca74a68e81"), "v0.0.0-20261122185226-5cca74a68e81"},
		{"a tag", build("v1.2.3", commit, clean), "v1.2.3"},
		{"a short revision", build("(devel)", debug.BuildSetting{Key: "vcs.revision", Value: "17"}), "development-17"},
	} {
		if got := buildVersion(c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	at := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-22T18:52:26Z"}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "5cca74a68e81be73c7b0c459a1ace97ac23074dc"}
	known := &debug.BuildInfo{Settings: []debug.BuildSetting{commit, at}}
	for _, c := range []struct {
		version string
		info    *debug.BuildInfo
		want    string
	}{
		{"v1.2.3", known, " (commit 5cca74a68e81 2026-11-22)"},
		{"v1.2.3", nil, ""},
		{"development", nil, " (commit unknown: go build -buildvcs=true includes it)"},
		{"development-5cca74a68e81", known, ""},
		{"v1.2.3", &debug.BuildInfo{Settings: []debug.BuildSetting{commit}}, " (commit 5cca74a68e81)"},
	} {
		if got := commitNote(c.version, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", c.version, got, c.want)
		}
	}
}
