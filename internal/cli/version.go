package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set by the linker in releases.
var version = ""

// development is the version of a build without a version of its own.
const development = "development"

// VersionText returns the program's name and version, the Go version and the
// platform, in one line.
func VersionText() string {
	info, _ := debug.ReadBuildInfo()
	v := Version()
	note := commitNote(v, info)
	return fmt.Sprintf("fairshare %s %s %s/%s%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, note)
}

// commitNote names the commit of a build, if its version does not. info may be nil.
func commitNote(version string, info *debug.BuildInfo) string {
	settings := buildSettings(info)
	commit := settings["vcs.revision"]
	short := commit[:min(len(commit), 12)]
	switch {
	case commit == "" && version == development:
		return " (commit unknown: go build -buildvcs=true includes it)"
	case commit == "" || strings.Contains(version, short):
		return ""
	}
	day, _, _ := strings.Cut(settings["vcs.time"], "T")
	return " (" + strings.TrimSpace("commit "+short+" "+day) + ")"
}

// CommitDay returns the date of the commit that the program was built from, as 2026-11-25; "" if it is not known.
func CommitDay() string {
	info, _ := debug.ReadBuildInfo()
	day, _, _ := strings.Cut(buildSettings(info)["vcs.time"], "T")
	return day
}

func buildSettings(info *debug.BuildInfo) map[string]string {
	settings := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	return settings
}

// Version returns the version alone: one word, for a User-Agent.
func Version() string {
	if version != "" {
		return version
	}
	info, _ := debug.ReadBuildInfo()
	return buildVersion(info)
}

// buildVersion returns the version of a build that is not a release: the version of
// the module, or the commit of the working copy. info may be nil.
func buildVersion(info *debug.BuildInfo) string {
	if info == nil {
		return development
	}
	settings := buildSettings(info)
	commit := settings["vcs.revision"]
	main := info.Main.Version
	switch {
	case main != "" && main != "(devel)" && !strings.HasPrefix(main, "v0.0.0-"): // a tag
		return main
	case commit == "" && main != "" && main != "(devel)":
		return main
	case commit == "":
		return development
	}
	v := development + "-" + commit[:min(len(commit), 12)]
	if settings["vcs.modified"] == "true" {
		v += "-modified"
	}
	return v
}
