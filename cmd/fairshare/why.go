package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type whyCmd struct {
	registryFlag
	JSON      bool   `name:"json" help:"Print one JSON object a line."`
	Reference string `arg:"" name:"ID|ADDR" help:"The reference on the page that the client saw, or the client's address."`
}

func (c *whyCmd) Help() string {
	return "Shows which rule refused a client, what was counted, until when, whether that still holds, and how to let it in."
}

func (c *whyCmd) Run(env *cli.Environment) error {
	return operator.Why(env, c.State, c.Reference, c.JSON)
}
