package main

import (
	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type resetCmd struct {
	registryFlag
	Force   bool     `help:"Reset even all clients within a very wide prefix."`
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"The clients; with a prefix all clients within it."`
}

func (c *resetCmd) Help() string {
	return "Limits count from zero for these clients, and bans that rules began end. Records, labels and decisions " +
		"of operators stay. Counts that a client shares with others, such as those of its network, stay too. " +
		"A running server follows within a second."
}

func (c *resetCmd) Run(env *cli.Environment) error {
	return operator.Reset(env, c.State, c.Clients, c.Force)
}
