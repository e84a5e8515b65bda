package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker in releases.
var version = ""

type versionCmd struct{}

func (c *versionCmd) Run(env *environment) error {
	_, err := fmt.Fprintln(env.stdout, versionText())
	return err
}

func versionText() string {
	v := version
	if v == "" {
		v = "development"
		if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
			v = info.Main.Version
		}
	}
	return fmt.Sprintf("fairshare %s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
