package main

import (
	"fmt"

	"fairshare/internal/cli"
)

type versionCmd struct{}

func (c *versionCmd) Run(env *cli.Environment) error {
	_, err := fmt.Fprintln(env.Stdout, cli.VersionText())
	return err
}
