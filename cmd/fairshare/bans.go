package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type bansCmd struct {
	registryFlag
	All  bool `help:"Former bans too, as far as they are recorded: the next ban of such a client is longer."`
	JSON bool `name:"json" help:"Print one JSON object a line."`
}

func (c *bansCmd) Help() string {
	return "Lists the bans in force: first by operators, then by rules. At the end come the clients that operators allow."
}

func (c *bansCmd) Run(env *cli.Environment) error {
	return operator.Bans(env, c.State, operator.BansOptions{All: c.All, JSON: c.JSON})
}
