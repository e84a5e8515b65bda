package main

import (
	"time"

	"fairshare/internal/cli"
	"fairshare/internal/operator"
)

type allowCmd struct {
	registryFlag
	For     period   `placeholder:"TIME" help:"How long, such as 7d; without it permanently."`
	Reason  string   `placeholder:"TEXT" help:"The reason, for operators; clients do not see it."`
	Force   bool     `help:"Allow even everybody, or more than a /16 (IPv6: a /32)."`
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"An address, a prefix, or a bot by its name (if its addresses prove that it is the bot). Several are possible; - reads one a line from standard input."`
}

func (c *allowCmd) Help() string {
	return "Bans, limits and blocks do not apply to the client, nor do those of prefixes around it. " +
		"A running server follows within a second. " +
		"A client that only an unnamed proxy names is not allowed: its address is not proven."
}

// Validate checks the flags for kong.
func (c *allowCmd) Validate() error { return operator.CheckText("--reason", c.Reason) }

func (c *allowCmd) Run(env *cli.Environment) error {
	return c.forEach(env, c.Clients, func(client string) error {
		return operator.Allow(env, c.State, operator.AllowOptions{
			Client: client, For: time.Duration(c.For), Reason: c.Reason, Force: c.Force})
	})
}

type unallowCmd struct {
	registryFlag
	Clients []string `arg:"" name:"ADDR|PREFIX|BOT" help:"The client. Several are possible; - reads one a line from standard input."`
}

func (c *unallowCmd) Help() string {
	return "The rules apply to the client again. Bans stay: unban ends them."
}

func (c *unallowCmd) Run(env *cli.Environment) error {
	return c.forEach(env, c.Clients, func(client string) error { return operator.Unallow(env, c.State, client) })
}
