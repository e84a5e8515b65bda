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
