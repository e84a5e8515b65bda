package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type forgetCmd struct {
	registryFlag
	Force   bool     `help:"Forget even all clients within a very wide prefix."`
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client; with a prefix all clients within it. Several are possible; - reads one a line from standard input."`
}

func (c *forgetCmd) Help() string {
	return "Deletes everything that is recorded: numbers, bans, refusals, operators' decisions, labels and notes. " +
		"What limits have counted for the client alone is deleted too. Its next request is judged like that of a new client. " +
		"A running server follows within a second."
}

func (c *forgetCmd) Run(env *cli.Environment) error {
	return c.forEach(env, c.Clients, func(client string) error {
		return operator.Forget(env, c.State, client, c.Force)
	})
}
