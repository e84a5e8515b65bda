package main

import (
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type banCmd struct {
	registryFlag
	For     period   `placeholder:"TIME" help:"How long, such as 2h or 7d (answer 429); without it permanently (answer 403)."`
	Reason  string   `placeholder:"TEXT" help:"The reason, for operators; clients do not see it."`
	Force   bool     `help:"Ban even yourself, a proxy in front, or everybody."`
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"An address, a prefix, or a bot by its name (every client that claims to be it). Several are possible; - reads one a line from standard input."`
}

func (c *banCmd) Help() string {
	return "The ban comes before all rules. It stays until it ends or unban removes it. " +
		"A running server follows within a second."
}

// Validate checks the flags for kong.
func (c *banCmd) Validate() error { return operator.CheckText("--reason", c.Reason) }

func (c *banCmd) Run(env *cli.Environment) error {
	return c.forEach(env, c.Clients, func(client string) error {
		return operator.Ban(env, c.State, operator.BanOptions{
			Client: client, For: time.Duration(c.For), Reason: c.Reason, Force: c.Force})
	})
}

type unbanCmd struct {
	registryFlag
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client. Several are possible; - reads one a line from standard input."`
}

func (c *unbanCmd) Help() string {
	return "Removes an operator's ban. Ends the rules' bans of the client, and of all clients within a prefix. " +
		"They are forgotten: the next ban counts as the first. What allow has set stays."
}

func (c *unbanCmd) Run(env *cli.Environment) error {
	return c.forEach(env, c.Clients, func(client string) error { return operator.Unban(env, c.State, client) })
}
